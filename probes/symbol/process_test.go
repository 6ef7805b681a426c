//go:build linux && amd64

package symbol

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contention-toolkit/contention/internal/testutil"
	"github.com/contention-toolkit/contention/profile"
)

// addresses returns some addresses of every function: its first, and a few
// inside.
func addresses(t testing.TB, p *Process) []uint64 {
	t.Helper()
	tab := p.exe.table
	r := rand.New(rand.NewPCG(1, 2))
	var pcs []uint64
	for i := range tab.nfunc {
		entry, _ := tab.functab(i)
		f, ok := tab.find(tab.text + uint64(entry))
		if !ok {
			t.Fatalf("function %d at %#x is not found", i, entry)
		}
		// The runtime takes return addresses, so the last byte is the next function's.
		if f.end-f.entry < 2 {
			continue
		}
		pcs = append(pcs, f.entry+p.bias)
		for range 12 {
			pcs = append(pcs, f.entry+p.bias+r.Uint64N(f.end-f.entry-1))
		}
	}
	return pcs
}

// Every address of every function has the frames that the runtime of the
// program itself sees there, inlined calls expanded.
func TestFramesAgreeWithTheRuntime(t *testing.T) {
	for _, flags := range [][]string{nil, {"-buildmode=pie"}, {"-ldflags=-w"}, {"-ldflags=-s -w", "-buildmode=pie"}} {
		t.Run(strings.Join(flags, " "), func(t *testing.T) {
			g := start(t, build(t, flags...))
			p := open(t, g.pid)
			pcs := addresses(t, p)
			var inlined, deep, bad int
			for len(pcs) > 0 {
				n := min(len(pcs), 500)
				for i, want := range g.frames(pcs[:n]) {
					got := p.Frames(pcs[i], false)
					if len(got) > 1 {
						inlined++
					}
					if len(got) > 3 {
						deep++
					}
					if d := differ(got, want); d != "" && len(want) > 0 {
						if bad++; bad < 20 {
							t.Errorf("%#x: %s\ngot  %v\nwant %v", pcs[i], d, got, want)
						}
					}
				}
				pcs = pcs[n:]
			}
			t.Logf("%d functions, %d addresses with inlined calls, %d with more than two, %d differ", p.exe.table.nfunc, inlined, deep, bad)
			if inlined < 1000 || deep < 50 {
				t.Errorf("only %d addresses lie in inlined calls, %d in deep ones: the test shows nothing", inlined, deep)
			}
		})
	}
}

// differ compares frames with the runtime's, which leaves out wrappers.
func differ(got, want []profile.Frame) string {
	var left []profile.Frame
	for i, f := range got {
		if f.Inlined != (i < len(got)-1) {
			return fmt.Sprintf("frame %d of %d has Inlined %v", i, len(got), f.Inlined)
		}
		// The runtime's source marks reflect.callMethod as a wrapper by hand.
		if i > 0 && (Wrapper(f) || f.Function == "reflect.callMethod") {
			continue
		}
		left = append(left, profile.Frame{Function: f.Function, File: f.File, Line: f.Line})
	}
	if len(left) != len(want) {
		return fmt.Sprintf("%d frames, the runtime sees %d", len(left), len(want))
	}
	for i := range left {
		if want[i].Function == "" {
			left[i].Function = "" // the runtime takes the first name of its table for none
		}
		if left[i] != want[i] {
			return fmt.Sprintf("frame %d differs", i)
		}
	}
	return ""
}

// The wait site of the model case is a call that the compiler inlines: it must
// not vanish.
func TestInlinedCallHasItsFrame(t *testing.T) {
	g := start(t, build(t))
	p := open(t, g.pid)
	var producer, generic uint64
	if _, err := fmt.Sscan(g.ask("addr"), &producer, &generic); err != nil {
		t.Fatal(err)
	}
	f, ok := p.exe.table.find(producer - p.bias)
	if !ok {
		t.Fatal("main.producer is not found")
	}
	var seen bool
	for pc := f.entry; pc < f.end; pc++ {
		frames := p.Frames(pc+1+p.bias, true)
		last := frames[len(frames)-1]
		if last.Function != "main.producer" || last.Inlined || last.File != "" && filepath.Base(last.File) != "main.go" {
			t.Fatalf("frames at %#x: %v", pc, frames)
		}
		if len(frames) > 1 && frames[len(frames)-2].Function == "main.(*queue).offer" {
			seen = true
			if p.Frameless(pc + p.bias) {
				t.Errorf("main.producer has no frame at %#x", pc)
			}
		}
	}
	if !seen {
		t.Error("main.(*queue).offer was inlined into main.producer, and no address of it says so")
	}
	if f := p.Frames(generic, false); f[len(f)-1].Function != "main.generic[...]" {
		t.Errorf("a generic function is named %v", f)
	}
	if !p.Frameless(producer) {
		t.Error("main.producer has a frame where it begins")
	}
}

