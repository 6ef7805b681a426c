//go:build linux && amd64

package exact

import (
	"debug/dwarf"
	"fmt"
	"strings"
)

// nameGlobals names the locks that are variables of the program, or fields of
// such. With DWARF the name has the fields; else the offset.
func (b *builder) nameGlobals(all []*instance) {
	var addrs []uint64
	for _, in := range all {
		if in.addr != 0 {
			addrs = append(addrs, in.addr)
		}
	}
	globals := b.r.symbols.Globals(addrs)
	names := map[string]bool{}
	for _, g := range globals {
		names[g.Name] = true
	}
	if len(names) == 0 {
		return
	}
	types, err := b.r.symbols.Types(names)
	if err != nil {
		types = nil // the names have offsets then
	}
	for _, in := range all {
		g, ok := globals[in.addr]
		if !ok || in.addr == 0 {
			continue
		}
		in.global = shortName(g.Name)
		path, ok := lockPath(types[g.Name], int64(g.Offset))
		switch {
		case ok:
			in.global += path
		case g.Offset != 0:
			in.global += fmt.Sprintf("+%#x", g.Offset)
		}
	}
}

// lockTypes are the types that name a lock as a whole, whatever is in them.
var lockTypes = map[string]bool{"sync.Mutex": true, "sync.RWMutex": true, "sync.WaitGroup": true}

// lockPath is the path of fields from a variable of a type to the lock that lies
// at an offset in it, such as .queue.mu or [3].mu.
func lockPath(t dwarf.Type, offset int64) (string, bool) {
	var path strings.Builder
	for {
		if t == nil || offset < 0 || offset >= max(t.Size(), 0) {
			return "", false
		}
		switch x := t.(type) {
		case *dwarf.TypedefType:
			t = x.Type
		case *dwarf.StructType:
			if lockTypes[x.StructName] {
				return path.String(), offset == 0
			}
			f := fieldAt(x, offset)
			if f == nil {
				return "", false
			}
			path.WriteString("." + f.Name)
			t, offset = f.Type, offset-f.ByteOffset
		case *dwarf.ArrayType:
			size := x.Type.Size()
			if size <= 0 {
				return "", false
			}
			fmt.Fprintf(&path, "[%d]", offset/size)
			t, offset = x.Type, offset%size
		default:
			return "", false
		}
	}
}

func fieldAt(s *dwarf.StructType, offset int64) *dwarf.StructField {
	for _, f := range s.Field {
		if offset >= f.ByteOffset && offset < f.ByteOffset+f.Type.Size() {
			return f
		}
	}
	return nil
}
