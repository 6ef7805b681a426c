package doctor

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/contention-toolkit/contention/probes/privilege"
)

// kernel reports settings of the running kernel.
func (j *judge) kernel() {
	j.lockdown()
	j.btf()
	j.paranoid()
	const id, title = "unprivileged-bpf", "Unprivileged BPF"
	// Tracing programs never load without capabilities; the setting decides nothing.
	switch v := j.f.UnprivilegedBPF; {
	case v == nil:
		j.ok(Kernel, id, title, "this kernel has no kernel.unprivileged_bpf_disabled; recording always takes capabilities")
	case *v == 0:
		j.ok(Kernel, id, title, "kernel.unprivileged_bpf_disabled=0; recording takes capabilities all the same")
	default:
		j.ok(Kernel, id, title, fmt.Sprintf("kernel.unprivileged_bpf_disabled=%d, which does not concern users with CAP_BPF", *v))
	}
}

func (j *judge) lockdown() {
	const id, title = "lockdown", "Kernel lockdown"
	switch j.f.Lockdown {
	case "confidentiality":
		j.add(Kernel, id, title, No, "mode confidentiality forbids BPF programs that read kernel memory, which recording threads does", privilege.RemedyLockdown)
	case "":
		j.ok(Kernel, id, title, "not told: the kernel has none, or securityfs is not mounted; that the programs load settles it")
	default:
		j.ok(Kernel, id, title, "mode "+j.f.Lockdown+" does not forbid BPF programs")
	}
}

func (j *judge) btf() {
	const id, title = "btf", "Type information"
	switch j.f.BTF {
	case BTFAbsent:
		j.add(Kernel, id, title, No, "the kernel carries no type information (BTF): /sys/kernel/btf/vmlinux is absent", "use a kernel built with CONFIG_DEBUG_INFO_BTF=y, as all current distributions' are")
	case BTFUnreadable:
		j.add(Kernel, id, title, No, "the kernel's type information (BTF) is there and cannot be read by this user: "+text(j.f.BTFErr), "make /sys/kernel/btf/vmlinux readable (a container or security module hides it), or run as root")
	case BTFUnknown:
		j.add(Kernel, id, title, No, "the kernel's type information (BTF) is there and not understood, perhaps because the kernel is newer than this tool: "+text(j.f.BTFErr), "update contention; please report it with the kernel's version")
	default:
		if j.f.FeaturesSkipped != "" {
			j.add(Kernel, id, title, Limited, "not read: "+j.f.FeaturesSkipped, "see System calls")
			return
		}
		j.ok(Kernel, id, title, "the kernel describes its own types (BTF), which BPF programs need to read them")
	}
}

// paranoid holds for perf_event_open, that is uprobes and on-CPU samples.
// Debian and Ubuntu have levels above 2 that other kernels lack.
func (j *judge) paranoid() {
	const id, title = "perf-paranoid", "Perf events"
	p := j.f.Paranoid
	if p == nil {
		j.add(Kernel, id, title, Limited, "this kernel has no perf events (kernel.perf_event_paranoid is absent): no uprobes and no on-CPU samples", "use a kernel built with CONFIG_PERF_EVENTS=y")
		return
	}
	level := fmt.Sprintf("kernel.perf_event_paranoid=%d", *p)
	capable := j.has(privilege.Perfmon) || j.has(privilege.SysAdmin)
	clock, tried := j.f.Features[FeatureClock]
	switch {
	case tried && clock != nil && capable:
		// Some distributions refuse above 2 whatever the capabilities.
		j.add(Kernel, id, title, Limited, level+", and the kernel refuses perf events although CAP_PERFMON is there: "+text(clock), "sysctl kernel.perf_event_paranoid=2, or grant CAP_SYS_ADMIN")
	case capable:
		j.ok(Kernel, id, title, level+" does not hold for CAP_PERFMON")
	case *p <= 1:
		j.ok(Kernel, id, title, level+" allows samples of one's own processes")
	default:
		j.add(Kernel, id, title, Limited, level+" keeps this user from sampling kernel code", "grant CAP_PERFMON: "+privilege.Setcap+", or sysctl kernel.perf_event_paranoid=1")
	}
}

