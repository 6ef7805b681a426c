package doctor

import (
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/contention-toolkit/contention/probes/goroutine"
	"github.com/contention-toolkit/contention/probes/privilege"
	"github.com/contention-toolkit/contention/probes/symbol"
)

var all = privilege.SetOf(privilege.BPF, privilege.Perfmon, privilege.SysPtrace, privilege.SysAdmin)

// healthy are the facts of root on a machine where everything works.
func healthy() Facts {
	two, zero := 2, 0
	f := Facts{
		Kernel: "6.18.1", Arch: "amd64", InitialUserNS: true, InitialPIDNS: true, Paranoid: &two, UnprivilegedBPF: &two, Yama: &zero,
		Self:             privilege.Status{Effective: all, Permitted: all, Bounding: ^privilege.Set(0)},
		Calls:            map[string]Outcome{callReadVM: {Tried: true}, callBPF: {Tried: true, Errno: syscall.EINVAL}, callPerf: {Tried: true, Errno: syscall.EINVAL}},
		ChildMemoryTried: true, Features: map[Feature]error{}, Lockdown: "none",
		Cgroup: CgroupFacts{Version: "v2", Self: "/user.slice", Delegated: true},
	}
	for _, l := range featureLines {
		f.Features[l.feature] = nil
	}
	return f
}

// ordinary are the facts of a user without any capability.
func ordinary() Facts {
	f := healthy()
	f.Self = privilege.Status{UIDs: [3]int{1000, 1000, 1000}, Bounding: ^privilege.Set(0)}
	f.Calls[callBPF] = Outcome{Tried: true, Errno: syscall.EPERM}
	f.KernelSymbols = symbol.ErrKernelSymbols
	f.Threads = errors.New("thread plane: EPERM")
	for k := range f.Features {
		f.Features[k] = fmt.Errorf("load program: %w", syscall.EPERM)
	}
	return f
}

// goTarget is a target that works.
func goTarget() *TargetFacts {
	return &TargetFacts{PID: 42, Kind: KindGo, GoVersion: "go1.26.8", Exe: "/usr/bin/broker", Access: privilege.Access{PID: 42, InitialNS: true}, NSPIDs: []int{42}}
}

