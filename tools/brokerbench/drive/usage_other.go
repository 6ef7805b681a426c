//go:build !unix

package drive

import "time"

func ownCPU() time.Duration { return 0 }
