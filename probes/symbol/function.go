package symbol

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
)

// Function says where a function of the executable is.
type Function struct {
	Name   string
	Addr   uint64 // of its first instruction, in the running process
	Size   uint64
	Offset uint64 // of its first instruction in the executable's file
}

// ErrNoFunction says that the executable has no function of that name: it was
// inlined everywhere, or left out by the linker.
var ErrNoFunction = errors.New("the executable has no such function")

// Function finds a function of a Go executable by its full name. Stripped
// executables have it too.
func (p *Process) Function(name string) (Function, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.exe
	if m.table == nil {
		if m.tableOf != nil {
			return Function{}, fmt.Errorf("%s: %w", m.path, m.tableOf)
		}
		return Function{}, fmt.Errorf("%s is not a Go executable", m.path)
	}
	f, ok := m.table.named(name)
	if !ok {
		return Function{}, fmt.Errorf("%s: %s: %w", m.path, name, ErrNoFunction)
	}
	off, ok := m.fileOffset(f.entry)
	if !ok {
		return Function{}, fmt.Errorf("%s: %s at %#x is not in the file", m.path, name, f.entry)
	}
	return Function{Name: name, Addr: f.entry + p.bias, Size: f.end - f.entry, Offset: off}, nil
}

// Code reads the first n bytes of a function from the executable's file, fewer
// where the function is shorter.
func (p *Process) Code(f Function, n int) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exe.readAt(f.Addr-p.bias, int(min(uint64(max(n, 0)), f.Size)))
}

// named finds a function by its name, as the table has it.
func (t *pclntab) named(name string) (function, bool) {
	for i := range t.nfunc {
		entry, rec := t.functab(i)
		if uint64(rec)+8 > uint64(len(t.funcs)) {
			continue
		}
		off := binary.LittleEndian.Uint32(t.funcs[rec+4:])
		if cstring(t.funcNames, uint64(off)) == name {
			return t.find(t.text + uint64(entry))
		}
	}
	return function{}, false
}

// fileOffset is where a link-time address is in the file.
func (m *image) fileOffset(addr uint64) (uint64, bool) {
	for _, p := range m.elf.Progs {
		if p.Type == elf.PT_LOAD && addr >= p.Vaddr && addr-p.Vaddr < p.Filesz {
			return p.Off + (addr - p.Vaddr), true
		}
	}
	return 0, false
}
