//go:build !linux

package broker

// usableMemory is not known on this system.
func usableMemory() int64 { return 0 }
