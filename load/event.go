package load

// Phase names a point that a run has reached.
type Phase string

const (
	// PhaseConnected: every producer and consumer is attached.
	PhaseConnected Phase = "connected"
	// PhaseWarm: every application has received the whole warm-up. The run now
	// waits for Options.Start: it is ready.
	PhaseWarm Phase = "warm"
	// PhaseMeasuring: the window has begun.
	PhaseMeasuring Phase = "measuring"
	// PhaseProgress comes every Options.ProgressEvery inside the window.
	PhaseProgress Phase = "progress"
	// PhaseMeasured: the window has ended and nothing more is sent.
	PhaseMeasured Phase = "measured"
	// PhaseDrained: everything sent was acknowledged and received, or waiting
	// for it was given up.
	PhaseDrained Phase = "drained"
)

// Event reports a phase, with the totals at that moment, warm-up included. For
// PhaseMeasuring and PhaseMeasured the time is the window's edge itself.
type Event struct {
	Phase     Phase   `json:"phase"`
	UnixNs    int64   `json:"unix_ns"`
	Sent      int64   `json:"sent"`
	Published int64   `json:"published"` // acknowledged
	Delivered []int64 `json:"delivered"` // unique messages, by application
}
