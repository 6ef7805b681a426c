package symbol

import (
	"bytes"
	"debug/buildinfo"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sort"
	"strings"

	"github.com/contention-toolkit/contention/profile"
)

// Bounds on what an executable may claim.
const (
	maxPclntab = 512 << 20
	maxSymbols = 8 << 20
)

// image is one ELF file: an executable or a shared library.
type image struct {
	path    string // as the process knows it
	file    content
	elf     *elf.File
	buildID string
	table   *pclntab // nil when it is not Go
	tableOf error    // why a Go executable has no table
	symbols []symbolRange
	byName  map[string]elf.Symbol // objects and functions of Go's runtime
	goInfo  *buildinfo.BuildInfo
}

type symbolRange struct {
	start, end uint64
	name       string
}

// content is an open file.
type content interface {
	io.ReaderAt
	io.Closer
}

// openImage reads an ELF file; file is closed with the image.
func openImage(path string, file content) (*image, error) {
	f, err := elf.NewFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	m := &image{path: path, file: file, elf: f, byName: map[string]elf.Symbol{}}
	m.buildID = readBuildID(f)
	if err := m.readSymbols(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if info, err := buildinfo.Read(file); err == nil {
		m.goInfo = info
	} else if v := m.buildVersion(); v != "" {
		m.goInfo = &buildinfo.BuildInfo{GoVersion: v}
	}
	if m.table, m.tableOf = m.readTable(); m.table != nil {
		// The table says more of Go's own functions.
		m.symbols = slices.DeleteFunc(m.symbols, func(s symbolRange) bool { _, ok := m.table.find(s.start); return ok })
		m.symbols = slices.Clone(m.symbols)
	}
	return m, nil
}

func (m *image) close() { m.file.Close() }

func readBuildID(f *elf.File) string {
	if s := f.Section(".note.gnu.build-id"); s != nil {
		if d, err := s.Data(); err == nil && len(d) > 16 {
			return hex.EncodeToString(d[16:])
		}
	}
	if s := f.Section(".note.go.buildid"); s != nil {
		if d, err := s.Data(); err == nil && len(d) > 16 {
			return string(bytes.TrimRight(d[16:], "\x00"))
		}
	}
	return ""
}

// readSymbols keeps functions with a size, and the named objects of a runtime.
func (m *image) readSymbols() error {
	syms, err := m.elf.Symbols()
	if errors.Is(err, elf.ErrNoSymbols) {
		syms, err = nil, nil
	}
	if err != nil {
		return fmt.Errorf("symbol table: %w", err)
	}
	dynamic, err := m.elf.DynamicSymbols()
	if err != nil && !errors.Is(err, elf.ErrNoSymbols) {
		return fmt.Errorf("dynamic symbol table: %w", err)
	}
	if len(syms)+len(dynamic) > maxSymbols {
		return fmt.Errorf("symbol table holds %d entries, more than %d", len(syms)+len(dynamic), maxSymbols)
	}
	for _, s := range append(syms, dynamic...) {
		if goRuntimeSymbols[s.Name] && s.Section != elf.SHN_UNDEF {
			m.byName[s.Name] = s
		}
		// A symbol without a size says where something starts and not where it
		// ends: extending it would name code that it does not cover.
		if elf.ST_TYPE(s.Info) == elf.STT_FUNC && s.Size > 0 && s.Value != 0 {
			m.symbols = append(m.symbols, symbolRange{s.Value, s.Value + s.Size, s.Name})
		}
	}
	// Of several names for one place the last is used: the plainest, as malloc
	// rather than __libc_malloc.
	sort.SliceStable(m.symbols, func(i, j int) bool {
		a, b := m.symbols[i], m.symbols[j]
		if a.start != b.start {
			return a.start < b.start
		}
		return underscores(a.name) > underscores(b.name)
	})
	return nil
}

func underscores(name string) int { return len(name) - len(strings.TrimLeft(name, "_")) }

// readTable finds the pclntab; nil without an error when the file is not Go's.
func (m *image) readTable() (*pclntab, error) {
	if m.goInfo == nil && m.elf.Section(".gopclntab") == nil {
		return nil, nil
	}
	r, err := m.readRelocs()
	if err != nil {
		return nil, err
	}
	mod, err := m.findModule(r)
	if err != nil {
		return nil, err
	}
	if mod.end-mod.table > maxPclntab {
		return nil, fmt.Errorf("its pclntab may span %d bytes", mod.end-mod.table)
	}
	size := mod.end - mod.table
	for _, s := range m.elf.Sections {
		if s.Addr == mod.table && s.Size > 0 && strings.HasSuffix(s.Name, ".gopclntab") {
			size = min(size, s.Size)
		}
	}
	data, err := m.readAt(mod.table, int(size))
	if err != nil {
		return nil, fmt.Errorf("pclntab: %w", err)
	}
	t, err := parsePclntab(data, mod.text)
	if err != nil {
		return nil, err
	}
	if base, ok := m.byName["go:func.*"]; ok {
		mod.gofunc = base.Value
	}
	if base := mod.gofunc; base != 0 {
		t.funcdata = func(off uint32, n int) ([]byte, error) { return m.readAt(base+uint64(off), n) }
	}
	return t, nil
}

// readAt reads n bytes at a link-time address from the file.
func (m *image) readAt(addr uint64, n int) ([]byte, error) {
	for _, p := range m.elf.Progs {
		if p.Type != elf.PT_LOAD || addr < p.Vaddr || addr+uint64(n) > p.Vaddr+p.Filesz {
			continue
		}
		b := make([]byte, n)
		if _, err := p.ReadAt(b, int64(addr-p.Vaddr)); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
		return b, nil
	}
	return nil, fmt.Errorf("address %#x is not in the file", addr)
}

// frames returns the frames at a link-time address, nil when nothing names it.
func (m *image) frames(pc uint64) []profile.Frame {
	if m.table != nil {
		if f := m.table.frames(pc, m.path); f != nil {
			return f
		}
	}
	i := sort.Search(len(m.symbols), func(i int) bool { return m.symbols[i].start > pc })
	// Symbols may overlap: an inner one may end before pc and an outer not.
	for j := i - 1; j >= 0 && j >= i-4; j-- {
		if s := m.symbols[j]; pc < s.end {
			return []profile.Frame{{Function: s.name, Module: m.path}}
		}
	}
	return nil
}

// bias is what is added to link-time addresses when the file is mapped with
// its byte off at addr.
func (m *image) bias(addr, off uint64) (uint64, bool) {
	for _, p := range m.elf.Progs {
		if p.Type != elf.PT_LOAD {
			continue
		}
		page := uint64(os.Getpagesize() - 1)
		if start := p.Off &^ page; off >= start && off < p.Off+p.Filesz {
			return addr - (p.Vaddr&^page + (off - start)), true
		}
	}
	return 0, false
}
