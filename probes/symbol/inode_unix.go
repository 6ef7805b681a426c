//go:build unix

package symbol

import (
	"os"
	"syscall"
)

// inodeOf is the number of an open file; the device's would not do, as overlay
// file systems show another one in mappings.
func inodeOf(f *os.File) (uint64, bool) {
	info, err := f.Stat()
	if err != nil {
		return 0, false
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return s.Ino, true
}
