package main

import (
	"fmt"
	"os"
	"strings"
)

// The lines between which the table stands.
const (
	tableBegin = "<!-- table: go run ./kerneltest/run -series all -table docs/kernels.md -->"
	tableEnd   = "<!-- end of table -->"
)

// columns are the facts that the table holds, with their titles.
var columns = []struct{ fact, title string }{
	{"kernel", "kernel"},
	{"threads", "thread plane"},
	{"threads without BTF", "thread plane without the kernel's BTF"},
	{"seeded user stacks", "user stacks of threads that slept before the window"},
	{"sampler", "sampler"},
	{"exact", "exact mode, locks"},
}

// writeTable puts the table of what each kernel gives into a file.
func writeTable(path string, kernels []kernel, results []result) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(data), tableBegin)
	_, after, ok2 := strings.Cut(rest, tableEnd)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no line %q and after it %q, between which the table goes", path, tableBegin, tableEnd)
	}
	return os.WriteFile(path, []byte(before+tableBegin+"\n"+table(kernels, results)+tableEnd+after), 0o644)
}

func table(kernels []kernel, results []result) string {
	var b strings.Builder
	for _, c := range columns {
		fmt.Fprintf(&b, "| %s ", c.title)
	}
	b.WriteString("|\n" + strings.Repeat("| --- ", len(columns)) + "|\n")
	for i := range kernels {
		if kernels[i].image == "" {
			continue
		}
		for _, c := range columns {
			v := results[i].facts[c.fact]
			if v == "" {
				v = "not tried"
			}
			fmt.Fprintf(&b, "| %s ", v)
		}
		b.WriteString("|\n")
	}
	return b.String()
}
