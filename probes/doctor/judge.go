package doctor

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/contention-toolkit/contention/probes/privilege"
	"github.com/contention-toolkit/contention/probes/symbol"
)

// Judge turns facts into a report. It is pure.
func Judge(f Facts) *Report {
	j := judge{f: f, out: &Report{
		Schema: Schema, Kernel: f.Kernel, Arch: f.Arch, UID: f.Self.UIDs[1], Capabilities: f.Self.Effective.Names(), Checks: []Check{},
	}}
	j.sources()
	j.capabilities()
	j.seccomp()
	j.ptrace()
	j.kernel()
	j.features()
	j.surroundings()
	j.target()
	for _, c := range j.out.Checks {
		if c.Group == Sources && c.Verdict != No {
			j.out.Recordable = true
		}
	}
	return j.out
}

type judge struct {
	f   Facts
	out *Report
}

func (j *judge) add(g Group, id, title string, v Verdict, reason, remedy string) {
	j.out.Checks = append(j.out.Checks, Check{ID: id, Group: g, Title: title, Verdict: v, Reason: reason, Remedy: remedy})
}

func (j *judge) ok(g Group, id, title, reason string) { j.add(g, id, title, OK, reason, "") }

// rights is what CAP_SYS_PTRACE and the like are worth here.
func (j *judge) has(c privilege.Capability) bool { return j.f.Self.Effective.Has(c) }

// bpf says that the capabilities for BPF programs are there.
func (j *judge) bpf() bool { return len(privilege.MissingBPF(j.f.Self.Effective)) == 0 }

// olderThan compares the running kernel's release; one that cannot be read is
// taken for new.
func (j *judge) olderThan(major, minor int) bool {
	parts := strings.SplitN(j.f.Kernel, ".", 3)
	if len(parts) < 2 {
		return false
	}
	digits := func(s string) string {
		if i := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
			return s[:i]
		}
		return s
	}
	a, err1 := strconv.Atoi(digits(parts[0]))
	b, err2 := strconv.Atoi(digits(parts[1]))
	if err1 != nil || err2 != nil {
		return false
	}
	return a < major || a == major && b < minor
}

func (j *judge) capabilities() {
	need := []struct {
		c    privilege.Capability
		for_ string
	}{
		{privilege.BPF, "load BPF programs"},
		{privilege.Perfmon, "trace the kernel and attach uprobes"},
		{privilege.SysPtrace, "read other users' processes"},
	}
	var there, missing, unbound []string
	for _, n := range need {
		// Before they were split off in 5.8, and still, CAP_SYS_ADMIN includes the first two.
		if j.has(n.c) || n.c != privilege.SysPtrace && j.has(privilege.SysAdmin) {
			there = append(there, n.c.String())
		} else {
			missing = append(missing, n.c.String()+" (to "+n.for_+")")
			if !j.f.Self.Bounding.Has(n.c) {
				unbound = append(unbound, n.c.String())
			}
		}
	}
	remedy := "run as root, or: " + privilege.Setcap
	switch {
	case len(unbound) > 0:
		remedy = strings.Join(unbound, ", ") + " cannot be had in this container or unit at all: its bounding set lacks it; start it with " +
			"docker run --cap-add BPF --cap-add PERFMON --cap-add SYS_PTRACE, the same in a pod's securityContext.capabilities.add, or CapabilityBoundingSet= in the unit"
	case j.f.Self.NoNewPrivs && len(missing) > 0:
		remedy = privilege.NoNewPrivs
	}
	const title = "Capabilities"
	switch {
	case len(missing) == 0 && j.f.InitialUserNS:
		j.ok(Privileges, "capabilities", title, "the effective set has "+strings.Join(there, ", "))
	case len(missing) == 0:
		j.add(Privileges, "capabilities", title, Limited,
			"the effective set has "+strings.Join(there, ", ")+", but only inside a user namespace (a rootless container): the kernel does not take them for BPF programs, nor for processes outside",
			"run contention outside of the user namespace, as the machine's root or with its own capabilities")
	case len(there) > 0:
		j.add(Privileges, "capabilities", title, Limited, "the effective set has "+strings.Join(there, ", ")+"; missing: "+strings.Join(missing, ", "), remedy)
	default:
		j.add(Privileges, "capabilities", title, No, "missing: "+strings.Join(missing, ", "), remedy)
	}
	j.symbols()
}

func (j *judge) symbols() {
	const id, title = "kernel-symbols", "Kernel symbols"
	switch err := j.f.KernelSymbols; {
	case errors.Is(err, symbol.ErrKernelSymbols):
		j.add(Privileges, id, title, Limited, "kernel stacks are recorded as addresses: the kernel hides its symbols' addresses from this user",
			"add cap_syslog to the capabilities with sysctl kernel.kptr_restrict=1 or lower")
	case err != nil:
		j.add(Privileges, id, title, Limited, "kernel stacks are recorded as addresses: "+err.Error(), "use a kernel built with CONFIG_KALLSYMS=y")
	default:
		j.ok(Privileges, id, title, "kernel stacks are given names")
	}
}

