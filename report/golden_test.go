package report_test

import (
	"bytes"
	"flag"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/contention-toolkit/contention/analysis/result"
	"github.com/contention-toolkit/contention/report"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func golden(t *testing.T, name string, write func(io.Writer) error) {
	t.Helper()
	var buf bytes.Buffer
	if err := write(&buf); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, buf.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), buf.String()); d != "" {
		t.Errorf("%s differs; -update rewrites it:\n%s", path, d)
	}
}

func TestGolden(t *testing.T) {
	svg := map[string][]byte{"diff.svg": []byte(`<svg xmlns="http://www.w3.org/2000/svg" width="1000" height="40"><title>diff</title></svg>`)}
	for name, r := range map[string]*result.Result{"full": sample(), "quick": quickSample(), "empty": {Experiment: "empty"}} {
		golden(t, name+".md", func(w io.Writer) error { return report.Markdown(w, r) })
		golden(t, name+".html", func(w io.Writer) error { return report.HTML(w, r, svg) })
		golden(t, name+".txt", func(w io.Writer) error { return report.Summary(w, r) })
		golden(t, name+".bench.txt", func(w io.Writer) error { return report.Benchfmt(w, r) })
	}
	golden(t, "full.json", func(w io.Writer) error { return report.JSON(w, sample()) })
}
