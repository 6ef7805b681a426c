//go:build linux && (amd64 || arm64)

package thread

import (
	"github.com/contention-toolkit/contention/probes/bpf"
)

// The types that the kernel side shares with this one, under shorter names.
type (
	taskKey   = bpf.OffcpuTaskKey
	taskState = bpf.OffcpuTaskState
	taskLife  = bpf.OffcpuTaskLife
	waitKey   = bpf.OffcpuWaitKey
	waitValue = bpf.OffcpuWaitValue
	stack     = bpf.OffcpuStack
)

const (
	phaseRunning = bpf.OffcpuPhasePHASE_RUNNING
	phaseOff     = bpf.OffcpuPhasePHASE_OFF

	firstRunnable = bpf.OffcpuReasonREASON_PREEMPTED

	flagMissed = uint32(bpf.OffcpuWaitFlagWAIT_MISSED_WAKEUP)
	flagSeeded = uint32(bpf.OffcpuWaitFlagWAIT_SEEDED)
)

// snapshot is what the kernel side held at one moment.
type snapshot struct {
	at       uint64 // CLOCK_MONOTONIC, in nanoseconds
	waits    map[waitKey]waitValue
	tasks    map[uint64]taskState // by address of the kernel's task
	ended    map[taskKey]taskLife
	counters [bpf.OffcpuCounterCOUNT_MAX]uint64
}

func elapsed(from, to uint64) uint64 {
	if to > from {
		return to - from
	}
	return 0
}

// openWait returns the wait that a thread is in at a moment, as the kernel side
// will add it once it ends; ok is false when the thread is in none.
func openWait(t *taskState, at uint64) (k waitKey, v waitValue, ok bool) {
	if t.Phase != phaseOff || at <= t.Since {
		return k, v, false
	}
	k = waitKey{UserStack: t.UserStack, KernelStack: t.KernelStack, Tgid: t.Tgid, Reason: t.Reason, Flags: t.Flags, Comm: t.Comm}
	v = waitValue{Waits: 1}
	switch {
	case t.Reason >= firstRunnable:
		v.RunnableNs = at - t.Since
	case t.Waking >= t.Since:
		v.BlockedNs = elapsed(t.Since, min(t.Waking, at))
		v.RunnableNs = elapsed(t.Waking, at)
	default:
		v.BlockedNs = at - t.Since
	}
	return k, v, true
}

// totals returns the snapshot's waits with those still open added, less the
// open ones that have blocked for less than minBlocked.
func (s *snapshot) totals(minBlocked uint64) map[waitKey]waitValue {
	out := make(map[waitKey]waitValue, len(s.waits))
	for k, v := range s.waits {
		out[k] = v
	}
	for _, t := range s.tasks {
		k, v, ok := openWait(&t, s.at)
		if !ok || k.Reason < firstRunnable && v.BlockedNs < minBlocked {
			continue
		}
		sum := out[k]
		sum.BlockedNs += v.BlockedNs
		sum.RunnableNs += v.RunnableNs
		sum.Waits += v.Waits
		out[k] = sum
	}
	return out
}

// below counts the open waits that totals leaves out, and their time off-CPU.
func (s *snapshot) below(minBlocked uint64) (n, ns uint64) {
	for _, t := range s.tasks {
		k, v, ok := openWait(&t, s.at)
		if ok && k.Reason < firstRunnable && v.BlockedNs < minBlocked {
			n++
			ns += v.BlockedNs + v.RunnableNs
		}
	}
	return n, ns
}

// life is the accounting of threads over the window, in nanoseconds.
type life struct {
	total, running, runnable, blocked, unknown uint64
}

func (l *life) add(m life) {
	l.total += m.total
	l.running += m.running
	l.runnable += m.runnable
	l.blocked += m.blocked
	l.unknown += m.unknown
}

// lifeOf is the accounting of one thread up to a moment, its open phase included.
func lifeOf(t *taskState, at uint64) life {
	l := life{running: t.RunningNs, runnable: t.RunnableNs, blocked: t.BlockedNs, unknown: t.UnknownNs}
	switch t.Phase {
	case phaseRunning:
		l.running += elapsed(t.Since, at)
	case phaseOff:
		if _, v, ok := openWait(t, at); ok {
			l.blocked += v.BlockedNs
			l.runnable += v.RunnableNs
		}
	}
	l.total = elapsed(t.Born, at)
	return l
}

// lifeEnded is the accounting of a thread that has ended.
func lifeEnded(t *taskLife) life {
	return life{total: elapsed(t.Born, t.End), running: t.RunningNs, runnable: t.RunnableNs, blocked: t.BlockedNs, unknown: t.UnknownNs}
}

// comm is a thread's name as text.
func comm(b [16]uint8) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b[:])
}
