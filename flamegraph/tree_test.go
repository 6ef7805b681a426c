package flamegraph

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/contention-toolkit/contention/profile"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestBuild(t *testing.T) {
	p := fromText(t, `
		main.main;main.work;sync.(*Mutex).Lock 10
		main.main;main.work 5
		main.main;main.idle;sync.(*Cond).Wait 100
		main.main;main.work;sync.(*Mutex).Lock;runtime.gopark 0
	`)
	tree := build(t, p, Options{
		Scale: 5, Per: "message",
		Keep: func(frames []profile.Frame, _ profile.Labels) bool {
			return frames[len(frames)-2].Function != "main.idle"
		},
	})
	want := []string{"all", "main.main", "main.main;main.work", "main.main;main.work;sync.(*Mutex).Lock"}
	if got := tree.paths(); !slices.Equal(got, want) {
		t.Errorf("paths = %q, want %q", got, want)
	}
	for i, v := range [][2]float64{{3, 0}, {3, 0}, {3, 1}, {2, 2}} {
		if n := tree.Nodes[i]; n.Value != v[0] || n.Self != v[1] {
			t.Errorf("node %d = %+v, want value %v self %v", i, n, v[0], v[1])
		}
	}
	if tree.Shown != 3 || tree.Idle != 20 {
		t.Errorf("shown %v idle %v, want 3 and 20", tree.Shown, tree.Idle)
	}
	if d := cmp.Diff([]Site{{"main.work", 3}}, tree.Sites); d != "" {
		t.Errorf("sites: %s", d)
	}
	if d := cmp.Diff(Measure{[]string{"blocked"}, "nanoseconds", "message"}, tree.Measure); d != "" {
		t.Errorf("measure: %s", d)
	}
}

func TestBuildValues(t *testing.T) {
	p := profile.New(profile.Blocked, profile.Runnable, profile.Samples)
	p.Add(p.InternFrames([]profile.Frame{{Function: "main.f"}}), p.InternLabels(), 3, 4, 1)
	for _, c := range []struct {
		values []string
		want   float64
		unit   string
	}{{nil, 7, "nanoseconds"}, {[]string{"runnable"}, 4, "nanoseconds"}, {[]string{"samples"}, 1, "count"}} {
		tree := build(t, p, Options{Values: c.values})
		if tree.Shown != c.want || tree.Unit != c.unit {
			t.Errorf("values %q: %v %s, want %v %s", c.values, tree.Shown, tree.Unit, c.want, c.unit)
		}
	}
	q := profile.New(profile.ValueType{Type: "contentions", Unit: "count"}, profile.ValueType{Type: "delay", Unit: "nanoseconds"})
	q.Add(q.InternFrames([]profile.Frame{{Function: "main.f"}}), q.InternLabels(), 2, 50)
	if tree := build(t, q, Options{}); tree.Shown != 50 {
		t.Errorf("a contention profile shows %v, want its delay, 50", tree.Shown)
	}
	q.Default = "contentions"
	if tree := build(t, q, Options{}); tree.Shown != 2 {
		t.Errorf("shows %v, want the default type, 2", tree.Shown)
	}
}

