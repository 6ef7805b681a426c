//go:build !unix

package probes

import (
	"io/fs"
	"time"
)

// ownCPU is not known here: nothing can be recorded on this system anyway.
func ownCPU() time.Duration { return 0 }

func fileID(fs.FileInfo) string { return "" }
