//go:build linux && (amd64 || arm64)

package thread

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/contention-toolkit/contention/probes/cgroup"
)

// filter is what the kernel side needs to tell the threads that are wanted.
type filter struct {
	id     uint64 // of the cgroup, 0 for none
	subsys int32  // number of its controller in the kernel, -1 for version 2
	all    bool   // every process of the cgroup
	some   bool   // not all threads
}

func openFilter(o Options, kernel *btf.Spec) (filter, error) {
	f := filter{subsys: -1, some: len(o.TIDs)+len(o.Names) > 0}
	if o.Cgroup == "" {
		return f, nil
	}
	f.all = len(o.PIDs) == 0
	dir, err := filepath.EvalSymlinks(o.Cgroup)
	if err != nil {
		return f, fmt.Errorf("record the threads of cgroup %s: %w", o.Cgroup, err)
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return f, fmt.Errorf("record the threads of cgroup %s: %w", o.Cgroup, err)
	}
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return f, fmt.Errorf("record the threads of cgroup %s: %w", o.Cgroup, err)
	}
	f.id = st.Ino // the kernel's number of the cgroup, on 64-bit systems
	switch fs.Type {
	case unix.CGROUP2_SUPER_MAGIC:
		return f, nil
	case unix.CGROUP_SUPER_MAGIC:
		f.subsys, err = subsystem(dir, kernel)
		return f, err
	}
	return f, fmt.Errorf("record the threads of cgroup %s: it is no directory of a cgroup file system; name one below /sys/fs/cgroup", o.Cgroup)
}

// subsystem is the number that the kernel gives to the controller of a directory
// of version 1.
func subsystem(dir string, kernel *btf.Spec) (int32, error) {
	mounts, err := cgroup.Mounts("")
	if err != nil {
		return 0, fmt.Errorf("record the threads of cgroup %s: %w", dir, err)
	}
	var ids *btf.Enum
	if err := kernel.TypeByName("cgroup_subsys_id", &ids); err != nil {
		return 0, fmt.Errorf("record the threads of cgroup %s: the kernel's list of controllers: %w", dir, err)
	}
	for _, m := range mounts {
		if dir != m.Point && !strings.HasPrefix(dir, m.Point+"/") {
			continue
		}
		for _, v := range ids.Values {
			name, ok := strings.CutSuffix(v.Name, "_cgrp_id")
			if name == "io" {
				name = "blkio"
			}
			if ok && m.Has(name) {
				return int32(v.Value), nil
			}
		}
	}
	return 0, fmt.Errorf("record the threads of cgroup %s: its hierarchy has no controller, so that the kernel side cannot tell its members; name the same group below a controller such as cpu", dir)
}

// wants says whether a thread of a target is recorded.
func (o Options) wants(pid int, tid string) bool {
	if len(o.TIDs)+len(o.Names) == 0 {
		return true
	}
	if id, err := strconv.Atoi(tid); err == nil && slices.Contains(o.TIDs, id) {
		return true
	}
	name, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/comm", pid, tid))
	return err == nil && slices.Contains(o.Names, strings.TrimSuffix(string(name), "\n"))
}
