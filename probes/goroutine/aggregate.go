package goroutine

import (
	"encoding/binary"
	"time"

	"github.com/contention-toolkit/contention/profile"
)

// aggregate sums what ticks find. Times are in nanoseconds.
type aggregate struct {
	start, last time.Time
	dt          int64 // since the last tick
	ticks       int64
	overrun     int64 // ticks that the sampler came too late for
	throttled   int64 // ticks put off to keep to the budget
	weighted    int64 // ticks that read some of the stacks only
	partial     bool  // whether the next tick is one

	total, running, unknown int64
	lost                    int64 // of goroutines whose state could not be read
	byState                 [numValues]int64
	loss                    losses

	entries []*entry
	index   map[string]*entry
	key     []byte
	slice   int64 // number of the slice under way
	flushed []flush
	runs    map[uint64]*busyG
}

type losses struct{ racy, truncated, unreadable, noStack, stacksFull, slicesFull int64 }

// entry is one kind of wait: a stack in a state, with its reason and creator.
type entry struct {
	status  uint32
	reason  uint8
	gopc    uint64
	pcs     []uint64
	values  [numValues]int64
	flushed [numValues]int64 // part of values that is in earlier slices
}

// flush is what an entry gained in one slice.
type flush struct {
	slice  int64
	entry  *entry
	values [numValues]int64
}

type busyG struct {
	startpc, gopc uint64
	runningNs     int64
}

const (
	// maxBusy bounds the goroutines whose running time is kept.
	maxBusy = 1 << 16
	// maxFlushed bounds what the slices hold, some 400 MB.
	maxFlushed = 6 << 20
)

func newAggregate(now time.Time) *aggregate {
	return &aggregate{start: now, last: now, index: map[string]*entry{}, runs: map[uint64]*busyG{}}
}

// begin opens a tick. Its time is what has really passed since the last one;
// planned is what should have.
func (a *aggregate) begin(now time.Time, planned time.Duration) {
	if s := int64(now.Sub(a.start) / profile.SliceWidth); s != a.slice {
		a.flush()
		a.slice = s
	}
	gap := now.Sub(a.last)
	a.dt = int64(gap)
	if gap >= 2*planned {
		a.overrun += int64(gap/planned) - 1
	}
	a.last = now
	a.ticks++
}

// flush puts what the entries gained since the last flush into the slice under way.
func (a *aggregate) flush() {
	for _, e := range a.entries {
		if e.values == e.flushed {
			continue
		}
		if len(a.flushed) >= maxFlushed {
			a.loss.slicesFull++
			continue
		}
		f := flush{slice: a.slice, entry: e}
		for i := range e.values {
			f.values[i] = e.values[i] - e.flushed[i]
		}
		e.flushed = e.values
		a.flushed = append(a.flushed, f)
	}
}

// valueOf is the value that a state's time belongs to, -1 for the states that
// the runtime passes through.
func valueOf(status uint32) int {
	switch status {
	case statusRunnable, statusPreempted:
		return runnableValue
	case statusSyscall:
		return syscallValue
	case statusWaiting, statusLeaked:
		return blockedValue
	}
	return -1
}

// add gives ns to goroutines of a state that valueOf knows, at a stack; an
// empty one stands for a stack that was not read.
func (a *aggregate) add(status uint32, reason uint8, gopc uint64, pcs []uint64, ns int64) {
	value := valueOf(status)
	a.byState[value] += ns
	if value != blockedValue {
		reason = 0 // left over from an earlier wait
	}
	e := a.entry(status, reason, gopc, pcs)
	e.values[value] += ns
	e.values[samplesValue]++
}

// ran gives the tick's time, for scale goroutines, to one that runs.
func (a *aggregate) ran(x *g, scale int64) {
	ns := a.dt * scale
	a.total += ns
	a.running += ns
	b := a.runs[x.goid]
	if b == nil {
		if len(a.runs) >= maxBusy {
			return
		}
		b = &busyG{startpc: x.startpc, gopc: x.gopc}
		a.runs[x.goid] = b
	}
	b.runningNs += ns
}

// unknownState gives the tick's time to a goroutine that is passing through a
// state of the runtime's.
func (a *aggregate) unknownState(scale int64) {
	a.total += a.dt * scale
	a.unknown += a.dt * scale
}

// unread counts a goroutine whose memory could not be read.
func (a *aggregate) unread(scale int64) {
	a.total += a.dt * scale
	a.lost += a.dt * scale
	a.loss.unreadable++
}

// entry finds the kind of wait; when there are too many kinds, one without a
// stack takes the time.
func (a *aggregate) entry(status uint32, reason uint8, gopc uint64, pcs []uint64) *entry {
	k := append(a.key[:0], byte(status), reason)
	k = binary.LittleEndian.AppendUint64(k, gopc)
	for _, pc := range pcs {
		k = binary.LittleEndian.AppendUint64(k, pc)
	}
	a.key = k
	if e := a.index[string(k)]; e != nil {
		return e
	}
	if len(a.entries) >= maxStacks {
		a.loss.stacksFull++
		pcs, gopc = nil, 0
		k = k[:2]
		if e := a.index[string(k)]; e != nil {
			return e
		}
	}
	e := &entry{status: status, reason: reason, gopc: gopc, pcs: append([]uint64(nil), pcs...)}
	a.entries = append(a.entries, e)
	a.index[string(k)] = e
	return e
}
