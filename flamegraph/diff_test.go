package flamegraph

import (
	"math"
	"strings"
	"testing"

	"github.com/contention-toolkit/contention/profile"
	"pgregory.net/rapid"
)

// naive is the arithmetic without a tree: every stack's values on both sides,
// and every prefix summed by itself.
type naive map[string][2]float64

func (n naive) add(side int, samples []genSample, div float64) {
	for _, s := range samples {
		k := strings.Join(s.stack, ";")
		v := n[k]
		v[side] += float64(s.value) / div
		n[k] = v
	}
}

func (n naive) at(path string) (before, after, common, grown, shrunk float64) {
	for k, v := range n {
		if path != "" && k != path && !strings.HasPrefix(k, path+";") {
			continue
		}
		before += v[0]
		after += v[1]
		common += min(v[0], v[1])
		grown += max(0, v[1]-v[0])
		shrunk += max(0, v[0]-v[1])
	}
	return
}

func near(a, b, total float64) bool { return math.Abs(a-b) <= 1e-9*(1+total) }

func TestDiffAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		model := naive{}
		var sides [2][]Run
		for i, name := range []string{"before", "after"} {
			runs := rapid.IntRange(1, 3).Draw(t, name+" runs")
			for range runs {
				s := genSamples(t, name)
				scale := rapid.Float64Range(0.5, 1000).Draw(t, "scale")
				sides[i] = append(sides[i], Run{profileOf(s), scale})
				model.add(i, s, scale*float64(runs))
			}
		}
		d, err := BuildDiff(sides[0], sides[1], Options{Names: NamesRaw})
		if err != nil {
			t.Fatal(err)
		}
		_, _, c, g, s := model.at("")
		total := c + g + s
		kernel := strings.NewReplacer("k", "k_[k]")
		seen := map[string]bool{}
		for i, path := range d.paths() {
			n := d.Nodes[i]
			if i == 0 {
				path = ""
			}
			path = kernel.Replace(path)
			if seen[path] {
				t.Fatalf("%q is there twice", path)
			}
			seen[path] = true
			b, a, c, g, s := model.at(path)
			if !near(n.Before(), b, total) || !near(n.After(), a, total) || !near(n.Common, c, total) || !near(n.Grown, g, total) || !near(n.Shrunk, s, total) {
				t.Fatalf("%q = %+v (before %v after %v), want before %v after %v common %v grown %v shrunk %v", path, n, n.Before(), n.After(), b, a, c, g, s)
			}
			if !near(n.Delta(), a-b, total) || n.Common < 0 || n.Grown < 0 || n.Shrunk < 0 {
				t.Fatalf("%q: delta %v or a negative part: %+v", path, n.Delta(), n)
			}
			children := 0.0
			for j := i + 1; j < int(n.Next); j = int(d.Nodes[j].Next) {
				children += d.Nodes[j].Width()
			}
			if children > n.Width()+1e-9*(1+total) {
				t.Fatalf("%q: children %v do not fit %v", path, children, n.Width())
			}
		}
		for k, v := range model {
			if (v[0] > 0 || v[1] > 0) && !seen[k] {
				t.Fatalf("stack %q is missing", k)
			}
		}
		if !near(d.Before.Shown, d.Nodes[0].Before(), total) || !near(d.After.Shown, d.Nodes[0].After(), total) {
			t.Fatalf("sides %v and %v, root %+v", d.Before.Shown, d.After.Shown, d.Nodes[0])
		}
	})
}

// Two lines of one stack add up: 10→20 and 5→50 is a change by 55.
func TestDuplicateStacksAddUp(t *testing.T) {
	before := profile.New(profile.Blocked)
	after := profile.New(profile.Blocked)
	for i, v := range []int64{10, 5} {
		frames := before.InternFrames([]profile.Frame{{Function: "b"}, {Function: "a"}})
		before.Add(frames, before.InternLabels(profile.Label{Key: "n", Value: string(rune('a' + i))}), v)
	}
	add(after, 20, "a", "b")
	add(after, 50, "a", "b")
	if d := buildDiff(t, before, after, Options{}); d.Nodes[2].Delta() != 55 {
		t.Errorf("delta = %v, want 55", d.Nodes[2].Delta())
	}
}

func TestIdenticalInputsShowNoChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := genSamples(t, "samples")
		scale := rapid.Float64Range(0.5, 1000).Draw(t, "scale")
		runs := []Run{{profileOf(s), scale}, {profileOf(genSamples(t, "more")), scale}}
		d, err := BuildDiff(runs, runs, Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i, n := range d.Nodes {
			if n.Grown != 0 || n.Shrunk != 0 || n.Delta() != 0 {
				t.Fatalf("node %d changed: %+v", i, n)
			}
		}
		for _, s := range d.Sites {
			if s.Before != s.After {
				t.Fatalf("site changed: %+v", s)
			}
		}
		svg := writeDiff(t, d, SVGOptions{Sites: -1})
		if d.Nodes[0].Width() > 0 && !strings.Contains(svg, "no change in any stack") {
			t.Fatal("the picture does not say that nothing changed")
		}
		if _, frames, _ := strings.Cut(svg, `<g class="fr">`); strings.Contains(frames, `class="ss"`) || strings.Contains(frames, `class="sg"`) ||
			strings.Contains(frames, `<rect class="g`) || strings.Contains(frames, `<rect class="f`) || strings.Contains(frames, `<rect class="new`) {
			t.Fatal("a frame is not grey")
		}
	})
}

// A tower that vanishes stays visible, as does one that is new.
func TestVanishedAndNewFramesShow(t *testing.T) {
	d := buildDiff(t, fromText(t, "main.main;main.old 95\nmain.main;main.both 15\n"), fromText(t, "main.main;main.new 40\nmain.main;main.both 15\n"), Options{})
	svg := writeDiff(t, d, SVGOptions{})
	for _, want := range []string{
		`<rect class="gone" x="`, `<rect class="new" x="`,
		">gone: main.old<", ">new: main.new<", "−50 % main.main<",
		"before 110 ns → after 55.0 ns: −50 % (−55.0 ns)",
		"main.old\nbefore 95.0 ns (86 % of its total)\nafter 0 ns (0 % of its total)\ndifference −95.0 ns: gone of this frame, −86 % of before&#39;s total",
	} {
		if !strings.Contains(svg, want) {
			t.Errorf("picture lacks %q", want)
		}
	}
	if t.Failed() {
		t.Log(svg)
	}
}

func TestOneSideWithoutTime(t *testing.T) {
	full, empty := fromText(t, "main.f;main.g 10\n"), profile.New(profile.Blocked)
	for _, c := range []struct {
		before, after *profile.Profile
		want          string
	}{
		{full, empty, "all of it is gone"}, {empty, full, "all of it is new"}, {empty, empty, "Nothing to draw on either side"},
	} {
		svg := writeDiff(t, buildDiff(t, c.before, c.after, Options{}), SVGOptions{})
		if !strings.Contains(svg, c.want) {
			t.Errorf("picture lacks %q", c.want)
		}
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Error("picture divides by zero")
		}
	}
}
