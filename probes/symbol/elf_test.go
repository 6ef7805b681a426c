package symbol

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/contention-toolkit/contention/profile"
)

// memFile is a file in memory.
type memFile struct{ *bytes.Reader }

func (memFile) Close() error { return nil }

type testSymbol struct {
	name        string
	value, size uint64
	kind        elf.SymType
}

// elfFile lays out an executable whose one segment, mapped at 0x400000, is the
// whole file, with a symbol table.
func elfFile(t testing.TB, syms []testSymbol) []byte {
	t.Helper()
	var table, names bytes.Buffer
	put := func(w *bytes.Buffer, v any) {
		if err := binary.Write(w, binary.LittleEndian, v); err != nil {
			t.Fatal(err)
		}
	}
	names.WriteByte(0)
	put(&table, elf.Sym64{})
	for _, s := range syms {
		put(&table, elf.Sym64{Name: uint32(names.Len()), Info: byte(elf.STB_GLOBAL)<<4 | byte(s.kind), Shndx: 1, Value: s.value, Size: s.size})
		names.WriteString(s.name + "\x00")
	}
	sections := "\x00.symtab\x00.strtab\x00.shstrtab\x00"
	const head, prog, sect = 64, 56, 64
	tableAt := uint64(head + prog)
	namesAt := tableAt + uint64(table.Len())
	sectionsAt := namesAt + uint64(names.Len())
	headersAt := sectionsAt + uint64(len(sections))
	size := headersAt + 4*sect
	var out bytes.Buffer
	put(&out, elf.Header64{
		Ident: [elf.EI_NIDENT]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_X86_64), Version: uint32(elf.EV_CURRENT), Entry: 0x400000,
		Phoff: head, Shoff: headersAt, Ehsize: head, Phentsize: prog, Phnum: 1, Shentsize: sect, Shnum: 4, Shstrndx: 3,
	})
	put(&out, elf.Prog64{Type: uint32(elf.PT_LOAD), Flags: uint32(elf.PF_R | elf.PF_X), Vaddr: 0x400000, Filesz: size, Memsz: size, Align: 4096})
	out.Write(table.Bytes())
	out.Write(names.Bytes())
	out.WriteString(sections)
	put(&out, elf.Section64{})
	put(&out, elf.Section64{Name: 1, Type: uint32(elf.SHT_SYMTAB), Off: tableAt, Size: uint64(table.Len()), Link: 2, Info: 1, Addralign: 8, Entsize: elf.Sym64Size})
	put(&out, elf.Section64{Name: 9, Type: uint32(elf.SHT_STRTAB), Off: namesAt, Size: uint64(names.Len()), Addralign: 1})
	put(&out, elf.Section64{Name: 17, Type: uint32(elf.SHT_STRTAB), Off: sectionsAt, Size: uint64(len(sections)), Addralign: 1})
	return out.Bytes()
}

var testSymbols = []testSymbol{
	{"outer", 0x401000, 0x100, elf.STT_FUNC},
	{"inner", 0x401020, 0x10, elf.STT_FUNC},
	{"no_size", 0x401200, 0, elf.STT_FUNC},
	{"data", 0x401300, 0x100, elf.STT_OBJECT},
	{"malloc", 0x401400, 0x10, elf.STT_FUNC},
	{"__libc_malloc", 0x401400, 0x10, elf.STT_FUNC},
}

// A name covers what its symbol says, and nothing else.
func TestSymbolRanges(t *testing.T) {
	m, err := openImage("lib.so", memFile{bytes.NewReader(elfFile(t, testSymbols))})
	if err != nil {
		t.Fatal(err)
	}
	defer m.close()
	for _, c := range []struct {
		pc   uint64
		want string
	}{
		{0x400fff, ""}, {0x401000, "outer"}, {0x40101f, "outer"}, {0x401020, "inner"}, {0x40102f, "inner"}, {0x401030, "outer"}, {0x4010ff, "outer"},
		{0x401100, ""}, {0x401200, ""}, {0x401201, ""}, {0x401310, ""}, {0x401400, "malloc"}, {0x401410, ""},
	} {
		f := m.frames(c.pc)
		switch {
		case c.want == "" && f != nil:
			t.Errorf("%#x: %v, want none", c.pc, f)
		case c.want != "" && (len(f) != 1 || f[0] != profile.Frame{Function: c.want, Module: "lib.so"}):
			t.Errorf("%#x: %v, want %s", c.pc, f, c.want)
		}
	}
	if b, ok := m.bias(0x7f0000000000, 0); !ok || b != 0x7f0000000000-0x400000 {
		t.Errorf("bias %#x, %v", b, ok)
	}
	if _, ok := m.bias(0x7f0000000000, 1<<20); ok {
		t.Error("a part of the file that is in no segment has a bias")
	}
	if m.table != nil || m.tableOf != nil {
		t.Errorf("an executable that is not Go's has a table: %v, %v", m.table, m.tableOf)
	}
}

// Any bytes are refused, or answer questions.
func FuzzImage(f *testing.F) {
	f.Add(elfFile(f, testSymbols), uint64(0x401020))
	f.Add([]byte("\x7fELF"), uint64(0))
	f.Fuzz(func(t *testing.T, data []byte, pc uint64) {
		m, err := openImage("x", memFile{bytes.NewReader(data)})
		if err != nil {
			return
		}
		defer m.close()
		for _, a := range []uint64{pc, 0, ^uint64(0), m.elf.Entry} {
			for _, f := range m.frames(a) {
				if f.Module != "x" {
					t.Fatalf("frame %+v", f)
				}
			}
			m.bias(a, pc)
			_, _ = m.readAt(a, 16)
		}
		_, _ = m.goImage(0)
	})
}