// features are listed with what each is for.
var featureLines = []struct {
	feature     Feature
	title, for_ string
	without     Verdict // what its lack means
	need        string
}{
	{FeatureTracepoints, "Typed tracepoints", "BPF programs on tracepoints (tp_btf), which see every switch of a thread", No, "use Linux 5.10 or newer with CONFIG_BPF_SYSCALL, CONFIG_BPF_EVENTS and CONFIG_DEBUG_INFO_BTF"},
	{FeatureIterators, "Iterators", "BPF iterators, which find the threads that are there already", No, "use Linux 5.10 or newer"},
	{FeatureRingBuffer, "Ring buffer", "hands events over from the kernel", Limited, "use Linux 5.8 or newer"},
	{FeatureUprobes, "Uprobes", "probes on the target's functions, for every wait of a Go program (record --exact, --locks)", Limited, "use a kernel built with CONFIG_UPROBE_EVENTS=y"},
	{FeatureUprobeMulti, "Uprobes by link", "the same without CAP_SYS_ADMIN (uprobe_multi)", Limited, "use Linux 6.6 or newer"},
	{FeatureFentry, "Function entry", "", OK, ""},
	{FeatureClock, "Clock samples", "the perf software clock, which samples what runs on a CPU", Limited, "use a kernel built with CONFIG_PERF_EVENTS=y"},
	{FeatureStatistics, "Program statistics", "of BPF, which tell what recording costs in the kernel", Limited, "run as root (CAP_SYS_ADMIN); without it recordings have no figure for their own cost in the kernel"},
}

func (j *judge) features() {
	for _, l := range featureLines {
		id := "feature-" + string(l.feature)
		err, tried := j.f.Features[l.feature]
		switch {
		case !tried && j.f.FeaturesSkipped != "":
			j.add(Kernel, id, l.title, No, "not tried: "+j.f.FeaturesSkipped, privilege.RemedySeccomp)
		case !tried:
			j.add(Kernel, id, l.title, No, "not supported on "+j.f.Arch, "record on amd64 or arm64")
		case l.feature == FeatureFentry:
			// No recorder uses it; it tells what others could.
			found := "works"
			if err != nil {
				found = "does not work here (" + text(err) + ")"
			}
			j.ok(Kernel, id, l.title, "fentry programs, which contention does not need: tried, "+found)
		case err == nil:
			j.ok(Kernel, id, l.title, "tried, works: "+l.for_)
		case errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) || errors.Is(err, os.ErrPermission):
			j.add(Kernel, id, l.title, l.without, "tried, not allowed ("+text(err)+"): "+l.for_, j.whyNot(l.feature))
		default:
			j.add(Kernel, id, l.title, l.without, "tried, does not work ("+text(err)+"): "+l.for_, l.need)
		}
	}
}

// whyNot is the remedy for a feature that was refused.
func (j *judge) whyNot(f Feature) string {
	switch {
	case f == FeatureStatistics:
		return "run as root (CAP_SYS_ADMIN); without it recordings have no figure for their own cost in the kernel"
	case !j.bpf():
		return "see Capabilities"
	case !j.f.InitialUserNS:
		return "run contention outside of the user namespace"
	case f == FeatureUprobes && !j.has(privilege.SysAdmin):
		return remedyUprobes
	}
	return privilege.WhyNoBPF(j.f.Self, j.f.Lockdown)
}

const remedyUprobes = "run as root, or add cap_sys_admin to the capabilities: this kernel lets CAP_SYS_ADMIN alone attach uprobes through perf events"

func text(err error) string {
	if err == nil {
		return "no reason given"
	}
	return err.Error()
}
