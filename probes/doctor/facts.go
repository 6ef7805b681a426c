package doctor

import (
	"errors"
	"syscall"

	"github.com/contention-toolkit/contention/probes/privilege"
)

// Facts is what was found, before it is judged.
type Facts struct {
	Kernel string // release
	Arch   string
	Self   privilege.Status
	// In the first namespace of each kind.
	InitialUserNS, InitialPIDNS bool

	Lockdown         string // "" where it is not told
	Paranoid         *int   // kernel.perf_event_paranoid
	UnprivilegedBPF  *int   // kernel.unprivileged_bpf_disabled
	Yama             *int   // kernel.yama.ptrace_scope; nil without Yama
	HidePID          string // of the mount of /proc, "" or 0 where nothing is hidden
	KernelSymbols    error
	BTF              BTFState
	BTFErr           error
	MemlockCur       uint64 // bytes; ^0 means no limit
	Cgroup           CgroupFacts
	Calls            map[string]Outcome // by system call, tried in a child
	CallsErr         error              // the child could not be run
	ChildMemory      error              // reading a page of the child's memory
	ChildMemoryTried bool
	Features         map[Feature]error // absent: not tried
	FeaturesSkipped  string            // why, "" where they were tried
	Threads          error             // the thread plane's own check
	Target           *TargetFacts
}

// BTFState tells apart how the kernel's type information can be missing.
type BTFState int

// The states of BTF.
const (
	BTFGood BTFState = iota
	BTFAbsent
	BTFUnreadable
	BTFUnknown // read, and not understood
)

// CgroupFacts says where the recorder and the target run.
type CgroupFacts struct {
	Version   string // "v2", "v1", "v1 and v2" or ""
	Self      string // path in the hierarchy that limits CPU
	Target    string
	SelfQuota bool // the recorder's cgroup or one above it has a CPU limit
	Delegated bool // this user may make cgroups below its own
}

// TargetFacts is what was found about the target.
type TargetFacts struct {
	PID        int
	Err        error // it is not there
	Hidden     bool  // /proc hides it
	Access     privilege.Access
	Memory     error // reading one page
	Exe        string
	ExeErr     error // its executable cannot be opened
	Kind       Kind
	GoVersion  string
	Stripped   bool
	Sampler    error // of a Go target: the sampler's own check
	Frames     FrameUse
	FramesErr  error
	LibcFrames *FrameUse // nil where there is none
	JVM        JVMFacts
	Listing    error // finding its listening ports
	NSPIDs     []int
}

// FrameUse counts functions that keep a frame pointer.
type FrameUse struct{ Functions, Framed int }

// Share is from 0 to 1; 0 without functions.
func (u FrameUse) Share() float64 {
	if u.Functions == 0 {
		return 0
	}
	return float64(u.Framed) / float64(u.Functions)
}

// JVMFacts is what a Java target was started with.
type JVMFacts struct {
	PreserveFramePointer bool
	PerfMap              string // path of its perf map, "" without
}

// Outcome is how a system call went that was tried with arguments that the
// kernel must refuse in a way of its own.
type Outcome struct {
	Errno  syscall.Errno // 0: no error
	Killed bool          // a seccomp filter ended the process
	Tried  bool          // false after one that killed
}

// Denied says that something in front of the kernel's own code refused the call.
func (o Outcome) Denied() bool {
	return o.Killed || o.Tried && (errors.Is(o.Errno, syscall.EPERM) || errors.Is(o.Errno, syscall.EACCES) || errors.Is(o.Errno, syscall.ENOSYS))
}

// Feature is something of the kernel that a recorder uses.
type Feature string

// The features, tried by loading a minimal program or making a map.
const (
	FeatureTracepoints Feature = "tp_btf"
	FeatureFentry      Feature = "fentry"
	FeatureIterators   Feature = "iterators"
	FeatureRingBuffer  Feature = "ringbuf"
	FeatureUprobes     Feature = "uprobes"
	FeatureUprobeMulti Feature = "uprobe-multi"
	FeatureClock       Feature = "perf-clock"
	FeatureStatistics  Feature = "bpf-stats"
)
