//go:build !unix

package probes

import "time"

// ownCPU is not known here: nothing can be recorded on this system anyway.
func ownCPU() time.Duration { return 0 }