// Every verdict, from the facts that make it.
func TestJudge(t *testing.T) {
	number := func(n int) *int { return &n }
	type change = func(*Facts)
	target := func(more func(*TargetFacts)) change {
		return func(f *Facts) {
			f.Target = goTarget()
			if more != nil {
				more(f.Target)
			}
		}
	}
	refused := fmt.Errorf("perf: %w", syscall.EACCES)
	for _, c := range []struct {
		name    string
		base    func() Facts
		change  change
		id      string
		verdict Verdict
		reason  string
		remedy  string
	}{
		{"root", healthy, nil, "goroutines", OK, "waiting goroutines", ""},
		{"root", healthy, nil, "threads", OK, "every switch", ""},
		{"root", healthy, nil, "exact", OK, "--exact", ""},
		{"user", ordinary, nil, "goroutines", Limited, "of uid 1000", "setcap"},
		{"user", ordinary, nil, "threads", No, "CAP_BPF and CAP_PERFMON", "setcap"},
		{"user", ordinary, nil, "exact", No, "may not attach", "setcap"},
		{"verifier", healthy, func(f *Facts) { f.Threads = errors.New("verifier rejects") }, "threads", No, "verifier rejects", "lines below"},
		{"uprobes for root", healthy, func(f *Facts) {
			f.Self.Effective &^= privilege.SetOf(privilege.SysAdmin)
			f.Features[FeatureUprobes] = refused
		}, "exact", No, "CAP_SYS_ADMIN is missing", "cap_sys_admin"},
		{"uprobes for root", healthy, func(f *Facts) {
			f.Self.Effective &^= privilege.SetOf(privilege.SysAdmin)
			f.Features[FeatureUprobes] = refused
		}, "feature-uprobes", Limited, "not allowed", "cap_sys_admin"},
		{"no uprobes", healthy, func(f *Facts) { f.Features[FeatureUprobes] = errors.New("not supported") }, "exact", No, "do not work", "Uprobes"},
		{"no memory", healthy, func(f *Facts) { f.ChildMemory = syscall.EPERM }, "goroutines", No, "cannot be read", "Reading memory"},
		{"no memory", healthy, func(f *Facts) { f.ChildMemory = syscall.EPERM }, "exact", No, "needs what goroutines", "goroutines"},

		{"root", healthy, nil, "capabilities", OK, "CAP_BPF, CAP_PERFMON, CAP_SYS_PTRACE", ""},
		{"only admin", healthy, func(f *Facts) { f.Self.Effective = privilege.SetOf(privilege.SysAdmin) }, "capabilities", Limited, "missing: CAP_SYS_PTRACE", "setcap"},
		{"one missing", healthy, func(f *Facts) { f.Self.Effective = privilege.SetOf(privilege.BPF, privilege.SysPtrace) }, "capabilities", Limited, "missing: CAP_PERFMON (", "setcap"},
		{"none", ordinary, nil, "capabilities", No, "CAP_BPF (to load", "setcap"},
		{"container", ordinary, func(f *Facts) { f.Self.Bounding = 0 }, "capabilities", No, "CAP_BPF", "--cap-add BPF"},
		{"no_new_privs", ordinary, func(f *Facts) { f.Self.NoNewPrivs = true }, "capabilities", No, "CAP_BPF", "no_new_privs is set"},
		{"rootless", healthy, func(f *Facts) { f.InitialUserNS = false }, "capabilities", Limited, "inside a user namespace", "outside"},
		{"user", ordinary, nil, "kernel-symbols", Limited, "as addresses", "cap_syslog"},
		{"no kallsyms", healthy, func(f *Facts) { f.KernelSymbols = errors.New("no list") }, "kernel-symbols", Limited, "no list", "KALLSYMS"},

		{"no filter", healthy, nil, "seccomp", OK, "no seccomp filter", ""},
		{"no right is no filter", ordinary, nil, "seccomp", OK, "no seccomp filter", ""},
		{"harmless filter", healthy, func(f *Facts) { f.Self.Seccomp = 2 }, "seccomp", OK, "lets bpf", ""},
		{"filter denies", healthy, func(f *Facts) { f.Self.Seccomp = 2; f.Calls[callBPF] = Outcome{Tried: true, Errno: syscall.EPERM} }, "seccomp", No, "filter denies bpf (operation not permitted)", "SystemCallFilter"},
		{"filter hides", ordinary, func(f *Facts) { f.Self.Seccomp = 2; f.Calls[callBPF] = Outcome{Tried: true, Errno: syscall.ENOSYS} }, "seccomp", No, "bpf (function not implemented)", "seccomp"},
		{"filter kills", healthy, func(f *Facts) {
			f.Self.Seccomp = 2
			f.Calls = map[string]Outcome{callReadVM: {Tried: true}, callBPF: {Killed: true}}
		}, "seccomp", No, "bpf (a seccomp filter kills", "SystemCallFilter"},
		{"kernel without", healthy, func(f *Facts) { f.Calls[callPerf] = Outcome{Tried: true, Errno: syscall.ENOSYS} }, "seccomp", No, "built without", "seccomp"},
		{"no child", healthy, func(f *Facts) { f.CallsErr = errors.New("fork failed") }, "seccomp", Limited, "fork failed", "noexec"},

		{"root", healthy, nil, "ptrace", OK, "every process", ""},
		{"user", ordinary, nil, "ptrace", Limited, "uid 1000 that are dumpable", "setcap"},
		{"denied", healthy, func(f *Facts) {
			f.ChildMemory = syscall.EPERM
			f.Calls[callReadVM] = Outcome{Tried: true, Errno: syscall.EPERM}
		}, "ptrace", No, "seccomp filter forbids process_vm_readv", "seccomp"},
		{"Yama 3", healthy, func(f *Facts) { f.ChildMemory = syscall.EPERM; f.Yama = number(3) }, "ptrace", No, "ptrace_scope=3", "boot"},
		{"not tried", healthy, func(f *Facts) { f.ChildMemoryTried = false }, "ptrace", No, "not tried", "System calls"},

		{"no Yama", healthy, func(f *Facts) { f.Yama = nil }, "yama", OK, "no Yama", ""},
		{"Yama 0", healthy, nil, "yama", OK, "restricts nothing", ""},
		{"Yama 1, root", healthy, func(f *Facts) { f.Yama = number(1) }, "yama", OK, "does not hold", ""},
		{"Yama 1", ordinary, func(f *Facts) { f.Yama = number(1) }, "yama", Limited, "children only", "ptrace_scope=0"},
		{"Yama 2", ordinary, func(f *Facts) { f.Yama = number(2) }, "yama", No, "CAP_SYS_PTRACE only", "ptrace_scope=0"},
		{"Yama 3", healthy, func(f *Facts) { f.Yama = number(3) }, "yama", No, "everybody", "boot"},

		{"new kernel", ordinary, nil, "memlock", OK, "since Linux 5.11", ""},
		{"old kernel", ordinary, func(f *Facts) { f.Kernel, f.MemlockCur = "5.10.0-28-amd64", 64<<10 }, "memlock", No, "64 KiB", "LimitMEMLOCK"},
		{"old kernel, room", ordinary, func(f *Facts) { f.Kernel, f.MemlockCur = "5.10", ^uint64(0) }, "memlock", OK, "has room", ""},
		{"old kernel, raised", healthy, func(f *Facts) {
			f.Kernel = "5.4.0"
			f.Self.Effective |= privilege.SetOf(privilege.SysResource)
		}, "memlock", OK, "raised", ""},

		{"confidentiality", healthy, func(f *Facts) { f.Lockdown = "confidentiality" }, "lockdown", No, "forbids", "lockdown=integrity"},
		{"integrity", healthy, func(f *Facts) { f.Lockdown = "integrity" }, "lockdown", OK, "integrity does not", ""},
		{"no securityfs", healthy, func(f *Facts) { f.Lockdown = "" }, "lockdown", OK, "not told", ""},
		{"BTF", healthy, nil, "btf", OK, "describes its own types", ""},
		{"BTF absent", healthy, func(f *Facts) { f.BTF = BTFAbsent }, "btf", No, "is absent", "CONFIG_DEBUG_INFO_BTF"},
		{"BTF unreadable", healthy, func(f *Facts) { f.BTF, f.BTFErr = BTFUnreadable, syscall.EACCES }, "btf", No, "cannot be read by this user: permission denied", "readable"},
		{"BTF too new", healthy, func(f *Facts) { f.BTF, f.BTFErr = BTFUnknown, errors.New("unknown kind 21") }, "btf", No, "unknown kind 21", "update contention"},
		{"paranoid, root", healthy, nil, "perf-paranoid", OK, "does not hold", ""},
		{"paranoid 1", ordinary, func(f *Facts) { f.Paranoid = number(1) }, "perf-paranoid", OK, "own processes", ""},
		{"paranoid 2", ordinary, nil, "perf-paranoid", Limited, "perf_event_paranoid=2", "CAP_PERFMON"},
		{"paranoid 4 beats the capability", healthy, func(f *Facts) { f.Paranoid = number(4); f.Features[FeatureClock] = syscall.EACCES }, "perf-paranoid", Limited, "although CAP_PERFMON is there", "perf_event_paranoid=2"},
		{"no perf events", healthy, func(f *Facts) { f.Paranoid = nil }, "perf-paranoid", Limited, "no perf events", "CONFIG_PERF_EVENTS"},
		{"unprivileged", healthy, nil, "unprivileged-bpf", OK, "=2", ""},
		{"unprivileged 0", healthy, func(f *Facts) { f.UnprivilegedBPF = number(0) }, "unprivileged-bpf", OK, "=0", ""},
		{"unprivileged absent", healthy, func(f *Facts) { f.UnprivilegedBPF = nil }, "unprivileged-bpf", OK, "has no", ""},
		{"old kernel", healthy, func(f *Facts) { f.Features[FeatureTracepoints] = errors.New("not supported") }, "feature-tp_btf", No, "does not work (not supported)", "5.10"},
		{"old kernel", healthy, func(f *Facts) { f.Features[FeatureRingBuffer] = errors.New("not supported") }, "feature-ringbuf", Limited, "does not work", "5.8"},
		{"not needed", healthy, func(f *Facts) { f.Features[FeatureFentry] = errors.New("no trampolines") }, "feature-fentry", OK, "no trampolines", ""},
		{"user", ordinary, nil, "feature-iterators", No, "not allowed", "see Capabilities"},
		{"filter", healthy, func(f *Facts) { f.Features[FeatureTracepoints] = syscall.EPERM; f.Self.Seccomp = 2 }, "feature-tp_btf", No, "not allowed", "seccomp filter forbids bpf"},
		{"rootless", healthy, func(f *Facts) { f.Features[FeatureTracepoints] = syscall.EPERM; f.InitialUserNS = false }, "feature-tp_btf", No, "not allowed", "user namespace"},
		{"statistics", ordinary, nil, "feature-bpf-stats", Limited, "not allowed", "CAP_SYS_ADMIN"},
		{"killed", healthy, func(f *Facts) { f.Features, f.FeaturesSkipped = nil, "a filter kills" }, "feature-iterators", No, "a filter kills", "seccomp"},
		{"other architecture", healthy, func(f *Facts) { f.Features, f.Arch = nil, "riscv64" }, "feature-iterators", No, "riscv64", "amd64"},

		{"first namespace", healthy, nil, "pid-namespace", OK, "machine's own", ""},
		{"container", healthy, func(f *Facts) { f.InitialPIDNS = false }, "pid-namespace", Limited, "nested", "--pid=host"},
		{"hidepid", ordinary, func(f *Facts) { f.HidePID = "2" }, "hidepid", Limited, "hidepid=2", "remount"},
		{"cgroup 2", healthy, nil, "cgroup", OK, "version 2; contention runs in /user.slice without a CPU limit; this user may make", ""},
		{"cgroup limit", healthy, func(f *Facts) { f.Cgroup.SelfQuota = true }, "cgroup", Limited, "under a CPU limit (/user.slice)", "outside"},
		{"no cgroup", healthy, func(f *Facts) { f.Cgroup = CgroupFacts{} }, "cgroup", Limited, "no cgroups", "mount"},

		{"Go", healthy, target(nil), "goroutines", OK, "tried on the target: works", ""},
		{"Go", healthy, target(nil), "target-kind", OK, "broker: a Go program, go1.26.8", ""},
		{"Go", healthy, target(nil), "target-memory", OK, "a page was read", ""},
		{"not readable", ordinary, target(func(t *TargetFacts) { t.Memory, t.Access.Target.UIDs = syscall.EPERM, [3]int{7, 7, 7} }), "goroutines", No, "uid 7", "setcap"},
		{"not readable", ordinary, target(func(t *TargetFacts) { t.Memory, t.Access.NotDumpable = syscall.EPERM, true }), "target-memory", No, "not dumpable", "run as root"},
		{"unknown layout", healthy, target(func(t *TargetFacts) { t.Sampler = fmt.Errorf("%w: go9.9", goroutine.ErrNotGo) }), "goroutines", No, "go9.9", "known Go release"},
		{"unknown layout", healthy, target(func(t *TargetFacts) { t.Sampler, t.Stripped = errors.New("no symbols"), true }), "target-kind", Limited, "without a symbol table", "goroutines"},
		{"executable hidden", healthy, target(func(t *TargetFacts) { t.Kind, t.ExeErr = KindUnknown, syscall.EACCES }), "target-kind", Limited, "permission denied", "cap_dac_read_search"},
		{"executable hidden", healthy, target(func(t *TargetFacts) { t.Kind, t.ExeErr = KindUnknown, syscall.EACCES }), "goroutines", No, "permission denied", "cap_dac_read_search"},
		{"native", healthy, target(func(t *TargetFacts) { t.Kind, t.Frames = KindNative, FrameUse{100, 90} }), "target-kind", OK, "90 of 100", ""},
		{"native", healthy, target(func(t *TargetFacts) { t.Kind = KindNative }), "goroutines", No, "not a Go program", "--source threads"},
		{"native without", healthy, target(func(t *TargetFacts) { t.Kind, t.Frames = KindNative, FrameUse{100, 3} }), "target-kind", Limited, "without frame pointers", "-fno-omit-frame-pointer"},
		{"libc without", healthy, target(func(t *TargetFacts) {
			t.Kind, t.Frames, t.LibcFrames = KindNative, FrameUse{100, 90}, &FrameUse{100, 3}
		}), "target-kind", Limited, "C library has none", "C library"},
		{"frames not found", healthy, target(func(t *TargetFacts) { t.Kind, t.FramesErr = KindNative, errors.New("no .eh_frame_hdr") }), "target-kind", Limited, "no .eh_frame_hdr", "frame-pointer"},
		{"java", healthy, target(func(t *TargetFacts) { t.Kind = KindJVM }), "target-kind", Limited, "no frame pointers", "PreserveFramePointer; then jcmd 42"},
		{"java ready", healthy, target(func(t *TargetFacts) { t.Kind, t.JVM = KindJVM, JVMFacts{true, "/tmp/perf-42.map"} }), "target-kind", OK, "perf map", ""},
		{"ports", healthy, target(func(t *TargetFacts) { t.Listing = syscall.EACCES }), "target-ports", Limited, "permission denied", "--pprof"},
		{"same cgroup", healthy, func(f *Facts) { f.Target = goTarget(); f.Cgroup.Target = "/user.slice" }, "target-cgroup", Limited, "same cgroup", "systemd-run"},
		{"both in the root", healthy, func(f *Facts) { f.Target = goTarget(); f.Cgroup.Self, f.Cgroup.Target = "/", "/" }, "target-cgroup", OK, "does not run in", ""},
		{"in a container", healthy, target(func(t *TargetFacts) { t.NSPIDs = []int{42, 1} }), "target-namespace", OK, "it is process 1", ""},
		{"gone", healthy, target(func(t *TargetFacts) { t.Err = errors.New("x") }), "threads", No, "no process 42", "running process"},
		{"gone in a container", healthy, func(f *Facts) { f.Target = &TargetFacts{PID: 42, Err: errors.New("x")}; f.InitialPIDNS = false }, "target", No, "PID namespace", "as seen in here"},
		{"hidden", ordinary, func(f *Facts) { f.Target = &TargetFacts{PID: 42, Err: errors.New("x"), Hidden: true}; f.HidePID = "2" }, "target", No, "hidden", "remount"},
	} {
		t.Run(c.name+"/"+c.id, func(t *testing.T) {
			f := c.base()
			if c.change != nil {
				c.change(&f)
			}
			got := Judge(f).Find(c.id)
			if got == nil {
				t.Fatal("there is no such line")
			}
			if got.Verdict != c.verdict || !strings.Contains(got.Reason, c.reason) || !strings.Contains(got.Remedy, c.remedy) {
				t.Errorf("%+v; want %s, %q, %q", *got, c.verdict, c.reason, c.remedy)
			}
		})
	}
}

