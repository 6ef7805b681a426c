package symbol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// A Go executable describes itself in its runtime.firstmoduledata, which names
// the pclntab's parts, the text and the function data. Nothing says where it
// lies in a stripped file; it is found by what it points to.

// goModule is what an executable's moduledata says, as link-time addresses.
type goModule struct {
	table  uint64 // of the pclntab
	text   uint64
	gofunc uint64 // 0 where the release's layout is not known
	end    uint64 // of the bytes that the table may span
}

// Words of runtime.moduledata: the same in all releases from 1.18 on up to text.
const (
	moduleFuncNames = 1
	moduleCutab     = 4
	moduleRecords   = 13 // the last part of the pclntab
	moduleText      = 22
	moduleEtext     = 23
)

// moduleGofunc is the word of moduledata that holds go:func.*, by release.
func moduleGofunc(release string) int {
	switch release {
	case "go1.18", "go1.19":
		return 38
	case "go1.20", "go1.21", "go1.22", "go1.23", "go1.24", "go1.25", "go1.26":
		return 40
	case "go1.27":
		return 43
	}
	return 0
}

// errNoTable says that a Go executable has no pclntab that can be found.
var errNoTable = errors.New("it has no function table (pclntab) of a known layout (Go 1.18 or newer)")

// findModule finds the moduledata, and the pclntab through it.
func (m *image) findModule(r relocs) (*goModule, error) {
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab"} {
		if s := m.elf.Section(name); s != nil {
			return m.moduleOf(r, s.Addr)
		}
	}
	if s, ok := m.byName["runtime.pclntab"]; ok {
		return m.moduleOf(r, s.Value)
	}
	var out *goModule
	for _, magic := range []uint32{magicGo120, magicGo118} {
		for _, quantum := range []byte{1, 4} {
			pattern := append(binary.LittleEndian.AppendUint32(nil, magic), 0, 0, quantum, 8)
			err := m.scan(notCode, pattern, 8, func(addr uint64) bool {
				g, err := m.moduleOf(r, addr)
				if err == nil {
					out = g
				}
				return out == nil
			})
			if out != nil || err != nil {
				return out, err
			}
		}
	}
	if m.packed() {
		return nil, errors.New("it is packed by UPX, which hides its code: unpack it (upx -d) before it is started")
	}
	return nil, errNoTable
}

// moduleOf finds the moduledata that points to a pclntab.
func (m *image) moduleOf(r relocs, table uint64) (*goModule, error) {
	head, err := m.readAt(table, headerSize)
	if err != nil {
		return nil, fmt.Errorf("pclntab: %w", err)
	}
	// Checks the header; the table's size is not known yet.
	switch magic := binary.LittleEndian.Uint32(head); magic {
	case magicGo118, magicGo120:
	default:
		return nil, fmt.Errorf("pclntab has magic %#x, which is of no Go release from 1.18 on", magic)
	}
	part := func(i int) uint64 { return table + binary.LittleEndian.Uint64(head[8+8*i:]) }
	var at uint64
	err = m.pointersTo(r, table, func(addr uint64) bool {
		names, err1 := m.word(r, addr+8*moduleFuncNames)
		cutab, err2 := m.word(r, addr+8*moduleCutab)
		if errors.Join(err1, err2) == nil && names == part(3) && cutab == part(4) {
			at = addr
		}
		return at == 0
	})
	if err != nil {
		return nil, fmt.Errorf("moduledata: %w", err)
	}
	if at == 0 {
		return nil, errors.New("its pclntab is pointed to by no moduledata")
	}
	g := &goModule{table: table}
	text, err1 := m.word(r, at+8*moduleText)
	etext, err2 := m.word(r, at+8*moduleEtext)
	if err := errors.Join(err1, err2); err != nil {
		return nil, fmt.Errorf("moduledata: %w", err)
	}
	if text == 0 || etext <= text {
		return nil, fmt.Errorf("moduledata says that text runs from %#x to %#x", text, etext)
	}
	g.text = text
	if m.goInfo != nil {
		if i := moduleGofunc(releaseOf(m.goInfo.GoVersion)); i > 0 {
			if g.gofunc, err = m.word(r, at+8*uint64(i)); err != nil {
				return nil, fmt.Errorf("moduledata: %w", err)
			}
		}
	}
	for _, p := range m.elf.Progs {
		if table >= p.Vaddr && table < p.Vaddr+p.Filesz {
			g.end = p.Vaddr + p.Filesz
		}
	}
	records, err1 := m.word(r, at+8*moduleRecords)
	size, err2 := m.word(r, at+8*(moduleRecords+1))
	if errors.Join(err1, err2) == nil && records > table && records < g.end && size <= g.end-records {
		g.end = records + size
	}
	return g, nil
}

// buildMagic begins what the linker leaves of the build, 16 bytes aligned; the
// version follows behind 32 bytes, with its length before it.
const (
	buildMagic      = "\xff Go buildinf:"
	buildHead       = 32
	maxBuildVersion = 100
)

// buildVersion finds the Go version where section headers are gone, which
// debug/buildinfo goes by in position-independent executables.
func (m *image) buildVersion() string {
	if m.elf.Section(".text") != nil {
		return ""
	}
	var out string
	_ = m.scan(anything, []byte(buildMagic), 16, func(addr uint64) bool {
		b, err := m.readAt(addr+buildHead, 1+maxBuildVersion)
		if err != nil {
			return true
		}
		n := int(b[0]) // a version is shorter than what needs a second byte
		if v := string(b[1:min(1+n, len(b))]); n <= maxBuildVersion && (strings.HasPrefix(v, "go1.") || strings.HasPrefix(v, "devel")) {
			out = v
		}
		return out == ""
	})
	return out
}

// packed says whether the file is UPX's, whose header follows the program's.
func (m *image) packed() bool {
	if len(m.elf.Sections) > 1 {
		return false
	}
	b := make([]byte, 4096)
	n, _ := m.file.ReadAt(b, 0)
	return strings.Contains(string(b[:n]), "UPX!")
}
