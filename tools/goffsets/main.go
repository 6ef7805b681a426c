// Command goffsets prints entries of probes/symbol's offset table, read from the
// DWARF of Go executables, one built by each release that the table should know:
//
//	GOTOOLCHAIN=go1.25.5 go build -o p25 program.go
//	go run ./tools/goffsets p25
package main

import (
	"fmt"
	"go/version"
	"os"
	"strings"

	"github.com/contention-toolkit/contention/probes/symbol"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: goffsets EXECUTABLE…")
		os.Exit(2)
	}
	for _, path := range os.Args[1:] {
		o, v, err := symbol.ReadOffsets(path)
		if err != nil {
			fmt.Fprintf(os.Stderr, "goffsets: %v\n", err)
			os.Exit(1)
		}
		fields := strings.TrimPrefix(fmt.Sprintf("%#v", o), "symbol.Offsets")
		fmt.Printf("\t%q: %s, // %s\n", version.Lang(v), fields, v)
	}
}
