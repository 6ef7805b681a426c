// Command goffsets prints the entry of probes/symbol's offset table for the Go
// release that it is built with, from its own DWARF:
//
//	go build -o goffsets ./tools/goffsets && ./goffsets
package main

import (
	"fmt"
	"go/version"
	"os"

	"github.com/contention-toolkit/contention/probes/symbol"
)

func main() {
	exe, err := os.Executable()
	if err == nil {
		var o symbol.Offsets
		var v string
		if o, v, err = symbol.ReadOffsets(exe); err == nil {
			fmt.Printf("%q: %#v,\n", version.Lang(v), o)
			return
		}
	}
	fmt.Fprintf(os.Stderr, "goffsets: %v\n", err)
	os.Exit(1)
}
