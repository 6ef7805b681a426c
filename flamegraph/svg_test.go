package flamegraph

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/contention-toolkit/contention/profile"
)

type failer interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func writeTree(t failer, tree *Tree, o SVGOptions) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteSVG(&b, tree, o); err != nil {
		t.Fatal(err)
	}
	checkSVG(t, b.Bytes())
	return b.String()
}

func writeDiff(t failer, d *DiffTree, o SVGOptions) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteDiffSVG(&b, d, o); err != nil {
		t.Fatal(err)
	}
	checkSVG(t, b.Bytes())
	return b.String()
}

const exampleBefore = `
runtime.goexit;main.main.func1;github.com/ex/broker/server.(*Conn).serve;github.com/ex/broker/executor.(*Queue).Offer;sync.(*Mutex).Lock;runtime.gopark 52000
runtime.goexit;main.main.func1;github.com/ex/broker/server.(*Conn).serve;github.com/ex/broker/dispatch.(*Dispatcher).Flow;sync.(*Mutex).Lock;runtime.gopark 9000
runtime.goexit;main.main.func1;github.com/ex/broker/server.(*Conn).serve;bufio.(*Writer).Flush;internal/poll.(*FD).Write;runtime.gopark 6000
runtime.goexit;main.main.func2;github.com/ex/broker/ledger.(*Segment).Append;syscall.fsync;do_syscall_64_[k];jbd2_log_wait_commit_[k] 1800
0x7f12;main.tiny 12
0x7f13;main.tiny 12
`

const exampleAfter = `
runtime.goexit;main.main.func1;github.com/ex/broker/server.(*Conn).serve;github.com/ex/broker/executor.(*Queue).OfferAll;sync.(*Mutex).Lock;runtime.gopark 2100
runtime.goexit;main.main.func1;github.com/ex/broker/server.(*Conn).serve;github.com/ex/broker/dispatch.(*Dispatcher).Flow;sync.(*Mutex).Lock;runtime.gopark 7400
runtime.goexit;main.main.func1;github.com/ex/broker/server.(*Conn).serve;bufio.(*Writer).Flush;internal/poll.(*FD).Write;runtime.gopark 14000
runtime.goexit;main.main.func2;github.com/ex/broker/ledger.(*Segment).Append;syscall.fsync;do_syscall_64_[k];jbd2_log_wait_commit_[k] 1750
`

func exampleOptions() Options {
	return Options{
		Scale: 10, Per: "message", TrimScheduler: true,
		Keep: func(f []profile.Frame, _ profile.Labels) bool { return f[0].Function != "main.idle" },
	}
}

func TestGoldenSingle(t *testing.T) {
	p := fromText(t, exampleBefore+"main.main;main.idle 70000\n")
	svg := writeTree(t, build(t, p, exampleOptions()), SVGOptions{
		Title: "Off-CPU time of an example", Plane: "goroutine", Source: "sampler", Notes: []string{"A note & a <tag>."},
	})
	golden(t, "single.svg", []byte(svg))
}

func TestGoldenDiff(t *testing.T) {
	before, after := fromText(t, exampleBefore+"main.main;main.idle 70000\n"), fromText(t, exampleAfter)
	svg := writeDiff(t, buildDiff(t, before, after, exampleOptions()), SVGOptions{
		Title: "Off-CPU time of an example", Plane: "goroutine", Source: "sampler", Before: "direct", After: "batched", NoiseFloor: 20,
	})
	golden(t, "diff.svg", []byte(svg))
}

func TestGoldenEmpty(t *testing.T) {
	svg := writeTree(t, build(t, profile.New(profile.Blocked), Options{}), SVGOptions{})
	golden(t, "empty.svg", []byte(svg))
}

func TestEmptySaysWhy(t *testing.T) {
	idle := func([]profile.Frame, profile.Labels) bool { return false }
	for _, c := range []struct {
		text string
		o    Options
		want string
	}{
		{"", Options{}, "the profile holds no blocked time"},
		{"a 5\n", Options{Keep: idle}, "all of its 5.00 ns is idle"},
		{"a -5\n", Options{}, "negative value"},
	} {
		if svg := writeTree(t, build(t, fromText(t, c.text), c.o), SVGOptions{}); !strings.Contains(svg, c.want) {
			t.Errorf("%q: picture lacks %q:\n%s", c.text, c.want, svg)
		}
	}
}

var hostile = []string{
	"</script><script>alert(1)</script>", "]]>", "<![CDATA[", "&lt;&#0;", `" onload="x`, "'", "\x00\x01\x1b[31m", "\xff\xfe\xfd",
	"evil\u202etxt.exe", "\u2028\u2029", "\ufeff", "\ufffe", "日本語の関数", strings.Repeat("é\u0301", 200), strings.Repeat("A", 1<<17), "", " ", "a;b 12",
	"עברית", "<!--", "--", "?>", "%s%d", "\U0010ffff", strings.Repeat("/", 300), strings.Repeat("(", 300), "\n\n", "x\ty",
}

func TestHostileNames(t *testing.T) {
	p, q := profile.New(profile.Blocked), profile.New(profile.Blocked)
	for i, n := range hostile {
		add(p, int64(100+i), n, n+"x", "main.f")
		add(q, int64(300-i), n, "main.f", n)
	}
	o := SVGOptions{Title: hostile[0], Plane: hostile[1], Source: hostile[6], Before: hostile[8], After: hostile[7], Notes: hostile, Sites: 50}
	svg := writeTree(t, build(t, p, Options{Per: hostile[0], Unit: hostile[6]}), o)
	if strings.Contains(svg, "<script") || strings.Contains(svg, "]]>") {
		t.Error("markup of a name came through")
	}
	writeDiff(t, buildDiff(t, p, q, Options{Per: hostile[0], Unit: hostile[6]}), o)
}

