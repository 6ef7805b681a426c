package profile

import "time"

// MetaSchema is the version of meta.json that this package writes.
const MetaSchema = 1

// Meta is the content of meta.json: everything about a recording that is not a
// stack. Every duration is in nanoseconds.
type Meta struct {
	Schema     int           `json:"schema"`
	Tool       Tool          `json:"tool"`
	Command    []string      `json:"command,omitempty"` // the command that recorded
	Targets    []Target      `json:"targets"`
	Host       Host          `json:"host"`
	Window     Window        `json:"window"`
	Sources    []SourceInfo  `json:"sources"`
	Absent     []Absent      `json:"absent,omitempty"` // sources asked for and not recorded
	Work       []WorkCounter `json:"work"`
	Recorder   Cost          `json:"recorder"` // the whole recording process
	Incomplete bool          `json:"incomplete"`
	Why        string        `json:"why_incomplete,omitempty"`
	Warnings   []string      `json:"warnings"`
}

// Tool is the program that recorded.
type Tool struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Target is one process image that was recorded: a process that runs another
// program (exec) is a target of its own from then on, and so is the process that
// takes the place of one that has ended.
type Target struct {
	PID        int      `json:"pid"`
	Executable string   `json:"executable"`
	Arguments  []string `json:"arguments"`
	BuildID    string   `json:"build_id,omitempty"`
	GoVersion  string   `json:"go_version,omitempty"` // "" for a target not written in Go
	Module     string   `json:"module,omitempty"`     // main module's path
	Version    string   `json:"version,omitempty"`    // main module's version
	Revision   string   `json:"revision,omitempty"`   // VCS revision, "+dirty" when modified
	CPUNs      int64    `json:"cpu_ns"`               // CPU time that it used in the window

	// ID is its value of the label target, which samples have where the
	// recording has several targets.
	ID     string `json:"id,omitempty"`
	Part   Window `json:"part,omitzero"` // of the window, in which it was recorded
	Began  string `json:"began,omitempty"`
	Ended  string `json:"ended,omitempty"`  // why its part ended before the window did: EndedExit, EndedExec or other words
	Before string `json:"before,omitempty"` // ID of the target that it follows or was started by

	CPULimits []CPULimit `json:"cpu_limits,omitempty"` // from its own cgroup up
}

// How a target came to be recorded after the window had begun.
const (
	BeganRestart = "restart" // it took the place of Before, which had ended
	BeganExec    = "exec"    // process Before runs another program
	BeganFork    = "fork"    // Before started it
)

// Why a target's part ended.
const (
	EndedExit = "exited"
	EndedExec = "exec"
)

// CPULimit is what the CPU controller of one cgroup did to a target. Every
// cgroup that it is in is listed that has a limit: the tightest counts, and it
// may be an outer one.
type CPULimit struct {
	Cgroup    string  `json:"cgroup"`                            // path in its hierarchy
	Version   int     `json:"version"`                           // of cgroups: 1 or 2
	QuotaNs   int64   `json:"quota_ns"`                          // CPU time per period
	PeriodNs  int64   `json:"period_ns"`                         //
	Periods   int64   `json:"periods"`                           // that passed in the target's part, while something ran
	Throttled int64   `json:"throttled_periods"`                 // of those, in which the quota was used up
	NanosLost int64   `json:"throttled_ns"`                      // that its CPUs were kept from running for
	PerSecond []int64 `json:"throttled_ns_per_second,omitempty"` // the same per second of the part
}

// Host is the machine.
type Host struct {
	Kernel      string `json:"kernel"`
	Arch        string `json:"arch"`
	CPUs        int    `json:"cpus"`
	ThrottledNs int64  `json:"throttled_ns"` // cgroup CPU throttling of the targets over the window
}

// Window is the measured interval.
type Window struct {
	Start      time.Time `json:"start"`
	End        time.Time `json:"end"`
	DurationNs int64     `json:"duration_ns"`
}

// SourceInfo describes one recorded profile.
type SourceInfo struct {
	Source     Source            `json:"source"`
	Plane      Plane             `json:"plane"`
	File       string            `json:"file"`
	SliceFile  string            `json:"slice_file,omitempty"`
	DistFile   string            `json:"distribution_file,omitempty"`
	LockFile   string            `json:"lock_file,omitempty"`
	Window     Window            `json:"window"`
	Settings   map[string]string `json:"settings,omitempty"`
	Loss       map[string]int64  `json:"loss"`
	Accounting *Accounting       `json:"accounting,omitempty"`
	Busiest    []Busy            `json:"busiest,omitempty"`
	Cost       Cost              `json:"cost"`
	Incomplete bool              `json:"incomplete"`
}

// Absent is a source that could not be recorded, with the reason and what to do.
type Absent struct {
	Source Source `json:"source"`
	Reason string `json:"reason"`
}

// Roles that a work counter may have.
const (
	WorkPublished = "published" // messages acknowledged to producers
	WorkDelivered = "delivered" // messages sent to consumers
)

// WorkCounter is a counter of the target read at both edges of the window.
type WorkCounter struct {
	Role      string    `json:"role"` // WorkPublished or WorkDelivered
	URL       string    `json:"url"`
	Metric    string    `json:"metric"`
	Start     float64   `json:"start"`
	End       float64   `json:"end"`
	StartTime time.Time `json:"start_time"`
	EndTime   time.Time `json:"end_time"`
	Reset     bool      `json:"reset"` // the counter went down: the window is not one
}

// Delta is the work done between both reads, 0 after a reset.
func (w WorkCounter) Delta() float64 {
	if w.Reset || w.End < w.Start {
		return 0
	}
	return w.End - w.Start
}

// WorkOf returns the counter of a role, nil when it was not recorded. Where
// several targets have one, it is their sum.
func (m *Meta) WorkOf(role string) *WorkCounter {
	var sum *WorkCounter
	for i := range m.Work {
		w := &m.Work[i]
		switch {
		case w.Role != role:
		case sum == nil:
			sum = w
		default:
			both := *sum
			both.URL, both.Metric = both.URL+" "+w.URL, w.Metric
			both.Start, both.End, both.Reset = both.Start+w.Start, both.End+w.End, both.Reset || w.Reset
			if w.StartTime.Before(both.StartTime) {
				both.StartTime = w.StartTime
			}
			if w.EndTime.After(both.EndTime) {
				both.EndTime = w.EndTime
			}
			sum = &both
		}
	}
	return sum
}

// Target returns the target with an ID, nil when there is none.
func (m *Meta) Target(id string) *Target {
	for i := range m.Targets {
		if m.Targets[i].ID == id {
			return &m.Targets[i]
		}
	}
	return nil
}

// Info returns the description of a source, nil when it was not recorded.
func (m *Meta) Info(s Source) *SourceInfo {
	for i := range m.Sources {
		if m.Sources[i].Source == s {
			return &m.Sources[i]
		}
	}
	return nil
}
