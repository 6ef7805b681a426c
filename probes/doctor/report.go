package doctor

// Schema is the version of Report's JSON form, described in docs/formats.md.
const Schema = 1

// Verdict is the outcome of one check.
type Verdict string

// The verdicts. Limited: it works, with something missing that Reason names.
const (
	OK      Verdict = "ok"
	Limited Verdict = "limited"
	No      Verdict = "no"
)

// Check is one line of the report.
type Check struct {
	ID      string  `json:"id"`    // stable, for programs
	Group   Group   `json:"group"` // of lines that belong together
	Title   string  `json:"title"`
	Verdict Verdict `json:"verdict"`
	Reason  string  `json:"reason"`           // what was found, in words
	Remedy  string  `json:"remedy,omitempty"` // what to do; "" where nothing needs doing
}

// Group is a section of the report.
type Group string

// The groups, in the order of the report.
const (
	Sources    Group = "sources"
	Privileges Group = "privileges"
	Kernel     Group = "kernel"
	Around     Group = "surroundings"
	Target     Group = "target"
)

// Groups lists the groups in order.
func Groups() []Group { return []Group{Sources, Privileges, Kernel, Around, Target} }

// Report says what can be recorded.
type Report struct {
	Schema       int         `json:"schema"`
	Kernel       string      `json:"kernel"` // its release
	Arch         string      `json:"arch"`   // as Go writes it
	UID          int         `json:"uid"`    // effective
	Capabilities []string    `json:"capabilities"`
	Recordable   bool        `json:"recordable"` // at least one source can be had
	Target       *TargetInfo `json:"target"`     // null without a target
	Checks       []Check     `json:"checks"`     // in the order of Groups
}

// TargetInfo describes the process that was asked about.
type TargetInfo struct {
	PID        int    `json:"pid"`
	Executable string `json:"executable"` // "" where it cannot be read
	Kind       Kind   `json:"kind"`
	Version    string `json:"version,omitempty"` // of Go
	Stripped   bool   `json:"stripped"`          // no symbol table
	// FramePointers is the share of the executable's functions that keep a
	// frame pointer, from 0 to 1; null where it was not measured.
	FramePointers *float64 `json:"frame_pointers"`
}

// Kind is what a target is made of.
type Kind string

// The kinds of targets.
const (
	KindGo      Kind = "go"
	KindJVM     Kind = "jvm"
	KindNative  Kind = "native"
	KindUnknown Kind = "unknown"
)

// Find returns the check of an ID, nil when there is none.
func (r *Report) Find(id string) *Check {
	for i := range r.Checks {
		if r.Checks[i].ID == id {
			return &r.Checks[i]
		}
	}
	return nil
}
