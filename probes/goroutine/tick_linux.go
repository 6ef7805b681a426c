package goroutine

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/contention-toolkit/contention/probes/symbol"
)

const (
	// group is how many goroutines are read together: few enough that little
	// time passes between a goroutine and its stack.
	group = 128
	// firstStack is how much of a stack is read before its depth is known.
	firstStack = 1024
	// mostStack bounds what is read of one stack.
	mostStack = 64 << 10
)

// ticker reads the goroutines once per run.
type ticker struct {
	mem    *memory
	image  *symbol.GoImage
	agg    *aggregate
	walker walker
	kinds  kinds
	plan   plan
	strata strata
	rand   *rand.Rand
	turn   int

	list   list
	pieces pieces
	addrs  []uint64
	first  [group]g
	walks  [group]walking
	wanted []int
	stacks []byte
	found  []found
	pcs    []uint64 // of found
}

// walking is the walk of one goroutine's stack.
type walking struct {
	want    uint64 // bytes to read
	buf     []byte
	pcs     []uint64
	end     int
	stratum int
	chosen  bool
	lost    bool // its stack cannot be trusted, or could not be read
}

// found is a goroutine whose stack was read in this tick.
type found struct {
	stratum int
	gopc    uint64
	from    int // its addresses in pcs
	to      int
}

// run reads the goroutines and adds what it finds for the time since the last
// run. An error means that the target can no longer be read.
func (t *ticker) run(now time.Time, planned time.Duration) error {
	if err := t.list.refresh(); err != nil {
		return err
	}
	t.agg.begin(now, planned)
	t.strata.begin()
	t.plan.begin()
	t.found, t.pcs = t.found[:0], t.pcs[:0]
	stride := t.plan.stride(len(t.list.all))
	var err error
	// Groups take turns, so that each gets its time after stride ticks.
	t.turn++
	for from := group * (t.turn % stride); from < len(t.list.all) && err == nil; from += group * stride {
		err = t.group(t.list.all[from:min(from+group, len(t.list.all))], int64(stride))
	}
	t.settle(int64(stride))
	if stride > 1 || t.agg.partial {
		t.agg.weighted++
	}
	t.plan.end()
	t.agg.partial = !t.strata.choose(t.plan.quota())
	return err
}

// settle gives those whose stacks were read the time of their strata.
func (t *ticker) settle(scale int64) {
	a := t.agg
	for _, f := range t.found {
		s := &t.strata.list[f.stratum]
		ns := part(a.dt*scale*int64(s.count), s.given, s.taken)
		s.given++
		a.add(s.status, s.reason, f.gopc, t.pcs[f.from:f.to], ns)
	}
	for i := range t.strata.list {
		s := &t.strata.list[i]
		ns := a.dt * scale * int64(s.count)
		a.total += ns
		if s.count > 0 && s.taken == 0 {
			a.add(s.status, s.reason, 0, nil, ns)
		}
	}
}

// group reads some goroutines, then the stacks of those chosen, then the
// goroutines again, to tell which of the stacks may be torn.
func (t *ticker) group(some []known, scale int64) error {
	t.addrs = t.addrs[:0]
	for _, k := range some {
		t.addrs = append(t.addrs, k.addr)
	}
	began := threadCPU()
	t.pieces.plan(t.addrs)
	if err := t.pieces.read(); err != nil {
		return err
	}
	t.wanted = t.wanted[:0]
	for j := range some {
		b, ok := t.pieces.g(j)
		if !ok {
			t.walks[j].chosen = false
			t.agg.unread(scale)
			continue
		}
		t.first[j] = decode(b, &t.image.Offsets)
		t.sort(j, uint64(some[j].extent), scale)
	}
	surveyed := threadCPU()
	t.plan.states += len(some)
	t.plan.statesTook += surveyed - began
	if len(t.wanted) > 0 {
		t.plan.stacks += len(t.wanted)
		if err := t.walk(some); err != nil {
			return err
		}
		if err := t.verify(len(some)); err != nil {
			return err
		}
		t.plan.stacksTook += threadCPU() - surveyed
	}
	for j := range some {
		if t.walks[j].chosen {
			t.keep(j)
		}
	}
	return nil
}

