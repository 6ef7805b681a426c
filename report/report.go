package report

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/contention-toolkit/contention/analysis/result"
	"github.com/contention-toolkit/contention/profile"
)

// MaxMarkdown is the size in bytes that Markdown stays under: GitHub takes
// comments of up to 65,536 characters.
const MaxMarkdown = 60_000

// maxGraph bounds a picture that goes into the HTML page, in bytes.
const maxGraph = 2 << 20

// Names of the files that Write leaves.
const (
	FileMarkdown = "report.md"
	FileHTML     = "report.html"
	FileJSON     = "result.json"
	FileBenchfmt = "bench.txt"
)

// Write writes report.md, report.html, result.json and bench.txt into dir, each
// atomically. The pictures that r.Graphs names are read from dir; one that is
// missing or too large is linked and not embedded. What can be written is
// written even when something else cannot.
func Write(dir string, r *result.Result) error {
	graphs := map[string][]byte{}
	for _, g := range r.Graphs {
		if data, err := readGraph(dir, g.File); err == nil {
			graphs[g.File] = data
		}
	}
	var errs []error
	for _, f := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{FileJSON, func(w io.Writer) error { return JSON(w, r) }},
		{FileBenchfmt, func(w io.Writer) error { return Benchfmt(w, r) }},
		{FileMarkdown, func(w io.Writer) error { return Markdown(w, r) }},
		{FileHTML, func(w io.Writer) error { return HTML(w, r, graphs) }},
	} {
		var buf bytes.Buffer
		err := f.write(&buf)
		if err == nil {
			err = profile.WriteFile(filepath.Join(dir, f.name), buf.Bytes())
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("report: %s: %w", f.name, err))
		}
	}
	return errors.Join(errs...)
}

func readGraph(dir, name string) ([]byte, error) {
	if !isFileName(name) {
		return nil, fmt.Errorf("%q is not the name of an SVG file", name)
	}
	f, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxGraph+1))
	if err == nil && len(data) > maxGraph {
		err = fmt.Errorf("%s is larger than %d bytes", name, maxGraph)
	}
	return data, err
}

// Markdown writes the report for a pull-request comment: fewer than MaxMarkdown
// bytes for any result, with counts of what had to be left out. Pictures are
// linked by relative name.
func Markdown(w io.Writer, r *result.Result) error {
	var out []byte
	for _, l := range []limits{
		{rows: 40, text: 160, long: 1200},
		{rows: 24, text: 120, long: 600},
		{rows: 12, text: 100, long: 400},
		{rows: 6, text: 60, long: 200},
		{rows: 2, text: 32, long: 80},
	} {
		out = markdown(build(r, l))
		if len(out) < MaxMarkdown {
			_, err := w.Write(out)
			return err
		}
	}
	return fmt.Errorf("report: %d bytes of Markdown at the smallest, want fewer than %d", len(out), MaxMarkdown)
}

// HTML writes the report as one file that loads nothing and runs nothing.
// graphs holds the pictures that r.Graphs names, by file name, each an SVG.
func HTML(w io.Writer, r *result.Result, graphs map[string][]byte) error {
	_, err := w.Write(page(build(r, limits{rows: 200, text: 300, long: 4000}), graphs))
	return err
}

// Summary writes the verdict, the figures and the largest waits for a terminal.
func Summary(w io.Writer, r *result.Result) error {
	_, err := w.Write(terminal(summary(r, limits{rows: 10, text: 60, long: 600, brief: true})))
	return err
}
