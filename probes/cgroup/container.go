package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// shortest is how much of a container's id must be given: as much as container
// runtimes print in their lists.
const shortest = 12

// Container lists the processes of a container, in ascending order. It is named
// by its id or the first 12 digits or more of it, as docker, containerd, CRI-O
// and podman write into the names of cgroups, or by the whole name of a cgroup,
// such as a systemd unit's.
func Container(root, id string) ([]int, error) {
	entries, err := os.ReadDir(filepath.Join("/", root, "proc"))
	if err != nil {
		return nil, fmt.Errorf("container %s: %w", id, err)
	}
	found := map[string][]int{} // by the container's whole name
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		m, err := Of(root, e.Name())
		if err != nil {
			continue // it has ended
		}
		if name := containerOf(m, id); name != "" {
			found[name] = append(found[name], pid)
		}
	}
	switch len(found) {
	case 0:
		return nil, fmt.Errorf("container %s: no process that this user can see is in a cgroup of that name; give %d digits or more of the id, as `docker ps --no-trunc` or `crictl ps` print it", id, shortest)
	case 1:
		for _, pids := range found {
			slices.Sort(pids)
			return pids, nil
		}
	}
	var names []string
	for n := range found {
		names = append(names, n)
	}
	slices.Sort(names)
	return nil, fmt.Errorf("container %s: %d containers match: %s; give more of the id", id, len(names), strings.Join(names, ", "))
}

// containerOf returns the name of the container that id means, "" where the
// process is in none.
func containerOf(m Membership, id string) string {
	for _, path := range m.All {
		for _, element := range strings.Split(path, "/") {
			if name := matches(element, id); name != "" {
				return name
			}
		}
	}
	return ""
}

// matches compares one element of a cgroup's path with an id: runtimes write the
// id alone, or in the form RUNTIME-ID.scope, or PREFIX:RUNTIME:ID.
func matches(element, id string) string {
	if id == "" || element == "" {
		return ""
	}
	if element == id {
		return element
	}
	base := element
	for _, suffix := range []string{".scope", ".service", ".slice"} {
		base = strings.TrimSuffix(base, suffix)
	}
	if base == id {
		return base
	}
	last := base[strings.LastIndexAny(base, "-:")+1:]
	if len(id) >= shortest && isHex(id) && isHex(last) && strings.HasPrefix(last, id) {
		return last
	}
	return ""
}

func isHex(s string) bool {
	return s != "" && strings.Trim(s, "0123456789abcdef") == ""
}

// Same says whether two processes share the cgroup that limits CPU, and its path.
func Same(root, a, b string) (string, bool) {
	ma, err1 := Of(root, a)
	mb, err2 := Of(root, b)
	if err1 != nil || err2 != nil {
		return "", false
	}
	pa, va := ma.CPU()
	pb, vb := mb.CPU()
	return pa, va != 0 && va == vb && pa == pb
}
