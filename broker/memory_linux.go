package broker

import (
	"bytes"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// usableMemory is the bytes of memory that this process may use: the machine's,
// or its control group's if that has less; 0 if it cannot be told.
func usableMemory() int64 {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return 0
	}
	usable := int64(info.Totalram) * int64(info.Unit)
	// Inside a container the own group is the root of what is mounted.
	for _, path := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if limit, err := strconv.ParseInt(string(bytes.TrimSpace(text)), 10, 64); err == nil && limit > 0 {
			usable = min(usable, limit)
		}
	}
	return usable
}