// seccomp reports what a filter denies; unlike a missing capability no right
// helps against it.
func (j *judge) seccomp() {
	const id, title = "seccomp", "System calls"
	if j.f.CallsErr != nil {
		j.add(Privileges, id, title, Limited, "not tried: "+j.f.CallsErr.Error(), "see whether this binary may start itself (a noexec mount, a limit on processes)")
		return
	}
	var denied []string
	for _, call := range trialCalls {
		o := j.f.Calls[call]
		switch {
		case call == callBPF && !j.bpf() && !o.Killed && o.Errno != syscall.ENOSYS:
			// Refused for want of a capability, which is told already.
		case o.Killed:
			denied = append(denied, call+" (a seccomp filter kills the process that calls it)")
		case o.Denied():
			denied = append(denied, fmt.Sprintf("%s (%v)", call, o.Errno))
		case !o.Tried:
			denied = append(denied, call+" (not tried after that)")
		}
	}
	switch {
	case len(denied) > 0 && j.f.Self.Seccomp != 0:
		j.add(Privileges, id, title, No, "a seccomp filter denies "+strings.Join(denied, ", "), privilege.RemedySeccomp)
	case len(denied) > 0:
		j.add(Privileges, id, title, No, "the kernel was built without, or a security module denies "+strings.Join(denied, ", "), privilege.RemedySeccomp)
	case j.f.Self.Seccomp != 0:
		j.ok(Privileges, id, title, "a seccomp filter is in place, and lets bpf, perf_event_open and process_vm_readv through")
	default:
		j.ok(Privileges, id, title, "no seccomp filter; bpf, perf_event_open and process_vm_readv are there")
	}
}

// ptrace reports the right to read processes in general.
func (j *judge) ptrace() {
	const id, title = "ptrace", "Reading memory"
	switch err := j.f.ChildMemory; {
	case !j.f.ChildMemoryTried:
		j.add(Privileges, id, title, No, "not tried: a child to try it on could not be had", "see System calls")
	case err != nil:
		a := privilege.Access{Self: j.f.Self, Target: j.f.Self, Child: true, Denied: j.f.Calls[callReadVM].Denied(), InitialNS: j.f.InitialUserNS}
		if j.f.Yama != nil {
			a.Yama = *j.f.Yama
		}
		w := a.Explain(err)
		j.add(Privileges, id, title, No, "a page of a child's memory could not be read: "+w.Reason, w.Remedy)
	case j.has(privilege.SysPtrace):
		j.ok(Privileges, id, title, "a page of a child's memory was read; with CAP_SYS_PTRACE every process can be")
	default:
		j.add(Privileges, id, title, Limited, fmt.Sprintf("a page of a child's memory was read; without CAP_SYS_PTRACE only processes of uid %d that are dumpable can be", j.f.Self.UIDs[0]), privilege.RemedyPtrace)
	}
	j.yama()
	j.memlock()
}

func (j *judge) yama() {
	const id, title = "yama", "Yama"
	const reset = "sysctl kernel.yama.ptrace_scope=0, or grant CAP_SYS_PTRACE: " + privilege.Setcap
	switch y := j.f.Yama; {
	case y == nil:
		j.ok(Privileges, id, title, "this kernel has no Yama, which would restrict reading other processes")
	case *y == 0:
		j.ok(Privileges, id, title, "kernel.yama.ptrace_scope=0 restricts nothing")
	case *y >= 3:
		j.add(Privileges, id, title, No, "kernel.yama.ptrace_scope=3 forbids reading other processes to everybody until the next boot", "boot with kernel.yama.ptrace_scope of 2 or lower")
	case j.has(privilege.SysPtrace):
		j.ok(Privileges, id, title, fmt.Sprintf("kernel.yama.ptrace_scope=%d does not hold for CAP_SYS_PTRACE", *y))
	case *y == 2:
		j.add(Privileges, id, title, No, "kernel.yama.ptrace_scope=2 allows reading other processes with CAP_SYS_PTRACE only", reset)
	default:
		j.add(Privileges, id, title, Limited, "kernel.yama.ptrace_scope=1 allows reading one's own children only, which is what `contention record -- COMMAND` starts", reset)
	}
}

func (j *judge) memlock() {
	const id, title = "memlock", "Locked memory"
	const need = 64 << 20
	switch limit := j.f.MemlockCur; {
	case !j.olderThan(5, 11):
		j.ok(Privileges, id, title, "BPF maps do not count against the limit on locked memory (ulimit -l) since Linux 5.11")
	case limit >= need:
		j.ok(Privileges, id, title, "the limit on locked memory (ulimit -l) has room for BPF maps")
	case j.has(privilege.SysResource):
		j.ok(Privileges, id, title, "the limit on locked memory is raised while recording (CAP_SYS_RESOURCE)")
	default:
		j.add(Privileges, id, title, No, fmt.Sprintf("Linux %s counts BPF maps against the limit on locked memory, which is %d KiB", j.f.Kernel, limit>>10), "ulimit -l unlimited before starting, LimitMEMLOCK=infinity in a systemd unit, or add cap_sys_resource to the capabilities")
	}
}