// Whatever is wrong has a remedy, what is right needs none, each line is one
// line, and IDs are told apart.
func TestEveryLineHelps(t *testing.T) {
	killed := healthy()
	killed.Calls, killed.Features, killed.FeaturesSkipped = map[string]Outcome{callReadVM: {Killed: true}}, nil, "a filter kills"
	for name, f := range map[string]Facts{"healthy": healthy(), "ordinary": ordinary(), "nothing": {}, "killed": killed} {
		for _, target := range []*TargetFacts{nil, goTarget(), {PID: 7, Kind: KindNative, Memory: syscall.EPERM, Listing: syscall.EPERM}, {PID: 7, Err: errors.New("gone")}} {
			f.Target = target
			seen := map[string]bool{}
			for _, c := range Judge(f).Checks {
				if seen[c.ID] {
					t.Errorf("%s: %s is there twice", name, c.ID)
				}
				seen[c.ID] = true
				if (c.Verdict == OK) != (c.Remedy == "") {
					t.Errorf("%s: %s is %s, and its remedy %q", name, c.ID, c.Verdict, c.Remedy)
				}
				if c.Reason == "" || c.Title == "" || strings.ContainsAny(c.Reason+c.Remedy, "\n\t") {
					t.Errorf("%s: %+v", name, c)
				}
			}
		}
	}
}

