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

// Target is one process that was recorded.
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
}

// Host is the machine.
type Host struct {
	Kernel      string `json:"kernel"`
	Arch        string `json:"arch"`
	CPUs        int    `json:"cpus"`
	ThrottledNs int64  `json:"throttled_ns"` // cgroup CPU throttling of the target over the window
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

// WorkOf returns the counter of a role, nil when it was not recorded.
func (m *Meta) WorkOf(role string) *WorkCounter {
	for i := range m.Work {
		if m.Work[i].Role == role {
			return &m.Work[i]
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
