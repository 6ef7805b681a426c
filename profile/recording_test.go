package profile_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/contention-toolkit/contention/profile"
)

func capture() *profile.Capture {
	p := profile.New(profile.Blocked)
	p.Start, p.Duration = time.Unix(1700000000, 0).UTC(), 2500*time.Millisecond
	b := profile.NewSliceBuilder(profile.SliceWidth)
	for i, name := range []string{"offer", "flow"} {
		s := p.Add(p.InternFrames([]profile.Frame{frame(name)}), p.InternLabels(), int64(10*(i+1)))
		b.Add(0, s, int64(4*(i+1)))
		b.Add(2300*time.Millisecond, s, int64(6*(i+1)))
	}
	return &profile.Capture{
		Source: profile.SourceGoroutines, Profile: p, Slices: b.Slices(), Start: p.Start, End: p.Start.Add(p.Duration),
		Loss: map[string]int64{"racy": 0}, Accounting: &profile.Accounting{TotalNs: 30, BlockedNs: 30},
	}
}

func TestRecordingRoundTrip(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "rec")
	w, err := profile.Create(dir, profile.Meta{Targets: []profile.Target{{PID: 7, Executable: "/bin/broker"}}})
	if err != nil {
		t.Fatal(err)
	}
	c := capture()
	if err := w.Capture(c); err != nil {
		t.Fatal(err)
	}
	// What an interrupted recorder leaves can be read, and says so.
	r, err := profile.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if !r.Meta.Incomplete || r.Meta.Why == "" || r.Profiles[c.Source] == nil {
		t.Errorf("an unfinished recording: incomplete %v, why %q", r.Meta.Incomplete, r.Meta.Why)
	}
	if err := w.Finish(func(m *profile.Meta) { m.Warnings = append(m.Warnings, "w") }); err != nil {
		t.Fatal(err)
	}
	if r, err = profile.Open(dir); err != nil {
		t.Fatal(err)
	}
	if r.Meta.Incomplete || len(r.Meta.Warnings) != 1 {
		t.Errorf("a finished recording: incomplete %v, warnings %q", r.Meta.Incomplete, r.Meta.Warnings)
	}
	if d := cmp.Diff(c.Profile.String(), r.Profiles[c.Source].String()); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(c.Slices, r.Slices[c.Source]); d != "" {
		t.Error(d)
	}
	if info := r.Meta.Info(c.Source); info == nil || info.Accounting.BlockedNs != 30 || info.Window.DurationNs != int64(2500*time.Millisecond) {
		t.Errorf("source info is %+v", info)
	}
	if _, err := profile.Create(dir, profile.Meta{}); err == nil {
		t.Error("a recording was written over another")
	}
	left, _ := filepath.Glob(filepath.Join(dir, ".*"))
	if len(left) > 0 {
		t.Errorf("temporary files left: %v", left)
	}
}

func TestOpenRefuses(t *testing.T) {
	dir := t.TempDir()
	if _, err := profile.Open(dir); err == nil || !strings.Contains(err.Error(), "contention record") {
		t.Errorf("an empty directory: %v", err)
	}
	write := func(m profile.Meta) {
		data, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, profile.MetaFile), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(profile.Meta{Schema: profile.MetaSchema + 1})
	if _, err := profile.Open(dir); err == nil || !strings.Contains(err.Error(), "schema") {
		t.Errorf("a later schema: %v", err)
	}
	write(profile.Meta{Schema: 1, Sources: []profile.SourceInfo{{Source: "x", File: "../../etc/passwd"}}})
	if _, err := profile.Open(dir); err == nil || !strings.Contains(err.Error(), "leaves the recording") {
		t.Errorf("a file outside: %v", err)
	}
	write(profile.Meta{Schema: 1, Sources: []profile.SourceInfo{{Source: "x", File: "x.pb.gz"}}})
	if _, err := profile.Open(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing file: %v", err)
	}
}