func TestRecordable(t *testing.T) {
	nothing := ordinary()
	nothing.ChildMemory = syscall.EPERM
	gone := healthy()
	gone.Target = &TargetFacts{PID: 7, Err: errors.New("gone")}
	for name, c := range map[string]struct {
		f    Facts
		want bool
	}{"root": {healthy(), true}, "goroutines only": {ordinary(), true}, "nothing": {nothing, false}, "target gone": {gone, false}} {
		if got := Judge(c.f).Recordable; got != c.want {
			t.Errorf("%s: recordable is %v", name, got)
		}
	}
}

func TestOlderThan(t *testing.T) {
	for release, want := range map[string]bool{"5.10.218": true, "4.18.0-553.el8": true, "5.11": false, "5.11-rc1": false, "6.1": false, "": false, "x.y": false, "5": false, "10.2": false} {
		if got := (&judge{f: Facts{Kernel: release}}).olderThan(5, 11); got != want {
			t.Errorf("%q older than 5.11: %v", release, got)
		}
	}
}

func TestDenied(t *testing.T) {
	for o, want := range map[Outcome]bool{
		{}: false, {Tried: true}: false, {Tried: true, Errno: syscall.EINVAL}: false,
		{Killed: true}: true, {Tried: true, Errno: syscall.EPERM}: true, {Tried: true, Errno: syscall.ENOSYS}: true,
	} {
		if o.Denied() != want {
			t.Errorf("%+v denied: %v", o, o.Denied())
		}
	}
}
