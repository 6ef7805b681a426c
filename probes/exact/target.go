//go:build linux && amd64

package exact

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/contention-toolkit/contention/probes/symbol"
	"github.com/contention-toolkit/contention/profile"
)

// target is what is known of the target's runtime.
type target struct {
	pid     int
	symbols *symbol.Process
	image   *symbol.GoImage
	points  map[string]point
	// lean says that only contended locks are probed, where they park; whyNot,
	// why that could not be done for locks alone.
	lean    bool
	whyNot  error
	reasons []string // the runtime's words by number
	running []byte   // by number: not zero for reasons of goroutines that really run
}

// Functions that are probed.
const (
	funcPark    = "runtime.gopark"
	funcReady   = "runtime.ready"
	funcExecute = "runtime.execute"
	funcAcquire = "runtime.semacquire1"
	funcRelease = "runtime.semrelease1"
)

func openTarget(o Options, p *symbol.Process) (*target, error) {
	t := &target{pid: o.PID, symbols: p}
	var err error
	if t.image, err = p.Go(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	if err := checkRelease(t.image.Version); err != nil {
		return nil, err
	}
	if o.Locks && !o.Waits {
		if t.points, t.whyNot = findCalls(p, callDone, callHand, callQueue); t.whyNot == nil {
			t.lean = true
			return t, t.readReasons()
		}
	}
	names := []string{funcPark, funcReady, funcExecute}
	if o.Locks {
		names = append(names, funcAcquire, funcRelease)
	}
	if t.points, err = findPoints(p, names); err != nil {
		return nil, err
	}
	return t, t.readReasons()
}

// readReasons reads the runtime's names of wait reasons out of the target.
func (t *target) readReasons() error {
	n := min(t.image.NumReasons, 256)
	head := make([]byte, 16*n)
	if n == 0 {
		return fmt.Errorf("%w: the executable has no wait reasons", ErrUnavailable)
	}
	if err := readOne(t.pid, t.image.WaitReasons, head); err != nil {
		return fmt.Errorf("wait reasons: %w", err)
	}
	t.reasons = make([]string, n)
	for i := range t.reasons {
		ptr, size := binary.LittleEndian.Uint64(head[16*i:]), binary.LittleEndian.Uint64(head[16*i+8:])
		if size > 100 {
			return fmt.Errorf("%w: wait reason %d of %s claims %d bytes: its layout is not as expected", ErrUnavailable, i, t.image.Version, size)
		}
		b := make([]byte, size)
		if size > 0 {
			if err := readOne(t.pid, ptr, b); err != nil {
				return fmt.Errorf("wait reason %d: %w", i, err)
			}
		}
		t.reasons[i] = string(b)
	}
	if t.image.Suspendable == 0 {
		return nil
	}
	t.running = make([]byte, n)
	if err := readOne(t.pid, t.image.Suspendable, t.running); err != nil {
		return fmt.Errorf("wait reasons of goroutines that run: %w", err)
	}
	return nil
}

func (t *target) reason(n uint32) string {
	if int(n) < len(t.reasons) && t.reasons[n] != "" {
		return t.reasons[n]
	}
	return fmt.Sprintf("wait reason %d", n)
}

// semaphores says by wait reason where the semaphore lies in what is waited for,
// and what that is. The runtime parks with these in semacquire1 alone.
var semaphores = map[string]struct {
	offset uint64
	kind   string
}{
	"sync.Mutex.Lock":     {4, "sync.Mutex"},
	"sync.RWMutex.Lock":   {8, "sync.RWMutex"},
	"sync.RWMutex.RLock":  {12, "sync.RWMutex"},
	"sync.WaitGroup.Wait": {8, "sync.WaitGroup"},
	"semacquire":          {0, "semaphore"},
}

// lockReasons is the set of wait reasons that are for a semaphore.
func (t *target) lockReasons() [4]uint64 {
	var set [4]uint64
	for i, r := range t.reasons {
		if _, ok := semaphores[r]; ok {
			set[i/64] |= 1 << (i % 64)
		}
	}
	return set
}

// lockReason is the wait reason that a stack in semacquire1 tells, by the
// function that the library's locks enter the runtime with.
func lockReason(frames []profile.Frame) string {
	for _, f := range frames[:min(len(frames), 4)] {
		if !strings.HasPrefix(f.Function, "sync.") && !strings.HasPrefix(f.Function, "internal/sync.") {
			continue
		}
		switch f.Function[strings.LastIndexByte(f.Function, '.')+1:] {
		case "runtime_SemacquireMutex":
			return "sync.Mutex.Lock"
		case "runtime_SemacquireRWMutexR":
			return "sync.RWMutex.RLock"
		case "runtime_SemacquireRWMutex":
			return "sync.RWMutex.Lock"
		case "runtime_SemacquireWaitGroup":
			return "sync.WaitGroup.Wait"
		}
	}
	return "semacquire"
}

// number is the runtime's number of a wait reason; of another that it has where
// the release does not tell them apart.
func (t *target) number(reason string) uint32 {
	for _, r := range []string{reason, "semacquire"} {
		if i := slices.Index(t.reasons, r); i >= 0 {
			return uint32(i)
		}
	}
	return 0
}

// isLock says whether a wait reason is for a semaphore.
func (t *target) isLock(reason uint32) bool {
	_, ok := semaphores[t.reason(reason)]
	return ok
}
