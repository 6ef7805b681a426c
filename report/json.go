package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/contention-toolkit/contention/analysis/result"
)

// maxJSON bounds a result.json that is read, in bytes.
const maxJSON = 64 << 20

// JSON writes result.json. Lists and objects that are absent in r are written
// empty, not null. A number that is not finite is an error: it would be a fault
// of the analysis.
func JSON(w io.Writer, r *result.Result) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(true) // the file may end up inside a page
	e.SetIndent("", "  ")
	if err := e.Encode(present(r)); err != nil {
		return fmt.Errorf("encode result of %q: %w", r.Experiment, err)
	}
	return nil
}

// ReadJSON reads what JSON wrote.
func ReadJSON(r io.Reader) (*result.Result, error) {
	limited := &io.LimitedReader{R: r, N: maxJSON + 1}
	d := json.NewDecoder(limited)
	var out result.Result
	err := d.Decode(&out)
	if limited.N <= 0 {
		return nil, fmt.Errorf("read result: more than %d MiB: not a result.json", maxJSON>>20)
	}
	if err != nil {
		return nil, fmt.Errorf("read result at byte %d: %w", d.InputOffset(), err)
	}
	if out.Schema < 1 || out.Schema > result.Schema {
		return nil, fmt.Errorf("read result: schema %d, this build reads 1 to %d: not a result.json, or one of a newer contention", out.Schema, result.Schema)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("read result: more data after byte %d", d.InputOffset())
	}
	return present(&out), nil
}

// present returns r with every list and object there. r is not changed.
func present(r *result.Result) *result.Result {
	c := *r
	c.Variants = copyOf(c.Variants)
	for i := range c.Variants {
		listed(&c.Variants[i].Command)
		object(&c.Variants[i].Settings)
	}
	c.Runs = copyOf(c.Runs)
	for i := range c.Runs {
		listed(&c.Runs[i].WhyInvalid)
		object(&c.Runs[i].QueueDelayMs)
	}
	c.Overhead = overheadOf(c.Overhead)
	listed(&c.Command)
	listed(&c.Waits)
	listed(&c.Reconciliation)
	listed(&c.Graphs)
	listed(&c.Warnings)
	object(&c.QueueLock)
	accounting := map[string]map[string]result.Accounting{}
	for side, m := range c.Accounting {
		object(&m)
		accounting[side] = m
	}
	c.Accounting = accounting
	return &c
}

func overheadOf(in map[string]map[string]result.Overhead) map[string]map[string]result.Overhead {
	out := map[string]map[string]result.Overhead{}
	for side, sources := range in {
		out[side] = map[string]result.Overhead{}
		for source, o := range sources {
			object(&o.Loss)
			out[side][source] = o
		}
	}
	return out
}

func copyOf[T any](s []T) []T { return append([]T{}, s...) }

func listed[T any](s *[]T) {
	if *s == nil {
		*s = []T{}
	}
}

func object[V any](m *map[string]V) {
	if *m == nil {
		*m = map[string]V{}
	}
}
