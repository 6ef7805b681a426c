package doctor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/contention-toolkit/contention/probes/goroutine"
	"github.com/contention-toolkit/contention/probes/privilege"
)

// sources reports what can be recorded: the sum of everything below.
func (j *judge) sources() {
	t := j.f.Target
	if t != nil && t.Err != nil {
		reason, remedy := j.absent()
		for _, s := range []string{"goroutines", "threads", "exact"} {
			j.add(Sources, s, s, No, reason, remedy)
		}
		return
	}
	j.goroutines(t)
	const threads = "threads"
	switch err := j.f.Threads; {
	case err != nil:
		reason, remedy := split(err, j.f.Self)
		j.add(Sources, threads, threads, No, reason, remedy)
	default:
		j.ok(Sources, threads, threads, "every switch of the target's threads, by eBPF programs on the scheduler; the programs load")
	}
	j.exact()
}

// split takes the words of the recorder's error apart from its remedy where the
// doctor knows it.
func split(err error, self privilege.Status) (reason, remedy string) {
	if missing := privilege.MissingBPF(self.Effective); len(missing) > 0 {
		return "this user lacks " + strings.Join(missing, " and "), privilege.RemedyBPF
	}
	return text(err), "see the lines below that do not say ok"
}

func (j *judge) goroutines(t *TargetFacts) {
	const id = "goroutines"
	const what = "the stacks of waiting goroutines, read from the target's memory"
	switch {
	case t == nil && !j.f.ChildMemoryTried, t == nil && j.f.ChildMemory != nil:
		j.add(Sources, id, id, No, "the memory of other processes cannot be read", "see Reading memory")
	case t == nil && !j.has(privilege.SysPtrace):
		j.add(Sources, id, id, Limited, fmt.Sprintf("%s: of processes of uid %d that let themselves be read", what, j.f.Self.UIDs[0]), privilege.RemedyPtrace)
	case t == nil:
		j.ok(Sources, id, id, what)
	case t.Memory != nil:
		w := t.Access.Explain(t.Memory)
		j.add(Sources, id, id, No, "the target's memory may not be read: "+w.Reason, w.Remedy)
	case t.Kind == KindUnknown:
		j.add(Sources, id, id, No, "the target's executable cannot be read: "+text(t.ExeErr), "run as root, or add cap_dac_read_search to the capabilities")
	case t.Kind != KindGo:
		j.add(Sources, id, id, No, "the target is not a Go program: its waits are in the thread plane", "record with --source threads")
	case t.Sampler != nil:
		remedy := "record with --source threads"
		if errors.Is(t.Sampler, goroutine.ErrNotGo) {
			remedy = "build the target with a known Go release and with symbols (without -ldflags=-s), or record with --source threads"
		}
		j.add(Sources, id, id, No, text(t.Sampler), remedy)
	default:
		j.ok(Sources, id, id, what+"; tried on the target: works")
	}
}

// exact needs what the sampler needs, to know the goroutines that wait already,
// and uprobes.
func (j *judge) exact() {
	const id = "exact"
	up, tried := j.f.Features[FeatureUprobes]
	sampler := j.out.Find("goroutines")
	refused := errors.Is(up, os.ErrPermission)
	switch {
	case tried && refused && !j.bpf():
		j.add(Sources, id, id, No, "this user may not attach uprobes", privilege.RemedyBPF)
	case tried && refused && !j.has(privilege.SysAdmin):
		j.add(Sources, id, id, No, "this user may not attach uprobes: CAP_SYS_ADMIN is missing", remedyUprobes)
	case !tried || up != nil:
		j.add(Sources, id, id, No, "uprobes do not work here", "see Uprobes")
	case sampler.Verdict == No:
		j.add(Sources, id, id, No, "needs what goroutines needs", "see goroutines")
	default:
		j.add(Sources, id, id, sampler.Verdict, "every wait of a Go program's goroutines and locks, by uprobes (record --exact, --locks)", sampler.Remedy)
	}
}

// absent says why the target is not there.
func (j *judge) absent() (reason, remedy string) {
	t := j.f.Target
	switch {
	case t.Hidden:
		return fmt.Sprintf("process %d is hidden from this user: /proc is mounted with hidepid=%s", t.PID, j.f.HidePID), "run as root or as its user, or mount -o remount,hidepid=0 /proc"
	case !j.f.InitialPIDNS:
		return fmt.Sprintf("there is no process %d in this PID namespace (a container's)", t.PID), "use the PID as seen in here (ps), or run contention in the host's PID namespace"
	}
	return fmt.Sprintf("there is no process %d", t.PID), "name a running process with --pid"
}

// surroundings reports namespaces and cgroups.
func (j *judge) surroundings() {
	if j.f.InitialPIDNS {
		j.ok(Around, "pid-namespace", "PID namespace", "the machine's own: PIDs are those that the kernel counts by")
	} else {
		j.add(Around, "pid-namespace", "PID namespace", Limited, "a nested one (a container): only its processes can be seen, and PIDs differ from the host's; contention translates them", "to record processes outside, run in the host's PID namespace (--pid=host)")
	}
	if h := j.f.HidePID; h != "" && h != "0" && h != "off" && !j.has(privilege.SysPtrace) {
		j.add(Around, "hidepid", "Hidden processes", Limited, "/proc is mounted with hidepid="+h+": other users' processes cannot be seen", "mount -o remount,hidepid=0 /proc, or grant CAP_SYS_PTRACE: "+privilege.Setcap)
	}
	c := j.f.Cgroup
	switch {
	case c.Version == "":
		j.add(Around, "cgroup", "Cgroups", Limited, "no cgroups were found: CPU throttling of the target is not recorded", "mount cgroup2 at /sys/fs/cgroup")
	case c.SelfQuota:
		j.add(Around, "cgroup", "Cgroups", Limited, fmt.Sprintf("%s; contention itself runs under a CPU limit (%s)", c.Version, c.Self), "run it outside of the limit, or ticks come late and are counted so")
	default:
		below := "this user may not make cgroups below its own"
		if c.Delegated {
			below = "this user may make cgroups below its own"
		}
		j.ok(Around, "cgroup", "Cgroups", fmt.Sprintf("version %s; contention runs in %s without a CPU limit; %s", strings.TrimPrefix(c.Version, "v"), c.Self, below))
	}
}

