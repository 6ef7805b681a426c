// Package pprofhttp records the profiles that a Go program serves through
// net/http/pprof: mutex and block contention, CPU, and fgprof where it is there.
//
//	Start ──first read──> target runs ──interim reads──> Stop ──last read──> Captures
//
// Mutex and block profiles count since the process started. The recorder reads
// them at both edges of the window and subtracts, instead of asking for
// `seconds=N`: the window then needs no length in advance, and all sources of a
// recording share it. Stacks are joined by their symbolised frames. A stack
// whose counters went down means that the process restarted; that is said, and
// what was counted since the restart is kept.
//
// CPU and fgprof profiles exist only while the target is asked for one, so they
// are asked for in the background, in pieces of at most ten seconds: when the
// window ends early, only the piece under way is lost.
//
// What the sources charge differs: the mutex profile charges the *unlocker* (the
// stack of Unlock, with the time that others waited), the block profile the
// *waiter*. Neither sees network, pipe or system-call waits.
package pprofhttp
