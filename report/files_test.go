package report_test

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/perf/benchfmt"

	"github.com/contention-toolkit/contention/analysis/result"
	"github.com/contention-toolkit/contention/report"
)

func TestBenchfmtReadsBack(t *testing.T) {
	r := sample()
	r.Runs[2].Valid = false // run 3, after: must not be there
	text := render(t, report.Benchfmt, r)
	reader := benchfmt.NewReader(strings.NewReader(text), "bench.txt")
	lines := map[string]int{}
	for reader.Scan() {
		switch rec := reader.Result().(type) {
		case *benchfmt.SyntaxError:
			t.Fatal(rec)
		case *benchfmt.Result:
			side := rec.GetConfig("side")
			lines[side]++
			if string(rec.Name) != "Handoff" || rec.GetConfig("experiment") != "handoff" || rec.GetConfig("connections") != "500" {
				t.Errorf("%s with %v", rec.Name, rec.Config)
			}
			if want := map[string]string{"before": "direct", "after": "batched"}[side]; rec.GetConfig("variant") != want {
				t.Errorf("side %q is variant %q, want %q", side, rec.GetConfig("variant"), want)
			}
			if lines[side] == 1 && side == "before" {
				for unit, want := range map[string]float64{"msgs/s": r.Runs[0].Throughput, "p50-publish-ms": *r.Runs[0].PublishMs.P50, "p99-e2e-ms": *r.Runs[0].EndToEndMs.P99} {
					if v, ok := rec.Value(unit); !ok || v != want {
						t.Errorf("%s is %v %v, want %v", unit, v, ok, want)
					}
				}
				if len(rec.Values) != 10 {
					t.Errorf("%d values: %v", len(rec.Values), rec.Values)
				}
			}
		}
	}
	if err := reader.Err(); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(map[string]int{"before": 8, "after": 7}, lines); d != "" {
		t.Error(d)
	}
	better := reader.Units()[benchfmt.UnitMetadataKey{Unit: "msgs/s", Key: "better"}]
	if better == nil || better.Value != "higher" {
		t.Errorf("msgs/s is better %v", better)
	}
}

// readBack reports the first line that is not in the benchmark format.
func readBack(text string) error {
	reader := benchfmt.NewReader(strings.NewReader(text), "bench.txt")
	for reader.Scan() {
		if e, ok := reader.Result().(*benchfmt.SyntaxError); ok {
			return e
		}
	}
	return reader.Err()
}

func TestJSONRoundTrip(t *testing.T) {
	for name, r := range map[string]*result.Result{"full": sample(), "empty": {Schema: result.Schema}} {
		first := render(t, report.JSON, r)
		back, err := report.ReadJSON(strings.NewReader(first))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d := cmp.Diff(first, render(t, report.JSON, back)); d != "" {
			t.Errorf("%s changes when it is read and written:\n%s", name, d)
		}
		if strings.Contains(first, `"warnings": null`) || strings.Contains(first, `"queue_lock": null`) {
			t.Errorf("%s: an absent list or object is null", name)
		}
	}
}

func TestJSONErrors(t *testing.T) {
	bad := sample()
	bad.Headline.Throughput.Before = f(math.NaN())
	if err := report.JSON(io.Discard, bad); err == nil || !strings.Contains(err.Error(), "handoff") {
		t.Errorf("NaN gives %v", err)
	}
	for text, want := range map[string]string{
		"":                               "byte 0",
		"{":                              "unexpected EOF",
		`{"schema": 99}`:                 "newer contention",
		`{"schema": 0}`:                  "not a result.json",
		`{"schema": 1} {}`:               "more data",
		`{"schema": 1, "waits": "none"}`: "waits",
	} {
		if _, err := report.ReadJSON(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q gives %v, want %q in it", text, err, want)
		}
	}
	endless := io.MultiReader(strings.NewReader(`{"schema": 1, "title": "`), &repeat{'a'})
	if _, err := report.ReadJSON(endless); err == nil || !strings.Contains(err.Error(), "more than 64 MiB") {
		t.Errorf("endless input gives %v", err)
	}
}

type repeat struct{ b byte }

func (r *repeat) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = r.b
	}
	return len(p), nil
}

