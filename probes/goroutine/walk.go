package goroutine

import (
	"encoding/binary"

	"github.com/contention-toolkit/contention/probes/symbol"
)

// Status of a goroutine, as the runtime numbers them; the scan bit is masked.
const (
	statusIdle      = 0
	statusRunnable  = 1
	statusRunning   = 2
	statusSyscall   = 3
	statusWaiting   = 4
	statusDead      = 6
	statusCopyStack = 8
	statusPreempted = 9
	statusLeaked    = 10
	statusDeadExtra = 11
	statusScan      = 0x1000
	numStatus       = 12
)

// g is what is read of one goroutine.
type g struct {
	status              uint32
	reason, seq         uint8
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
	if o.Seq != 0 {
		x.seq = b[o.Seq]
	}
	if o.SyscallBP != 0 {
		x.sysBP = w(o.SyscallBP)
	}
	return x
}

// live says whether the g is a goroutine at all: dead ones are kept for reuse.
func (x *g) live() bool {
	return x.status != statusIdle && x.status != statusDead && x.status != statusDeadExtra && x.goid != 0
}

// waits says whether the wait reason means something.
func (x *g) waits() bool { return x.status == statusWaiting || x.status == statusLeaked }

// plausible says whether the bytes look like a goroutine at all; it guards
// against a layout that is not the one expected.
func (x *g) plausible() bool {
	if x.status >= numStatus {
		return false
	}
	if !x.live() {
		return true
	}
	sp, _, _, ok := x.top()
	return x.stackLo < x.stackHi && x.stackHi-x.stackLo <= 1<<30 && (ok || sp == 0)
}

// same says whether nothing moved between two reads. The counter tells that the
// goroutine ran meanwhile and stopped at the same place again.
func (x *g) same(y *g) bool {
	return x.status == y.status && x.goid == y.goid && x.reason == y.reason && x.seq == y.seq && x.sp == y.sp && x.pc == y.pc && x.bp == y.bp &&
		(x.status != statusSyscall || x.sysSP == y.sysSP && x.sysPC == y.sysPC)
}

// key names a wait: while it stays the same the goroutine has not run, and its
// stack is what it was. The counter is one byte: one in 256 of the goroutines
// that stop again at the same depth and instruction is taken for not having run.
// 0 means that this release does not tell.
func (x *g) key(hasSeq bool) uint64 {
	if !hasSeq || !x.waits() {
		return 0
	}
	h := x.goid
	for _, v := range [...]uint64{x.sp, x.pc, x.bp, uint64(x.status)<<16 | uint64(x.reason)<<8 | uint64(x.seq)} {
		h = (h ^ v) * 0x9e3779b97f4a7c15
		h ^= h >> 29
	}
	return h | 1
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

// walker follows frame pointers.
type walker struct {
	maxDepth         int
	asyncLo, asyncHi uint64            // runtime.asyncPreempt; 0 where it is not known
	isFrameless      func(uint64) bool // whether a function has no frame of its own at an address; nil means never
	frameless        map[uint64]bool   // its answers
	// frameSize is how far a function has moved the stack pointer at an address;
	// nil where the target keeps frame pointers of system calls.
	frameSize func(uint64) (uint64, bool)
}

// maxFrameless bounds the functions without a frame that one walk begins with.
const maxFrameless = 4

// enter finds the frame pointer of a goroutine in a system call, of which older
// releases keep only the stack pointer, by the sizes of its innermost frames.
func (k *walker) enter(pcs []uint64, x *g, stack []byte) (out []uint64, bp uint64, end int, need uint64) {
	sp, pc, _, _ := x.top()
	base := sp
	for range maxFrameless {
		n, ok := k.frameSize(pc - 1)
		if !ok || n > x.stackHi-sp {
			return pcs, 0, walkTruncated, 16
		}
		if n >= 8 {
			return pcs, sp + n - 8, walkDone, 16
		}
		need = sp - base + 8
		if need > uint64(len(stack)) {
			return pcs, 0, walkMore, need
		}
		pc = binary.LittleEndian.Uint64(stack[sp-base:])
		pcs = append(pcs, pc-1)
		sp += 8
	}
	return pcs, 0, walkTruncated, 16
}

// maxAnswers bounds the addresses whose answers are kept.
const maxAnswers = 1 << 16

func (k *walker) noFrame(pc uint64) bool {
	if k.isFrameless == nil {
		return false
	}
	v, ok := k.frameless[pc]
	if !ok {
		v = k.isFrameless(pc)
		if len(k.frameless) < maxAnswers {
			if k.frameless == nil {
				k.frameless = map[uint64]bool{}
			}
			k.frameless[pc] = v
		}
	}
	return v
}

// walk appends the addresses of x's stack to pcs, innermost first, each within
// the instruction that is under way: a return address is made the call before
// it. stack is the piece of the stack from x's stack pointer on. need is how
// many bytes of it the walk wants to see.
func (k *walker) walk(pcs []uint64, x *g, stack []byte) (out []uint64, end int, need uint64) {
	base, pc, bp, _ := x.top()
	word := func(addr uint64) uint64 { return binary.LittleEndian.Uint64(stack[addr-base:]) }
	need = 16
	switch {
	case x.status != statusRunnable && x.status != statusPreempted:
		pcs = append(pcs, pc-1)
	case !k.noFrame(pc):
		pcs = append(pcs, pc-1)
	default:
		// Stopped where its stack was checked, or before its first instruction:
		// the frame pointer is still the caller's.
		pcs = append(pcs, pc)
		if len(stack) < 8 {
			return pcs, walkMore, need
		}
		pcs = append(pcs, word(base)-1)
	}
	if x.status == statusSyscall && bp == 0 && k.frameSize != nil {
		if pcs, bp, end, need = k.enter(pcs, x, stack); end != walkDone {
			return pcs, end, need
		}
	}
	async := k.async(pc)
	for bp != 0 {
		if len(pcs) >= k.maxDepth {
			return pcs, walkTruncated, need
		}
		// A frame pointer lies above the last and holds two words on the stack.
		if bp < base || bp&7 != 0 || x.stackHi < 24 || bp > x.stackHi-16 {
			return pcs, walkTruncated, need
		}
		need = bp - base + 16
		if async {
			need += 8
		}
		if need > uint64(len(stack)) {
			return pcs, walkMore, need
		}
		next, ret := word(bp), word(bp+8)
		if ret == 0 {
			return pcs, walkDone, need
		}
		switch {
		case !async:
			pcs = append(pcs, ret-1)
		case k.noFrame(ret):
			pcs = append(pcs, ret, word(bp+16)-1)
		default:
			pcs = append(pcs, ret)
		}
		if next != 0 && next <= bp {
			return pcs, walkTruncated, need
		}
		async = k.async(ret)
		bp = next
	}
	return pcs, walkDone, need
}

// async says whether a return address lies in the function that the runtime
// calls where it interrupts a goroutine: what it returns to is no call.
func (k *walker) async(ret uint64) bool { return ret > k.asyncLo && ret <= k.asyncHi }
