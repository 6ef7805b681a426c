package privilege

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Access holds what decides whether this process may read the memory of
// another, as ptrace(2) describes under "Ptrace access mode checking".
type Access struct {
	PID          int
	Self, Target Status
	// SelfNS and TargetNS name the user namespaces; "" where they cannot be read.
	SelfNS, TargetNS string
	InitialNS        bool // this process is in the first user namespace
	NotDumpable      bool // known to be, such as by PR_SET_DUMPABLE or after a change of user
	Child            bool // the target is a descendant of this process
	Yama             int  // kernel.yama.ptrace_scope, 0 where Yama is not there
	Denied           bool // process_vm_readv is refused even on this process itself
}

// initialUserNS is the inode of the first user namespace, fixed in the kernel.
const initialUserNS = "user:[4026531837]"

// InitialUserNS says whether a process is in the first user namespace.
func InitialUserNS(root, pid string) bool {
	ns, err := os.Readlink(filepath.Join("/", root, "proc", pid, "ns/user"))
	return err == nil && ns == initialUserNS
}

// ReadAccess reads it from root/proc; the error says that the target is not there.
func ReadAccess(root string, pid int) (Access, error) {
	a := Access{PID: pid}
	var err error
	if a.Self, err = ReadStatus(root, "self"); err != nil {
		return a, fmt.Errorf("read the status of this process: %w", err)
	}
	target := strconv.Itoa(pid)
	if a.Target, err = ReadStatus(root, target); err != nil {
		return a, fmt.Errorf("read the status of process %d: %w", pid, err)
	}
	proc := filepath.Join("/", root, "proc")
	a.SelfNS, _ = os.Readlink(filepath.Join(proc, "self/ns/user"))      // "" where not told
	a.TargetNS, _ = os.Readlink(filepath.Join(proc, target, "ns/user")) // needs the access in question
	a.InitialNS = a.SelfNS == initialUserNS
	a.NotDumpable = notDumpable(filepath.Join(proc, target, "status"), a.Target)
	a.Yama, _ = Number(root, "proc/sys/kernel/yama/ptrace_scope")
	a.Child = a.descends(root)
	return a, nil
}

// notDumpable sees it by the owner of the process's files in /proc: root,
// instead of its user. Of root's own processes it cannot be told.
func notDumpable(path string, s Status) bool {
	if s.UIDs[1] == 0 {
		return false
	}
	info, err := os.Stat(path)
	if err != nil {
		return false
	}
	owner, ok := ownerOf(info)
	return ok && owner != s.UIDs[1]
}

// descends follows the target's parents up to this process. Their number is
// bounded, as PIDs may be used again on the way.
func (a Access) descends(root string) bool {
	self, err := os.Readlink(filepath.Join("/", root, "proc/self"))
	if err != nil {
		return false
	}
	me, err := strconv.Atoi(self)
	for p, depth := a.Target.PPID, 0; err == nil && p > 0 && depth < 64; depth++ {
		if p == me {
			return true
		}
		s, statusErr := ReadStatus(root, strconv.Itoa(p))
		if statusErr != nil {
			return false
		}
		p = s.PPID
	}
	return false
}

// Why is one reason with its remedy.
type Why struct{ Reason, Remedy string }

func (w Why) String() string { return w.Reason + ": " + w.Remedy }

// Explain says why an attempt to read the target's memory gave err; err must
// not be nil.
func (a Access) Explain(err error) Why {
	switch {
	case errors.Is(err, syscall.ESRCH), errors.Is(err, os.ErrNotExist):
		return Why{fmt.Sprintf("there is no process %d, or it has ended", a.PID), "name a running process"}
	case errors.Is(err, syscall.ENOSYS):
		return Why{"process_vm_readv does not exist here: a seccomp filter hides it, or the kernel was built without CONFIG_CROSS_MEMORY_ATTACH", RemedySeccomp}
	case !errors.Is(err, syscall.EPERM) && !errors.Is(err, syscall.EACCES):
		return Why{err.Error(), "please report it with the kernel's version"}
	case a.Denied:
		return Why{"a seccomp filter forbids process_vm_readv", RemedySeccomp}
	case a.Yama >= 3:
		return Why{"Yama forbids it to everybody until the next boot (kernel.yama.ptrace_scope=3)", "boot with kernel.yama.ptrace_scope of 2 or lower"}
	case !a.Self.Effective.Has(SysPtrace):
		return a.withoutCapability()
	case a.SelfNS != "" && !a.InitialNS && a.TargetNS != a.SelfNS:
		return Why{"this recorder is root of a user namespace only, and the target is outside of it",
			"run contention outside of the rootless container or user namespace, or inside the target's own"}
	}
	return Why{"the kernel refuses although CAP_SYS_PTRACE is there: a security module (AppArmor, SELinux) or seccomp filter forbids it",
		"look at the kernel's log (dmesg, ausearch) for what denied ptrace, and allow it; in a container, --security-opt apparmor=unconfined or another profile"}
}

// withoutCapability lists everything that applies to a recorder that has no
// CAP_SYS_PTRACE: each alone would be enough to refuse.
func (a Access) withoutCapability() Why {
	var why []string
	remedy := RemedyPtrace
	s, t := a.Self, a.Target
	for _, id := range t.UIDs {
		if id != s.UIDs[0] {
			why = append(why, fmt.Sprintf("it runs as uid %s and this recorder as uid %d", ids(t.UIDs), s.UIDs[0]))
			break
		}
	}
	if len(why) == 0 {
		remedy = "run as root, or grant CAP_SYS_PTRACE: " + Setcap
		for _, id := range t.GIDs {
			if id != s.GIDs[0] {
				why = append(why, fmt.Sprintf("it runs as gid %s and this recorder as gid %d", ids(t.GIDs), s.GIDs[0]))
				break
			}
		}
	}
	if a.NotDumpable {
		why = append(why, "it is not dumpable (PR_SET_DUMPABLE, a binary with capabilities, or a change of user)")
	}
	if extra := t.Permitted &^ s.Permitted; extra != 0 {
		why = append(why, "it has capabilities that this recorder lacks")
	}
	if a.Yama >= 2 || a.Yama == 1 && !a.Child {
		who := "only a parent may read its children"
		if a.Yama >= 2 {
			who = "nobody may without CAP_SYS_PTRACE"
		}
		why = append(why, fmt.Sprintf("Yama is on (kernel.yama.ptrace_scope=%d): %s", a.Yama, who))
		if len(why) == 1 {
			remedy = "run as root, or grant CAP_SYS_PTRACE: " + Setcap + ", or set sysctl kernel.yama.ptrace_scope=0"
			if a.Yama == 1 {
				remedy += ", or let contention start the target (contention record -- COMMAND)"
			}
		}
	}
	if len(why) == 0 {
		why = append(why, "the kernel refuses: it may be not dumpable, in another user namespace, or kept by a security module")
	}
	return Why{"CAP_SYS_PTRACE is missing and " + strings.Join(why, "; "), remedy}
}

// ids is one number, or all where they differ.
func ids(v [3]int) string {
	if v[0] == v[1] && v[1] == v[2] {
		return strconv.Itoa(v[0])
	}
	return fmt.Sprintf("%d (real) %d (effective) %d (saved)", v[0], v[1], v[2])
}

// ExplainAccess reads what decides on access to a process, and explains err by
// it in one line.
func ExplainAccess(pid int, err error) string {
	a, _ := ReadAccess("", pid) // what could be read of it explains as much as it can
	a.PID = pid
	return a.Explain(err).String()
}
