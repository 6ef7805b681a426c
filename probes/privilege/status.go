package privilege

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Capability is one of Linux's, by its number.
type Capability int

// The capabilities that matter to recording; capabilities(7).
const (
	DACReadSearch     Capability = 2
	SysPtrace         Capability = 19
	SysAdmin          Capability = 21
	SysResource       Capability = 24
	Syslog            Capability = 34
	Perfmon           Capability = 38
	BPF               Capability = 39
	CheckpointRestore Capability = 40
)

var capabilityNames = map[Capability]string{
	DACReadSearch: "CAP_DAC_READ_SEARCH", SysPtrace: "CAP_SYS_PTRACE", SysAdmin: "CAP_SYS_ADMIN", SysResource: "CAP_SYS_RESOURCE",
	Syslog: "CAP_SYSLOG", Perfmon: "CAP_PERFMON", BPF: "CAP_BPF", CheckpointRestore: "CAP_CHECKPOINT_RESTORE",
}

// String is the capability's name, such as CAP_BPF.
func (c Capability) String() string {
	if n, ok := capabilityNames[c]; ok {
		return n
	}
	return fmt.Sprintf("capability %d", int(c))
}

// Set is a set of capabilities, as /proc writes it.
type Set uint64

// Has says whether the set holds c.
func (s Set) Has(c Capability) bool { return s&(1<<c) != 0 }

// SetOf is the set that holds these.
func SetOf(cs ...Capability) Set {
	var s Set
	for _, c := range cs {
		s |= 1 << c
	}
	return s
}

// Status is what /proc/PID/status says of a process's rights.
type Status struct {
	Name       string
	PPID       int
	UIDs, GIDs [3]int // real, effective, saved
	Effective  Set
	Permitted  Set
	Bounding   Set
	NoNewPrivs bool // capabilities of files are not granted on exec
	Seccomp    int  // 0 none, 1 strict, 2 filter
	NSPIDs     []int
}

// ReadStatus reads root/proc/PID/status; pid may be "self".
func ReadStatus(root, pid string) (Status, error) {
	data, err := os.ReadFile(filepath.Join("/", root, "proc", pid, "status"))
	if err != nil {
		return Status{}, err
	}
	return parseStatus(string(data))
}

func parseStatus(text string) (Status, error) {
	var s Status
	seen := false
	for line := range strings.Lines(text) {
		key, v, ok := strings.Cut(strings.TrimRight(line, "\n"), ":")
		if !ok {
			continue
		}
		v = strings.TrimSpace(v)
		var err error
		switch key {
		case "Name":
			s.Name = v
		case "PPid":
			s.PPID, err = strconv.Atoi(v)
		case "Uid":
			s.UIDs, err = three(v)
			seen = true
		case "Gid":
			s.GIDs, err = three(v)
		case "CapEff":
			s.Effective, err = set(v)
		case "CapPrm":
			s.Permitted, err = set(v)
		case "CapBnd":
			s.Bounding, err = set(v)
		case "NoNewPrivs":
			s.NoNewPrivs = v == "1"
		case "Seccomp":
			s.Seccomp, err = strconv.Atoi(v)
		case "NSpid":
			s.NSPIDs, err = numbers(v)
		}
		if err != nil {
			return s, fmt.Errorf("status of a process: %s %q: %w", key, v, err)
		}
	}
	if !seen {
		return s, fmt.Errorf("status of a process: it has no line Uid")
	}
	return s, nil
}

func set(v string) (Set, error) {
	n, err := strconv.ParseUint(v, 16, 64)
	return Set(n), err
}

func numbers(v string) ([]int, error) {
	var out []int
	for _, f := range strings.Fields(v) {
		n, err := strconv.Atoi(f)
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

func three(v string) (out [3]int, err error) {
	n, err := numbers(v)
	if err == nil && len(n) < 3 {
		err = fmt.Errorf("%d numbers, want 4", len(n))
	}
	copy(out[:], n)
	return out, err
}

// Names lists the set's members that matter to recording.
func (s Set) Names() []string {
	out := []string{}
	for c := Capability(0); c < 64; c++ {
		if _, known := capabilityNames[c]; known && s.Has(c) {
			out = append(out, c.String())
		}
	}
	return out
}

// Number reads a file that holds one number, such as a sysctl; false where
// there is none.
func Number(root, path string) (int, bool) {
	data, err := os.ReadFile(filepath.Join("/", root, path))
	if err != nil {
		return 0, false
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(data)))
	return n, err == nil
}
