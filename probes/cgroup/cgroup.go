// Package cgroup finds the control groups of a process, the CPU limits on them,
// and the processes of a container, in version 1 and 2 of cgroups.
//
// Every function takes the root of the file system to read, "" for the
// machine's own, so that tests and recorders in a container can name another.
package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Membership is where a process is in each hierarchy of cgroups. A path is
// relative to the hierarchy's root, or to the root of the reader's cgroup
// namespace; "" where the hierarchy is not there.
type Membership struct {
	V2  string            // the unified hierarchy
	V1  map[string]string // by controller, "cpu" and "memory" among them
	All []string          // every path, as /proc lists them
}

// Of reads where a process is: a process id, or "self".
func Of(root, pid string) (Membership, error) {
	data, err := os.ReadFile(filepath.Join("/", root, "proc", pid, "cgroup"))
	if err != nil {
		return Membership{}, fmt.Errorf("cgroups of process %s: %w", pid, err)
	}
	return Parse(string(data)), nil
}

// Parse reads the text of /proc/PID/cgroup. Lines of another form are passed over.
func Parse(text string) Membership {
	m := Membership{V1: map[string]string{}}
	for line := range strings.Lines(text) {
		id, rest, ok1 := strings.Cut(strings.TrimRight(line, "\n"), ":")
		controllers, path, ok2 := strings.Cut(rest, ":")
		if !ok1 || !ok2 {
			continue
		}
		m.All = append(m.All, path)
		switch {
		case id == "0" && controllers == "":
			m.V2 = path
		case controllers != "":
			for c := range strings.SplitSeq(controllers, ",") {
				m.V1[c] = path
			}
		}
	}
	return m
}

// Version says which versions limit anything: "v2", "v1", "v1 and v2", or ""
// where there are no cgroups. systemd's own hierarchy limits nothing.
func (m Membership) Version() string {
	v1 := false
	for c := range m.V1 {
		v1 = v1 || !strings.HasPrefix(c, "name=")
	}
	switch {
	case v1 && m.V2 != "":
		return "v1 and v2"
	case v1:
		return "v1"
	case m.V2 != "":
		return "v2"
	}
	return ""
}

// CPU is the path in the hierarchy that limits CPU, and its version; "" and 0
// where there is none.
func (m Membership) CPU() (path string, version int) { return m.controller("cpu") }

// Memory is the same for memory.
func (m Membership) Memory() (path string, version int) { return m.controller("memory") }

func (m Membership) controller(name string) (string, int) {
	if p, ok := m.V1[name]; ok {
		return p, 1
	}
	if m.V2 != "" {
		return m.V2, 2
	}
	return "", 0
}

// Mount is one mounted hierarchy.
type Mount struct {
	Point   string // where it is mounted
	Root    string // path in the hierarchy of what is mounted there
	Version int
	options string
}

// Mounts reads the mounted hierarchies.
func Mounts(root string) ([]Mount, error) {
	data, err := os.ReadFile(filepath.Join("/", root, "proc", "self", "mountinfo"))
	if err != nil {
		return nil, fmt.Errorf("mounted cgroups: %w", err)
	}
	return parseMounts(string(data)), nil
}

// parseMounts reads mountinfo: fields 4 and 5 are the root and the mount point,
// and after the separator come the type, the source and the options.
func parseMounts(text string) []Mount {
	var out []Mount
	for line := range strings.Lines(text) {
		front, back, ok := strings.Cut(line, " - ")
		f, b := strings.Fields(front), strings.Fields(back)
		if !ok || len(f) < 5 || len(b) < 3 {
			continue
		}
		m := Mount{Root: unescape(f[3]), Point: unescape(f[4]), options: b[2]}
		switch b[0] {
		case "cgroup":
			m.Version = 1
		case "cgroup2":
			m.Version = 2
		default:
			continue
		}
		out = append(out, m)
	}
	return out
}

// unescape undoes mountinfo's \040 for a space and the like.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if v, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(v))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// Has says whether the mount is version 2, for controller "", or version 1's of
// a controller.
func (m Mount) Has(controller string) bool {
	if controller == "" {
		return m.Version == 2
	}
	for o := range strings.SplitSeq(m.options, ",") {
		if m.Version == 1 && o == controller {
			return true
		}
	}
	return false
}

// Locate returns the directory of a cgroup, false where the mount does not show
// it: a container sees its own part of the hierarchy only.
func (m Mount) Locate(path string) (string, bool) {
	path = filepath.Clean("/" + path)
	if m.Root == "/" {
		return filepath.Join(m.Point, path), true
	}
	rest, ok := strings.CutPrefix(path, m.Root)
	if !ok || rest != "" && rest[0] != '/' {
		return "", false
	}
	return filepath.Join(m.Point, rest), true
}

// Dir returns the directory of a process's cgroup in version 2.
func (m Membership) Dir(root string) (string, error) {
	dir, _, err := locate(root, "", m.V2, 2)
	return dir, err
}

// ErrNoController says that no mounted hierarchy controls what was asked for.
var ErrNoController = errors.New("no mounted cgroup hierarchy has this controller")

// locate finds the directory of a cgroup under root, and the mount's own.
func locate(root, controller, path string, version int) (dir, top string, err error) {
	mounts, err := Mounts(root)
	if err != nil {
		return "", "", err
	}
	if strings.HasPrefix(filepath.ToSlash(path), "/..") {
		return "", "", fmt.Errorf("cgroup %s is outside of this cgroup namespace: %w", path, fs.ErrNotExist)
	}
	for _, m := range mounts {
		if version == 2 && m.Has("") || version == 1 && m.Has(controller) {
			if dir, ok := m.Locate(path); ok {
				return filepath.Join("/", root, dir), filepath.Join("/", root, m.Point), nil
			}
		}
	}
	return "", "", fmt.Errorf("cgroup %s, controller %s: %w", path, controller, ErrNoController)
}
