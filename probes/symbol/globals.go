package symbol

import (
	"cmp"
	"debug/dwarf"
	"debug/elf"
	"errors"
	"fmt"
	"slices"
)

// Global is a variable of the executable.
type Global struct {
	Name   string // with the path of its package
	Offset uint64 // of the address that was asked for, within it
}

// Globals finds the variables that hold some addresses, by address; those that
// lie in none are left out. An executable without a symbol table has none.
func (p *Process) Globals(addrs []uint64) map[uint64]Global {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[uint64]Global{}
	syms, err := p.exe.elf.Symbols()
	if err != nil || len(syms) > maxSymbols {
		return out
	}
	syms = slices.DeleteFunc(syms, func(s elf.Symbol) bool {
		return elf.ST_TYPE(s.Info) != elf.STT_OBJECT || s.Size == 0 || s.Section == elf.SHN_UNDEF
	})
	slices.SortStableFunc(syms, func(x, y elf.Symbol) int { return cmp.Compare(x.Value, y.Value) })
	for _, a := range addrs {
		at := a - p.bias
		i, found := slices.BinarySearchFunc(syms, at, func(s elf.Symbol, at uint64) int { return cmp.Compare(s.Value, at) })
		if !found {
			i--
		}
		if i >= 0 && at-syms[i].Value < syms[i].Size {
			out[a] = Global{syms[i].Name, at - syms[i].Value}
		}
	}
	return out
}

// ErrNoDWARF says that the executable does not tell its types.
var ErrNoDWARF = errors.New("the executable has no DWARF")

// Types finds the types of variables and of struct types by name, with the path
// of their package, from the executable's DWARF. What is not there is left out.
func (p *Process) Types(names map[string]bool) (map[string]dwarf.Type, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	m := p.exe
	if m.elf.Section(".debug_info") == nil && m.elf.Section(".zdebug_info") == nil {
		return nil, ErrNoDWARF
	}
	d, err := m.elf.DWARF()
	if err != nil {
		return nil, fmt.Errorf("%s: DWARF: %w", m.path, err)
	}
	out := map[string]dwarf.Type{}
	for r := d.Reader(); len(out) < len(names); {
		e, err := r.Next()
		if err != nil {
			return nil, fmt.Errorf("%s: DWARF: %w", m.path, err)
		}
		if e == nil {
			break
		}
		if name, _ := e.Val(dwarf.AttrName).(string); names[name] && out[name] == nil {
			at, ok := e.Offset, e.Tag == dwarf.TagStructType
			if e.Tag == dwarf.TagVariable {
				at, ok = e.Val(dwarf.AttrType).(dwarf.Offset)
			}
			if ok {
				if out[name], err = d.Type(at); err != nil {
					return nil, fmt.Errorf("%s: DWARF of %s: %w", m.path, name, err)
				}
			}
		}
		if e.Tag != dwarf.TagCompileUnit && e.Children {
			r.SkipChildren()
		}
	}
	return out, nil
}
