//go:build linux && amd64

package exact

import (
	"strings"

	"github.com/contention-toolkit/contention/profile"
)

// place is where a lock lies in the type of a method's receiver.
type place struct {
	typ    string // with the path of its package
	offset int64
}

// nameFields names locks that have no name yet by the field of the receiver, of a
// method that waits for them, that they are. The method's code tells how far from
// its receiver the lock lies, and DWARF what is there. Where either does not, or
// two methods tell different things, they are named by their sites.
func (b *builder) nameFields(all []*instance) {
	places, names := map[uint64]place{}, map[string]bool{}
	for _, in := range all {
		if in.addr == 0 || in.global != "" {
			continue
		}
		for _, k := range in.waits {
			at, known := places[k.Stack]
			if !known {
				at = b.placeOf(k)
				places[k.Stack] = at
			}
			if at.typ != "" {
				names[at.typ] = true
			}
		}
	}
	if len(names) == 0 {
		return
	}
	types, err := b.r.symbols.Types(names)
	if err != nil {
		return
	}
	for _, in := range all {
		if in.addr == 0 || in.global != "" {
			continue
		}
		found := map[string]bool{}
		for _, k := range in.waits {
			at := places[k.Stack]
			if path, ok := lockPath(types[at.typ], at.offset); ok {
				found[shortName(at.typ)+path] = true
			}
		}
		if len(found) == 1 {
			for name := range found {
				in.global = name
			}
		}
	}
}

// placeOf tells by its stack what a wait is for, where a method of the program
// itself called the library's lock with a part of its receiver.
func (b *builder) placeOf(k waitKey) place {
	st, ok := b.snap.stacks[k.Stack]
	if !ok {
		return place{}
	}
	callee := ""
	for _, ip := range st.Ip[:min(int(st.Depth), len(st.Ip))] {
		frames := b.r.symbols.Frames(ip, true)
		last := frames[len(frames)-1].Function
		if isLibrary(frames) {
			callee = last
			continue
		}
		if !isLibrary(frames[:len(frames)-1]) {
			return place{} // who waits is inlined into something else
		}
		typ := receiverType(last)
		skip, ok := b.argument(callee, k)
		f, err := b.r.symbols.Function(last)
		if typ == "" || !ok || err != nil || ip <= f.Addr || ip-f.Addr > f.Size || f.Size > maxCode {
			return place{}
		}
		code, err := b.r.symbols.Code(f, maxCode)
		if err != nil {
			return place{}
		}
		offset, ok := receiverOffset(code, int(ip-f.Addr))
		if !ok {
			return place{}
		}
		return place{typ, offset - skip}
	}
	return place{}
}

// isLibrary says whether all of some frames are of the runtime or its locks.
func isLibrary(frames []profile.Frame) bool {
	for _, f := range frames {
		if !strings.HasPrefix(f.Function, "sync.") && !strings.HasPrefix(f.Function, "internal/sync.") && !strings.HasPrefix(f.Function, "runtime.") {
			return false
		}
	}
	return true
}

// argument is how far within the lock the first argument of a function of the
// library points.
func (b *builder) argument(callee string, k waitKey) (int64, bool) {
	switch {
	case strings.Contains(callee, "sync.runtime_Semacquire"):
		return int64(semaphores[b.r.target.reason(k.Reason)].offset), true
	case strings.HasPrefix(callee, "sync.(*"), strings.HasPrefix(callee, "internal/sync.(*"):
		return 0, true
	}
	return 0, false
}

// receiverType is the type of which a function is a method with a pointer
// receiver, "" for all others: closures and generic types among them.
func receiverType(function string) string {
	pkg, rest, ok := strings.Cut(function, ".(*")
	typ, method, ok2 := strings.Cut(rest, ").")
	if !ok || !ok2 || strings.ContainsAny(function, "[") || strings.ContainsAny(method, ".-") {
		return ""
	}
	return pkg + "." + typ
}
