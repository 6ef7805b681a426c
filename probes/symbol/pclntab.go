package symbol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/contention-toolkit/contention/profile"
)

// The pclntab is read as runtime/symtab.go of the Go releases lays it out; the
// magic numbers name the layouts.
const (
	magicGo118 = 0xfffffff0
	magicGo120 = 0xfffffff1

	headerSize        = 8 + 8*8 // of a 64-bit table
	functabEntry      = 8       // entry offset and function offset
	pcdataInlTree     = 2
	funcdataInlTree   = 3
	maxInlineDepth    = 64
	maxNameLength     = 1 << 16
	noFuncdata        = 0xffffffff
	maxPcdataPerFunc  = 64
	maxInlTreeEntries = 1 << 20
)

// pclntab is the function table of a Go executable. Everything read from it is
// checked: the bytes may be anything.
type pclntab struct {
	data      []byte
	text      uint64 // link-time address of runtime.text
	quantum   uint64
	nfunc     int
	funcNames []byte
	cutab     []byte
	files     []byte
	pctab     []byte
	funcs     []byte // functab, and the records that it points to
	// funcdata reads n bytes at an offset from the base of the function data,
	// which lies outside of the table; nil when its base is not known.
	funcdata func(off uint32, n int) ([]byte, error)
	records
}

// records are the sizes and offsets of records that differ between layouts.
type records struct {
	fixed      int // bytes of the fixed part of a function's record; the last says how much funcdata it has
	inlined    uint32
	inlinedAt  uint32 // of the name of an inlined call
	inlinedPos uint32 // of its call site
}

var (
	recordsGo118 = records{fixed: 40, inlined: 20, inlinedAt: 12, inlinedPos: 16}
	recordsGo120 = records{fixed: 44, inlined: 16, inlinedAt: 4, inlinedPos: 8}
)

// errTable says that a table is damaged.
var errTable = errors.New("pclntab is damaged")

func parsePclntab(data []byte, text uint64) (*pclntab, error) {
	if len(data) < headerSize {
		return nil, fmt.Errorf("%w: %d bytes", errTable, len(data))
	}
	layout := recordsGo120
	switch m := binary.LittleEndian.Uint32(data); m {
	case magicGo118:
		layout = recordsGo118
	case magicGo120:
	default:
		return nil, fmt.Errorf("pclntab has magic %#x, which is of no Go release from 1.18 on", m)
	}
	if data[4] != 0 || data[5] != 0 || data[7] != 8 {
		return nil, fmt.Errorf("%w: header % x (64-bit executables are supported)", errTable, data[:8])
	}
	word := func(i int) uint64 { return binary.LittleEndian.Uint64(data[8+8*i:]) }
	t := &pclntab{data: data, text: text, quantum: uint64(data[6]), records: layout}
	if t.quantum == 0 {
		return nil, fmt.Errorf("%w: instruction size is 0", errTable)
	}
	// Words: functions, files, start of text, then offsets of the parts.
	part := func(i int) []byte {
		off := word(i)
		if off > uint64(len(data)) {
			return nil
		}
		return data[off:]
	}
	t.funcNames, t.cutab, t.files, t.pctab, t.funcs = part(3), part(4), part(5), part(6), part(7)
	n := word(0)
	if n > uint64(len(t.funcs))/functabEntry {
		return nil, fmt.Errorf("%w: it claims %d functions", errTable, n)
	}
	t.nfunc = int(n)
	if t.text == 0 {
		t.text = word(2)
	}
	return t, nil
}

// function is the record of one function.
type function struct {
	t     *pclntab
	entry uint64 // link-time address
	end   uint64
	rec   []byte
}

func (t *pclntab) functab(i int) (entry, off uint32) {
	b := t.funcs[i*functabEntry:]
	return binary.LittleEndian.Uint32(b), binary.LittleEndian.Uint32(b[4:])
}

