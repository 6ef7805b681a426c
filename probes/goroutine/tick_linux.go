package goroutine

import (
	"encoding/binary"
	"fmt"
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

// ticker reads all goroutines once per run.
type ticker struct {
	mem      *memory
	image    *symbol.GoImage
	opt      Options
	agg      *aggregate
	spurious []bool // wait reasons of goroutines that really run

	ptrs    []uint64 // every *g; the runtime only appends
	array   uint64   // where the target keeps them
	raw     []byte   // bytes of the target's array
	gs, gs2 []byte   // a group of goroutines, before and after
	stacks  []byte   // a group's stacks
	extents []uint32 // per g: bytes of stack that the last walk needed
	first   [group]g
	walks   [group]walking
	pending []int
}

// walking is the walk of one goroutine's stack.
type walking struct {
	want    uint64 // bytes to read
	buf     []byte
	pcs     []uint64
	end     int
	base    uint64
	skipped bool // no stack to read
	failed  bool // its memory could not be read
}

// run reads every goroutine and adds what it finds for the time since the last
// run. An error means that the target can no longer be read.
func (t *ticker) run(now time.Time) error {
	if err := t.list(); err != nil {
		return err
	}
	t.agg.begin(now, t.opt.period())
	size := t.image.Offsets.Size()
	if t.gs == nil {
		t.gs, t.gs2 = make([]byte, group*size), make([]byte, group*size)
	}
	for from := 0; from < len(t.ptrs); from += group {
		if err := t.group(from, min(from+group, len(t.ptrs)), size); err != nil {
			return err
		}
	}
	t.agg.ticks++
	return nil
}

// list brings the list of goroutines up to date. Its length is read before its
// address: the array only grows, so the length then fits the array.
func (t *ticker) list() error {
	var b [8]byte
	if err := t.mem.one(t.image.AllgLen, b[:]); err != nil {
		return fmt.Errorf("read runtime.allglen: %w", explain(t.opt.PID, err))
	}
	n := binary.LittleEndian.Uint64(b[:])
	if n > maxGoroutines {
		return fmt.Errorf("the target claims %d goroutines, more than %d are not read", n, maxGoroutines)
	}
	if err := t.mem.one(t.image.AllgPtr, b[:]); err != nil {
		return fmt.Errorf("read runtime.allgptr: %w", explain(t.opt.PID, err))
	}
	array := binary.LittleEndian.Uint64(b[:])
	if array == t.array && int(n) == len(t.ptrs) {
		return nil
	}
	t.array = array
	have := len(t.ptrs) // what was read stays true when the array moves
	if int(n) <= have {
		return nil
	}
	if need := 8 * (int(n) - have); cap(t.raw) < need {
		t.raw = make([]byte, need)
	}
	raw := t.raw[:8*(int(n)-have)]
	if err := t.mem.one(array+uint64(8*have), raw); err != nil {
		return fmt.Errorf("read the list of goroutines: %w", explain(t.opt.PID, err))
	}
	for i := 0; i < len(raw); i += 8 {
		t.ptrs = append(t.ptrs, binary.LittleEndian.Uint64(raw[i:]))
		t.extents = append(t.extents, firstStack)
	}
	return nil
}

// readGs reads a group of goroutines into buf.
func (t *ticker) readGs(from, to, size int, buf []byte) error {
	t.mem.reset()
	for i := from; i < to; i++ {
		t.mem.add(t.ptrs[i], buf[(i-from)*size:][:size])
	}
	return t.mem.read()
}

func (t *ticker) group(from, to, size int) error {
	if err := t.readGs(from, to, size, t.gs); err != nil {
		return explain(t.opt.PID, err)
	}
	o := &t.image.Offsets
	t.pending = t.pending[:0]
	for i := from; i < to; i++ {
		j := i - from
		w := &t.walks[j]
		*w = walking{pcs: w.pcs[:0], skipped: true}
		if t.mem.failed[j] {
			t.agg.loss.unreadable++
			t.first[j] = g{}
			continue
		}
		x := decode(t.gs[j*size:], o)
		t.first[j] = x
		if !x.live() || x.status == statusRunning || t.running(&x) {
			continue
		}
		sp, pc, bp, ok := x.top()
		if !ok {
			continue
		}
		w.skipped, w.base, w.want = false, sp, uint64(t.extents[i])
		w.pcs = append(w.pcs, pc)
		if bp == 0 {
			w.end = walkDone
			continue
		}
		t.pending = append(t.pending, j)
	}
	if err := t.walk(from); err != nil {
		return err
	}
	if err := t.readGs(from, to, size, t.gs2); err != nil {
		return explain(t.opt.PID, err)
	}
	for j := range to - from {
		if t.mem.failed[j] {
			continue
		}
		y := decode(t.gs2[j*size:], o)
		t.account(&t.first[j], &y, &t.walks[j])
	}
	return nil
}

// running says whether a goroutine that waits by its status really runs.
func (t *ticker) running(x *g) bool {
	return x.status == statusWaiting && int(x.reason) < len(t.spurious) && t.spurious[x.reason]
}

// walk reads the pending stacks, more of those that are deeper than expected,
// until every walk has ended.
func (t *ticker) walk(from int) error {
	for len(t.pending) > 0 {
		t.mem.reset()
		t.stacks = t.stacks[:0]
		total := 0
		for _, j := range t.pending {
			w, x := &t.walks[j], &t.first[j]
			w.want = min(w.want, x.stackHi-w.base, mostStack)
			total += int(w.want)
		}
		if cap(t.stacks) < total {
			t.stacks = make([]byte, 0, total)
		}
		for _, j := range t.pending {
			w := &t.walks[j]
			n := len(t.stacks)
			t.stacks = t.stacks[:n+int(w.want)]
			w.buf = t.stacks[n:]
			t.mem.add(w.base, w.buf)
		}
		if err := t.mem.read(); err != nil {
			return explain(t.opt.PID, err)
		}
		again := t.pending[:0]
		for k, j := range t.pending {
			w, x := &t.walks[j], &t.first[j]
			if t.mem.failed[k] {
				w.failed = true
				continue
			}
			_, _, bp, _ := x.top()
			var need uint64
			w.pcs, w.end, need = walk(w.pcs[:1], w.buf, w.base, bp, x.stackHi, t.opt.MaxDepth)
			if w.end == walkMore && need <= min(mostStack, x.stackHi-w.base) {
				w.want = need + 512
				again = append(again, j)
				continue
			}
			if w.end == walkDone {
				t.extents[from+j] = uint32(need)
			}
		}
		t.pending = again
	}
	return nil
}

// account gives one goroutine its time.
func (t *ticker) account(x, y *g, w *walking) {
	a := t.agg
	if !x.live() {
		return
	}
	a.total += a.dt
	switch {
	case x.status == statusRunning || t.running(x):
		// A goroutine that stopped running meanwhile was still seen running.
		a.running += a.dt
		a.busy(x)
		return
	case !x.same(y):
		a.loss.racy++
		a.lost += a.dt
		return
	case w.failed:
		a.loss.unreadable++
		a.lost += a.dt
		return
	case w.skipped:
		a.loss.noStack++
		w.pcs = w.pcs[:0]
	case w.end != walkDone:
		a.loss.truncated++
	}
	a.add(x, w.pcs)
}
