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

	total, running, lost, unknown int64
	byState                       [numValues]int64
	loss                          losses

	entries []*entry
	index   map[string]*entry
	key     []byte
	slice   int64 // number of the slice under way
	flushed []flush
	runs    map[uint64]*busyG
}

type losses struct{ racy, truncated, unreadable, noStack, stacksFull int64 }

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
	startpc   uint64
	runningNs int64
}

// maxBusy bounds the goroutines whose running time is kept.
const maxBusy = 1 << 16

func newAggregate(now time.Time) *aggregate {
	return &aggregate{start: now, last: now, index: map[string]*entry{}, runs: map[uint64]*busyG{}}
}

// begin opens a tick. Its time is what has really passed since the last one.
func (a *aggregate) begin(now time.Time, period time.Duration) {
	if s := int64(now.Sub(a.start) / profile.SliceWidth); s != a.slice {
		a.flush()
		a.slice = s
	}
	gap := now.Sub(a.last)
	a.dt = int64(gap)
	if a.ticks > 0 && gap > 2*period {
		a.overrun += int64(gap/period) - 1
	}
	a.last = now
}

// flush puts what the entries gained since the last flush into the slice under way.
func (a *aggregate) flush() {
	for _, e := range a.entries {
		if e.values == e.flushed {
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

// add gives a goroutine that does not run the tick's time.
func (a *aggregate) add(x *g, pcs []uint64) {
	value := blockedValue
	switch x.status {
	case statusRunnable, statusPreempted:
		value = runnableValue
	case statusSyscall:
		value = syscallValue
	case statusWaiting, statusLeaked:
	default:
		a.unknown += a.dt
		return
	}
	a.byState[value] += a.dt
	e := a.entry(x, pcs)
	e.values[value] += a.dt
	e.values[samplesValue]++
}

// entry finds the kind of wait; when there are too many kinds, one without a
// stack takes the time.
func (a *aggregate) entry(x *g, pcs []uint64) *entry {
	reason := x.reason
	if x.status != statusWaiting {
		reason = 0 // left over from an earlier wait
	}
	k := a.key[:0]
	k = append(k, byte(x.status), reason)
	k = binary.LittleEndian.AppendUint64(k, x.gopc)
	for _, pc := range pcs {
		k = binary.LittleEndian.AppendUint64(k, pc)
	}
	a.key = k
	if e := a.index[string(k)]; e != nil {
		return e
	}
	gopc := x.gopc
	if len(a.entries) >= maxStacks {
		a.loss.stacksFull++
		pcs, gopc = nil, 0
		if e := a.index[string(k[:2])]; e != nil {
			return e
		}
		k = k[:2]
	}
	e := &entry{status: x.status, reason: reason, gopc: gopc, pcs: append([]uint64(nil), pcs...)}
	a.entries = append(a.entries, e)
	a.index[string(k)] = e
	return e
}

// busy notes that a goroutine runs.
func (a *aggregate) busy(x *g) {
	b := a.runs[x.goid]
	if b == nil {
		if len(a.runs) >= maxBusy {
			return
		}
		b = &busyG{startpc: x.startpc}
		a.runs[x.goid] = b
	}
	b.runningNs += a.dt
}
