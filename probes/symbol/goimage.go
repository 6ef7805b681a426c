package symbol

import (
	"debug/dwarf"
	"debug/elf"
	"errors"
	"fmt"
	"go/version"
	"strings"
)

// GoImage says where a Go program's runtime keeps its goroutines. Addresses are
// those of the running process.
type GoImage struct {
	Version     string // of the Go release, such as go1.26.8
	AllgPtr     uint64 // *runtime.allgptr: the array of *g, for readers without the lock
	AllgLen     uint64 // runtime.allglen: its length
	WaitReasons uint64 // runtime.waitReasonStrings: an array of string headers
	NumReasons  int
	// Suspendable is runtime.isWaitingForSuspendG, which says by wait reason
	// which goroutines really run, a byte each; 0 where the release has none.
	Suspendable uint64
	// Where runtime.asyncPreempt begins and ends, which the runtime calls where
	// it interrupts a goroutine; 0 where it is not known.
	AsyncPreempt, AsyncPreemptEnd uint64
	Offsets                       Offsets
	FromDWARF                     bool // the offsets are the executable's own; else of the release's table
}

// Offsets are byte offsets within runtime.g.
type Offsets struct {
	StackLo, StackHi             uint64
	SchedSP, SchedPC, SchedBP    uint64
	SyscallSP, SyscallPC         uint64
	SyscallBP                    uint64 // 0 where the release has none
	Seq                          uint64 // one byte that counts how often the goroutine stopped running; 0 where there is none
	Status, Goid, WaitReason     uint64
	ParentGoid, GoPC, StartPC, M uint64
}

// Size is how many bytes of a g the offsets reach into.
func (o Offsets) Size() int {
	var most uint64
	for _, f := range []uint64{o.StackHi, o.SchedSP, o.SchedPC, o.SchedBP, o.SyscallSP, o.SyscallPC, o.SyscallBP, o.Seq, o.Status, o.Goid, o.WaitReason, o.ParentGoid, o.GoPC, o.StartPC, o.M} {
		most = max(most, f+8)
	}
	return int(most)
}

// goRuntimeSymbols are the symbols that reading a Go program needs.
var goRuntimeSymbols = map[string]bool{
	"runtime.allgptr": true, "runtime.allglen": true, "runtime.waitReasonStrings": true, "runtime.text": true,
	"runtime.pclntab": true, "runtime.epclntab": true, "go:func.*": true,
	"runtime.isWaitingForSuspendG": true, "runtime.asyncPreempt": true, "runtime.asyncPreempt.abi0": true,
}

// goImage finds the runtime of a Go executable that is mapped with bias.
func (m *image) goImage(bias uint64) (*GoImage, error) {
	if m.goInfo == nil {
		return nil, fmt.Errorf("%s is not a Go executable", m.path)
	}
	if m.table == nil {
		return nil, fmt.Errorf("%s (%s): %w", m.path, m.goInfo.GoVersion, m.tableOf)
	}
	g := &GoImage{Version: m.goInfo.GoVersion}
	at := func(name string) (elf.Symbol, error) {
		s, ok := m.byName[name]
		if !ok {
			return s, fmt.Errorf("%s (%s): it has no symbol %s", m.path, g.Version, name)
		}
		return s, nil
	}
	ptr, err1 := at("runtime.allgptr")
	length, err2 := at("runtime.allglen")
	reasons, err3 := at("runtime.waitReasonStrings")
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, err
	}
	g.AllgPtr, g.AllgLen, g.WaitReasons = ptr.Value+bias, length.Value+bias, reasons.Value+bias
	g.NumReasons = int(min(reasons.Size/16, 256))
	if s, ok := m.byName["runtime.isWaitingForSuspendG"]; ok && s.Size == uint64(g.NumReasons) {
		g.Suspendable = s.Value + bias
	}
	for _, name := range []string{"runtime.asyncPreempt", "runtime.asyncPreempt.abi0"} {
		if s, ok := m.byName[name]; ok {
			g.AsyncPreempt, g.AsyncPreemptEnd = s.Value+bias, s.Value+s.Size+bias
		}
	}
	if m.elf.Machine != elf.EM_X86_64 {
		return nil, fmt.Errorf("%s: goroutines of %v programs cannot be read yet; amd64 can", m.path, m.elf.Machine)
	}
	var err error
	if g.Offsets, err = m.dwarfOffsets(); err == nil {
		g.FromDWARF = true
		return g, nil
	}
	o, ok := releaseOffsets(g.Version)
	if !ok {
		return nil, fmt.Errorf("%s: the layout of goroutines in %s is not known (%w); build it with DWARF (without -ldflags=-w), or with a known release: %s", m.path, g.Version, err, strings.Join(knownReleases(), ", "))
	}
	g.Offsets = o
	return g, nil
}