// find returns the function that holds a link-time address.
func (t *pclntab) find(pc uint64) (function, bool) {
	if pc < t.text || pc-t.text > 1<<32-1 || t.nfunc == 0 {
		return function{}, false
	}
	off := uint32(pc - t.text)
	i := sort.Search(t.nfunc, func(i int) bool { e, _ := t.functab(i); return e > off }) - 1
	if i < 0 {
		return function{}, false
	}
	entry, rec := t.functab(i)
	end := uint64(1<<32 - 1)
	// The entry behind the last function holds the end of text alone.
	if b := t.funcs[(i+1)*functabEntry:]; len(b) >= 4 {
		end = uint64(binary.LittleEndian.Uint32(b))
	}
	if uint64(off) >= end || uint64(rec)+uint64(t.fixed) > uint64(len(t.funcs)) {
		return function{}, false
	}
	return function{t, t.text + uint64(entry), t.text + end, t.funcs[rec:]}, true
}

func (f function) u32(off int) uint32 { return binary.LittleEndian.Uint32(f.rec[off:]) }

// Offsets within a function's record.
func (f function) nameOff() uint32  { return f.u32(4) }
func (f function) pcsp() uint32     { return f.u32(16) }
func (f function) pcfile() uint32   { return f.u32(20) }
func (f function) pcln() uint32     { return f.u32(24) }
func (f function) npcdata() uint32  { return f.u32(28) }
func (f function) cuOffset() uint32 { return f.u32(32) }
func (f function) nfuncdata() uint8 { return f.rec[f.t.fixed-1] }
func (f function) after(i int) uint32 { // i-th word behind the fixed part
	off := f.t.fixed + 4*i
	if off+4 > len(f.rec) {
		return noFuncdata
	}
	return f.u32(off)
}

func (f function) pcdata(i int) (uint32, bool) {
	n := f.npcdata()
	if uint32(i) >= n || n > maxPcdataPerFunc {
		return 0, false
	}
	off := f.after(i)
	return off, off != 0 && off != noFuncdata
}

func (f function) funcdata(i int) (uint32, bool) {
	n := f.npcdata()
	if n > maxPcdataPerFunc || i >= int(f.nfuncdata()) {
		return 0, false
	}
	off := f.after(int(n) + i)
	return off, off != noFuncdata
}

func cstring(b []byte, off uint64) string {
	if off >= uint64(len(b)) {
		return ""
	}
	b = b[off:]
	if len(b) > maxNameLength {
		b = b[:maxNameLength]
	}
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return ""
}

// name reads a function's name and writes it as Go's own profiles do, so that
// both can be joined: type arguments become [...].
func (t *pclntab) name(off uint32) string {
	s := cstring(t.funcNames, uint64(off))
	i, j := strings.IndexByte(s, '['), strings.LastIndexByte(s, ']')
	if i < 0 || j <= i {
		return s
	}
	return s[:i] + "[...]" + s[j+1:]
}

// Wrapper says whether a frame is of a function that Go's compiler made: a
// method's wrapper, or what a defer or go statement calls. Go's own profiles
// leave such frames out.
func Wrapper(f profile.Frame) bool {
	if f.File == "<autogenerated>" {
		return true
	}
	name := strings.TrimRight(f.Function, "0123456789")
	return name != f.Function && (strings.HasSuffix(name, ".deferwrap") || strings.HasSuffix(name, ".gowrap"))
}

// frameless says whether the function at a link-time address has no frame of
// its own there: it has just been entered, so that the stack pointer points at
// its return address and the frame pointer is its caller's.
func (t *pclntab) frameless(pc uint64) bool {
	f, ok := t.find(pc)
	return ok && f.value(f.pcsp(), pc) == 0
}

// frameSize is how far a function has moved the stack pointer at an address: its
// return address lies that many bytes above. False where the table does not say.
func (t *pclntab) frameSize(pc uint64) (uint64, bool) {
	f, ok := t.find(pc)
	if !ok {
		return 0, false
	}
	n := f.value(f.pcsp(), pc)
	return uint64(n), n >= 0
}

