package goroutine

// kinds tells wait reasons apart, by the runtime's words: their numbers differ
// between releases.
type kinds struct {
	spurious [256]bool // of goroutines that really run
	lock     [256]bool // of waits for a lock
}

// The runtime lets these be suspended while they run. Releases from 1.23 on have
// a table of them.
var runningReasons = map[string]bool{
	"stopping the world": true, "GC mark termination": true, "garbage collection": true, "garbage collection scan": true,
	"trace goroutine status": true, "trace proc status": true, "page trace flush": true, "GC assist marking": true,
	"GC worker (active)": true, "flushing proc caches": true,
}

// "semacquire" is what older releases say for WaitGroup, and what locks inside
// the runtime say.
var lockReasons = map[string]bool{
	"sync.Mutex.Lock": true, "sync.RWMutex.Lock": true, "sync.RWMutex.RLock": true, "semacquire": true, "sync.Cond.Wait": true,
}

// newKinds sorts the wait reasons. running is the runtime's own table of those
// whose goroutines run, nil where it is not known.
func newKinds(reasons []string, running []byte) kinds {
	var k kinds
	for i, r := range reasons[:min(len(reasons), 256)] {
		k.spurious[i], k.lock[i] = runningReasons[r], lockReasons[r]
		if i < len(running) {
			k.spurious[i] = running[i] != 0
		}
	}
	return k
}

// running says whether a goroutine runs, whatever its state says.
func (k *kinds) running(x *g) bool {
	return x.status == statusRunning || x.status == statusWaiting && k.spurious[x.reason]
}