// releaseOffsets is the table's entry for a release such as go1.26.8.
func releaseOffsets(v string) (Offsets, bool) {
	v, _, _ = strings.Cut(v, " ") // experiments follow a space
	o, ok := offsetTable[version.Lang(v)]
	return o, ok
}

func knownReleases() []string {
	var out []string
	for v := range offsetTable {
		out = append(out, v)
	}
	return out
}

// dwarfOffsets reads the layout of runtime.g from the executable's DWARF.
func (m *image) dwarfOffsets() (Offsets, error) {
	if m.elf.Section(".debug_info") == nil && m.elf.Section(".zdebug_info") == nil {
		return Offsets{}, errors.New("the executable has no DWARF")
	}
	d, err := m.elf.DWARF()
	if err != nil {
		return Offsets{}, fmt.Errorf("DWARF: %w", err)
	}
	r := d.Reader()
	for {
		e, err := r.Next()
		if err != nil {
			return Offsets{}, fmt.Errorf("DWARF: %w", err)
		}
		if e == nil {
			return Offsets{}, errors.New("DWARF has no type runtime.g")
		}
		if e.Tag == dwarf.TagStructType {
			if name, _ := e.Val(dwarf.AttrName).(string); name == "runtime.g" {
				return readG(d, e.Offset)
			}
		}
		if e.Tag != dwarf.TagCompileUnit && e.Children {
			r.SkipChildren()
		}
	}
}

func readG(d *dwarf.Data, at dwarf.Offset) (Offsets, error) {
	var o Offsets
	typ, err := d.Type(at)
	if err != nil {
		return o, fmt.Errorf("DWARF: runtime.g: %w", err)
	}
	g, ok := typ.(*dwarf.StructType)
	if !ok {
		return o, fmt.Errorf("DWARF: runtime.g is a %T", typ)
	}
	fields := map[string]uint64{}
	var walk func(s *dwarf.StructType, prefix string, base int64)
	walk = func(s *dwarf.StructType, prefix string, base int64) {
		for _, f := range s.Field {
			fields[prefix+f.Name] = uint64(base + f.ByteOffset)
			t := f.Type
			for {
				td, ok := t.(*dwarf.TypedefType)
				if !ok {
					break
				}
				t = td.Type
			}
			if st, ok := t.(*dwarf.StructType); ok && prefix == "" {
				walk(st, f.Name+".", base+f.ByteOffset)
			}
		}
	}
	walk(g, "", 0)
	for name, dst := range o.fields() {
		v, ok := fields[name]
		if !ok && name != "syscallbp" && name != "trackingSeq" {
			return o, fmt.Errorf("DWARF: runtime.g has no field %s", name)
		}
		*dst = v
	}
	return o, nil
}

// fields pairs the offsets with the names that the runtime gives them.
func (o *Offsets) fields() map[string]*uint64 {
	return map[string]*uint64{
		"stack.lo": &o.StackLo, "stack.hi": &o.StackHi, "sched.sp": &o.SchedSP, "sched.pc": &o.SchedPC, "sched.bp": &o.SchedBP,
		"syscallsp": &o.SyscallSP, "syscallpc": &o.SyscallPC, "syscallbp": &o.SyscallBP,
		"atomicstatus": &o.Status, "goid": &o.Goid, "waitreason": &o.WaitReason,
		"trackingSeq": &o.Seq, "parentGoid": &o.ParentGoid, "gopc": &o.GoPC, "startpc": &o.StartPC, "m": &o.M,
	}
}

// ReadOffsets reads the layout of runtime.g from the DWARF of an executable; the
// generator of the release table uses it.
func ReadOffsets(path string) (Offsets, string, error) {
	f, err := openFile(path)
	if err != nil {
		return Offsets{}, "", err
	}
	m, err := openImage(path, f)
	if err != nil {
		f.Close()
		return Offsets{}, "", err
	}
	defer m.close()
	if m.goInfo == nil {
		return Offsets{}, "", fmt.Errorf("%s is not a Go executable", path)
	}
	o, err := m.dwarfOffsets()
	return o, m.goInfo.GoVersion, err
}
