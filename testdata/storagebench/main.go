// Storagebench measures write-ahead-log libraries under the load of the reference
// broker: one record per group commit.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
)

func main() {
	dir := flag.String("dir", "", "directory on the disk to measure (default: the system's temporary directory)")
	quick := flag.Bool("quick", false, "everything once and small")
	only := flag.String("only", "", "names of candidates, separated by commas")
	parts := flag.String("parts", "appends,logs,recovery,faults", "which tables")
	child := flag.String("child", "", "internal: what a child process does")
	flag.Parse()
	if *child != "" {
		os.Exit(runChild(*child, flag.Args()))
	}
	if *only != "" {
		names := strings.Split(*only, ",")
		candidates = slices.DeleteFunc(candidates, func(c candidate) bool { return !slices.Contains(names, c.name) && c.name != "write(2)" })
	}
	base, err := os.MkdirTemp(*dir, "storagebench")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer os.RemoveAll(base)
	want := strings.Split(*parts, ",")
	if slices.Contains(want, "appends") {
		appends(base, *quick)
	}
	if slices.Contains(want, "logs") {
		perLog(base, *quick)
	}
	if slices.Contains(want, "recovery") {
		recovery(base, *quick)
	}
	if slices.Contains(want, "faults") {
		faults(base)
	}
}
