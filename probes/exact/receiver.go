//go:build linux && amd64

package exact

import (
	"golang.org/x/arch/x86/x86asm"
)

// maxSteps bounds how far an argument is followed back.
const maxSteps = 10_000

// flow is a function's code, to follow a value back through.
type flow struct {
	at     []int // offsets of instructions
	insts  []x86asm.Inst
	number map[int]int   // of an instruction, by its offset
	jumps  map[int][]int // numbers of jumps, by their target's number
}

func newFlow(code []byte) (*flow, bool) {
	f := &flow{number: map[int]int{}, jumps: map[int][]int{}}
	for at := 0; at < len(code); {
		i, err := x86asm.Decode(code[at:], 64)
		if err != nil {
			return nil, false
		}
		f.number[at] = len(f.insts)
		f.at, f.insts = append(f.at, at), append(f.insts, i)
		at += i.Len
	}
	for n, i := range f.insts {
		if rel, ok := i.Args[0].(x86asm.Rel); ok && i.Op != x86asm.CALL {
			if to, ok := f.number[f.at[n]+i.Len+int(rel)]; ok {
				f.jumps[to] = append(f.jumps[to], n)
			}
		}
	}
	return f, true
}

// before is the only instruction that can come before one, -1 at the beginning,
// which growing the stack comes back to; false where there are several or none.
func (f *flow) before(n int) (int, bool) {
	from := f.jumps[n]
	if n == 0 {
		return -1, true
	}
	if op := f.insts[n-1].Op; op != x86asm.JMP && op != x86asm.RET && op != x86asm.UD2 && op != x86asm.INT {
		from = append(from[:len(from):len(from)], n-1)
	}
	if len(from) != 1 {
		return 0, false
	}
	return from[0], true
}

// receiverOffset says how far from the receiver, the first argument of the
// function, the first argument of the call that returns to an offset points. It
// follows the value back through moves, additions and the one place on the stack
// that it is kept in; what comes from anywhere else is not told.
func receiverOffset(code []byte, returns int) (int64, bool) {
	f, ok := newFlow(code)
	if !ok {
		return 0, false
	}
	next, ok := f.number[returns]
	if !ok && returns != len(code) {
		return 0, false
	}
	if !ok {
		next = len(f.insts)
	}
	if next == 0 || f.insts[next-1].Op != x86asm.CALL {
		return 0, false
	}
	reg, sum := x86asm.RAX, int64(0)
	n := next - 1
	for range maxSteps {
		if n, ok = f.before(n); !ok {
			return 0, false
		}
		if n < 0 {
			return sum, reg == x86asm.RAX
		}
		i := f.insts[n]
		switch effect(i, reg) {
		case keeps:
			continue
		case spoils:
			return 0, false
		}
		add, from, slot, ok := source(i, reg)
		if !ok {
			return 0, false
		}
		sum += add
		if from == 0 {
			if n, from, ok = f.store(slot); !ok {
				return 0, false
			}
		}
		reg = from
	}
	return 0, false
}

// store finds the only instruction that writes a register to a place on the
// stack, and that register.
func (f *flow) store(slot int64) (int, x86asm.Reg, bool) {
	found, reg := -1, x86asm.Reg(0)
	for n, i := range f.insts {
		m, ok := i.Args[0].(x86asm.Mem)
		if !ok || m.Base != x86asm.RSP || m.Index != 0 || m.Disp != slot || i.Op == x86asm.CMP || i.Op == x86asm.TEST {
			continue
		}
		r, ok := i.Args[1].(x86asm.Reg)
		if !ok || i.Op != x86asm.MOV || !isQuad(r) || found >= 0 {
			return 0, 0, false
		}
		found, reg = n, r
	}
	return found, reg, found >= 0
}

const (
	keeps  = iota // the register stays as it is
	sets          // the instruction sets it, and source may tell to what
	spoils        // it may be anything
)

// effect is what an instruction does to a register.
func effect(i x86asm.Inst, reg x86asm.Reg) int {
	switch i.Op {
	case x86asm.CMP, x86asm.TEST, x86asm.NOP, x86asm.PUSH, x86asm.JMP, x86asm.UCOMISD, x86asm.BT, x86asm.XORPS, x86asm.MOVUPS, x86asm.MOVUPD, x86asm.PREFETCHNTA:
		return keeps
	case x86asm.MOV, x86asm.LEA, x86asm.ADD, x86asm.SUB, x86asm.XOR, x86asm.AND, x86asm.OR, x86asm.INC, x86asm.DEC, x86asm.SHL, x86asm.SHR, x86asm.SAR,
		x86asm.MOVZX, x86asm.MOVSX, x86asm.MOVSXD, x86asm.NEG, x86asm.NOT, x86asm.SETE, x86asm.SETNE, x86asm.MOVSD_XMM, x86asm.MOVSS:
		if r, ok := i.Args[0].(x86asm.Reg); ok && sameRegister(r, reg) {
			return sets
		}
		return keeps
	case x86asm.CMPXCHG:
		if reg == x86asm.RAX {
			return spoils
		}
		return keeps // its other operand is memory where Go uses it
	}
	if isConditionalJump(i.Op) {
		return keeps
	}
	return spoils
}

func isConditionalJump(op x86asm.Op) bool {
	switch op {
	case x86asm.JA, x86asm.JAE, x86asm.JB, x86asm.JBE, x86asm.JE, x86asm.JNE, x86asm.JG, x86asm.JGE, x86asm.JL, x86asm.JLE, x86asm.JS, x86asm.JNS, x86asm.JO, x86asm.JNO, x86asm.JP, x86asm.JNP:
		return true
	}
	return false
}

// source says what an instruction sets a register to: another register and
// something added, or, where that is 0, a place on the stack.
func source(i x86asm.Inst, reg x86asm.Reg) (add int64, from x86asm.Reg, slot int64, ok bool) {
	if r, same := i.Args[0].(x86asm.Reg); !same || r != reg {
		return 0, 0, 0, false // a part of it
	}
	switch a := i.Args[1].(type) {
	case x86asm.Reg:
		return 0, a, 0, i.Op == x86asm.MOV && isQuad(a)
	case x86asm.Imm:
		return int64(a), reg, 0, i.Op == x86asm.ADD
	case x86asm.Mem:
		switch {
		case a.Index != 0 || a.Segment != 0:
		case i.Op == x86asm.LEA && isQuad(a.Base) && a.Base != x86asm.RSP:
			return a.Disp, a.Base, 0, true
		case i.Op == x86asm.MOV && a.Base == x86asm.RSP:
			return 0, 0, a.Disp, true
		}
	}
	return 0, 0, 0, false
}

func isQuad(r x86asm.Reg) bool { return r >= x86asm.RAX && r <= x86asm.R15 }

// sameRegister says whether one register is all or a part of a 64-bit one.
func sameRegister(part, whole x86asm.Reg) bool {
	switch {
	case isQuad(part):
		return part == whole
	case part >= x86asm.EAX && part <= x86asm.R15L:
		return part-x86asm.EAX == whole-x86asm.RAX
	case part >= x86asm.AX && part <= x86asm.R15W:
		return part-x86asm.AX == whole-x86asm.RAX
	case part >= x86asm.AL && part <= x86asm.R15B:
		return true // their numbers do not go with the whole ones': be careful
	}
	return false
}
