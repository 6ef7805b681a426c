//go:build linux && (amd64 || arm64)

package thread

import (
	"encoding/binary"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// memory is a thread's stack as words from an address on.
type memory struct {
	base  uint64
	words []uint64
}

func (m memory) read(addr uint64, into []byte) bool {
	if addr < m.base || addr%8 != 0 {
		return false
	}
	first := (addr - m.base) / 8
	for i := 0; i < len(into); i += 8 {
		at := first + uint64(i/8)
		if at >= uint64(len(m.words)) {
			return false
		}
		binary.LittleEndian.PutUint64(into[i:], m.words[at])
	}
	return true
}

func TestWalk(t *testing.T) {
	m := memory{base: 0x1000, words: []uint64{
		0, 0, // locals
		0x1020, 0xa1, // frame at 0x1010
		0x1040, 0xa2, // frame at 0x1020
		7, 7,
		0, 0xa3, // frame at 0x1040, the last
	}}
	want := []uint64{0xa0, 0xa1, 0xa2, 0xa3}
	if got := walk(0xa0, 0x1000, 0x1010, m.read); !slices.Equal(got, want) {
		t.Errorf("walk = %#x, want %#x", got, want)
	}
	for name, bp := range map[string]uint64{"none": 0, "odd": 0x1011, "below the stack": 0x0ff8, "not mapped": 0x9000} {
		if got := walk(0xa0, 0x1000, bp, m.read); !slices.Equal(got, []uint64{0xa0}) {
			t.Errorf("walk from a frame pointer that is %s = %#x, want the first address only", name, got)
		}
	}
}

// Any memory gives a stack of bounded depth.
func TestWalkBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := memory{base: 0x1000, words: rapid.SliceOfN(rapid.OneOf(rapid.Uint64Range(0x1000, 0x1800).Filter(func(v uint64) bool { return v%8 == 0 }), rapid.Uint64()), 0, 400).Draw(t, "words")}
		bp := 0x1000 + 8*rapid.Uint64Range(0, 100).Draw(t, "bp")
		ips := walk(1, 0x1000, bp, m.read)
		if len(ips) == 0 || len(ips) > maxWalk || ips[0] != 1 {
			t.Fatalf("walk = %#x", ips)
		}
	})
}

// A long chain ends at the bound.
func TestWalkDeep(t *testing.T) {
	var m memory
	m.base = 0x1000
	for i := range uint64(300) {
		m.words = append(m.words, m.base+16*(i+1), 0xb0)
	}
	if got := len(walk(1, m.base, m.base, m.read)); got != maxWalk {
		t.Errorf("%d frames, want %d", got, maxWalk)
	}
}
