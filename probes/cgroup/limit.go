package cgroup

import (
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Limit is the CPU quota of one cgroup.
type Limit struct {
	Path    string // in its hierarchy
	Version int
	Quota   time.Duration // CPU time per period
	Period  time.Duration
	dir     string
}

// CPUs is the quota in CPUs.
func (l Limit) CPUs() float64 { return float64(l.Quota) / float64(l.Period) }

// Stat is what a limit has done since its cgroup was made.
type Stat struct {
	Periods   int64         // that passed while something ran
	Throttled int64         // of those, in which the quota was used up
	Lost      time.Duration // that CPUs were kept from running for, summed
}

// Limits lists the CPU quotas that apply to a process, from its own cgroup up.
func Limits(root, pid string) ([]Limit, error) {
	m, err := Of(root, pid)
	if err != nil {
		return nil, err
	}
	own, version := m.CPU()
	if version == 0 {
		return nil, nil
	}
	dir, top, err := locate(root, "cpu", own, version)
	if err != nil {
		return nil, err
	}
	var out []Limit
	for p := path.Clean("/" + own); ; p, dir = path.Dir(p), filepath.Dir(dir) {
		if quota, period, ok := readQuota(dir, version); ok {
			out = append(out, Limit{Path: p, Version: version, Quota: quota, Period: period, dir: dir})
		}
		if dir == top || p == "/" {
			return out, nil
		}
	}
}

// readQuota reads a cgroup's quota; false where it has none.
func readQuota(dir string, version int) (quota, period time.Duration, ok bool) {
	var fields []string
	if version == 2 {
		data, err := os.ReadFile(filepath.Join(dir, "cpu.max"))
		if err != nil {
			return 0, 0, false
		}
		fields = strings.Fields(string(data))
	} else {
		for _, name := range []string{"cpu.cfs_quota_us", "cpu.cfs_period_us"} {
			data, err := os.ReadFile(filepath.Join(dir, name))
			if err != nil {
				return 0, 0, false
			}
			fields = append(fields, strings.TrimSpace(string(data)))
		}
	}
	if len(fields) != 2 {
		return 0, 0, false
	}
	// "max" and -1 are no limit.
	q, err1 := strconv.ParseInt(fields[0], 10, 64)
	p, err2 := strconv.ParseInt(fields[1], 10, 64)
	if err1 != nil || err2 != nil || q <= 0 || p <= 0 {
		return 0, 0, false
	}
	return time.Duration(q) * time.Microsecond, time.Duration(p) * time.Microsecond, true
}

// Stat reads what the limit has done.
func (l Limit) Stat() (Stat, error) {
	name := filepath.Join(l.dir, "cpu.stat")
	data, err := os.ReadFile(name)
	if err != nil {
		return Stat{}, fmt.Errorf("throttling of cgroup %s: %w", l.Path, err)
	}
	var s Stat
	for line := range strings.Lines(string(data)) {
		key, text, _ := strings.Cut(strings.TrimSpace(line), " ")
		v, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			continue // a line of another kind
		}
		switch key {
		case "nr_periods":
			s.Periods = v
		case "nr_throttled":
			s.Throttled = v
		case "throttled_time": // version 1
			s.Lost = time.Duration(v)
		case "throttled_usec":
			s.Lost = time.Duration(v) * time.Microsecond
		}
	}
	return s, nil
}

// MemoryLimited says whether a process's cgroup or one above it, but for the
// root, limits memory.
func MemoryLimited(root, pid string) bool {
	m, err := Of(root, pid)
	if err != nil {
		return false
	}
	own, version := m.Memory()
	dir, top, err := locate(root, "memory", own, version)
	if version == 0 || err != nil {
		return false
	}
	name := "memory.max"
	if version == 1 {
		name = "memory.limit_in_bytes"
	}
	for ; ; dir = filepath.Dir(dir) {
		data, err := os.ReadFile(filepath.Join(dir, name))
		// Version 1 writes a number near 2^63 for no limit.
		if v, perr := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err == nil && perr == nil && v < 1<<62 {
			return true
		}
		if dir == top || dir == "/" {
			return false
		}
	}
}
