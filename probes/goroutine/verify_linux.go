package goroutine

import (
	"encoding/binary"
	"fmt"
	"time"
)

// The runtime's own goroutines are the first that it starts.
const firstGoroutines = 32

// verifyTries lets a goroutine that moved while it was read be read again.
const verifyTries = 5

// verifyLayout reads the target's first goroutines and refuses a layout under which
// the runtime's own are not what they must be.
func (t *ticker) verifyLayout(reasons []string, name names) error {
	var what string
	for try := range verifyTries {
		if try > 0 {
			time.Sleep(time.Millisecond)
		}
		var err error
		if what, err = t.misfits(reasons, name); err != nil || what == "" {
			return err
		}
	}
	from := "DWARF"
	if !t.image.FromDWARF {
		from = "the table of releases"
	}
	return fmt.Errorf("%w: the layout of %s, from %s, does not fit: %s; build the target with an official release of Go, with DWARF (without -ldflags=-w)", ErrNotGo, t.image.Version, from, what)
}

// misfits is one try of verifyLayout.
func (t *ticker) misfits(reasons []string, name names) (string, error) {
	if what, err := t.misfitLists(); what != "" || err != nil {
		return what, err
	}
	n := min(t.list.count, firstGoroutines)
	raw := make([]byte, 8*n)
	if err := t.mem.one(t.list.array, raw); err != nil {
		return "", explain(t.mem.pid, err)
	}
	o := &t.image.Offsets
	b := make([]byte, o.Size())
	known := 0
	for i := range n {
		if err := t.mem.one(binary.LittleEndian.Uint64(raw[8*i:]), b); err != nil {
			return fmt.Sprintf("goroutine %d of its list cannot be read (%v)", i, err), nil
		}
		x, parent := decode(b, o), uint64(0)
		if o.ParentGoid != 0 {
			parent = binary.LittleEndian.Uint64(b[o.ParentGoid:])
		}
		what, k := misfit(&x, parent, o.ParentGoid != 0, reasons, name)
		if what != "" {
			return what, nil
		}
		if k {
			known++
		}
	}
	if known == 0 {
		return fmt.Sprintf("none of its first %d goroutines is one of the runtime's own", n), nil
	}
	return "", nil
}

// misfitLists compares the copies for readers with the list that they are of,
// where both were found by decoding instructions.
func (t *ticker) misfitLists() (string, error) {
	im := t.image
	if im.Allgs == 0 {
		return "", nil
	}
	b := make([]byte, 32)
	t.mem.reset()
	t.mem.add(im.Allgs, b[:16])
	t.mem.add(im.AllgPtr, b[16:24])
	t.mem.add(im.AllgLen, b[24:])
	if err := t.mem.read(); err != nil {
		return "", explain(t.mem.pid, err)
	}
	for _, failed := range t.mem.failed {
		if failed {
			return "its list of goroutines cannot be read where runtime.allgadd keeps it", nil
		}
	}
	w := func(i int) uint64 { return binary.LittleEndian.Uint64(b[8*i:]) }
	if w(0) != w(2) || w(1) != w(3) {
		return fmt.Sprintf("runtime.allgs is %#x with %d goroutines, what was taken for its copy %#x with %d", w(0), w(1), w(2), w(3)), nil
	}
	return "", nil
}
