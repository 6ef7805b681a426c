package profile_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/contention-toolkit/contention/profile"
)

func TestDetailsRoundTrip(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "rec")
	w, err := profile.Create(dir, profile.Meta{})
	if err != nil {
		t.Fatal(err)
	}
	c := capture()
	c.Source, c.Slices = profile.SourceExact, nil
	c.Distributions = []profile.Distribution{{Sample: 0, Blocked: profile.Histogram{1, 2}, Runnable: profile.Histogram{3}}, {Sample: 1, Blocked: profile.Histogram{}, Runnable: profile.Histogram{}}}
	l := capture()
	l.Source, l.Slices = profile.SourceLocks, nil
	l.Locks = []profile.Lock{{Name: "executor.(*Queue).Offer", Kind: "sync.Mutex", Instances: 2, Addresses: []string{"0x10"}, Parks: 3, Pairs: []profile.LockPair{{Waiter: "a", Releaser: "b", Waits: 3}}, Sites: []profile.LockSites{}}}
	for _, c := range []*profile.Capture{c, l} {
		if err := w.Capture(c); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Finish(func(*profile.Meta) {}); err != nil {
		t.Fatal(err)
	}
	r, err := profile.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(c.Distributions, r.Distributions[profile.SourceExact]); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(l.Locks, r.Locks); d != "" {
		t.Error(d)
	}
	for name, content := range map[string]string{
		"sample 7 of":          `[{"sample":7}]`,
		"sample -1 of":         `[{"sample":-1}]`,
		"counts -3":            `[{"sample":0,"blocked":[1,-3]}]`,
		"65 buckets":           `[{"sample":0,"blocked":[` + strings.Repeat("0,", 64) + `0]}]`,
		"unexpected end":       `[{"sample":`,
		"cannot unmarshal":     `{"sample":0}`,
		"after top-level valu": `[] []`,
	} {
		path := filepath.Join(dir, profile.SourceExact.DistributionFile())
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := profile.Open(dir); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), path) {
			t.Errorf("%s: %v; want %q and the file's name", content, err, name)
		}
	}
}

func TestQuantile(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ns := rapid.SliceOfN(rapid.Int64Range(0, 1<<38), 1, 50).Draw(t, "ns")
		var h profile.Histogram
		for _, v := range ns {
			k := 0
			for v>>(k+1) > 0 {
				k++
			}
			one := make(profile.Histogram, k+1)
			one[k] = 1
			h = h.Merge(one)
		}
		if h.Count() != int64(len(ns)) {
			t.Fatalf("%d durations, want %d", h.Count(), len(ns))
		}
		q := rapid.Float64Range(0.01, 1).Draw(t, "q")
		bound, below := h.Quantile(q), 0
		for _, v := range ns {
			if v <= bound {
				below++
			}
		}
		if float64(below) < q*float64(len(ns))-1e-9 {
			t.Fatalf("%d of %d are at most the quantile %v, %d", below, len(ns), q, bound)
		}
		if d := cmp.Diff(append(profile.Histogram{}, h...), append(append(profile.Histogram{}, h...), 0, 0).Trim()); d != "" {
			t.Fatal(d)
		}
	})
}

func FuzzDistributions(f *testing.F) {
	dir := f.TempDir()
	w, err := profile.Create(dir, profile.Meta{})
	if err != nil {
		f.Fatal(err)
	}
	c := capture()
	c.Distributions, c.Locks = []profile.Distribution{}, []profile.Lock{}
	if err := w.Capture(c); err != nil {
		f.Fatal(err)
	}
	path := filepath.Join(dir, c.Source.DistributionFile())
	f.Add([]byte(`[{"sample":1,"blocked":[0,1],"runnable":[]}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		r, err := profile.Open(dir)
		if err != nil {
			return
		}
		for _, d := range r.Distributions[c.Source] {
			_ = r.Profiles[c.Source].Samples[d.Sample]
			if d.Blocked.Quantile(0.5) < 0 {
				t.Errorf("quantile of %v is negative", d.Blocked)
			}
		}
		if _, err := json.Marshal(r.Distributions); err != nil {
			t.Error(err)
		}
	})
}
