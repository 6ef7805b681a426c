package doctor

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/contention-toolkit/contention/internal/testutil"
	"github.com/contention-toolkit/contention/probes/thread"
)

// machine is a system on which everything works, but for what a test changes.
func machine() System {
	return System{
		Memlock: func() uint64 { return 1 << 16 }, KernelSymbols: func() error { return nil },
		ReadMemory: func(_ int, _ uint64, dst []byte) error { copy(dst, trialMark); return nil },
		Signal:     func(int) error { return syscall.EPERM }, BTF: func() (BTFState, error) { return BTFGood, nil },
		Features: func() map[Feature]error { return map[Feature]error{FeatureUprobes: nil} }, Threads: func() error { return nil },
		Sampler: func(int) error { return nil }, Listeners: func(int) error { return nil },
	}
}

const selfStatus = "Name:\tcontention\nPPid:\t1\nUid:\t7\t7\t7\t7\nGid:\t7\t7\t7\t7\nNSpid:\t5\nCapEff:\t000000c000080000\nSeccomp:\t0\n"

// host is /proc and /sys of an ordinary machine of this process 5 and a target 9.
func host() map[string]string {
	return map[string]string{
		"proc/self": "@5", "proc/5/status": selfStatus, "proc/5/ns/user": "@user:[4026531837]", "proc/5/ns/pid": "@pid:[4026531836]",
		"proc/5/mounts":                 "proc /proc proc rw,nosuid 0 0\ncgroup2 /sys/fs/cgroup cgroup2 rw 0 0\n",
		"proc/5/mountinfo":              "30 22 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
		"proc/5/cgroup":                 "0::/user.slice/session\n",
		"proc/sys/kernel/osrelease":     "5.10.0-28-amd64\n",
		"proc/sys/kernel/kptr_restrict": "1\n", "proc/sys/kernel/perf_event_paranoid": "3\n",
		"proc/sys/kernel/unprivileged_bpf_disabled": "2\n", "proc/sys/kernel/yama/ptrace_scope": "1\n",
		"sys/kernel/security/lockdown":             "none [integrity] confidentiality\n",
		"sys/fs/cgroup/user.slice/cpu.max":         "50000 100000\n",
		"sys/fs/cgroup/user.slice/session/cpu.max": "max 100000\n",
		"proc/9/status":                            "Name:\tx\nPPid:\t1\nUid:\t8\t8\t8\t8\nGid:\t8\t8\t8\t8\nNSpid:\t9\t1\n",
		"proc/9/cgroup":                            "0::/system.slice/broker\n",
		"proc/9/maps":                              "1000-2000 ---p 0 0:0 0\n3000-4000 r--p 0 0:0 0\n",
	}
}

func TestGather(t *testing.T) {
	f, err := Gather(t.Context(), Options{Root: root(t, host()), System: machine(), Child: childOf("trial", "")})
	if err != nil {
		t.Fatal(err)
	}
	if f.Kernel != "5.10.0-28-amd64" || *f.Paranoid != 3 || *f.UnprivilegedBPF != 2 || *f.Yama != 1 || f.Lockdown != "integrity" || !f.InitialPIDNS || !f.InitialUserNS {
		t.Errorf("the kernel: %+v", f)
	}
	if f.Self.UIDs[1] != 7 || !f.ChildMemoryTried || f.ChildMemory != nil || f.CallsErr != nil || f.Target != nil || f.HidePID != "" {
		t.Errorf("this process: %+v", f)
	}
	if want := (CgroupFacts{Version: "v2", Self: "/user.slice/session", SelfQuota: true, Delegated: true}); f.Cgroup != want {
		t.Errorf("cgroups: %+v, want %+v", f.Cgroup, want)
	}
	r := Judge(f)
	if c := r.Find("memlock"); c.Verdict != No {
		t.Errorf("5.10 with 64 KiB of locked memory: %+v", c)
	}
	bare := host()
	for _, name := range []string{"proc/sys/kernel/yama/ptrace_scope", "proc/sys/kernel/perf_event_paranoid", "sys/kernel/security/lockdown", "proc/5/ns/pid", "proc/5/ns/user"} {
		delete(bare, name)
	}
	bare["proc/5/ns/pid"] = "@pid:[4026532222]"
	if f, err = Gather(t.Context(), Options{Root: root(t, bare), System: machine()}); err != nil || f.Yama != nil || f.Paranoid != nil || f.Lockdown != "" || f.InitialPIDNS || f.InitialUserNS {
		t.Errorf("a bare container: %v, %+v", err, f)
	}
	if _, err := Gather(t.Context(), Options{Root: t.TempDir(), System: machine()}); err == nil || !strings.Contains(err.Error(), "mount") {
		t.Errorf("without /proc: %v", err)
	}
}

// A page that holds something else than the child wrote is not a success.
func TestChildsPage(t *testing.T) {
	for name, read := range map[string]func(int, uint64, []byte) error{
		"refused": func(int, uint64, []byte) error { return syscall.EPERM },
		"wrong":   func(int, uint64, []byte) error { return nil },
	} {
		s := machine()
		s.ReadMemory = read
		f, err := Gather(t.Context(), Options{Root: root(t, host()), System: s, Child: childOf("trial", "")})
		if err != nil || !f.ChildMemoryTried || f.ChildMemory == nil || Judge(f).Find("goroutines").Verdict != No {
			t.Errorf("%s: %v, %+v", name, err, f.ChildMemory)
		}
	}
}