// target reports what is known of the process asked about.
func (j *judge) target() {
	t := j.f.Target
	if t == nil {
		return
	}
	if t.Err != nil {
		reason, remedy := j.absent()
		j.add(Target, "target", "Process", No, reason, remedy)
		return
	}
	info := &TargetInfo{PID: t.PID, Executable: t.Exe, Kind: t.Kind, Version: t.GoVersion, Stripped: t.Stripped}
	j.out.Target = info
	if t.Memory != nil {
		w := t.Access.Explain(t.Memory)
		j.add(Target, "target-memory", "Its memory", No, "may not be read: "+w.Reason, w.Remedy)
	} else {
		j.ok(Target, "target-memory", "Its memory", "a page was read")
	}
	j.kind(t, info)
	if t.Listing != nil {
		j.add(Target, "target-ports", "Its ports", Limited, "pprof and work counters are not found by themselves: "+text(t.Listing), "name them with --pprof and --work, run as the target's user, or add cap_dac_read_search to the capabilities")
	} else {
		j.ok(Target, "target-ports", "Its ports", "can be listed, to find pprof and counters of work")
	}
	if c := j.f.Cgroup; c.Self != "" && c.Self == c.Target && c.Self != "/" {
		j.add(Target, "target-cgroup", "Its cgroup", Limited, "contention runs in the same cgroup ("+c.Self+"): its CPU and memory count against the target's limits", "start it elsewhere, such as systemd-run --scope contention record …, or from the host")
	} else {
		j.ok(Target, "target-cgroup", "Its cgroup", "contention does not run in the target's cgroup ("+c.Target+")")
	}
	if n := len(t.NSPIDs); n > 1 {
		j.ok(Target, "target-namespace", "Its namespace", fmt.Sprintf("the target is in a PID namespace of its own, a container's, where it is process %d", t.NSPIDs[n-1]))
	}
}

// kind says what the target is made of, and what that lacks.
func (j *judge) kind(t *TargetFacts, info *TargetInfo) {
	const id, title = "target-kind", "Its kind"
	name := filepath.Base(t.Exe)
	switch t.Kind {
	case KindGo:
		reason := name + ": a Go program, " + t.GoVersion
		if t.Stripped {
			reason += ", without a symbol table"
		}
		if t.Memory == nil && t.Sampler != nil {
			j.add(Target, id, title, Limited, reason+"; its goroutines cannot be sampled", "see goroutines")
			return
		}
		j.ok(Target, id, title, reason)
	case KindJVM:
		j.java(t, id, title, name)
	case KindNative:
		j.native(t, info, id, title, name)
	default:
		j.add(Target, id, title, Limited, "not known: its executable cannot be read: "+text(t.ExeErr), "run as root or as its user, or add cap_dac_read_search to the capabilities")
	}
}

func (j *judge) java(t *TargetFacts, id, title, name string) {
	var lacks, remedies []string
	if !t.JVM.PreserveFramePointer {
		lacks = append(lacks, "no frame pointers: thread stacks end at the first Java frame")
		remedies = append(remedies, "start it with -XX:+PreserveFramePointer")
	}
	if t.JVM.PerfMap == "" {
		lacks = append(lacks, "no perf map: Java frames have no names")
		remedies = append(remedies, fmt.Sprintf("jcmd %d Compiler.perfmap", t.PID))
	}
	reason := name + ": a Java virtual machine"
	if len(lacks) == 0 {
		j.ok(Target, id, title, reason+" with frame pointers and a perf map ("+t.JVM.PerfMap+")")
		return
	}
	j.add(Target, id, title, Limited, reason+"; "+strings.Join(lacks, "; "), strings.Join(remedies, "; then "))
}

// framed is the share of functions from which on a file counts as built with
// frame pointers: leaf functions and assembly have none anywhere.
const framedShare = 0.4

func (j *judge) native(t *TargetFacts, info *TargetInfo, id, title, name string) {
	reason := name + ": a native program"
	if t.Stripped {
		reason += " without a symbol table"
	}
	if t.FramesErr != nil {
		j.add(Target, id, title, Limited, reason+"; whether it keeps frame pointers could not be found out: "+text(t.FramesErr), "build it with -fno-omit-frame-pointer to be sure of its stacks")
		return
	}
	share := t.Frames.Share()
	info.FramePointers = &share
	with := fmt.Sprintf(" (%d of %d functions looked at)", t.Frames.Framed, t.Frames.Functions)
	libc := t.LibcFrames != nil && t.LibcFrames.Share() < framedShare
	switch {
	case share < framedShare:
		j.add(Target, id, title, Limited, reason+" without frame pointers"+with+": its stacks are short or wrong", "build it with -fno-omit-frame-pointer")
	case libc:
		j.add(Target, id, title, Limited, reason+" with frame pointers"+with+", but its C library has none: stacks may end there", "use a C library built with frame pointers (Fedora 38, Ubuntu 24.04 and newer have one)")
	default:
		j.ok(Target, id, title, reason+" with frame pointers"+with)
	}
}
