// Package probes records a live process into a recording directory: what to
// record, whether this machine and user can, and for how long.
//
// Each source is a package of its own (goroutine, exact, thread, pprofhttp) that turns
// a window into a profile.Capture; work reads the target's counters of work
// done at both edges; discover finds the target's HTTP endpoints. A source that
// cannot be had is named in the recording with the reason, and the others go on.
//
// Only the process asked for is traced, and nothing stays attached after Stop,
// or after the recorder died.
package probes
