package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sort"
)

// The linker leaves words that hold addresses to the dynamic linker where a file
// may be mapped anywhere. What it will write there is read from the relocations,
// so that data can be read from the file as it will be in memory.

// relocs are the relative relocations of a file, by place.
type relocs []reloc

type reloc struct{ at, addend uint64 }

const (
	maxRelocs   = 8 << 20
	relaEntry   = 24
	maxDynamic  = 1 << 20
	scanChunk   = 4 << 20
	scanOverlap = 64 // more than the longest pattern
)

// relativeType is the relocation that adds the load bias, by machine.
var relativeType = map[elf.Machine]uint32{
	elf.EM_X86_64: uint32(elf.R_X86_64_RELATIVE), elf.EM_AARCH64: uint32(elf.R_AARCH64_RELATIVE),
}

// readRelocs reads them by the dynamic segment, which stripping leaves.
func (m *image) readRelocs() (relocs, error) {
	kind, ok := relativeType[m.elf.Machine]
	if m.elf.Type != elf.ET_DYN || !ok {
		return nil, nil
	}
	var table, size uint64
	for _, p := range m.elf.Progs {
		if p.Type != elf.PT_DYNAMIC {
			continue
		}
		if p.Filesz > maxDynamic {
			return nil, fmt.Errorf("its dynamic segment claims %d bytes", p.Filesz)
		}
		b := make([]byte, p.Filesz)
		if _, err := p.ReadAt(b, 0); err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("dynamic segment: %w", err)
		}
		for ; len(b) >= 16; b = b[16:] {
			switch v := m.elf.ByteOrder.Uint64(b[8:]); elf.DynTag(m.elf.ByteOrder.Uint64(b)) {
			case elf.DT_RELA:
				table = v
			case elf.DT_RELASZ:
				size = v
			}
		}
	}
	if table == 0 || size == 0 {
		return nil, nil
	}
	if size/relaEntry > maxRelocs {
		return nil, fmt.Errorf("it claims %d relocations, more than %d", size/relaEntry, maxRelocs)
	}
	data, err := m.readAt(table, int(size/relaEntry*relaEntry))
	if err != nil {
		return nil, fmt.Errorf("relocations: %w", err)
	}
	out := make(relocs, 0, len(data)/relaEntry)
	for ; len(data) > 0; data = data[relaEntry:] {
		if binary.LittleEndian.Uint32(data[8:]) == kind {
			out = append(out, reloc{binary.LittleEndian.Uint64(data), binary.LittleEndian.Uint64(data[16:])})
		}
	}
	sort.Slice(out, func(i, j int) bool { return out[i].at < out[j].at })
	return out, nil
}

// word reads the word at a link-time address, relocated.
func (m *image) word(r relocs, addr uint64) (uint64, error) {
	if i := sort.Search(len(r), func(i int) bool { return r[i].at >= addr }); i < len(r) && r[i].at == addr {
		return r[i].addend, nil
	}
	b, err := m.readAt(addr, 8)
	if err != nil {
		return 0, err
	}
	return binary.LittleEndian.Uint64(b), nil
}

// pointersTo calls found with every place of data that holds an address, until
// it returns false.
func (m *image) pointersTo(r relocs, to uint64, found func(at uint64) bool) error {
	for _, x := range r {
		if x.addend == to && !found(x.at) {
			return nil
		}
	}
	return m.scan(notCode, binary.LittleEndian.AppendUint64(nil, to), 8, found)
}

func notCode(p *elf.Prog) bool  { return p.Flags&elf.PF_X == 0 }
func anything(_ *elf.Prog) bool { return true }

// scan calls found with the address of every occurrence of a pattern in the
// segments chosen that is aligned, until it returns false.
func (m *image) scan(choose func(*elf.Prog) bool, pattern []byte, align uint64, found func(addr uint64) bool) error {
	var buf []byte
	for _, p := range m.elf.Progs {
		if p.Type != elf.PT_LOAD || !choose(p) {
			continue
		}
		for off := uint64(0); off < p.Filesz; off += scanChunk {
			n := min(p.Filesz-off, scanChunk+scanOverlap)
			if buf == nil {
				buf = make([]byte, scanChunk+scanOverlap)
			}
			// A segment that claims more than the file has ends where the file does.
			k, err := p.ReadAt(buf[:n], int64(off))
			if err != nil && !errors.Is(err, io.EOF) {
				return err
			}
			for b, at := buf[:k], 0; ; {
				i := bytes.Index(b[at:], pattern)
				if i < 0 || at+i >= scanChunk {
					break
				}
				if addr := p.Vaddr + off + uint64(at+i); addr%align == 0 && !found(addr) {
					return nil
				}
				at += i + 1
			}
			if uint64(k) < n {
				break
			}
		}
	}
	return nil
}
