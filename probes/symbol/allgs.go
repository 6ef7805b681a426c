package symbol

import (
	"errors"
	"fmt"

	"golang.org/x/arch/x86/x86asm"
)

// The runtime's list of goroutines has no name in a stripped executable, but the
// one function that adds to it does: runtime.allgadd. It goes
//
//	allgs = append(allgs, gp)
//	if &allgs[0] != allgptr { atomicstorep(&allgptr, &allgs[0]) }
//	atomic.Storeuintptr(&allglen, len(allgs))
//
// so allgs is the one triple of words that is read and written, allgptr the word
// that is compared and exchanged, and allglen the other that is exchanged.

// allgs are link-time addresses.
type allgs struct {
	slice    uint64 // of the header: pointer, length, capacity
	ptr, len uint64
}

// maxAllgadd bounds the bytes that are decoded.
const maxAllgadd = 4096

// errAllgadd says that the code is not as expected.
var errAllgadd = errors.New("runtime.allgadd is not as known: the list of goroutines cannot be found without symbols; build the target without -ldflags=-s, or keep its symbols")

// references are what an instruction sequence does with words at fixed addresses.
type references struct {
	read, written, compared, exchanged map[uint64]bool
	lea                                map[x86asm.Reg]uint64 // what registers point to
}

// decodeAllgadd reads the code of runtime.allgadd, which begins at entry.
func decodeAllgadd(code []byte, entry uint64) (allgs, error) {
	code = code[:min(len(code), maxAllgadd)]
	r := references{map[uint64]bool{}, map[uint64]bool{}, map[uint64]bool{}, map[uint64]bool{}, map[x86asm.Reg]uint64{}}
	for at := 0; at < len(code); {
		in, err := x86asm.Decode(code[at:], 64)
		if err != nil || in.Len == 0 {
			return allgs{}, fmt.Errorf("%w (instruction at %#x)", errAllgadd, entry+uint64(at))
		}
		at += in.Len
		r.note(in, entry+uint64(at))
	}
	return r.find()
}

// note takes in one instruction; next is the address behind it.
func (r *references) note(in x86asm.Inst, next uint64) {
	fixed := func(a x86asm.Arg) (uint64, bool) {
		m, ok := a.(x86asm.Mem)
		if !ok {
			return 0, false
		}
		if m.Base == x86asm.RIP && m.Index == 0 {
			return next + uint64(m.Disp), true
		}
		v, ok := r.lea[m.Base]
		return v + uint64(m.Disp), ok && m.Index == 0
	}
	dst, dstFixed := fixed(in.Args[0])
	src, srcFixed := fixed(in.Args[1])
	switch {
	case in.Op == x86asm.CALL:
		clear(r.lea)
		return
	case in.Op == x86asm.LEA && srcFixed:
		if reg, ok := in.Args[0].(x86asm.Reg); ok {
			r.lea[reg] = src
		}
		return
	case in.Op == x86asm.XCHG && dstFixed:
		r.exchanged[dst] = true
	case in.Op == x86asm.XCHG && srcFixed:
		r.exchanged[src] = true
	case in.Op == x86asm.CMP && in.MemBytes == 8 && (dstFixed || srcFixed):
		for _, a := range in.Args[:2] {
			if v, ok := fixed(a); ok {
				r.compared[v] = true
			}
		}
	case in.Op == x86asm.MOV && in.MemBytes == 8 && dstFixed:
		r.written[dst] = true
	case in.Op == x86asm.MOV && in.MemBytes == 8 && srcFixed:
		r.read[src] = true
	}
	if reg, ok := in.Args[0].(x86asm.Reg); ok && in.Op != x86asm.CMP && in.Op != x86asm.TEST {
		delete(r.lea, reg)
	}
}

// find tells which words are which; each must be the only one.
func (r *references) find() (allgs, error) {
	var a allgs
	for base := range r.read {
		if r.written[base] && r.read[base+8] && r.written[base+8] && r.read[base+16] && r.written[base+16] {
			if a.slice != 0 {
				return allgs{}, errAllgadd
			}
			a.slice = base
		}
	}
	for addr := range r.exchanged {
		switch {
		case r.compared[addr] && a.ptr == 0:
			a.ptr = addr
		case !r.compared[addr] && a.len == 0:
			a.len = addr
		default:
			return allgs{}, errAllgadd
		}
	}
	if a.slice == 0 || a.ptr == 0 || a.len == 0 {
		return allgs{}, errAllgadd
	}
	return a, nil
}
