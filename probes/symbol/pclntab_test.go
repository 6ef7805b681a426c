//go:build linux && amd64

package symbol

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"strings"
	"testing"
)

// ownTable reads the pclntab of the test binary, which is Go's whatever was
// stripped from it.
func ownTable(t testing.TB) []byte {
	t.Helper()
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, name := range []string{".gopclntab", ".data.rel.ro.gopclntab"} {
		if s := f.Section(name); s != nil {
			data, err := s.Data()
			if err != nil {
				t.Fatal(err)
			}
			return data
		}
	}
	t.Fatal("the test binary has no pclntab")
	return nil
}

// lookUp asks a table for addresses all over it.
func lookUp(t testing.TB, data []byte, pc uint64) {
	tab, err := parsePclntab(data, 0x401000)
	if err != nil {
		return
	}
	// The inlined calls lie elsewhere in a file; here the table stands for it.
	tab.funcdata = func(off uint32, n int) ([]byte, error) {
		if uint64(off)+uint64(n) > uint64(len(data)) {
			return nil, os.ErrInvalid
		}
		return data[off:][:n], nil
	}
	pcs := []uint64{pc, 0, tab.text, tab.text - 1, ^uint64(0)}
	for i := range 8 {
		if tab.nfunc > 0 {
			entry, _ := tab.functab(i * tab.nfunc / 8)
			pcs = append(pcs, tab.text+uint64(entry)+pc%64)
		}
	}
	for _, pc := range pcs {
		frames := tab.frames(pc, "m")
		if len(frames) > maxInlineDepth+1 {
			t.Fatalf("%d frames at %#x", len(frames), pc)
		}
		for i, f := range frames {
			if f.Function == "" || f.Inlined != (i < len(frames)-1) || len(f.File) > maxNameLength {
				t.Fatalf("frame %d of %d at %#x: %+v", i, len(frames), pc, f)
			}
		}
		tab.frameless(pc)
	}
}

// FuzzPclntab changes bytes of a real table: six bytes of input are a place in
// it, from its start or its parts, and the byte to put there.
func FuzzPclntab(f *testing.F) {
	data := ownTable(f)
	f.Add([]byte{}, uint64(0x401000))
	f.Add([]byte{0, 7, 0, 0, 0, 4, 1, 0, 0, 0, 0, 255}, uint64(0x402345))
	f.Fuzz(func(t *testing.T, changes []byte, pc uint64) {
		type change struct {
			at  int
			was byte
		}
		var undo []change
		for ; len(changes) >= 6; changes = changes[6:] {
			at := uint64(binary.LittleEndian.Uint32(changes[1:]))
			// A part of the table's own, where chance would seldom lead.
			if part := changes[0] % 9; part > 0 && part < 6 {
				at += binary.LittleEndian.Uint64(data[8+8*(2+uint64(part)):])
			}
			i := int(at % uint64(len(data)))
			undo = append(undo, change{i, data[i]})
			data[i] = changes[5]
		}
		lookUp(t, data, pc)
		for i := len(undo) - 1; i >= 0; i-- {
			data[undo[i].at] = undo[i].was
		}
	})
}

// FuzzPclntabBytes parses any bytes as a table.
func FuzzPclntabBytes(f *testing.F) {
	head := make([]byte, headerSize+64)
	binary.LittleEndian.PutUint32(head, magicGo120)
	head[6], head[7] = 1, 8
	f.Add(head, uint64(0x401000))
	f.Add([]byte{}, uint64(0))
	f.Fuzz(func(t *testing.T, data []byte, pc uint64) { lookUp(t, data, pc) })
}

func TestPclntabRefusals(t *testing.T) {
	good := ownTable(t)
	if _, err := parsePclntab(good, 0x401000); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		edit func(b []byte) []byte
		want string
	}{
		{"empty", func([]byte) []byte { return nil }, "damaged"},
		{"magic of Go 1.16", func(b []byte) []byte { binary.LittleEndian.PutUint32(b, 0xfffffffa); return b }, "no Go release from 1.18 on"},
		{"32-bit", func(b []byte) []byte { b[7] = 4; return b }, "64-bit"},
		{"quantum", func(b []byte) []byte { b[6] = 0; return b }, "instruction size"},
		{"functions", func(b []byte) []byte { binary.LittleEndian.PutUint64(b[8:], 1<<40); return b }, "functions"},
		{"offset", func(b []byte) []byte { binary.LittleEndian.PutUint64(b[8+8*7:], 1<<63); return b }, "functions"},
	} {
		head := append([]byte(nil), good[:min(len(good), 4096)]...)
		_, err := parsePclntab(c.edit(head), 0x401000)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
	}
}