func TestBuildErrors(t *testing.T) {
	p := fromText(t, "main.f 1")
	mixed := profile.New(profile.Blocked, profile.Samples)
	for _, c := range []struct {
		name string
		p    *profile.Profile
		o    Options
		want string
	}{
		{"no profile", nil, Options{}, "no profile"},
		{"broken", &profile.Profile{}, Options{}, "broken profile"},
		{"unknown type", p, Options{Values: []string{"delay"}}, `no sample type "delay", only blocked/nanoseconds`},
		{"twice", p, Options{Values: []string{"blocked", "blocked"}}, "given twice"},
		{"units", mixed, Options{Values: []string{"blocked", "samples"}}, "cannot sum"},
		{"scale", p, Options{Scale: math.NaN()}, "no divisor"},
		{"negative scale", p, Options{Scale: -1}, "no divisor"},
		{"infinite scale", p, Options{Scale: math.Inf(1)}, "no divisor"},
	} {
		if _, err := Build(c.p, c.o); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
	if _, err := BuildDiff(nil, []Run{{Profile: p}}, Options{}); err == nil {
		t.Error("a side without runs gives no error")
	}
	_, err := BuildDiff([]Run{{Profile: p}}, []Run{{Profile: p}, {Profile: mixedDelay(t)}}, Options{})
	if err == nil || !strings.Contains(err.Error(), "after: run 2: ") || !strings.Contains(err.Error(), "cannot compare") {
		t.Errorf("other types on one side: error %v", err)
	}
}

func mixedDelay(t *testing.T) *profile.Profile {
	t.Helper()
	q := profile.New(profile.ValueType{Type: "delay", Unit: "nanoseconds"})
	add(q, 1, "main.f")
	return q
}

// Siblings are ordered by whole names: a line-wise sort would part b in two.
func TestSiblingsStayTogether(t *testing.T) {
	tree := build(t, fromText(t, "a;b 1\na;b(x) 2\na;b;c 3\n"), Options{})
	want := []string{"all", "a", "a;b", "a;b;c", "a;b(x)"}
	if got := tree.paths(); !slices.Equal(got, want) {
		t.Errorf("paths = %q, want %q", got, want)
	}
}

func TestKernelFrameIsNotTheUserFrameOfThatName(t *testing.T) {
	tree := build(t, fromText(t, "a;read 1\na;read_[k] 2\n"), Options{})
	if len(tree.Nodes) != 4 {
		t.Fatalf("nodes = %q, want both reads", tree.paths())
	}
	if u, k := tree.Names[tree.Nodes[2].Name], tree.Names[tree.Nodes[3].Name]; u.Kernel || !k.Kernel {
		t.Errorf("order: %+v, %+v", u, k)
	}
}

func TestTrimScheduler(t *testing.T) {
	p := fromText(t, `
		main.f;sync.(*Mutex).Lock;runtime.semacquire1;runtime.goparkunlock;runtime.gopark 1
		runtime.mcall;runtime.park_m 2
		main.g;runtime.gopark;main.h 4
		main.r;futex_wait_[k];schedule_[k];__schedule_[k] 8
		main.s;schedule_timeout_[k] 16
	`)
	got := build(t, p, Options{TrimScheduler: true}).paths()
	want := []string{
		"all", "main.f", "main.f;sync.(*Mutex).Lock", "main.f;sync.(*Mutex).Lock;runtime.semacquire1",
		"main.g", "main.g;runtime.gopark", "main.g;runtime.gopark;main.h",
		"main.r", "main.r;futex_wait", "main.s", "main.s;schedule_timeout", "runtime.mcall",
	}
	if !slices.Equal(got, want) {
		t.Errorf("paths = %q\nwant %q", got, want)
	}
}

func TestDeepStacksAreFolded(t *testing.T) {
	deep := make([]string, 5000)
	for i := range deep {
		deep[i] = "f" + strings.Repeat("x", i%7)
	}
	deep[0], deep[len(deep)-1] = "root", "leaf"
	p := profile.New(profile.Blocked)
	add(p, 7, deep...)
	add(p, 1, "root")
	tree := build(t, p, Options{MaxDepth: 10})
	if tree.Deep != 1 || tree.DeepFrames != 4991 {
		t.Errorf("deep %d stacks, %d frames, want 1 and 4991", tree.Deep, tree.DeepFrames)
	}
	got := tree.paths()
	last := strings.Split(got[len(got)-1], ";")
	if len(last) != 10 || last[0] != "root" || last[9] != "leaf" || last[4] != foldName {
		t.Errorf("deepest path = %q", last)
	}
	if tree.Shown != 8 {
		t.Errorf("shown = %v, want 8", tree.Shown)
	}
}

func TestNegativeAndHugeValues(t *testing.T) {
	tree := build(t, fromText(t, "a 5\nb -3\nc 9223372036854775807\nd 9223372036854775807\n"), Options{})
	if tree.Negative != 1 {
		t.Errorf("negative = %d, want 1", tree.Negative)
	}
	if want := float64(math.MaxInt64)*2 + 5; math.Abs(tree.Nodes[0].Value/want-1) > 1e-9 {
		t.Errorf("total = %v, want %v", tree.Nodes[0].Value, want)
	}
}

func TestSumOfValuesStaysInRange(t *testing.T) {
	p := profile.New(profile.Blocked, profile.Runnable)
	p.Add(p.InternFrames([]profile.Frame{{Function: "main.f"}}), p.InternLabels(), math.MaxInt64, 5)
	if tree := build(t, p, Options{}); tree.Shown != math.MaxInt64 {
		t.Errorf("shown = %v, want the end of the range", tree.Shown)
	}
}

func TestEmptyStackAndNames(t *testing.T) {
	p := profile.New(profile.Blocked)
	p.Add(p.InternFrames(nil), p.InternLabels(), 3)
	add(p, 4, "")
	tree := build(t, p, Options{})
	if got, want := tree.paths(), []string{"all", "[unknown]"}; !slices.Equal(got, want) {
		t.Errorf("paths = %q, want %q", got, want)
	}
	if tree.Unsymbolised != 7 || tree.Sites[0] != (Site{noSiteName, 7}) {
		t.Errorf("unsymbolised %v, sites %v", tree.Unsymbolised, tree.Sites)
	}
}

func TestApplicationSetsTheSite(t *testing.T) {
	p := fromText(t, "main.f;github.com/x/lib.Do;sync.(*Mutex).Lock 1\n")
	o := Options{Application: func(f profile.Frame) bool { return strings.HasPrefix(f.Function, "main.") }}
	if s := build(t, p, o).Sites; s[0].Name != "main.f" {
		t.Errorf("site = %v, want main.f", s)
	}
	if s := build(t, p, Options{}).Sites; s[0].Name != "github.com/x/lib.Do" {
		t.Errorf("site = %v, want the dependency", s)
	}
}

func TestMergesAreReported(t *testing.T) {
	before := fromText(t, "main.f.func1;main.g 1\nmain.f.func2;main.g 2\n")
	after := fromText(t, "main.f.func3;main.g 4\n")
	d := buildDiff(t, before, after, Options{})
	want := []Merge{{Name: "main.f.func*", Count: 3, From: []string{"main.f.func1", "main.f.func2", "main.f.func3"}}}
	if diff := cmp.Diff(want, d.Merged); diff != "" {
		t.Error(diff)
	}
	if n := d.Nodes[1]; n.Common != 3 || n.Grown != 1 {
		t.Errorf("joined literal = %+v", n)
	}
	if raw := buildDiff(t, before, after, Options{Names: NamesRaw}); len(raw.Merged) != 0 || len(raw.Nodes) != 7 {
		t.Errorf("raw names were joined: %q", raw.paths())
	}
}

var genStack = rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "b(x)", "c", "main.f", "k_[k]"}), 1, 5)

type genSample struct {
	stack []string
	value int64
}

func genSamples(t *rapid.T, name string) []genSample {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) genSample {
		return genSample{genStack.Draw(t, "stack"), rapid.Int64Range(0, 1<<40).Draw(t, "value")}
	}), 0, 12).Draw(t, name)
}

func profileOf(samples []genSample) *profile.Profile {
	p := profile.New(profile.Blocked)
	for _, s := range samples {
		add(p, s.value, s.stack...)
	}
	return p
}

// The order of samples in a file changes nothing, to the byte.
func TestOrderOfSamplesDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		samples := genSamples(t, "samples")
		shuffled := rapid.Permutation(samples).Draw(t, "shuffled")
		a, err := Build(profileOf(samples), Options{Scale: 7})
		if err != nil {
			t.Fatal(err)
		}
		b, err := Build(profileOf(shuffled), Options{Scale: 7})
		if err != nil {
			t.Fatal(err)
		}
		var x, y strings.Builder
		if err := WriteSVG(&x, a, SVGOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := WriteSVG(&y, b, SVGOptions{}); err != nil {
			t.Fatal(err)
		}
		if x.String() != y.String() {
			t.Fatalf("pictures differ:\n%s\n%s", &x, &y)
		}
	})
}
