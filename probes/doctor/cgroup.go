package doctor

import "github.com/contention-toolkit/contention/probes/cgroup"

// readCgroup says where a process runs and whether that is limited. What cannot
// be read is left out.
func readCgroup(root, pid string) CgroupFacts {
	var c CgroupFacts
	m, err := cgroup.Of(root, pid)
	if err != nil {
		return c
	}
	c.Version = m.Version()
	c.Self, _ = m.CPU()
	limits, _ := cgroup.Limits(root, pid) // none where nothing is mounted
	c.SelfQuota = len(limits) > 0
	if dir, err := m.Dir(root); err == nil && m.V2 != "" {
		c.Delegated = writable(dir)
	}
	return c
}
