//go:build !linux

package doctor

import (
	"context"
	"fmt"
	"io"
	"runtime"
)

// Gather fails: live processes are recorded on Linux only.
func Gather(context.Context, Options) (Facts, error) {
	return Facts{}, fmt.Errorf("doctor: recording live processes is not supported on %s; record on Linux, and look at recordings here", runtime.GOOS)
}

// RunTrial fails as Gather does.
func RunTrial(io.Reader, io.Writer) error {
	_, err := Gather(context.Background(), Options{})
	return err
}

func writable(string) bool { return false }
