package profile_test

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/contention-toolkit/contention/profile"
)

// Merging keeps every value, tells targets apart, and moves what refers to
// samples along with them.
func TestMergeCaptures(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := time.Unix(1700000000, 0)
		var cs []*profile.Capture
		var want [3]int64
		byTarget := map[string]int64{}
		n := rapid.IntRange(2, 4).Draw(t, "targets")
		for i := range n {
			p := profile.New(profile.Blocked, profile.Runnable, profile.Samples)
			b := profile.NewSliceBuilder(profile.SliceWidth)
			c := &profile.Capture{Source: profile.SourceGoroutines, Profile: p, Start: start.Add(time.Duration(i) * time.Second), Accounting: &profile.Accounting{}, Loss: map[string]int64{"racy": 1}}
			c.End = c.Start.Add(3 * time.Second)
			id := string(rune('a' + i))
			for range rapid.IntRange(0, 8).Draw(t, "samples") {
				stack := p.InternFrames([]profile.Frame{frame(rapid.SampledFrom([]string{"f", "g", "h"}).Draw(t, "leaf")), frame("main")})
				v := []int64{rapid.Int64Range(0, 1e6).Draw(t, "blocked"), rapid.Int64Range(0, 1e6).Draw(t, "runnable"), 1}
				at := p.Add(stack, p.InternLabels(), v...)
				b.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, "slice"))*time.Second, at, v...)
				for k := range want {
					want[k] += v[k]
				}
				byTarget[id] += v[0]
				c.Accounting.BlockedNs += v[0]
			}
			for k := range p.Samples {
				c.Distributions = append(c.Distributions, profile.Distribution{Sample: k, Blocked: profile.Histogram{int64(i)}})
			}
			c.Slices = b.Slices()
			c.SetTarget(id)
			cs = append(cs, c)
		}
		m, err := profile.MergeCaptures(cs)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Profile.CheckValid(); err != nil {
			t.Fatal(err)
		}
		sliced := make([]int64, len(m.Profile.Samples))
		last := uint32(0)
		for _, e := range m.Slices.Entries {
			sliced[e.Sample] += e.Values[0]
			last = max(last, e.Slice)
		}
		got := map[string]int64{}
		for i, s := range m.Profile.Samples {
			got[m.Profile.Labels(s.Labels).Get(profile.LabelTarget)] += s.Values[0]
			if sliced[i] != s.Values[0] {
				t.Errorf("the slices of sample %d hold %d, the sample %d", i, sliced[i], s.Values[0])
			}
		}
		for k := range want {
			if m.Profile.Total(k) != want[k] {
				t.Errorf("value %d is %d, want %d", k, m.Profile.Total(k), want[k])
			}
		}
		for id, v := range byTarget {
			if got[id] != v {
				t.Errorf("target %s has %d, want %d", id, got[id], v)
			}
		}
		for _, d := range m.Distributions {
			id := m.Profile.Labels(m.Profile.Samples[d.Sample].Labels).Get(profile.LabelTarget)
			if int(id[0]-'a') != int(d.Blocked[0]) {
				t.Errorf("a distribution of target %c is at a sample of %s", rune('a'+d.Blocked[0]), id)
			}
		}
		if m.Accounting.BlockedNs != want[0] || m.Loss["racy"] != int64(n) {
			t.Errorf("accounting has %d blocked, want %d; %d racy", m.Accounting.BlockedNs, want[0], m.Loss["racy"])
		}
		if !m.Start.Equal(start) || !m.End.Equal(cs[n-1].End) || int(last) > n+1 {
			t.Errorf("the window is %v to %v, its last slice %d", m.Start, m.End, last)
		}
	})
}

func TestMergeCapturesOfDifferentSources(t *testing.T) {
	a, b := capture(), capture()
	b.Source = profile.SourceThreads
	if _, err := profile.MergeCaptures([]*profile.Capture{a, b}); err == nil || !strings.Contains(err.Error(), "not alike") {
		t.Errorf("they are merged: %v", err)
	}
	if m, err := profile.MergeCaptures([]*profile.Capture{a}); err != nil || m != a {
		t.Errorf("one alone becomes another: %v", err)
	}
}

// Messages of several brokers are counted together; one that was reset makes
// the sum unknown.
func TestWorkOfSums(t *testing.T) {
	m := profile.Meta{Work: []profile.WorkCounter{
		{Role: profile.WorkPublished, URL: "u1", Metric: "m", Start: 10, End: 30},
		{Role: profile.WorkDelivered, Start: 1, End: 2},
		{Role: profile.WorkPublished, URL: "u2", Metric: "m", Start: 100, End: 150},
	}}
	if w := m.WorkOf(profile.WorkPublished); w == nil || w.Delta() != 70 {
		t.Errorf("the sum is %+v, want 70 messages", w)
	}
	if m.Work[0].End != 30 {
		t.Error("summing changes the counter")
	}
	m.Work[2].Reset = true
	if w := m.WorkOf(profile.WorkPublished); !w.Reset || w.Delta() != 0 {
		t.Errorf("one counter was reset, and the sum is %v", w.Delta())
	}
	if m.WorkOf("other") != nil {
		t.Error("a counter of an unknown role")
	}
}