// sort accounts for a goroutine that runs, and puts one that does not into its
// stratum.
func (t *ticker) sort(j int, extent uint64, scale int64) {
	x, w := &t.first[j], &t.walks[j]
	*w = walking{pcs: w.pcs[:0]}
	switch {
	case !x.live():
		return
	case t.kinds.running(x):
		t.agg.ran(x, scale)
		return
	case valueOf(x.status) < 0:
		t.agg.unknownState(scale)
		return
	}
	reason := uint8(0)
	if x.waits() {
		reason = x.reason
	}
	w.stratum = t.strata.of(x.status, reason, x.waits() && t.kinds.lock[reason])
	s := &t.strata.list[w.stratum]
	s.count++
	if s.rate < 1 && t.rand.Float64() >= s.rate {
		return
	}
	s.taken++
	w.chosen = true
	if _, _, _, ok := x.top(); !ok {
		w.lost = true
		t.agg.loss.noStack++
		return
	}
	w.want = extent
	t.wanted = append(t.wanted, j)
}

// verify reads a group's goroutines again.
func (t *ticker) verify(n int) error {
	if err := t.pieces.read(); err != nil {
		return err
	}
	for j := range n {
		w := &t.walks[j]
		if !w.chosen || w.lost {
			continue
		}
		b, ok := t.pieces.g(j)
		if !ok {
			w.lost = true
			t.agg.loss.unreadable++
			continue
		}
		if y := decode(b, &t.image.Offsets); !t.first[j].same(&y) {
			w.lost = true
			t.agg.loss.racy++
		}
	}
	return nil
}

// keep notes a goroutine whose stack was read, or was to be.
func (t *ticker) keep(j int) {
	w := &t.walks[j]
	f := found{stratum: w.stratum, gopc: t.first[j].gopc, from: len(t.pcs)}
	if !w.lost {
		if w.end != walkDone {
			t.agg.loss.truncated++
		}
		t.pcs = append(t.pcs, w.pcs...)
	}
	f.to = len(t.pcs)
	t.found = append(t.found, f)
}

// walk reads the wanted stacks, more of those that are deeper than expected,
// until every walk has ended.
func (t *ticker) walk(some []known) error {
	for len(t.wanted) > 0 {
		t.mem.reset()
		total := 0
		for _, j := range t.wanted {
			w, x := &t.walks[j], &t.first[j]
			sp, _, _, _ := x.top()
			w.want = min(w.want, x.stackHi-sp, mostStack)
			total += int(w.want)
		}
		if cap(t.stacks) < total {
			t.stacks = make([]byte, total)
		}
		n := 0
		for _, j := range t.wanted {
			w := &t.walks[j]
			sp, _, _, _ := t.first[j].top()
			w.buf = t.stacks[n:][:w.want]
			n += int(w.want)
			t.mem.add(sp, w.buf)
		}
		if err := t.mem.read(); err != nil {
			return explain(t.mem.pid, err)
		}
		again := t.wanted[:0]
		for k, j := range t.wanted {
			w, x := &t.walks[j], &t.first[j]
			if t.mem.failed[k] {
				w.lost = true
				t.agg.loss.unreadable++
				continue
			}
			sp, _, _, _ := x.top()
			var need uint64
			w.pcs, w.end, need = t.walker.walk(w.pcs[:0], x, w.buf)
			switch {
			case w.end == walkMore && need <= min(mostStack, x.stackHi-sp):
				w.want = need + firstStack
				again = append(again, j)
			case w.end == walkDone:
				some[j].extent = uint32(need)
			}
		}
		t.wanted = again
	}
	return nil
}

// check reads some goroutines and refuses a layout under which they make no sense.
func (t *ticker) check() error {
	if err := t.list.refresh(); err != nil {
		return err
	}
	n := min(len(t.list.all), group)
	t.pieces.size = t.image.Offsets.Size()
	t.addrs = t.addrs[:0]
	for _, k := range t.list.all[:n] {
		t.addrs = append(t.addrs, k.addr)
	}
	t.pieces.plan(t.addrs)
	if err := t.pieces.read(); err != nil {
		return err
	}
	live, odd := 0, 0
	for j := range n {
		b, ok := t.pieces.g(j)
		x := g{status: numStatus}
		if ok {
			x = decode(b, &t.image.Offsets)
		}
		if !x.plausible() {
			odd++
		} else if x.live() {
			live++
		}
	}
	if live == 0 || odd > n/8 {
		return fmt.Errorf("%w: the goroutines of %s do not look as its layout says (%d of %d make sense); build the target with DWARF (without -ldflags=-w)", ErrNotGo, t.image.Version, n-odd, n)
	}
	return nil
}