func FuzzNames(f *testing.F) {
	for _, n := range hostile {
		f.Add(n, int64(7), int64(0), uint16(0))
		f.Add(n, int64(-1), int64(1<<62), uint16(400))
	}
	f.Fuzz(func(t *testing.T, name string, v, w int64, px uint16) {
		p, q := profile.New(profile.Blocked), profile.New(profile.Blocked)
		add(p, v, name, "main.f", name)
		add(p, w, "a", name)
		add(q, w, name, "main.f")
		add(q, v, name+"b")
		tree := build(t, p, Options{Per: name})
		writeTree(t, tree, SVGOptions{Title: name, Notes: []string{name}, Width: int(px)})
		writeDiff(t, buildDiff(t, p, q, Options{Unit: name}), SVGOptions{Before: name, Source: name, Width: int(px)})
		if err := WriteFolded(io.Discard, p, Options{}); err != nil {
			t.Fatal(err)
		}
	})
}

// wide is a profile of so many distinct stacks with long names.
func wide(stacks int, seed uint64) *profile.Profile {
	r := rand.New(rand.NewPCG(seed, 2))
	p := profile.New(profile.Blocked)
	names := make([]string, 400)
	for i := range names {
		names[i] = fmt.Sprintf("github.com/example/project/internal/component%d.(*ServiceImplementation%d).HandleRequest%d", i%17, i%53, i)
	}
	for i := range stacks {
		depth := 5 + r.IntN(20)
		stack := make([]string, depth)
		for j := range stack {
			// Few ways near the root, as in real stacks.
			ways := 2
			if j > 9 {
				ways = len(names)
			}
			stack[j] = names[(j*8+r.IntN(ways))%len(names)]
		}
		stack[depth-1] = "leaf" + strconv.Itoa(i)
		add(p, int64(1+r.ExpFloat64()*1e6), stack...)
	}
	return p
}

func TestSizeIsBounded(t *testing.T) {
	stacks := 100_000
	if testing.Short() {
		stacks = 10_000
	}
	p, q := wide(stacks, 1), wide(stacks/5, 2)
	tree := build(t, p, Options{})
	svg := writeTree(t, tree, SVGOptions{})
	if len(svg) > 300_000 || len(svg) < 100_000 {
		t.Errorf("picture of %d stacks has %d bytes, want at most 300,000 and good use of them", stacks, len(svg))
	}
	if !strings.Contains(svg, "not drawn on their own") {
		t.Error("the picture does not say what was left out")
	}
	diff := writeDiff(t, buildDiff(t, p, q, Options{}), SVGOptions{})
	if len(diff) > 300_000 || len(diff) < 100_000 {
		t.Errorf("differential picture has %d bytes", len(diff))
	}
	if small := writeTree(t, tree, SVGOptions{MaxBytes: 20_000}); len(small) > 20_000 {
		t.Errorf("asked for 20,000 bytes, got %d", len(small))
	}
	if err := WriteSVG(io.Discard, tree, SVGOptions{MaxBytes: 100}); err == nil || !strings.Contains(err.Error(), "does not fit in 100 bytes") {
		t.Errorf("no room at all: %v", err)
	}
}

// Any width gives labels inside their boxes and text inside the picture; the
// checks are in checkSVG.
func TestWidths(t *testing.T) {
	p := fromText(t, exampleBefore)
	d := buildDiff(t, p, fromText(t, exampleAfter), Options{})
	for _, w := range []int{-1, 1, 400, 777, 1000, 4000, 1 << 30} {
		writeTree(t, build(t, p, Options{}), SVGOptions{Width: w})
		writeDiff(t, d, SVGOptions{Width: w})
	}
}

func TestAccountingIsPrinted(t *testing.T) {
	p := fromText(t, "main.f 10\n0x12;main.g 5\nmain.idle 85\nmain.n -1\n")
	tree := build(t, p, Options{MaxDepth: 8, Keep: func(f []profile.Frame, _ profile.Labels) bool { return f[0].Function != "main.idle" }})
	svg := writeTree(t, tree, SVGOptions{})
	for _, want := range []string{
		"15.0 ns shown, idle left out: 85.0 ns", "5.00 ns (33 % of what is shown) has frames without a symbol.", "1 sample with a negative value left out.",
	} {
		if !strings.Contains(svg, want) {
			t.Errorf("picture lacks %q", want)
		}
	}
}

// The files of the examples are small enough to read in a review.
func TestGoldensAreSmall(t *testing.T) {
	files, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, f := range files {
		if f.IsDir() {
			continue
		}
		n++
		if i, err := f.Info(); err != nil || i.Size() > 20_000 {
			t.Errorf("%s: %v, %v", f.Name(), i, err)
		}
	}
	if n != 3 {
		t.Errorf("%d golden files, want 3", n)
	}
}

// A CPU profile has no waits to speak of.
func TestOnlyWaitsAreCalledWaits(t *testing.T) {
	p := profile.New(profile.ValueType{Type: "cpu", Unit: "nanoseconds"})
	add(p, 5, "main.f")
	if svg := writeTree(t, build(t, p, Options{}), SVGOptions{}); strings.Contains(svg, "wait") || strings.Contains(svg, "Wait") {
		t.Error("a CPU profile is said to wait")
	}
	if svg := writeTree(t, build(t, fromText(t, "main.f 5\n"), Options{}), SVGOptions{}); !strings.Contains(svg, "Wait sites") {
		t.Error("no table of wait sites")
	}
}
