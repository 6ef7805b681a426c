package probes

import (
	"fmt"
	"io"
	"time"

	"github.com/contention-toolkit/contention/probes/thread"
	"github.com/contention-toolkit/contention/probes/work"
	"github.com/contention-toolkit/contention/profile"
)

// Options says what to record.
type Options struct {
	PIDs []int // processes, at least one
	// Dir is the recording directory to make; Out takes the recording as a stream
	// instead (see profile.CreateStream).
	Dir      string
	Out      io.Writer
	Sources  []profile.Source // nil means DefaultSources, and mutex, block and cpu where the target serves pprof
	Duration time.Duration    // length of the window, for sources that must say so in advance; 0 when not known
	Hz       int              // ticks of the goroutine sampler per second, 0 means its default
	Threads  thread.Options   // settings of the thread plane; its PIDs and symbols are filled in
	// Beside are sources to record beside Sources, such as those that no default includes.
	Beside []profile.Source
	// ProbeBudget is how many hits of uprobes per second the target may pay for,
	// above which they are detached; 0 means the default of package exact.
	ProbeBudget int
	// Notify is told at once of what changes while recording, such as probes that
	// are detached for their cost; nil for nobody. It may be called by another goroutine.
	Notify   func(string)
	PprofURL string         // base URL of the only target's pprof; "" lets discovery find it
	Work     []work.Counter // counters of work done; nil lets discovery find them
	// NoDiscover keeps the recorder from connecting to the target's ports.
	NoDiscover bool

	// Follow records the children that a target starts, and the process that
	// takes the place of one that has ended: the same executable with the same
	// arguments, or what Successor says.
	Follow bool
	// Successor lists the processes that may take the place of one that has
	// ended; nil compares executable and arguments.
	Successor func() []int

	// MaxCPU and MaxMemory end the window early where the recording process uses
	// more: CPUs, over three seconds, and bytes resident. 0 is no bound.
	MaxCPU    float64
	MaxMemory int64

	// Annotate completes a capture before it is written, such as with the
	// labels class and idle; nil leaves it as recorded.
	Annotate func(profile.Target, *profile.Capture)
	Tool     profile.Tool
	Command  []string // the command that records, for the recording
}

// maxTargets bounds the processes that are recorded at one time: each has
// recorders of its own.
const maxTargets = 16

func (o Options) check() error {
	switch {
	case len(o.PIDs) == 0:
		return fmt.Errorf("record: no process is named")
	case len(o.PIDs) > maxTargets:
		return fmt.Errorf("record: %d processes are named, and at most %d can be recorded at one time", len(o.PIDs), maxTargets)
	case len(o.PIDs) > 1 && o.PprofURL != "":
		return fmt.Errorf("record: one pprof URL is given for %d processes; leave it out, and each process's ports are looked at", len(o.PIDs))
	}
	seen := map[int]bool{}
	for _, pid := range o.PIDs {
		if seen[pid] {
			return fmt.Errorf("record process %d: it is named twice", pid)
		}
		seen[pid] = true
	}
	return nil
}

// DefaultSources are those that cost a saturated target nothing that can be
// measured.
func DefaultSources() []profile.Source {
	return []profile.Source{profile.SourceGoroutines, profile.SourceThreads}
}
