//go:build linux && amd64

package symbol

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
)

// inMemory is an executable's bytes, to be changed.
type inMemory struct{ *bytes.Reader }

func (inMemory) Close() error { return nil }

func imageOfFile(t testing.TB, exe string) (*image, []byte) {
	t.Helper()
	data, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	m, err := openImage(exe, inMemory{bytes.NewReader(data)})
	if err != nil {
		t.Fatal(err)
	}
	return m, data
}

// What is found without symbols is what the symbols name.
func TestFoundWithoutSymbols(t *testing.T) {
	for _, flags := range [][]string{nil, {"-buildmode=pie"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			m, _ := imageOfFile(t, build(t, flags...))
			r, err := m.readRelocs()
			if err != nil {
				t.Fatal(err)
			}
			if pie := len(flags) > 0; pie != (len(r) > 1000) {
				t.Errorf("%d relocations", len(r))
			}
			mod, err := m.findModule(r)
			if err != nil {
				t.Fatal(err)
			}
			a, err := m.findAllgs()
			if err != nil {
				t.Fatal(err)
			}
			release := offsetTable[releaseOf(m.goInfo.GoVersion)]
			reasons, n, err := m.findReasons(r, release.reasons)
			if err != nil {
				t.Fatal(err)
			}
			full, _, err := m.findReasons(r, 0)
			if err != nil || full != reasons {
				t.Errorf("without the number of reasons: %#x, %v; want %#x", full, err, reasons)
			}
			for _, c := range []struct {
				name string
				got  uint64
			}{
				{"runtime.text", mod.text}, {"runtime.pclntab", mod.table}, {"go:func.*", mod.gofunc},
				{"runtime.allgptr", a.ptr}, {"runtime.allglen", a.len}, {"runtime.waitReasonStrings", reasons},
			} {
				if want := m.byName[c.name].Value; c.got != want {
					t.Errorf("%s is found at %#x, its symbol is at %#x", c.name, c.got, want)
				}
			}
			if want := int(m.byName["runtime.waitReasonStrings"].Size / 16); n != want {
				t.Errorf("%d wait reasons, want %d", n, want)
			}
		})
	}
}

// A file without section headers, as sstrip leaves it, is read by its segments.
func TestWithoutSections(t *testing.T) {
	for _, flags := range [][]string{{"-ldflags=-s -w"}, {"-ldflags=-s -w", "-buildmode=pie"}} {
		whole, data := imageOfFile(t, build(t, flags...))
		want, err := whole.goImage(0)
		if err != nil {
			t.Fatal(err)
		}
		bare := bytes.Clone(data)
		clear(bare[0x28:0x30]) // e_shoff
		clear(bare[0x3c:0x40]) // e_shnum, e_shstrndx
		m, err := openImage("bare", inMemory{bytes.NewReader(bare)})
		if err != nil {
			t.Fatal(err)
		}
		got, err := m.goImage(0)
		if err != nil {
			t.Fatalf("%v: %v", flags, err)
		}
		if *got != *want {
			t.Errorf("%v: without sections\n%+v\nwith\n%+v", flags, got, want)
		}
	}
}

func TestPacked(t *testing.T) {
	_, data := imageOfFile(t, build(t))
	head := bytes.Clone(data[:4096])
	clear(head[0x28:0x30])
	clear(head[0x3c:0x40])
	copy(head[0x400:], "UPX!")
	m, err := openImage("packed", inMemory{bytes.NewReader(head)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := m.goImage(0); err == nil || !strings.Contains(err.Error(), "upx -d") {
		t.Errorf("a packed file: %v", err)
	}
}

// The runtime's code may change: what does not look as known is refused.
func TestAllgaddRefusals(t *testing.T) {
	m, _ := imageOfFile(t, build(t))
	f, ok := m.table.entryOf("runtime.allgadd")
	if !ok {
		t.Fatal("no runtime.allgadd")
	}
	code, err := m.readAt(f.entry, int(f.end-f.entry))
	if err != nil {
		t.Fatal(err)
	}
	good, err := decodeAllgadd(code, f.entry)
	if err != nil {
		t.Fatal(err)
	}
	other, ok := m.table.entryOf("runtime.gopark")
	if !ok {
		t.Fatal("no runtime.gopark")
	}
	wrong, err := m.readAt(other.entry, int(other.end-other.entry))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string][]byte{"nothing": nil, "another function": wrong, "half": code[:len(code)/2], "no code": bytes.Repeat([]byte{0x06}, 64)} {
		if a, err := decodeAllgadd(c, f.entry); !errors.Is(err, errAllgadd) {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
	// Moved as a whole, everything moves along.
	moved, err := decodeAllgadd(code, f.entry+0x1000)
	if err != nil || moved.ptr != good.ptr+0x1000 || moved.len != good.len+0x1000 || moved.slice != good.slice+0x1000 {
		t.Errorf("moved: %+v, %v", moved, err)
	}
}

func FuzzAllgadd(f *testing.F) {
	f.Add([]byte{0x48, 0x87, 0x05, 1, 0, 0, 0}, uint64(0x401000))
	f.Fuzz(func(t *testing.T, code []byte, entry uint64) {
		a, err := decodeAllgadd(code, entry)
		if (err == nil) != (a.slice != 0 && a.ptr != 0 && a.len != 0) {
			t.Errorf("%+v, %v", a, err)
		}
	})
}

// Damaged files are read or refused, and never bring the reader down.
func TestDamagedExecutables(t *testing.T) {
	m, data := imageOfFile(t, build(t, "-ldflags=-s -w", "-buildmode=pie"))
	offset := func(addr uint64) int {
		for _, p := range m.elf.Progs {
			if addr >= p.Vaddr && addr < p.Vaddr+p.Filesz {
				return int(addr - p.Vaddr + p.Off)
			}
		}
		t.Fatalf("address %#x is not in the file", addr)
		return 0
	}
	r, err := m.readRelocs()
	if err != nil {
		t.Fatal(err)
	}
	mod, err := m.findModule(r)
	if err != nil {
		t.Fatal(err)
	}
	allgadd, _ := m.table.entryOf("runtime.allgadd")
	// Places where a change matters, and how much of them.
	places := []struct{ at, n int }{{0, 0x400}, {offset(mod.table), headerSize}, {offset(allgadd.entry), 256}, {0, len(data)}}
	for _, p := range m.elf.Progs {
		if p.Filesz > 0 && p.Filesz < 4096 {
			places = append(places, struct{ at, n int }{int(p.Off), int(p.Filesz)})
		}
	}
	rnd := rand.New(rand.NewPCG(1, 2))
	read, refused := 0, 0
	for range 150 {
		var undo []func()
		for range 1 + rnd.IntN(3) {
			p := places[rnd.IntN(len(places))]
			i := p.at + rnd.IntN(p.n)
			was := data[i]
			undo = append(undo, func() { data[i] = was })
			data[i] = byte(rnd.Uint32())
		}
		m, err := openImage("damaged", inMemory{bytes.NewReader(data)})
		if err == nil {
			_, err = m.goImage(0)
		}
		if err != nil {
			refused++
		} else {
			read++
		}
		for i := len(undo) - 1; i >= 0; i-- {
			undo[i]()
		}
	}
	t.Logf("%d read, %d refused", read, refused)
	if read == 0 || refused == 0 {
		t.Error("the test shows nothing")
	}
}
