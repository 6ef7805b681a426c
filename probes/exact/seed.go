//go:build linux && amd64

package exact

import (
	"encoding/binary"
	"fmt"

	"github.com/contention-toolkit/contention/probes/bpf"
)

// The runtime's numbers of a waiting goroutine's states, and the bit of the
// garbage collector's scan.
const (
	statusWaiting = 4
	statusLeaked  = 10
	statusScan    = 0x1000
)

const (
	maxGoroutines = 1 << 22
	// seedGroup is how many goroutines are read together: no more than read takes.
	seedGroup = 256
	// seedStack is how much of a stack is read; what goes on beyond is cut.
	seedStack = 8 << 10
)

// seed is a goroutine that was parked when the probes were attached.
type seed struct {
	g     uint64
	goid  uint64
	why   uint32
	stack []uint64 // return addresses, innermost first
}

// listGoroutines reads the addresses of all g's. The length is read before the
// array: that only grows.
func (t *target) listGoroutines() ([]uint64, error) {
	n, err := readWord(t.pid, t.image.AllgLen)
	if err != nil {
		return nil, fmt.Errorf("length of the list of goroutines: %w", err)
	}
	array, err := readWord(t.pid, t.image.AllgPtr)
	if err != nil {
		return nil, fmt.Errorf("list of goroutines: %w", err)
	}
	if n > maxGoroutines {
		return nil, fmt.Errorf("the target claims %d goroutines, more than %d are not read", n, maxGoroutines)
	}
	if n == 0 {
		return nil, nil
	}
	raw := make([]byte, 8*n)
	if err := readOne(t.pid, array, raw); err != nil {
		return nil, fmt.Errorf("list of goroutines: %w", err)
	}
	out := make([]uint64, n)
	for i := range out {
		out[i] = binary.LittleEndian.Uint64(raw[8*i:])
	}
	return out, nil
}

// gview reads fields of a goroutine's bytes.
type gview struct {
	t *target
	b []byte
}

func (v gview) word(off uint64) uint64 { return binary.LittleEndian.Uint64(v.b[off:]) }
func (v gview) goid() uint64           { return v.word(v.t.image.Offsets.Goid) }
func (v gview) sp() uint64             { return v.word(v.t.image.Offsets.SchedSP) }

// parked says whether the goroutine is parked, and for what.
func (v gview) parked() (uint32, bool) {
	o := &v.t.image.Offsets
	status := binary.LittleEndian.Uint32(v.b[o.Status:]) &^ statusScan
	why := uint32(v.b[o.WaitReason])
	if status != statusWaiting && status != statusLeaked || v.goid() == 0 {
		return 0, false
	}
	return why, int(why) >= len(v.t.running) || v.t.running[why] == 0
}

// same says whether the goroutine has not moved between two reads.
func (v gview) same(w gview) bool {
	why1, ok1 := v.parked()
	why2, ok2 := w.parked()
	o := &v.t.image.Offsets
	return ok1 && ok2 && why1 == why2 && v.goid() == w.goid() && v.sp() == w.sp() && (o.Seq == 0 || v.b[o.Seq] == w.b[o.Seq])
}

// walk returns the return addresses from the frame of gopark outwards. stack is
// the piece of the stack from the stack pointer on.
func (v gview) walk(stack []byte) []uint64 {
	var out []uint64
	base, bp := v.sp(), v.word(v.t.image.Offsets.SchedBP)
	for len(out) < len(bpf.GowaitGoStack{}.Ip) {
		if bp < base || bp&7 != 0 || bp-base > uint64(len(stack)) || uint64(len(stack))-(bp-base) < 16 {
			return out
		}
		at := stack[bp-base:]
		next, ret := binary.LittleEndian.Uint64(at), binary.LittleEndian.Uint64(at[8:])
		if ret == 0 {
			return out
		}
		out = append(out, ret)
		if next <= bp {
			return out
		}
		bp = next
	}
	return out
}

// seeds reads those goroutines of some that are parked, hands them to add, and
// to drop those that have moved since they were read.
func (t *target) seeds(some []uint64, add func([]seed) error, drop func([]seed) error) error {
	size := t.image.Offsets.Size()
	first, again := make([]piece, len(some)), make([]piece, len(some))
	for i, g := range some {
		first[i] = piece{addr: g, buf: make([]byte, size)}
		again[i] = piece{addr: g, buf: make([]byte, size)}
	}
	if err := read(t.pid, first); err != nil {
		return err
	}
	var found []int
	var stacks []piece
	for i := range first {
		v := gview{t, first[i].buf}
		if !first[i].ok {
			continue
		}
		if why, ok := v.parked(); !ok || t.lean && !t.isLock(why) {
			continue
		}
		hi := v.word(t.image.Offsets.StackHi)
		if v.sp() == 0 || hi <= v.sp() {
			continue
		}
		found = append(found, i)
		stacks = append(stacks, piece{addr: v.sp(), buf: make([]byte, min(hi-v.sp(), seedStack))})
	}
	if len(found) == 0 {
		return nil
	}
	if err := read(t.pid, stacks); err != nil {
		return err
	}
	list := make([]seed, len(found))
	for k, i := range found {
		v := gview{t, first[i].buf}
		why, _ := v.parked()
		list[k] = seed{g: some[i], goid: v.goid(), why: why}
		if stacks[k].ok {
			list[k].stack = v.walk(stacks[k].buf)
		}
	}
	if err := add(list); err != nil {
		return err
	}
	// Only what is still as it was had been parked when it was added.
	if err := read(t.pid, again); err != nil {
		return err
	}
	var moved []seed
	for k, i := range found {
		if !again[i].ok || !(gview{t, first[i].buf}).same(gview{t, again[i].buf}) {
			moved = append(moved, list[k])
		}
	}
	return drop(moved)
}
