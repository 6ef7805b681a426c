//go:build linux && amd64

package exact

import (
	"encoding/binary"
	"time"

	"github.com/contention-toolkit/contention/probes/bpf"
	"github.com/contention-toolkit/contention/profile"
)

// The runtime's numbers of the other states of a goroutine.
const (
	statusRunnable  = 1
	statusRunning   = 2
	statusSyscall   = 3
	statusCopystack = 8
	statusPreempted = 9
)

const (
	censusInterval = 50 * time.Millisecond
	// censusShare bounds what a census costs: one part in so many of the time.
	censusShare = 100
	censusGroup = 1024
)

// census counts goroutines by state now and then. Uprobes see parks, wake-ups and
// runs; how many goroutines there are, how long they ran or were in system
// calls, and how long they were runnable without having been parked comes from here.
type census struct {
	t      *target
	last   uint64 // when it was taken last
	next   uint64
	times  int64
	failed int64

	goroutines, running, runnable, syscall, waiting, unknown int64 // nanoseconds
}

// take counts; each goroutine stands for the time since the last time.
func (c *census) take(now uint64) error {
	if now <= c.last {
		return nil
	}
	dt := int64(now - c.last)
	all, err := c.t.listGoroutines()
	if err != nil {
		return err
	}
	size := c.t.image.Offsets.Size()
	buf := make([]byte, size*min(len(all), censusGroup))
	pieces := make([]piece, 0, censusGroup)
	for len(all) > 0 {
		n := min(len(all), censusGroup)
		pieces = pieces[:0]
		for i, g := range all[:n] {
			pieces = append(pieces, piece{addr: g, buf: buf[i*size : (i+1)*size]})
		}
		if err := read(c.t.pid, pieces); err != nil {
			return err
		}
		for i := range pieces {
			if pieces[i].ok {
				c.add(gview{c.t, pieces[i].buf}, dt)
			}
		}
		all = all[n:]
	}
	c.last, c.times = now, c.times+1
	c.next = max(now+uint64(censusInterval), now+censusShare*(monotonic()-now))
	return nil
}

func (c *census) add(v gview, dt int64) {
	if v.goid() == 0 {
		return
	}
	into := &c.unknown
	switch binary.LittleEndian.Uint32(v.b[c.t.image.Offsets.Status:]) &^ statusScan {
	case statusRunnable:
		into = &c.runnable
	case statusRunning, statusCopystack:
		into = &c.running
	case statusSyscall:
		into = &c.syscall
	case statusWaiting, statusLeaked:
		if _, ok := v.parked(); ok {
			into = &c.waiting
		} else {
			into = &c.running // it says that it waits, for the collector's sake
		}
	case statusPreempted:
	default:
		return // dead, or not begun
	}
	*into += dt
	c.goroutines += dt
}

// accounting puts the census together with what was seen of waits: the residual
// is by how much blocked time differs from what the census says.
func (b *builder) accounting() *profile.Accounting {
	c := b.r.census
	if c == nil || c.times == 0 {
		return nil
	}
	a := &profile.Accounting{TotalNs: c.goroutines, RunningNs: c.running, SyscallNs: c.syscall, UnknownNs: c.unknown}
	for _, v := range b.snap.waits {
		a.BlockedNs += int64(v.BlockedNs)
		a.RunnableNs += int64(v.RunnableNs)
	}
	// Goroutines are runnable after other things than waits as well.
	a.RunnableNs = max(a.RunnableNs, c.runnable)
	a.LostNs = b.snap.count(bpf.GowaitGoCounterGO_REPARK_NS) + b.snap.count(bpf.GowaitGoCounterGO_WAITS_FULL_NS)
	return a
}