// After a filter has killed the child, nothing that would kill is tried.
func TestKillingFilter(t *testing.T) {
	s := machine()
	s.Features = func() map[Feature]error { t.Error("features were tried"); return nil }
	s.Threads = func() error { t.Error("the thread plane was tried"); return nil }
	s.ReadMemory = func(int, uint64, []byte) error { return nil }
	f, err := Gather(t.Context(), Options{Root: root(t, host()), System: s, Child: childOf("trial", "bpf=kill"), PID: 9})
	if err != nil || !f.Calls[callBPF].Killed {
		t.Fatalf("%v, %+v", err, f.Calls)
	}
	if c := Judge(f).Find("threads"); c.Verdict != No {
		t.Errorf("threads: %+v", c)
	}
	s = machine()
	s.ReadMemory = func(int, uint64, []byte) error { t.Error("memory was read"); return nil }
	f, err = Gather(t.Context(), Options{Root: root(t, host()), System: s, Child: childOf("trial", "process_vm_readv=kill"), PID: 9})
	if c := Judge(f).Find("target-memory"); err != nil || c.Verdict != No || !strings.Contains(c.Reason, "seccomp") {
		t.Errorf("%v, %+v", err, c)
	}
}

func TestTarget(t *testing.T) {
	s := machine()
	var read []uint64
	s.ReadMemory = func(_ int, addr uint64, dst []byte) error {
		read = append(read, addr)
		return syscall.EPERM
	}
	f, err := Gather(t.Context(), Options{Root: root(t, host()), System: s, PID: 9})
	if err != nil || f.Target == nil || f.Target.Err != nil || !errors.Is(f.Target.Memory, syscall.EPERM) || f.Cgroup.Target != "/system.slice/broker" {
		t.Fatalf("%v, %+v", err, f.Target)
	}
	// The mapping that nobody may read is left out.
	if len(read) != 1 || read[0] != 0x3000 {
		t.Errorf("read at %#x, want 0x3000", read)
	}
	files := host()
	delete(files, "proc/9/status")
	files["proc/5/mounts"] = "proc /proc proc rw,hidepid=invisible 0 0\n"
	f, err = Gather(t.Context(), Options{Root: root(t, files), System: s, PID: 9})
	if err != nil || f.Target.Err == nil || !f.Target.Hidden {
		t.Errorf("a hidden target: %v, %+v", err, f.Target)
	}
	s.Signal = func(int) error { return syscall.ESRCH }
	f, err = Gather(t.Context(), Options{Root: root(t, files), System: s, PID: 9})
	if err != nil || f.Target.Err == nil || f.Target.Hidden {
		t.Errorf("no target: %v, %+v", err, f.Target)
	}
}

func TestHidePID(t *testing.T) {
	for mounts, want := range map[string]string{
		"": "", "proc /proc proc rw 0 0\n": "", "proc /proc proc rw,hidepid=2 0 0\n": "2",
		"proc /proc proc rw,hidepid=2 0 0\nproc /proc proc rw 0 0\n": "", "x /proc\n": "", "proc /mnt proc hidepid=2 0 0\n": "",
	} {
		if got := hidePID(mounts); got != want {
			t.Errorf("%q: %q, want %q", mounts, got, want)
		}
	}
}

func TestCgroups(t *testing.T) {
	dir := root(t, map[string]string{
		"proc/5/cgroup": "4:cpu,cpuacct:/docker/x\n0::/\n", "proc/self": "@5",
		"sys/fs/cgroup/cpu/docker/x/cpu.cfs_quota_us": "200000\n", "sys/fs/cgroup/cpu/docker/x/cpu.cfs_period_us": "100000\n", "sys/fs/cgroup/cpu/cpu.cfs_quota_us": "-1\n",
		"proc/5/mountinfo": "31 30 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n40 30 0:37 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n",
	})
	if got, want := readCgroup(dir, "self"), (CgroupFacts{Version: "v1 and v2", Self: "/docker/x", SelfQuota: true}); got != want {
		t.Errorf("hybrid: %+v, want %+v", got, want)
	}
}

// The doctor of this machine, for real, on a process of this test.
func TestRunHere(t *testing.T) {
	testutil.RequireBPF(t, thread.Available())
	r, err := Run(t.Context(), Options{PID: os.Getpid(), Child: childOf("trial", "")})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"threads", "capabilities", "seccomp", "ptrace", "btf", "feature-tp_btf", "feature-iterators", "feature-ringbuf", "feature-uprobes", "feature-perf-clock", "target-memory"} {
		if c := r.Find(id); c == nil || c.Verdict != OK {
			t.Errorf("%s: %+v", id, c)
		}
	}
	if !r.Recordable || r.Target == nil || r.Target.Kind != KindGo || r.Target.Version == "" {
		t.Errorf("the target: %+v", r.Target)
	}
}
