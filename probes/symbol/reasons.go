package symbol

import (
	"errors"
	"fmt"
)

// The names of wait reasons are an array of strings. Without its symbol it is
// found by the text of its second entry, which every release has there.
const (
	secondReason  = "GC assist marking"
	maxReasons    = 128
	maxReasonText = 100
)

// errNoReasons says that the array was not found.
var errNoReasons = errors.New("its names of wait reasons (runtime.waitReasonStrings) were not found")

// findReasons returns the link-time address of the array and how many entries
// it has: want, or, where that is 0, those that look like wait reasons.
func (m *image) findReasons(r relocs, want int) (addr uint64, n int, err error) {
	err = m.scan(anything, []byte(secondReason), 1, func(text uint64) bool {
		if e := m.pointersTo(r, text, func(at uint64) bool {
			if at < 16 {
				return true
			}
			if k := m.reasonsAt(r, at-16, want); k > 0 {
				addr, n = at-16, k
			}
			return addr == 0
		}); e != nil {
			err = e
		}
		return addr == 0
	})
	if addr == 0 && err == nil {
		err = errNoReasons
	}
	return addr, n, err
}

// reasonsAt counts the entries of the array of strings at base; 0 if it is not
// one of wait reasons.
func (m *image) reasonsAt(r relocs, base uint64, want int) int {
	must := map[string]bool{secondReason: false, "select": false, "chan receive": false, "sleep": false}
	n := 0
	for limit := want; n < maxReasons && (limit == 0 || n < limit); n++ {
		s, ok := m.stringAt(r, base+16*uint64(n))
		if !ok {
			break
		}
		if _, ok := must[s]; ok {
			must[s] = true
		}
	}
	for _, seen := range must {
		if !seen {
			return 0
		}
	}
	if n < want {
		return 0
	}
	return n
}

// stringAt reads a Go string of printable text; only the first may be empty.
func (m *image) stringAt(r relocs, at uint64) (string, bool) {
	ptr, err1 := m.word(r, at)
	n, err2 := m.word(r, at+8)
	if errors.Join(err1, err2) != nil || n > maxReasonText || n > 0 && ptr == 0 {
		return "", false
	}
	if n == 0 {
		return "", true
	}
	b, err := m.readAt(ptr, int(n))
	if err != nil {
		return "", false
	}
	for _, c := range b {
		if c < ' ' || c > '~' {
			return "", false
		}
	}
	return string(b), true
}

// goLists finds what symbols would name: the list of goroutines and the names of
// wait reasons; reasons is how many the release has, 0 where that is not known.
func (m *image) goLists(g *GoImage, bias uint64, reasons int) error {
	ptr, ok1 := m.byName["runtime.allgptr"]
	length, ok2 := m.byName["runtime.allglen"]
	names, ok3 := m.byName["runtime.waitReasonStrings"]
	if ok1 && ok2 && ok3 {
		g.AllgPtr, g.AllgLen, g.WaitReasons = ptr.Value+bias, length.Value+bias, names.Value+bias
		g.NumReasons = int(min(names.Size/16, 256))
		return nil
	}
	a, err := m.findAllgs()
	if err != nil {
		return err
	}
	g.AllgPtr, g.AllgLen, g.Allgs = a.ptr+bias, a.len+bias, a.slice+bias
	r, err := m.readRelocs()
	if err != nil {
		return err
	}
	addr, n, err := m.findReasons(r, reasons)
	if err != nil {
		return err
	}
	g.WaitReasons, g.NumReasons = addr+bias, n
	return nil
}

func (m *image) findAllgs() (allgs, error) {
	f, ok := m.table.entryOf("runtime.allgadd")
	if !ok || f.end <= f.entry {
		return allgs{}, fmt.Errorf("its function table has no runtime.allgadd: %w", errAllgadd)
	}
	code, err := m.readAt(f.entry, int(min(f.end-f.entry, maxAllgadd)))
	if err != nil {
		return allgs{}, fmt.Errorf("code of runtime.allgadd: %w", err)
	}
	return decodeAllgadd(code, f.entry)
}
