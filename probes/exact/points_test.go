//go:build linux && amd64

package exact

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/contention-toolkit/contention/probes/symbol"
)

func TestFindPush(t *testing.T) {
	for _, c := range []struct {
		name string
		code string
		want int
		err  string
	}{
		{"stack check", "\x49\x3b\x66\x10\x0f\x86\xdc\x00\x00\x00\x55\x48\x89\xe5", 10, ""},
		{"short jump", "\x49\x3b\x66\x10\x76\x20\x55\x48\x89\xe5", 6, ""},
		{"no check", "\x55\x48\x89\xe5", 0, ""},
		{"large frame", "\x4c\x8d\x64\x24\xc8\x4d\x3b\x66\x10\x0f\x86\x00\x01\x00\x00\x55", 15, ""},
		// The byte of a push within another instruction is none.
		{"argument moved first", "\x48\x89\xc2\x55", 0, "MOV"},
		{"no frame", "\x49\x3b\x66\x10\x76\x20\x48\x83\xec\x10", 0, "SUB"},
		{"not code", "\x06\x06\x06", 0, "not understood"},
		{"cut short", "\x49\x3b\x66\x10", 0, "no frame pointer"},
		{"empty", "", 0, "no frame pointer"},
	} {
		got, err := findPush([]byte(c.code))
		if c.err == "" && (err != nil || got != c.want) {
			t.Errorf("%s: %d, %v; want %d", c.name, got, err, c.want)
		}
		if c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %d, %v; want an error with %q", c.name, got, err, c.err)
		}
	}
}

func FuzzFindPush(f *testing.F) {
	f.Add([]byte("\x49\x3b\x66\x10\x0f\x86\xdc\x00\x00\x00\x55"))
	f.Fuzz(func(t *testing.T, code []byte) {
		if at, err := findPush(code); err == nil && code[at] != 0x55 {
			t.Errorf("byte %#x at %d is no push", code[at], at)
		}
	})
}

func TestReleases(t *testing.T) {
	for v, ok := range map[string]bool{
		"go1.19.8": false, "go1.20.14": false, "go1.21.0": true, "go1.24": true, "go1.26.8": true, "go1.26.8 X:nodwarf5": true, "go1.27.4": true,
		"go1.28.0": false, "go1.28rc1": false, "devel go1.27-abc": false, "": false, "go2.0": false,
	} {
		if err := checkRelease(v); (err == nil) != ok || err != nil && !errors.Is(err, ErrUnavailable) {
			t.Errorf("%q: %v", v, err)
		}
	}
}

// A function that is not there is named, with all others that are not.
func TestMissingFunctions(t *testing.T) {
	target := startTarget(t)
	p, err := symbol.OpenProcess(target.pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	_, err = findPoints(p, []string{funcPark, "runtime.noSuchOne", "runtime.norThis"})
	if !errors.Is(err, ErrUnavailable) || !errors.Is(err, symbol.ErrNoFunction) || !strings.Contains(err.Error(), "runtime.noSuchOne") || !strings.Contains(err.Error(), "runtime.norThis") {
		t.Errorf("got %v", err)
	}
}

func TestRefused(t *testing.T) {
	none := startCommand(t, "/bin/sleep", "60")
	for name, c := range map[string]struct {
		o    Options
		want string
	}{
		"itself":     {Options{PID: os.Getpid(), Waits: true}, "recorder itself"},
		"nothing":    {Options{PID: none}, "neither"},
		"no process": {Options{PID: 1 << 30, Waits: true}, "no such process"},
		"not Go":     {Options{PID: none, Waits: true}, "not a Go executable"},
	} {
		r, err := Start(t.Context(), c.o)
		if err == nil {
			_, _ = r.Stop()
			t.Errorf("%s: it was recorded", name)
		} else if !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

func TestFindCall(t *testing.T) {
	call := func(rel byte) []byte { return []byte{0xe8, rel, 0, 0, 0} }
	nop := []byte{0x90}
	for _, c := range []struct {
		name string
		code [][]byte
		want int64 // -1 for an error
	}{
		{"one", [][]byte{nop, call(0x10), nop}, 1},
		{"another's", [][]byte{call(0x40), nop, call(0x0b)}, 6},
		{"none", [][]byte{nop, call(0x11)}, -1},
		{"two", [][]byte{call(0x11), call(0x0c)}, -1},
		{"not understood", [][]byte{{0x06}}, -1},
		{"cut", [][]byte{{0xe8, 0x10}}, -1},
		{"empty", nil, -1},
	} {
		at, err := findCall(bytes.Join(c.code, nil), 0x16)
		if (err != nil) != (c.want < 0) || err == nil && at != uint64(c.want) {
			t.Errorf("%s: %d, %v; want %d", c.name, at, err, c.want)
		}
	}
}
