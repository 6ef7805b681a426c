package profile

import "time"

// Plane is the unit whose time a source measures.
type Plane string

// The planes of the design, and on-CPU samples beside them.
const (
	PlaneGoroutine Plane = "goroutine"
	PlaneThread    Plane = "thread"
	PlaneOnCPU     Plane = "on-cpu"
)

// Source names where a profile comes from; it is also the base name of its file.
type Source string

// The sources of a recording.
const (
	SourceGoroutines Source = "goroutines" // the sampler
	SourceThreads    Source = "threads"    // eBPF on the scheduler
	SourceMutex      Source = "mutex"      // Go's mutex profile: charges the unlocker
	SourceBlock      Source = "block"      // Go's block profile: charges the waiter
	SourceCPU        Source = "cpu"        // Go's CPU profile
	SourceFgprof     Source = "fgprof"     // wall clock, as served by fgprof

	SourceThreadWakers Source = "thread-wakers" // of threads: who woke the waiter
	SourceOnCPU        Source = "oncpu"         // samples of the CPU clock: where the threads run

	SourceExact  Source = "goroutines-exact" // uprobes on the Go runtime: every park
	SourceWakers Source = "wakers"           // of the same: who made the waiter runnable
	SourceLocks  Source = "locks"            // of the same: waits for locks only, by lock
)

// Plane returns the plane of a source.
func (s Source) Plane() Plane {
	switch s {
	case SourceThreads, SourceThreadWakers:
		return PlaneThread
	case SourceCPU, SourceOnCPU:
		return PlaneOnCPU
	}
	return PlaneGoroutine
}

// File is the name of the source's pprof file within a recording directory.
func (s Source) File() string { return string(s) + ".pb.gz" }

// SliceFile is the name of the source's one-second slices.
func (s Source) SliceFile() string { return string(s) + ".slices" }

// DistributionFile is the name of the source's distributions.
func (s Source) DistributionFile() string { return string(s) + ".dist.json" }

// Accounting splits the time of all units (goroutines or threads) over the
// window. TotalNs is what the source saw: units × window; what the states leave
// of it is the residual.
type Accounting struct {
	TotalNs    int64 `json:"total_ns"`
	RunningNs  int64 `json:"running_ns"`
	RunnableNs int64 `json:"runnable_ns"`
	BlockedNs  int64 `json:"blocked_ns"`
	SyscallNs  int64 `json:"syscall_ns"`
	UnknownNs  int64 `json:"unknown_ns"`
	LostNs     int64 `json:"lost_ns"` // time that the loss counters could account for
}

// Residual is the time that no state accounts for; negative when the states
// hold more than there was.
func (a Accounting) Residual() int64 {
	return a.TotalNs - a.RunningNs - a.RunnableNs - a.BlockedNs - a.SyscallNs - a.UnknownNs - a.LostNs
}

// Cost is what recording itself took over the window.
type Cost struct {
	CPUNs     int64 `json:"cpu_ns"`               // CPU time of the source's own threads, user and system
	BPFNs     int64 `json:"bpf_ns,omitempty"`     // time inside BPF programs, paid by the target
	ProbeHits int64 `json:"probe_hits,omitempty"` // how often a probe ran
	ProbeNs   int64 `json:"probe_ns,omitempty"`   // time that the target lost to probes, BPFNs included: hits times the measured cost of one
	MemBytes  int64 `json:"mem_bytes,omitempty"`  // memory held for the recording
}

// Busy is the running time of one goroutine or thread: how busy a serial stage is.
type Busy struct {
	Name      string `json:"name"`             // the goroutine's entry function or the thread's name
	ID        int64  `json:"id"`               // goroutine id or thread id
	RunningNs int64  `json:"running_ns"`       // over the window
	Target    string `json:"target,omitempty"` // Target.ID, where the recording has several targets
}

// Capture is what one source hands over when its window ends.
type Capture struct {
	Source  Source
	Profile *Profile
	Slices  *Slices // nil when the source has none
	// Distributions of the profile's samples, nil when the source has none.
	Distributions []Distribution
	Locks         []Lock // of SourceLocks
	Start, End    time.Time
	Accounting    *Accounting // nil when the source cannot account
	Settings      map[string]string
	Loss          map[string]int64 // every loss counter by name, zeros included
	Busiest       []Busy           // busiest units, most first
	Cost          Cost
	Warnings      []string
	Incomplete    bool // the target ended, or the source stopped early
}
