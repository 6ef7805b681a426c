package flamegraph

import (
	"flag"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/contention-toolkit/contention/profile"
)

var update = flag.Bool("update", false, "rewrite the golden files; read the difference before committing")

// fromText makes a profile of lines "outermost;…;leaf value"; a frame that ends
// in _[k] is of the kernel.
func fromText(t testing.TB, text string) *profile.Profile {
	t.Helper()
	p := profile.New(profile.Blocked)
	addText(t, p, text)
	return p
}

func addText(t testing.TB, p *profile.Profile, text string) {
	t.Helper()
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		i := strings.LastIndexByte(line, ' ')
		v, err := strconv.ParseInt(line[i+1:], 10, 64)
		if err != nil {
			t.Fatalf("line %q: %v", line, err)
		}
		add(p, v, strings.Split(line[:i], ";")...)
	}
}

// add adds a stack, outermost frame first.
func add(p *profile.Profile, v int64, names ...string) {
	var frames []profile.Frame
	for i := len(names) - 1; i >= 0; i-- {
		f := profile.Frame{Function: names[i]}
		if s, ok := strings.CutSuffix(names[i], "_[k]"); ok {
			f = profile.Frame{Function: s, Module: profile.KernelModule}
		}
		frames = append(frames, f)
	}
	p.Add(p.InternFrames(frames), p.InternLabels(), v)
}

func build(t testing.TB, p *profile.Profile, o Options) *Tree {
	t.Helper()
	tree, err := Build(p, o)
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

func buildDiff(t testing.TB, before, after *profile.Profile, o Options) *DiffTree {
	t.Helper()
	d, err := BuildDiff([]Run{{Profile: before}}, []Run{{Profile: after}}, o)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// paths lists a tree as "outermost;…;frame" in order.
func paths(nodes []Node, names []Name) []string {
	var out, path []string
	for _, n := range nodes {
		path = append(path[:n.Depth:n.Depth], names[n.Name].Text)
		out = append(out, strings.Join(path[min(1, len(path)-1):], ";"))
	}
	return out
}

func (t *Tree) paths() []string {
	var n []Node
	for _, x := range t.Nodes {
		n = append(n, x.Node)
	}
	return paths(n, t.Names)
}

func (t *DiffTree) paths() []string {
	var n []Node
	for _, x := range t.Nodes {
		n = append(n, x.Node)
	}
	return paths(n, t.Names)
}

// golden compares got with testdata/name. A missing file is a failure.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatalf("no golden file: %v (write it with -update and read it)", err)
	}
	if string(want) != string(got) {
		t.Errorf("%s differs from what is written now (-update rewrites it)\ngot:\n%s", file, got)
	}
}
