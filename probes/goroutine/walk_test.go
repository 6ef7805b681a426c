package goroutine

import (
	"encoding/binary"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

const stackLo = 0xc000100000

// stackOf lays out the frames of a goroutine as compiled code does: at each
// frame pointer the caller's frame pointer and the return address.
func layStack(t *rapid.T, x *g) (stack []byte, want []uint64) {
	frames := rapid.IntRange(0, 40).Draw(t, "frames")
	top := uint64(stackLo + 8*rapid.IntRange(0, 50).Draw(t, "free"))
	x.stackLo, x.sp = stackLo, top
	x.pc = 0x400000 + rapid.Uint64Range(1, 1<<20).Draw(t, "pc")
	want = []uint64{x.pc - 1}
	var at []uint64
	addr := top
	for range frames {
		addr += 8 * uint64(rapid.IntRange(0, 30).Draw(t, "locals"))
		at = append(at, addr)
		addr += 16
	}
	x.stackHi = addr + 64
	stack = make([]byte, x.stackHi-top)
	for i, a := range at {
		ret := 0x400000 + rapid.Uint64Range(1, 1<<20).Draw(t, "ret")
		var next uint64
		if i+1 < len(at) {
			next = at[i+1]
		}
		binary.LittleEndian.PutUint64(stack[a-top:], next)
		binary.LittleEndian.PutUint64(stack[a-top+8:], ret)
		want = append(want, ret-1)
	}
	if len(at) > 0 {
		x.bp = at[0]
	}
	return stack, want
}

// However a stack is cut, the walk asks for more until it has every frame.
func TestWalkFindsEveryFrame(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := g{status: statusWaiting, goid: 1}
		stack, want := layStack(t, &x)
		k := walker{maxDepth: 100}
		have := uint64(rapid.IntRange(0, len(stack)).Draw(t, "have"))
		for range len(stack) {
			pcs, end, need := k.walk(nil, &x, stack[:have])
			if end == walkDone {
				if !slices.Equal(pcs, want) {
					t.Fatalf("walk %x, want %x", pcs, want)
				}
				return
			}
			if end != walkMore || need <= have || need > uint64(len(stack)) {
				t.Fatalf("end %d, needs %d of %d, has %d", end, need, len(stack), have)
			}
			have = need
		}
		t.Fatal("the walk does not end")
	})
}

func TestWalkStopsAtTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := g{status: statusWaiting, goid: 1}
		stack, want := layStack(t, &x)
		k := walker{maxDepth: rapid.IntRange(1, 50).Draw(t, "depth")}
		pcs, end, _ := k.walk(nil, &x, stack)
		cut := len(want) > k.maxDepth
		if !slices.Equal(pcs, want[:min(len(want), k.maxDepth)]) || (end == walkTruncated) != cut {
			t.Fatalf("depth %d: walk %x, end %d, want %x", k.maxDepth, pcs, end, want)
		}
	})
}

// A goroutine stopped where its function has no frame yet: the caller is what
// the stack pointer points at.
func TestWalkFrameless(t *testing.T) {
	const entry, caller, outer = 0x401000, 0x402010, 0x403020
	stack := make([]byte, 128)
	put := func(at int, v uint64) { binary.LittleEndian.PutUint64(stack[at:], v) }
	put(0, caller) // return address of the function just entered
	put(32, 0)     // the caller's frame
	put(40, outer)
	x := g{status: statusRunnable, goid: 1, stackLo: stackLo, stackHi: stackLo + 128, sp: stackLo, pc: entry, bp: stackLo + 32}
	k := walker{maxDepth: 10, isFrameless: func(pc uint64) bool { return pc == entry }}
	if pcs, end, _ := k.walk(nil, &x, stack); end != walkDone || !slices.Equal(pcs, []uint64{entry, caller - 1, outer - 1}) {
		t.Errorf("end %d, walk %x", end, pcs)
	}
	x.status = statusWaiting // parked: it has called something, and has a frame
	if pcs, _, _ := k.walk(nil, &x, stack); !slices.Equal(pcs, []uint64{entry - 1, outer - 1}) {
		t.Errorf("walk of one that waits %x", pcs)
	}
}

// A goroutine interrupted in the middle of a function: what the runtime's
// function returns to is no call, and may have no frame.
func TestWalkInterrupted(t *testing.T) {
	const leaf, async, at, caller, outer = 0x401000, 0x500010, 0x402020, 0x403030, 0x404040
	stack := make([]byte, 256)
	put := func(at int, v uint64) { binary.LittleEndian.PutUint64(stack[at:], v) }
	put(16, stackLo+64) // frame of what asyncPreempt calls
	put(24, async)
	put(64, stackLo+128) // frame of asyncPreempt
	put(72, at)
	put(80, caller) // return address of the interrupted function
	put(128, 0)     // the caller's frame
	put(136, outer)
	x := g{status: statusRunnable, goid: 1, stackLo: stackLo, stackHi: stackLo + 256, sp: stackLo, pc: leaf, bp: stackLo + 16}
	for _, c := range []struct {
		frameless bool
		want      []uint64
	}{
		{true, []uint64{leaf - 1, async - 1, at, caller - 1, outer - 1}},
		{false, []uint64{leaf - 1, async - 1, at, outer - 1}},
	} {
		k := walker{maxDepth: 10, asyncLo: async - 8, asyncHi: async + 8, isFrameless: func(pc uint64) bool { return c.frameless && pc == at }}
		if pcs, end, _ := k.walk(nil, &x, stack); end != walkDone || !slices.Equal(pcs, c.want) {
			t.Errorf("frameless %v: end %d, walk %x, want %x", c.frameless, end, pcs, c.want)
		}
	}
}

// A walk over any bytes ends, within its depth and its bytes.
func FuzzWalk(f *testing.F) {
	f.Add([]byte{16, 0, 0, 0, 0, 16, 193, 0, 1, 2, 3, 4, 5, 6, 7, 8}, uint64(stackLo), uint64(stackLo), uint64(stackLo+16), uint32(statusWaiting), true)
	f.Add(make([]byte, 64), uint64(0), ^uint64(0)-7, ^uint64(0), uint32(statusRunnable), false)
	f.Fuzz(func(t *testing.T, stack []byte, sp, bp, hi uint64, status uint32, frameless bool) {
		x := g{status: status % numStatus, goid: 1, stackLo: sp, stackHi: hi, sp: sp, pc: 0x401000, bp: bp, sysSP: sp, sysPC: 0x401000, sysBP: bp}
		if _, _, _, ok := x.top(); !ok {
			return
		}
		if uint64(len(stack)) > hi-sp {
			stack = stack[:hi-sp]
		}
		k := walker{maxDepth: 16, asyncLo: 0x400000, asyncHi: 0x500000, isFrameless: func(uint64) bool { return frameless }}
		pcs, end, need := k.walk(nil, &x, stack)
		if len(pcs) == 0 || len(pcs) > k.maxDepth+2 {
			t.Fatalf("%d addresses", len(pcs))
		}
		if end == walkMore && need <= uint64(len(stack)) {
			t.Fatalf("asks for %d bytes and has %d", need, len(stack))
		}
	})
}
