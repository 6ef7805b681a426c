package doctor

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// maxSampled is how many functions of a file are looked at, evenly spread.
const maxSampled = 2000

// frameUse counts the functions of an ELF file that begin by keeping a frame
// pointer. Their addresses come from the table of .eh_frame_hdr, which stripped
// files have too.
func frameUse(r io.ReaderAt) (FrameUse, error) {
	f, err := elf.NewFile(r)
	if err != nil {
		return FrameUse{}, err
	}
	starts, err := functionStarts(f)
	if err != nil {
		return FrameUse{}, err
	}
	var use FrameUse
	code := make([]byte, 24)
	for i, step := 0, max(1, len(starts)/maxSampled); i < len(starts); i += step {
		if !readAt(f, starts[i], code) {
			continue
		}
		use.Functions++
		if framed(f.Machine, f.ByteOrder, code) {
			use.Framed++
		}
	}
	if use.Functions == 0 {
		return use, errors.New("no code was found where its functions should be")
	}
	return use, nil
}

// framed says whether a function's first bytes set up a frame pointer: push
// %rbp and mov %rsp,%rbp near to each other, or stp x29, x30.
func framed(m elf.Machine, order binary.ByteOrder, code []byte) bool {
	switch m {
	case elf.EM_X86_64:
		// What may come before: endbr64, or a test and a load or two.
		const push = 0x55
		for _, mov := range [][]byte{{0x48, 0x89, 0xe5}, {0x48, 0x8b, 0xec}} {
			i := bytes.IndexByte(code, push)
			if i >= 0 && bytes.Contains(code[i+1:], mov) {
				return true
			}
		}
	case elf.EM_AARCH64:
		for ; len(code) >= 4; code = code[4:] {
			// stp x29, x30, [sp, #imm]! or without write-back, any immediate.
			if w := order.Uint32(code); w&0xffc07fff == 0xa9807bfd || w&0xffc07fff == 0xa9007bfd {
				return true
			}
		}
	}
	return false
}

func readAt(f *elf.File, addr uint64, dst []byte) bool {
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Flags&elf.PF_X != 0 && addr >= p.Vaddr && addr-p.Vaddr+uint64(len(dst)) <= p.Filesz {
			_, err := p.ReadAt(dst, int64(addr-p.Vaddr))
			return err == nil
		}
	}
	return false
}

// How .eh_frame_hdr writes its numbers; the usual form and no other is read.
const (
	ehUdata4        = 0x03
	ehDatarelSdata4 = 0x3b
	maxTable        = 1 << 24
)

// functionStarts reads the sorted table of .eh_frame_hdr.
func functionStarts(f *elf.File) ([]uint64, error) {
	s := f.Section(".eh_frame_hdr")
	if s == nil {
		return nil, errors.New("it has no .eh_frame_hdr")
	}
	if s.Type == elf.SHT_NOBITS || s.Size > maxTable {
		return nil, fmt.Errorf(".eh_frame_hdr of %d bytes cannot be read", s.Size)
	}
	data, err := s.Data()
	if err != nil {
		return nil, fmt.Errorf(".eh_frame_hdr: %w", err)
	}
	// Version, encodings of the pointer, the count and the table, the pointer.
	if len(data) < 12 || data[0] != 1 || data[2] != ehUdata4 || data[3] != ehDatarelSdata4 {
		return nil, errors.New(".eh_frame_hdr has no table of the usual form")
	}
	n := uint64(f.ByteOrder.Uint32(data[8:]))
	table := data[12:]
	if n*8 > uint64(len(table)) {
		return nil, fmt.Errorf(".eh_frame_hdr claims %d functions in %d bytes", n, len(table))
	}
	out := make([]uint64, n)
	for i := range out {
		out[i] = s.Addr + uint64(int64(int32(f.ByteOrder.Uint32(table[8*i:]))))
	}
	return out, nil
}
