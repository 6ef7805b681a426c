//go:build linux && amd64

package exact

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/cilium/ebpf"

	"github.com/contention-toolkit/contention/probes/bpf"
)

// snapshot is what the kernel side held when the window had ended.
type snapshot struct {
	start, end uint64 // the window, CLOCK_MONOTONIC in nanoseconds
	waits      map[waitKey]waitValue
	wakes      map[wakeKey]wakeValue
	locks      map[uint64]lockValue
	states     map[uint64]state
	stacks     map[uint64]stack
	counters   [bpf.GowaitGoCounterGO_COUNT_MAX]int64
	open       int64 // waits that were open at the end
}

func (s *session) read(start, end uint64) (*snapshot, error) {
	n := &snapshot{
		start: start, end: end, waits: map[waitKey]waitValue{}, wakes: map[wakeKey]wakeValue{},
		locks: map[uint64]lockValue{}, states: map[uint64]state{}, stacks: map[uint64]stack{},
	}
	for i := range n.counters {
		var err error
		if n.counters[i], err = s.count(counter(i)); err != nil {
			return nil, err
		}
	}
	for _, err := range []error{
		readMap(s.objs.GoWaits, n.waits), readMap(s.objs.GoWakes, n.wakes), readMap(s.objs.GoLocks, n.locks),
		readMap(s.objs.GoStates, n.states), readMap(s.objs.GoStacks, n.stacks),
	} {
		if err != nil {
			return nil, err
		}
	}
	for _, st := range n.states {
		n.closeOpen(&st)
	}
	return n, nil
}

// batch is how many entries of a map are read at once: more than any bucket has.
const batch = 4096

func readMap[K comparable, V any](m *ebpf.Map, into map[K]V) error {
	var cursor ebpf.MapBatchCursor
	keys, values := make([]K, batch), make([]V, batch)
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("exact mode: read the map %s: %w", m, err)
		}
		for i := range n {
			into[keys[i]] = values[i]
		}
		if err != nil {
			return nil
		}
	}
}

// readTotals is what every kind of wait has had by now, open waits included. The
// waits that have ended are read first: one that ends meanwhile is in neither,
// and comes with the next reading.
func (s *session) readTotals(start uint64) (uint64, map[waitKey]total, error) {
	n := &snapshot{start: start, waits: map[waitKey]waitValue{}, states: map[uint64]state{}}
	if err := readMap(s.objs.GoWaits, n.waits); err != nil {
		return 0, nil, err
	}
	n.end = monotonic()
	if err := readMap(s.objs.GoStates, n.states); err != nil {
		return 0, nil, err
	}
	out := n.totalsOf()
	for _, st := range n.states {
		n.addOpen(&st, out)
	}
	return n.end, out, nil
}

// within is the part of a span that lies in the window.
func (n *snapshot) within(from, to uint64) uint64 {
	from, to = max(from, n.start), min(to, n.end)
	if to > from {
		return to - from
	}
	return 0
}

// closeOpen adds a wait that was open at the window's end, up to there.
func (n *snapshot) closeOpen(st *state) {
	if st.Phase != phaseParked && st.Phase != phaseReady || st.Since >= n.end {
		return
	}
	k := openKey(st)
	v := n.waits[k]
	blocked, runnable := n.within(st.Since, n.end), uint64(0)
	if st.Phase == phaseReady {
		blocked, runnable = n.within(st.Since, st.Ready), n.within(st.Ready, n.end)
		v.Runnable[bucket(runnable)]++
	}
	v.Blocked[bucket(blocked)]++
	v.BlockedNs += blocked
	v.RunnableNs += runnable
	v.Waits++
	n.waits[k] = v
	n.open++
	if st.Phase == phaseReady {
		wk := wakeKey{Stack: st.Stack, Waker: st.Waker, Lock: k.Lock, Reason: st.Reason}
		w := n.wakes[wk]
		w.BlockedNs += blocked
		w.RunnableNs += runnable
		w.Waits++
		n.wakes[wk] = w
	}
}

// openKey is the kind of a wait that is open.
func openKey(st *state) waitKey {
	k := waitKey{Stack: st.Stack, Reason: st.Reason}
	if st.Locked != 0 {
		k.Lock = st.Lock
	}
	return k
}

// bucket is the number of the bucket of a duration, as the kernel side has it.
func bucket(ns uint64) int {
	return min(max(bits.Len64(ns)-1, 0), len(waitValue{}.Blocked)-1)
}

func (n *snapshot) count(c counter) int64 { return n.counters[c] }
