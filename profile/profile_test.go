package profile_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	pprof "github.com/google/pprof/profile"
	"pgregory.net/rapid"

	"github.com/contention-toolkit/contention/profile"
)

func frame(name string) profile.Frame {
	return profile.Frame{Function: name, File: name + ".go", Line: len(name), Module: "/bin/broker"}
}

func inlined(name string) profile.Frame {
	f := frame(name)
	f.Inlined = true
	return f
}

// genProfile draws profiles as sources make them: inlined frames before the
// frame that holds them, both of one module.
func genProfile(t *rapid.T) *profile.Profile {
	p := profile.New(profile.Blocked, profile.Runnable, profile.Samples)
	p.Start, p.Duration = time.Unix(1700000000, 5), 3*time.Second
	n := rapid.IntRange(0, 30).Draw(t, "samples")
	for range n {
		var frames []profile.Frame
		for range rapid.IntRange(1, 6).Draw(t, "depth") {
			module := rapid.SampledFrom([]string{"", "/bin/broker", profile.KernelModule}).Draw(t, "module")
			for range rapid.IntRange(0, 2).Draw(t, "inlined") {
				frames = append(frames, profile.Frame{Function: rapid.StringN(1, 8, -1).Draw(t, "name"), Line: rapid.IntRange(0, 9).Draw(t, "line"), Module: module, Inlined: true})
			}
			frames = append(frames, profile.Frame{Function: rapid.StringN(1, 8, -1).Draw(t, "name"), File: rapid.SampledFrom([]string{"", "a.go"}).Draw(t, "file"), Line: rapid.IntRange(0, 9).Draw(t, "line"), Module: module})
		}
		reason := rapid.SampledFrom([]string{"", "chan receive", "sync.Mutex.Lock"}).Draw(t, "reason")
		p.Add(p.InternFrames(frames), p.InternLabels(profile.Label{Key: profile.LabelReason, Value: reason}),
			rapid.Int64Range(-5, 1<<40).Draw(t, "blocked"), rapid.Int64Range(0, 9).Draw(t, "runnable"), 1)
	}
	return p
}

func TestPprofRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := genProfile(t)
		var buf bytes.Buffer
		if err := profile.Write(&buf, p); err != nil {
			t.Fatal(err)
		}
		q, err := profile.Read(&buf)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(p.String(), q.String()); d != "" {
			t.Fatalf("profile changed:\n%s", d)
		}
		if len(p.Samples) != len(q.Samples) {
			t.Fatalf("%d samples, want %d", len(q.Samples), len(p.Samples))
		}
		for i := range p.Samples { // slices name samples by index
			if d := cmp.Diff(p.Frames(p.Samples[i].Stack), q.Frames(q.Samples[i].Stack)); d != "" {
				t.Fatalf("sample %d moved:\n%s", i, d)
			}
		}
		if !q.Start.Equal(p.Start) || q.Duration != p.Duration {
			t.Fatalf("window %v %v, want %v %v", q.Start, q.Duration, p.Start, p.Duration)
		}
	})
}

func TestAddMergesEqualStacks(t *testing.T) {
	p := profile.New(profile.Blocked)
	s := p.InternFrames([]profile.Frame{inlined("lock"), frame("offer"), frame("main")})
	l := p.InternLabels(profile.Label{Key: "b", Value: "2"}, profile.Label{Key: "a", Value: "1"}, profile.Label{Key: "empty"})
	if m := p.InternLabels(profile.Label{Key: "a", Value: "1"}, profile.Label{Key: "b", Value: "2"}); m != l {
		t.Errorf("the order of labels makes two sets of them")
	}
	p.Add(s, l, 3)
	p.Add(s, l, 4)
	want := "blocked/nanoseconds\nmain:4;offer:5;lock:4[i] a=\"1\" b=\"2\" 7\n"
	if d := cmp.Diff(want, p.String()); d != "" {
		t.Error(d)
	}
}

func TestRelabelKeepsIndexes(t *testing.T) {
	p := profile.New(profile.Blocked)
	a := p.Add(p.InternFrames([]profile.Frame{frame("a")}), p.InternLabels(), 1)
	b := p.Add(p.InternFrames([]profile.Frame{frame("b")}), p.InternLabels(), 2)
	p.Relabel(func(f []profile.Frame, l profile.Labels) profile.Labels { return l.With("is", f[0].Function) })
	for i, want := range map[int]string{a: "a", b: "b"} {
		if got := p.Labels(p.Samples[i].Labels).Get("is"); got != want {
			t.Errorf("sample %d is labelled %q, want %q", i, got, want)
		}
	}
	if i := p.Add(p.Samples[b].Stack, p.InternLabels(profile.Label{Key: "is", Value: "b"}), 5); i != b || p.Samples[b].Values[0] != 7 {
		t.Errorf("adding to a relabelled sample made sample %d", i)
	}
}

func TestCheckValid(t *testing.T) {
	for name, p := range map[string]*profile.Profile{
		"no sample type":      profile.New(),
		"given twice":         profile.New(profile.Blocked, profile.Blocked),
		"default sample type": {SampleTypes: []profile.ValueType{profile.Blocked}, Default: "cpu"},
		"inlined into nothing": func() *profile.Profile {
			p := profile.New(profile.Blocked)
			p.Add(p.InternFrames([]profile.Frame{inlined("x")}), p.InternLabels(), 1)
			return p
		}(),
		"2 values": {SampleTypes: []profile.ValueType{profile.Blocked}, Samples: []profile.Sample{{Values: []int64{1, 2}}}},
	} {
		if err := p.CheckValid(); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error is %v", name, err)
		}
	}
}

// A small file that repeats one location very often is refused, not unfolded.
func TestReadBoundsStacks(t *testing.T) {
	loc := &pprof.Location{ID: 1, Address: 1}
	in := &pprof.Profile{SampleType: []*pprof.ValueType{{Type: "blocked", Unit: "nanoseconds"}}, Location: []*pprof.Location{loc}}
	deep := &pprof.Sample{Value: []int64{1}}
	for range 1 << 15 {
		deep.Location = append(deep.Location, loc)
	}
	in.Sample = []*pprof.Sample{deep}
	var buf bytes.Buffer
	if err := in.Write(&buf); err != nil {
		t.Fatal(err)
	}
	if _, err := profile.Read(&buf); err == nil || !strings.Contains(err.Error(), "32768 frames") {
		t.Errorf("error is %v, want one that names the stack's depth", err)
	}
}

func FuzzRead(f *testing.F) {
	p := profile.New(profile.Blocked, profile.Runnable)
	p.Add(p.InternFrames([]profile.Frame{inlined("lock"), frame("offer")}), p.InternLabels(profile.Label{Key: "reason", Value: "x"}), 1, 2)
	var buf bytes.Buffer
	if err := profile.Write(&buf, p); err != nil {
		f.Fatal(err)
	}
	f.Add(buf.Bytes())
	f.Add([]byte("--- contention:\ncycles/second=1\n1 0 @ 0x1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := profile.Read(bytes.NewReader(data))
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := profile.Write(&out, p); err != nil {
			t.Fatalf("a profile that was read cannot be written: %v", err)
		}
	})
}