// A process that has ended, and whose executable is gone, still has names.
func TestFramesAfterTheEnd(t *testing.T) {
	exe := filepath.Join(t.TempDir(), "target with a space")
	data, err := os.ReadFile(build(t, "-buildmode=pie"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(exe, data, 0o755); err != nil {
		t.Fatal(err)
	}
	g := start(t, exe)
	var producer, generic uint64
	if _, err := fmt.Sscan(g.ask("addr"), &producer, &generic); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(exe); err != nil {
		t.Fatal(err)
	}
	p := open(t, g.pid)
	g.end()
	f := p.Frames(producer, false)
	if f[0].Function != "main.producer" || f[0].Module != exe {
		t.Errorf("frames %v", f)
	}
}

func TestUnknownAddress(t *testing.T) {
	g := start(t, build(t))
	p := open(t, g.pid)
	for _, addr := range []uint64{0, 1, 1<<64 - 1, 1 << 47} {
		want := []profile.Frame{{Function: fmt.Sprintf("0x%x", addr)}}
		if got := p.Frames(addr, true); len(got) != 1 || got[0] != want[0] {
			t.Errorf("frames at %#x: %v", addr, got)
		}
	}
}

func TestOffsetTableAgreesWithDWARF(t *testing.T) {
	with, err := openTarget(t, build(t)).Go()
	if err != nil {
		t.Fatal(err)
	}
	without, err := openTarget(t, build(t, "-ldflags=-w")).Go()
	if err != nil {
		t.Fatal(err)
	}
	if !with.FromDWARF || without.FromDWARF {
		t.Fatalf("offsets from DWARF: %v, and without it %v", with.FromDWARF, without.FromDWARF)
	}
	if with.Offsets != without.Offsets {
		t.Errorf("DWARF says %+v\nthe table says %+v", with.Offsets, without.Offsets)
	}
	if with.Version != runtime.Version() {
		t.Errorf("version %q, want %q", with.Version, runtime.Version())
	}
}

func openTarget(t *testing.T, exe string) *Process { return open(t, start(t, exe).pid) }

func TestRefusals(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	if _, err := open(t, cmd.Process.Pid).Go(); err == nil || !strings.Contains(err.Error(), "not a Go executable") {
		t.Errorf("sleep: %v", err)
	}
	if _, err := OpenProcess(1 << 30); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such process: %v", err)
	}
}

// A release that is in no table is refused by name when there is no DWARF.
func TestUnknownRelease(t *testing.T) {
	p := openTarget(t, build(t, "-ldflags=-w"))
	info := *p.exe.goInfo
	info.GoVersion = "go1.99.1"
	p.exe.goInfo = &info
	if _, err := p.Go(); err == nil || !strings.Contains(err.Error(), "go1.99.1") || !strings.Contains(err.Error(), "go1.19 to go1.27") || !strings.Contains(err.Error(), "newer version of contention") {
		t.Errorf("go1.99.1: %v", err)
	}
}

// The libraries of a process in another language are found by their mappings.
func TestLibrarySymbols(t *testing.T) {
	cmd := exec.Command("sleep", "60")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	var p *Process
	testutil.Eventually(t, 10*time.Second, "sleep has loaded its library", func() bool {
		q, err := OpenProcess(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range q.maps {
			if strings.Contains(m.path, "libc") {
				p = q
				return true
			}
		}
		q.Close()
		return false
	})
	defer p.Close()
	for i := range p.maps {
		m := &p.maps[i]
		if !strings.Contains(m.path, "libc") {
			continue
		}
		img := p.imageOf(m)
		if img == nil {
			t.Fatalf("%s cannot be read", m.path)
		}
		b, ok := img.bias(m.start, m.off)
		if !ok {
			t.Fatalf("%s is mapped at %#x+%#x, which is no segment of it", m.path, m.start, m.off)
		}
		for _, s := range img.symbols {
			if s.name != "clock_nanosleep" && s.name != "malloc" {
				continue
			}
			f := p.Frames(b+s.start+1, false)
			if len(f) != 1 || f[0].Module != m.path || f[0].Function != s.name {
				t.Errorf("%s: frames %v", s.name, f)
			}
			return
		}
		t.Fatalf("%s has neither malloc nor clock_nanosleep", m.path)
	}
}

// A library that was replaced on disk is read as it is mapped, never as what has
// taken its place.
func TestReplacedLibrary(t *testing.T) {
	exe := build(t)
	path := filepath.Join(t.TempDir(), "library")
	data, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	page := os.Getpagesize()
	b, err := unix.Mmap(int(f.Fd()), 0, len(data)&^(page-1), unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Munmap(b) }()
	// Another file takes the name.
	if err := os.WriteFile(path+".new", []byte("not ELF"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	p := open(t, os.Getpid())
	var m *mapping
	for i := range p.maps {
		if strings.HasPrefix(p.maps[i].path, path) {
			m = &p.maps[i]
		}
	}
	if m == nil {
		t.Fatal("the mapping is not there")
	}
	if img := p.imageOf(m); img != nil {
		if img.path != path || img.goInfo == nil || img.buildID == "" {
			t.Errorf("%s: build ID %q", img.path, img.buildID)
		}
	} else if os.Getuid() == 0 {
		t.Error("the mapped file cannot be read")
	}
	// Without the privilege only the path is there, which is another file.
	q := *m
	q.start, q.end, q.path = 1, 2, path
	if f := p.openMapped(&q); f != nil {
		f.Close()
		t.Error("the file that has taken its place was opened")
	}
}

// Open files and mappings are given back.
func TestCloseFrees(t *testing.T) {
	g := start(t, build(t))
	before := descriptors(t)
	for range 3 {
		p, err := OpenProcess(g.pid)
		if err != nil {
			t.Fatal(err)
		}
		p.Frames(p.exe.table.text+p.bias, false)
		p.Close()
		p.Close()
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors, before %d", after, before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	e, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(e)
}

func BenchmarkOpenProcess(b *testing.B) {
	g := start(b, build(b))
	b.ReportAllocs()
	for b.Loop() {
		p, err := OpenProcess(g.pid)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Go(); err != nil {
			b.Fatal(err)
		}
		p.Close()
	}
}

func BenchmarkFrames(b *testing.B) {
	p := open(b, start(b, build(b)).pid)
	pcs := addresses(b, p)
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		p.exe.frames(pcs[i%len(pcs)] - p.bias)
	}
}
