package experiment

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/contention-toolkit/contention/analysis/result"
	"github.com/contention-toolkit/contention/load"
)

func TestBuiltinsAreValid(t *testing.T) {
	names := Names()
	if len(names) == 0 {
		t.Fatal("no experiment is built in")
	}
	for _, n := range names {
		s, err := Builtin(n)
		if err != nil {
			t.Errorf("%s: %v", n, err)
			continue
		}
		if s.Name != n {
			t.Errorf("file %s.yaml names itself %q", n, s.Name)
		}
		if _, err := load.LoadScenario(s.Scenario); err != nil {
			t.Errorf("%s: %v", n, err)
		}
	}
	if _, err := Builtin("no-such"); err == nil || !strings.Contains(err.Error(), "handoff") {
		t.Errorf("an unknown name: %v, want an error that lists the known ones", err)
	}
}

// The quick runs take under 60 s and the default ones under 15 min, with what
// every run needs beside its window.
func TestHandoffFitsItsTime(t *testing.T) {
	s, err := Builtin("handoff")
	if err != nil {
		t.Fatal(err)
	}
	total := func(r RunsSpec, around time.Duration) time.Duration {
		return time.Duration(len(Plan(r))) * (r.Duration + around)
	}
	if d := total(s.Quick, 4*time.Second); d > time.Minute {
		t.Errorf("quick runs take %v", d)
	}
	if d := total(s.Runs, 15*time.Second); d > 15*time.Minute {
		t.Errorf("runs take %v", d)
	}
}

func TestParseRefuses(t *testing.T) {
	ok := `{name: x, scenario: s, before: {name: a}, after: {name: b}, timeout: 1m,
runs: {unprofiled: 1, duration: 1s}, quick: {unprofiled: 1, duration: 1s}}`
	if _, err := Parse([]byte(ok)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ old, new, want string }{
		{"name: x", "name: ''", "name is missing"},
		{"scenario: s", "scenario: ''", "scenario"},
		{"{name: b}", "{name: a}", "both named"},
		{"{name: b}", "{}", "each need a name"},
		{"timeout: 1m", "timeout: 0s", "timeout"},
		{"runs: {unprofiled: 1", "runs: {unprofiled: -1", "unprofiled"},
		{"quick: {unprofiled: 1, duration: 1s}", "quick: {unprofiled: 1, duration: 1ms}", "duration"},
		{"name: x", "nmae: x", "nmae"},
	} {
		if _, err := Parse([]byte(strings.Replace(ok, tc.old, tc.new, 1))); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: error is %v, want one that names %q", tc.new, err, tc.want)
		}
	}
}

func TestPlanInterleaves(t *testing.T) {
	var got []string
	for _, p := range Plan(RunsSpec{Unprofiled: 3, Profiled: 2, Reconciliation: 1}) {
		got = append(got, p.Kind[:1]+" "+p.Side)
		if p.Index != len(got) {
			t.Errorf("run %d has index %d", len(got), p.Index)
		}
	}
	want := []string{
		"u before", "u after", "u after", "u before", "u before", "u after",
		"p before", "p after", "p after", "p before", "r before", "r after",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func run(variant, kind string, valid bool, rate, publish, endToEnd float64) result.Run {
	return result.Run{
		Variant: variant, Kind: kind, Valid: valid, Throughput: rate,
		PublishMs: result.Latency{P50: &publish}, EndToEndMs: result.Latency{P50: &endToEnd},
	}
}

// Only valid, unprofiled runs make the headline.
func TestHeadline(t *testing.T) {
	h := headline([]result.Run{
		run("before", result.KindPlain, true, 100, 10, 300), run("after", result.KindPlain, true, 110, 10, 23),
		run("before", result.KindPlain, true, 120, 12, 312), run("after", result.KindPlain, false, 999, 1, 1),
		run("before", result.KindProfiled, true, 1, 1, 1),
	})
	if *h.Throughput.Before != 110 || *h.Throughput.After != 110 || *h.Throughput.Ratio != 1 || h.Throughput.N != 1 {
		t.Errorf("throughput: %v to %v, ratio %v, n %d", *h.Throughput.Before, *h.Throughput.After, *h.Throughput.Ratio, h.Throughput.N)
	}
	if *h.EndToEndOverhead.Before != 295 || *h.EndToEndOverhead.After != 13 {
		t.Errorf("end to end over publish: %v to %v", *h.EndToEndOverhead.Before, *h.EndToEndOverhead.After)
	}
	if h.Throughput.Verdict != result.Undecided || h.Throughput.P != nil {
		t.Errorf("verdict %q", h.Throughput.Verdict)
	}
	if h.PublishP99.Before != nil || h.PublishP99.Ratio != nil {
		t.Error("a latency that no run has got a value")
	}
	none := headline(nil)
	if none.Throughput.Before != nil || none.Throughput.N != 0 {
		t.Error("no runs give a throughput")
	}
}