// entryOf finds a function by its name, as the linker wrote it.
func (t *pclntab) entryOf(name string) (function, bool) {
	for i := range t.nfunc {
		entry, rec := t.functab(i)
		if uint64(rec)+uint64(t.fixed) > uint64(len(t.funcs)) {
			continue
		}
		off := uint64(binary.LittleEndian.Uint32(t.funcs[rec+4:]))
		if off < uint64(len(t.funcNames)) && hasCString(t.funcNames[off:], name) {
			return t.find(t.text + uint64(entry))
		}
	}
	return function{}, false
}

func hasCString(b []byte, s string) bool {
	return len(b) > len(s) && b[len(s)] == 0 && string(b[:len(s)]) == s
}

// value walks a pc-value table up to pc; -1 when it does not reach it.
func (f function) value(off uint32, pc uint64) int32 {
	if uint64(off) >= uint64(len(f.t.pctab)) || off == 0 {
		return -1
	}
	p := f.t.pctab[off:]
	at, val := f.entry, int32(-1)
	for first := true; ; first = false {
		d, n := binary.Uvarint(p)
		if n <= 0 || d == 0 && !first {
			return -1
		}
		p = p[n:]
		if d&1 != 0 {
			d = ^(d >> 1)
		} else {
			d >>= 1
		}
		val += int32(d)
		step, n := binary.Uvarint(p)
		if n <= 0 {
			return -1
		}
		p = p[n:]
		at += step * f.t.quantum
		if pc < at {
			return val
		}
		// Steps that lead nowhere would walk a damaged table to its end.
		if step == 0 || at >= f.end {
			return -1
		}
	}
}

// fileLine is the source position of an address within the function.
func (f function) fileLine(pc uint64) (string, int) {
	line := f.value(f.pcln(), pc)
	no := f.value(f.pcfile(), pc)
	if line < 0 || no < 0 {
		return "", 0
	}
	at := (uint64(f.cuOffset()) + uint64(no)) * 4
	if at+4 > uint64(len(f.t.cutab)) {
		return "", int(line)
	}
	off := binary.LittleEndian.Uint32(f.t.cutab[at:])
	if off == noFuncdata {
		return "", int(line)
	}
	return cstring(f.t.files, uint64(off)), int(line)
}

// frames returns the frames at a link-time address, innermost first: the calls
// that were inlined there, then the function itself.
func (t *pclntab) frames(pc uint64, module string) []profile.Frame {
	f, ok := t.find(pc)
	if !ok {
		return nil
	}
	var out []profile.Frame
	at := pc
	for range maxInlineDepth {
		name, parent, ok := f.inlined(at)
		if !ok {
			break
		}
		file, line := f.fileLine(at)
		out = append(out, profile.Frame{Function: name, File: file, Line: line, Module: module, Inlined: true})
		at = parent
	}
	file, line := f.fileLine(at)
	name := t.name(f.nameOff())
	if name == "" {
		name = fmt.Sprintf("0x%x", pc)
	}
	return append(out, profile.Frame{Function: name, File: file, Line: line, Module: module})
}

// inlined returns the innermost inlined call at an address, and the address in
// the function that stands for its call site.
func (f function) inlined(pc uint64) (name string, parent uint64, ok bool) {
	table, ok := f.pcdata(pcdataInlTree)
	if !ok {
		return "", 0, false
	}
	i := f.value(table, pc)
	tree, ok := f.funcdata(funcdataInlTree)
	if i < 0 || i > maxInlTreeEntries || !ok || f.t.funcdata == nil {
		return "", 0, false
	}
	call, err := f.t.funcdata(tree+uint32(i)*f.t.records.inlined, int(f.t.records.inlined))
	if err != nil {
		return "", 0, false
	}
	name = f.t.name(binary.LittleEndian.Uint32(call[f.t.inlinedAt:]))
	off := binary.LittleEndian.Uint32(call[f.t.inlinedPos:])
	if name == "" || uint64(off) >= f.end-f.entry {
		return "", 0, false
	}
	return name, f.entry + uint64(off), true
}