func FuzzReadJSON(f *testing.F) {
	var buf bytes.Buffer
	if err := report.JSON(&buf, quickSample()); err != nil {
		f.Fatal(err)
	}
	f.Add(buf.Bytes())
	f.Add([]byte(`{"schema":1,"runs":[{"valid":true,"kind":"unprofiled","variant":"before"}],"waits":[{}],"graphs":[{"file":".svg"}]}`))
	f.Add([]byte(`{"schema":1,"accounting":{"x":null},"overhead":{"":{"":{}}},"variants":[{"side":"before","settings":{"a":"b"}},{"side":"after"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := report.ReadJSON(bytes.NewReader(data))
		if err != nil {
			return
		}
		if err := checkMarkdown(render(t, report.Markdown, r)); err != nil {
			t.Error(err)
		}
		if err := checkHTML(render(t, html, r)); err != nil {
			t.Error(err)
		}
		if err := readBack(render(t, report.Benchfmt, r)); err != nil {
			t.Error(err)
		}
		render(t, report.Summary, r)
		render(t, report.JSON, r)
	})
}

func TestWrite(t *testing.T) {
	dir := t.TempDir()
	svg := []byte("<svg xmlns='http://www.w3.org/2000/svg'/>")
	if err := os.WriteFile(filepath.Join(dir, "diff.svg"), svg, 0o644); err != nil {
		t.Fatal(err)
	}
	outside := filepath.Join(filepath.Dir(dir), "outside.svg")
	if err := os.WriteFile(outside, svg, 0o644); err != nil {
		t.Fatal(err)
	}
	r := sample()
	r.Graphs = append(r.Graphs, result.Graph{File: "../outside.svg", Caption: "elsewhere"})
	for range 2 { // the second time over the first
		if err := report.Write(dir, r); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if d := cmp.Diff([]string{"bench.txt", "diff.svg", "report.html", "report.md", "result.json"}, names); d != "" {
		t.Error(d)
	}
	page, err := os.ReadFile(filepath.Join(dir, "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(page, []byte("data:image/svg+xml;base64,")); n != 1 {
		t.Errorf("%d pictures are embedded, want 1: the missing ones and the one outside are not", n)
	}
	if !bytes.Contains(page, []byte(`<a href="before.svg">`)) {
		t.Error("a picture that is not there is not linked")
	}
}

// What can be written is written even when something else cannot.
func TestWriteFailsInPart(t *testing.T) {
	dir := t.TempDir()
	r := sample()
	r.Runs[0].Throughput = math.NaN()
	err := report.Write(dir, r)
	if err == nil || !strings.Contains(err.Error(), "result.json") {
		t.Errorf("NaN gives %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "report.md")); err != nil {
		t.Error(err)
	}
	err = report.Write(filepath.Join(dir, "absent"), sample())
	if err == nil || !strings.Contains(err.Error(), "report.md") || !strings.Contains(err.Error(), "absent") {
		t.Errorf("a missing directory gives %v", err)
	}
}

// The verdict on speed follows the figures of unprofiled runs, whatever the
// waits say.
func TestVerdict(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*result.Result)
		want   string
	}{
		"more": {func(*result.Result) {}, "> **Throughput is higher with batched:** 90,509 → 99,923 msgs/s, ×1.10 (+10.4 %), 95 % interval ×1.08 to ×1.13, p &lt;0.001, 8 runs per side; also established: publish p50"},
		"less": {func(r *result.Result) {
			r.Headline.Throughput.After, r.Headline.Throughput.Verdict = f(80000), result.Less
		}, "> **Throughput is lower with batched:**"},
		"same":      {func(r *result.Result) { r.Headline.Throughput.Verdict = result.Same }, "> **No difference in throughput:**"},
		"undecided": {func(r *result.Result) { r.Headline.Throughput.Verdict = result.Undecided }, "> **Undecided:** 8 unprofiled runs per side do not establish a difference in throughput:"},
		"paced":     {func(r *result.Result) { r.Scenario.RateMsgsPerS = 30000 }, "> **End-to-end p99 is lower with batched:** 2.25 → 1.80 s, ×0.801"},
		"no run":    {func(r *result.Result) { r.Headline.Throughput = result.Effect{}; r.Runs = nil }, "> **No verdict on speed:** no valid unprofiled run of before and after."},
		"quick":     {func(r *result.Result) { *r = *quickSample() }, "> **Undecided: descriptive, too few runs** (1 unprofiled run per side): throughput 90,509 → 99,923 msgs/s, ×1.10 (+10.4 %); nothing is established. To decide: `contention ab handoff`."},
	} {
		r := sample()
		c.change(r)
		md := render(t, report.Markdown, r)
		lines := strings.SplitN(md, "\n", 4)
		if !strings.HasPrefix(lines[2], c.want) {
			t.Errorf("%s: the first line is\n%s\nwant\n%s", name, lines[2], c.want)
		}
	}
}

// Invalid runs are named with the reason, and no figure comes from them.
func TestInvalidRuns(t *testing.T) {
	r := sample()
	r.Runs[0].Valid, r.Runs[0].WhyInvalid, r.Runs[0].Throughput = false, []string{"12 messages lost"}, 7
	md := render(t, report.Markdown, r)
	for _, want := range []string{"**1 run of 26 invalid and not used:** run 1 (before, unprofiled): 12 messages lost.", "26 runs, 1 invalid", "**no**: 12 messages lost"} {
		if !strings.Contains(md, want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.Contains(md, "7 to 9") {
		t.Error("the range of throughput holds an invalid run")
	}
}

// An accounting that does not close says so, in the open.
func TestAccountingThatDoesNotClose(t *testing.T) {
	r := sample()
	a := r.Accounting[result.Before]["goroutines"]
	a.Running += 100
	r.Accounting[result.Before]["goroutines"] = a
	md := render(t, report.Markdown, r)
	if want := "the columns leave −100 s of 10,620 s unexplained"; !strings.Contains(md, want) {
		t.Errorf("%q is missing", want)
	}
	if strings.Contains(md, "The accounting closes") {
		t.Error("it says that it closes")
	}
}

// The same result gives the same bytes.
func TestStable(t *testing.T) {
	for name, write := range map[string]func(io.Writer, *result.Result) error{"Markdown": report.Markdown, "HTML": html, "JSON": report.JSON, "Benchfmt": report.Benchfmt, "Summary": report.Summary} {
		first := render(t, write, sample())
		for i := range 5 {
			if render(t, write, sample()) != first {
				t.Errorf("%s differs the %dth time", name, i+2)
			}
		}
	}
}

func ExampleMarkdown() {
	var buf bytes.Buffer
	if err := report.Markdown(&buf, quickSample()); err != nil {
		panic(err)
	}
	fmt.Println(strings.SplitN(buf.String(), "\n", 2)[0])
	// Output: ## Batched hand-over of adds to the ledger executor: direct → batched
}
