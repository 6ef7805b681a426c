package symbol

import (
	"debug/dwarf"
	"debug/elf"
	"errors"
	"fmt"
	"go/version"
	"maps"
	"slices"
	"strings"
)

// GoImage says where a Go program's runtime keeps its goroutines. Addresses are
// those of the running process.
type GoImage struct {
	Version     string // of the Go release, such as go1.26.8
	AllgPtr     uint64 // *runtime.allgptr: the array of *g, for readers without the lock
	AllgLen     uint64 // runtime.allglen: its length
	Allgs       uint64 // runtime.allgs: the slice that both follow; 0 where symbols named them
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
	"runtime.pclntab": true, "go:func.*": true, "runtime.isWaitingForSuspendG": true,
}

// goImage finds the runtime of a Go executable that is mapped with bias.
func (m *image) goImage(bias uint64) (*GoImage, error) {
	if m.goInfo == nil {
		if m.packed() {
			return nil, fmt.Errorf("%s: it is packed by UPX, which hides what is in it: unpack it (upx -d) before it is started", m.path)
		}
		return nil, fmt.Errorf("%s is not a Go executable", m.path)
	}
	g := &GoImage{Version: m.goInfo.GoVersion}
	fail := func(err error) (*GoImage, error) { return nil, fmt.Errorf("%s (%s): %w", m.path, g.Version, err) }
	switch {
	case m.table == nil:
		return fail(m.tableOf)
	case m.elf.Machine != elf.EM_X86_64:
		return fail(fmt.Errorf("goroutines of %v programs cannot be read yet; amd64 can", m.elf.Machine))
	}
	release, known := offsetTable[releaseOf(g.Version)]
	var err error
	if g.Offsets, err = m.dwarfOffsets(); err == nil {
		g.FromDWARF = true
	} else if !known {
		return fail(m.unknownRelease(err))
	} else {
		g.Offsets = release.offsets
	}
	if err := m.goLists(g, bias, release.reasons); err != nil {
		return fail(err)
	}
	if s, ok := m.byName["runtime.isWaitingForSuspendG"]; ok && s.Size == uint64(g.NumReasons) {
		g.Suspendable = s.Value + bias
	}
	for _, name := range []string{"runtime.asyncPreempt", "runtime.asyncPreempt.abi0"} {
		if f, ok := m.table.entryOf(name); ok {
			g.AsyncPreempt, g.AsyncPreemptEnd = f.entry+bias, f.end+bias
		}
	}
	return g, nil
}

// unknownRelease says what to do about a release that is not in the table.
func (m *image) unknownRelease(why error) error {
	known := knownReleases()
	newest := known[len(known)-1]
	remedy := "build it with DWARF (without -ldflags=-w)"
	switch v := releaseOf(m.goInfo.GoVersion); {
	case v == "":
		remedy += ", or with a release rather than a development version"
	case version.Compare(v, newest) > 0:
		remedy += ", or use a newer version of contention"
	default:
		remedy += ", or with one of these"
	}
	return fmt.Errorf("the layout of its goroutines is not known (%w); known without DWARF are %s to %s: %s", why, known[0], newest, remedy)
}

// releaseOf is the language version of a release such as go1.26.8, as the table
// names it; "" for a development version.
func releaseOf(v string) string {
	v, _, _ = strings.Cut(v, " ") // experiments follow a space
	return version.Lang(v)
}

// release is what the table knows of a Go release.
type release struct {
	reasons int // wait reasons
	offsets Offsets
}

// knownReleases are those of the table, oldest first.
func knownReleases() []string {
	out := slices.Collect(maps.Keys(offsetTable))
	slices.SortFunc(out, version.Compare)
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
		if !ok && name != "syscallbp" && name != "trackingSeq" && name != "parentGoid" {
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

// Release is what the offset table keeps of a Go release.
type Release struct {
	Version string // such as go1.26.8
	Offsets Offsets
	Reasons int // wait reasons
}

// ReadRelease reads the layout of runtime.g from the DWARF of an executable that
// was built by the release; the generator of the release table uses it.
func ReadRelease(path string) (Release, error) {
	f, err := openFile(path)
	if err != nil {
		return Release{}, err
	}
	m, err := openImage(path, f)
	if err != nil {
		f.Close()
		return Release{}, err
	}
	defer m.close()
	if m.goInfo == nil {
		return Release{}, fmt.Errorf("%s is not a Go executable", path)
	}
	o, err := m.dwarfOffsets()
	if err != nil {
		return Release{}, fmt.Errorf("%s: %w", path, err)
	}
	names, ok := m.byName["runtime.waitReasonStrings"]
	if !ok {
		return Release{}, fmt.Errorf("%s: it has no symbol runtime.waitReasonStrings", path)
	}
	return Release{m.goInfo.GoVersion, o, int(names.Size / 16)}, nil
}