func TestBetween(t *testing.T) {
	c := capture()
	for _, tc := range []struct {
		from, to time.Duration
		want     string
	}{
		{0, 0, "flow:4 20\noffer:5 10\n"},
		{0, time.Second, "flow:4 8\noffer:5 4\n"},
		{2 * time.Second, 0, "flow:4 12\noffer:5 6\n"},
		{time.Second, 2 * time.Second, "\n"},
	} {
		p, err := c.Slices.Between(c.Profile, tc.from, tc.to)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff("blocked/nanoseconds\n"+tc.want, p.String()); d != "" {
			t.Errorf("%v to %v:\n%s", tc.from, tc.to, d)
		}
	}
	if p, _ := c.Slices.Between(c.Profile, 2*time.Second, 0); p.Duration != 500*time.Millisecond {
		t.Errorf("the last, cut slice lasts %v", p.Duration)
	}
	for _, w := range [][2]time.Duration{{3 * time.Second, 0}, {time.Second, time.Second}, {-1, 0}, {100 * time.Millisecond, 200 * time.Millisecond}} {
		if _, err := c.Slices.Between(c.Profile, w[0], w[1]); err == nil {
			t.Errorf("window %v was accepted", w)
		}
	}
}

// Slices sum up to the profile, whatever is added and in whatever order.
func TestSlicesSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := profile.New(profile.Blocked, profile.Waits)
		b := profile.NewSliceBuilder(time.Second)
		stacks := []profile.StackID{p.InternFrames([]profile.Frame{frame("a")}), p.InternFrames([]profile.Frame{frame("b")})}
		for range rapid.IntRange(0, 40).Draw(t, "n") {
			v := rapid.Int64Range(0, 1<<40).Draw(t, "v")
			i := p.Add(rapid.SampledFrom(stacks).Draw(t, "stack"), p.InternLabels(), v, 1)
			b.Add(time.Duration(rapid.Int64Range(-1, int64(time.Minute)).Draw(t, "at")), i, v, 1)
		}
		var buf bytes.Buffer
		if err := profile.WriteSlices(&buf, b.Slices(), p); err != nil {
			t.Fatal(err)
		}
		s, err := profile.ReadSlices(&buf, p)
		if err != nil {
			t.Fatal(err)
		}
		sum := make([][2]int64, len(p.Samples))
		for _, e := range s.Entries {
			sum[e.Sample][0] += e.Values[0]
			sum[e.Sample][1] += e.Values[1]
		}
		for i, x := range p.Samples {
			if sum[i] != [2]int64(x.Values) {
				t.Fatalf("sample %d: slices sum to %v, want %v", i, sum[i], x.Values)
			}
		}
	})
}

func TestSlicesOfAnotherProfile(t *testing.T) {
	c := capture()
	var buf bytes.Buffer
	if err := profile.WriteSlices(&buf, c.Slices, c.Profile); err != nil {
		t.Fatal(err)
	}
	if _, err := profile.ReadSlices(&buf, profile.New(profile.Blocked)); err == nil || !strings.Contains(err.Error(), "another profile") {
		t.Errorf("error is %v", err)
	}
}

// Entries that name samples of an empty profile are refused.
func TestSlicesOfNoSamples(t *testing.T) {
	var buf bytes.Buffer
	buf.WriteString("CSLICE1\n")
	z := gzip.NewWriter(&buf)
	// width 1, one value, no samples, one entry: slice 0, sample 0, value 0
	if _, err := z.Write([]byte{1, 1, 0, 1, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := profile.ReadSlices(&buf, profile.New(profile.Blocked)); err == nil || !strings.Contains(err.Error(), "no samples") {
		t.Errorf("error is %v", err)
	}
}

func FuzzReadSlices(f *testing.F) {
	c := capture()
	var buf bytes.Buffer
	if err := profile.WriteSlices(&buf, c.Slices, c.Profile); err != nil {
		f.Fatal(err)
	}
	f.Add(buf.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := profile.ReadSlices(bytes.NewReader(data), c.Profile)
		if err != nil {
			return
		}
		for _, e := range s.Entries {
			if int(e.Sample) >= len(c.Profile.Samples) || len(e.Values) != 1 {
				t.Fatalf("entry %+v does not fit the profile", e)
			}
		}
	})
}

func TestWriteFileKeepsTheOldOnError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "no", "such", "dir")
	if err := profile.WriteFile(path, []byte("x")); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error is %v, want one that names %s", err, path)
	}
}
