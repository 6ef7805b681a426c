package doctor

import (
	"os"
	"path/filepath"
	"strings"
)

// readCgroup says where a process runs and whether that is limited.
func readCgroup(root, pid, mounts string) CgroupFacts {
	var c CgroupFacts
	data, err := os.ReadFile(filepath.Join("/", root, "proc", pid, "cgroup"))
	if err != nil {
		return c
	}
	unified, v1CPU, v1Other := cgroupPaths(string(data))
	c.Self = unified
	if v1CPU != "" {
		c.Self = v1CPU
	}
	point2, point1 := cgroupMounts(mounts)
	switch {
	case v1CPU != "" || v1Other:
		c.Version = "v1"
		if unified != "" {
			c.Version = "v1 and v2"
		}
	case unified != "":
		c.Version = "v2"
	}
	if v1CPU != "" && point1 != "" {
		c.SelfQuota = limited(filepath.Join("/", root, point1), v1CPU, "cpu.cfs_quota_us", "-1")
	} else if point2 != "" {
		c.SelfQuota = limited(filepath.Join("/", root, point2), unified, "cpu.max", "max")
	}
	if point2 != "" && unified != "" {
		c.Delegated = writable(filepath.Join("/", root, point2, unified))
	}
	return c
}

// cgroupPaths reads /proc/PID/cgroup: the path in v2, that of the CPU
// controller in v1, and whether another controller of v1 is there.
func cgroupPaths(text string) (unified, v1CPU string, v1Other bool) {
	for line := range strings.Lines(text) {
		id, rest, ok1 := strings.Cut(strings.TrimRight(line, "\n"), ":")
		controllers, path, ok2 := strings.Cut(rest, ":")
		switch {
		case !ok1 || !ok2:
		case id == "0" && controllers == "":
			unified = path
		default:
			for c := range strings.SplitSeq(controllers, ",") {
				if c == "cpu" {
					v1CPU = path
				}
			}
			// systemd's own hierarchy limits nothing.
			v1Other = v1Other || !strings.HasPrefix(controllers, "name=")
		}
	}
	return unified, v1CPU, v1Other
}

// cgroupMounts finds where v2 and v1's CPU controller are mounted.
func cgroupMounts(mounts string) (v2, v1CPU string) {
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		if len(f) < 4 {
			continue
		}
		switch f[2] {
		case "cgroup2":
			v2 = f[1]
		case "cgroup":
			for opt := range strings.SplitSeq(f[3], ",") {
				if opt == "cpu" {
					v1CPU = f[1]
				}
			}
		}
	}
	return v2, v1CPU
}

// limited says whether a cgroup or one above it has a CPU limit.
func limited(mount, path, file, none string) bool {
	for p := filepath.Clean("/" + path); ; p = filepath.Dir(p) {
		data, err := os.ReadFile(filepath.Join(mount, p, file))
		if first, _, _ := strings.Cut(strings.TrimSpace(string(data)), " "); err == nil && first != "" && first != none {
			return true
		}
		if p == "/" {
			return false
		}
	}
}
