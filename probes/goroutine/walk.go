package goroutine

import (
	"encoding/binary"

	"github.com/contention-toolkit/contention/probes/symbol"
)

// Status of a goroutine, as the runtime numbers them; the scan bit is masked.
const (
	statusRunnable  = 1
	statusRunning   = 2
	statusSyscall   = 3
	statusWaiting   = 4
	statusDead      = 6
	statusPreempted = 9
	statusLeaked    = 10
	statusDeadExtra = 11
	statusScan      = 0x1000
)

// g is what is read of one goroutine.
type g struct {
	status              uint32
	reason              uint8
	goid                uint64
	sp, pc, bp          uint64
	sysSP, sysPC, sysBP uint64
	stackLo, stackHi    uint64
	gopc, startpc       uint64
}

// decode reads a g from its bytes.
func decode(b []byte, o *symbol.Offsets) g {
	w := func(off uint64) uint64 { return binary.LittleEndian.Uint64(b[off:]) }
	x := g{
		status: binary.LittleEndian.Uint32(b[o.Status:]) &^ statusScan, reason: b[o.WaitReason], goid: w(o.Goid),
		sp: w(o.SchedSP), pc: w(o.SchedPC), bp: w(o.SchedBP), sysSP: w(o.SyscallSP), sysPC: w(o.SyscallPC),
		stackLo: w(o.StackLo), stackHi: w(o.StackHi), gopc: w(o.GoPC), startpc: w(o.StartPC),
	}
	if o.SyscallBP != 0 {
		x.sysBP = w(o.SyscallBP)
	}
	return x
}

// live says whether the g is a goroutine at all: dead ones are kept for reuse.
func (x *g) live() bool {
	return x.status != 0 && x.status != statusDead && x.status != statusDeadExtra && x.goid != 0
}

// same says whether nothing moved between two reads.
func (x *g) same(y *g) bool {
	return x.status == y.status && x.goid == y.goid && x.reason == y.reason && x.sp == y.sp && x.pc == y.pc && x.bp == y.bp &&
		(x.status != statusSyscall || x.sysSP == y.sysSP && x.sysPC == y.sysPC)
}

// top is where the walk of a stack begins; ok is false when the state has no
// stack that can be read.
func (x *g) top() (sp, pc, bp uint64, ok bool) {
	switch x.status {
	case statusRunnable, statusWaiting, statusPreempted, statusLeaked:
		sp, pc, bp = x.sp, x.pc, x.bp
	case statusSyscall:
		sp, pc, bp = x.sysSP, x.sysPC, x.sysBP
	}
	return sp, pc, bp, sp != 0 && pc != 0 && sp >= x.stackLo && sp <= x.stackHi
}

// Ends of a walk.
const (
	walkDone      = iota // the outermost frame was reached
	walkMore             // the chain goes on beyond the bytes read
	walkTruncated        // the chain is broken, or deeper than the limit
)

// walk follows frame pointers through a piece of a stack that begins at base.
// pcs begins with the innermost program counter and is appended to. need is how
// many bytes from base the walk wants to see.
func walk(pcs []uint64, stack []byte, base, bp, hi uint64, maxDepth int) (out []uint64, end int, need uint64) {
	need = 16
	for bp != 0 {
		if len(pcs) >= maxDepth {
			return pcs, walkTruncated, need
		}
		// A frame pointer lies above the last and holds two words on the stack.
		if bp < base || bp&7 != 0 || bp+16 > hi {
			return pcs, walkTruncated, need
		}
		off := bp - base
		need = off + 16
		if need > uint64(len(stack)) {
			return pcs, walkMore, need
		}
		next, ret := binary.LittleEndian.Uint64(stack[off:]), binary.LittleEndian.Uint64(stack[off+8:])
		if ret == 0 {
			return pcs, walkDone, need
		}
		pcs = append(pcs, ret)
		if next != 0 && next <= bp {
			return pcs, walkTruncated, need
		}
		bp = next
	}
	return pcs, walkDone, need
}
