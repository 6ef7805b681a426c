package privilege

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// one user's process, as the recorder sees itself or a target.
func user(uid int, caps ...Capability) Status {
	return Status{UIDs: [3]int{uid, uid, uid}, GIDs: [3]int{uid, uid, uid}, Effective: SetOf(caps...), Permitted: SetOf(caps...)}
}

// Each cause that the kernel has for refusing is told from the others.
func TestExplain(t *testing.T) {
	const eperm = syscall.EPERM
	for _, c := range []struct {
		name     string
		access   Access
		err      error
		reason   []string
		not      []string
		remedies []string
	}{
		{"gone", Access{PID: 7}, syscall.ESRCH, []string{"no process 7"}, nil, []string{"name a running process"}},
		{"no such call", Access{}, syscall.ENOSYS, []string{"does not exist", "seccomp"}, nil, []string{"SystemCallFilter"}},
		{"filter", Access{Denied: true, Self: user(0, SysPtrace)}, eperm, []string{"seccomp filter forbids"}, nil, []string{"seccomp profile"}},
		{"another user", Access{Self: user(7), Target: user(8), InitialNS: true}, eperm, []string{"CAP_SYS_PTRACE is missing", "uid 8", "uid 7"}, []string{"dumpable", "Yama"}, []string{"target's own user", "setcap"}},
		{"another group", Access{Self: user(7), Target: Status{UIDs: [3]int{7, 7, 7}, GIDs: [3]int{1, 2, 1}}}, eperm, []string{"gid 1 (real) 2 (effective) 1 (saved)"}, []string{"it runs as uid"}, []string{"setcap"}},
		{"not dumpable", Access{Self: user(7), Target: user(7), NotDumpable: true}, eperm, []string{"not dumpable"}, []string{"it runs as uid"}, []string{"run as root"}},
		{"capable target", Access{Self: user(7), Target: user(7, SysAdmin)}, eperm, []string{"has capabilities that this recorder lacks"}, nil, nil},
		{"Yama 1", Access{Self: user(7), Target: user(7), Yama: 1}, eperm, []string{"ptrace_scope=1", "parent"}, []string{"dumpable"}, []string{"ptrace_scope=0", "record -- COMMAND"}},
		{"Yama 1, child", Access{Self: user(7), Target: user(7), Yama: 1, Child: true}, eperm, []string{"the kernel refuses"}, []string{"ptrace_scope"}, nil},
		{"Yama 2", Access{Self: user(7), Target: user(7), Yama: 2, Child: true}, eperm, []string{"ptrace_scope=2", "nobody"}, nil, []string{"ptrace_scope=0"}},
		{"Yama 3", Access{Self: user(0, SysPtrace), Target: user(7), Yama: 3}, eperm, []string{"ptrace_scope=3", "next boot"}, nil, []string{"boot with"}},
		{"several", Access{Self: user(7), Target: user(8), Yama: 1, NotDumpable: true}, eperm, []string{"uid 8", "dumpable", "ptrace_scope=1"}, nil, []string{"setcap"}},
		{"user namespace", Access{Self: user(0, SysPtrace), Target: user(65534), SelfNS: "user:[1]", TargetNS: ""}, eperm, []string{"user namespace"}, []string{"AppArmor"}, []string{"outside"}},
		{"security module", Access{Self: user(0, SysPtrace), Target: user(7), SelfNS: initialUserNS, InitialNS: true}, syscall.EACCES, []string{"security module"}, nil, []string{"apparmor=unconfined"}},
		{"nothing known", Access{Self: user(7), Target: user(7)}, eperm, []string{"the kernel refuses"}, nil, []string{"run as root"}},
		{"other", Access{}, syscall.EIO, []string{"input/output"}, nil, []string{"report"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := c.access.Explain(c.err)
			for _, want := range c.reason {
				if !strings.Contains(w.Reason, want) {
					t.Errorf("reason %q; want %q", w.Reason, want)
				}
			}
			for _, not := range c.not {
				if strings.Contains(w.Reason, not) {
					t.Errorf("reason %q; %q does not apply", w.Reason, not)
				}
			}
			for _, want := range c.remedies {
				if !strings.Contains(w.Remedy, want) {
					t.Errorf("remedy %q; want %q", w.Remedy, want)
				}
			}
			if strings.ContainsAny(w.String(), "\n\t") || w.Remedy == "" {
				t.Errorf("want one line with a remedy: %q", w.String())
			}
		})
	}
}

// proc is a made-up /proc: this process is 5, started by 3 and with child 9.
func proc(t *testing.T, more map[string]string) string {
	t.Helper()
	files := map[string]string{
		"proc/5/status": "PPid:\t3\nUid:\t1000\t1000\t1000\t1000\n",
		"proc/9/status": "PPid:\t5\nUid:\t1000\t1000\t1000\t1000\n",
		"proc/8/status": "PPid:\t3\nUid:\t1000\t1000\t1000\t1000\n",
		"proc/3/status": "PPid:\t0\nUid:\t0\t0\t0\t0\n",
	}
	for k, v := range more {
		files[k] = v
	}
	root := fixture(t, files)
	if err := os.Symlink("5", filepath.Join(root, "proc/self")); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestReadAccess(t *testing.T) {
	root := proc(t, map[string]string{"proc/sys/kernel/yama/ptrace_scope": "1\n"})
	for _, link := range [][2]string{{initialUserNS, "proc/5/ns/user"}, {"user:[12]", "proc/9/ns/user"}} {
		path := filepath.Join(root, link[1])
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.Symlink(link[0], path)); err != nil {
			t.Fatal(err)
		}
	}
	a, err := ReadAccess(root, 9)
	if err != nil || !a.Child || a.Yama != 1 || !a.InitialNS || a.TargetNS != "user:[12]" || a.Target.UIDs[1] != 1000 {
		t.Errorf("the child: %+v, %v", a, err)
	}
	if a, err := ReadAccess(root, 8); err != nil || a.Child {
		t.Errorf("no child: %+v, %v", a, err)
	}
	if _, err := ReadAccess(root, 77); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no process: %v", err)
	}
}

// A process whose files in /proc belong to another user is not dumpable; of
// root's own it cannot be told.
func TestNotDumpable(t *testing.T) {
	root := proc(t, nil)
	path := filepath.Join(root, "proc/9/status")
	mine := os.Getuid()
	if notDumpable(path, Status{UIDs: [3]int{mine, mine, mine}}) {
		t.Error("a process that owns its files is called not dumpable")
	}
	other := mine + 1
	if !notDumpable(path, Status{UIDs: [3]int{other, other, other}}) {
		t.Error("a process that does not own its files is called dumpable")
	}
	if notDumpable(path, Status{}) {
		t.Error("root's process is called not dumpable")
	}
}

func TestWhyNoBPF(t *testing.T) {
	able := SetOf(BPF, Perfmon)
	for _, c := range []struct {
		status   Status
		lockdown string
		want     string
	}{
		{Status{}, "", "CAP_BPF and CAP_PERFMON"},
		{Status{Effective: SetOf(Perfmon)}, "", "lacks CAP_BPF ("},
		{Status{NoNewPrivs: true}, "", "no_new_privs"},
		{Status{Effective: able}, "confidentiality", "lockdown=integrity"},
		{Status{Effective: able, Seccomp: 2}, "integrity", "seccomp filter forbids bpf"},
		{Status{Effective: able}, "none", "although the capabilities are there"},
	} {
		if got := WhyNoBPF(c.status, c.lockdown); !strings.Contains(got, c.want) {
			t.Errorf("%+v, %q: %q; want %q", c.status, c.lockdown, got, c.want)
		}
	}
}
