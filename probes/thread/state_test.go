//go:build linux && (amd64 || arm64)

package thread

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/contention-toolkit/contention/probes/bpf"
	"github.com/contention-toolkit/contention/profile"
)

func TestOpenWait(t *testing.T) {
	for _, c := range []struct {
		name  string
		state taskState
		at    uint64
		want  waitValue
		ok    bool
	}{
		{"running", taskState{Phase: phaseRunning, Since: 100}, 150, waitValue{}, false},
		{"blocked", taskState{Phase: phaseOff, Since: 100, Reason: bpf.OffcpuReasonREASON_INTERRUPTIBLE}, 150, waitValue{BlockedNs: 50, Waits: 1}, true},
		{"woken", taskState{Phase: phaseOff, Since: 100, Waking: 130, Reason: bpf.OffcpuReasonREASON_UNINTERRUPTIBLE}, 150, waitValue{BlockedNs: 30, RunnableNs: 20, Waits: 1}, true},
		{"woken before it left", taskState{Phase: phaseOff, Since: 100, Waking: 99, Reason: bpf.OffcpuReasonREASON_INTERRUPTIBLE}, 150, waitValue{BlockedNs: 50, Waits: 1}, true},
		{"woken after the moment", taskState{Phase: phaseOff, Since: 100, Waking: 200, Reason: bpf.OffcpuReasonREASON_INTERRUPTIBLE}, 150, waitValue{BlockedNs: 50, Waits: 1}, true},
		{"preempted", taskState{Phase: phaseOff, Since: 100, Waking: 130, Reason: bpf.OffcpuReasonREASON_PREEMPTED}, 150, waitValue{RunnableNs: 50, Waits: 1}, true},
		{"left after the moment", taskState{Phase: phaseOff, Since: 100, Reason: bpf.OffcpuReasonREASON_PREEMPTED}, 90, waitValue{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, got, ok := openWait(&c.state, c.at)
			if ok != c.ok || got.BlockedNs != c.want.BlockedNs || got.RunnableNs != c.want.RunnableNs || got.Waits != c.want.Waits {
				t.Errorf("openWait = %+v, %v, want %+v, %v", got, ok, c.want, c.ok)
			}
		})
	}
}

// A thread's states add up to its life, whatever phase it is in.
func TestLifeCloses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now := uint64(1000)
		s := taskState{Born: now, Since: now, Phase: phaseRunning}
		for range rapid.IntRange(0, 30).Draw(t, "switches") {
			now += rapid.Uint64Range(0, 1000).Draw(t, "step")
			d := now - s.Since
			switch s.Phase {
			case phaseRunning:
				s.RunningNs += d
				s.Phase = phaseOff
				s.Reason = rapid.SampledFrom([]bpf.OffcpuReason{bpf.OffcpuReasonREASON_INTERRUPTIBLE, bpf.OffcpuReasonREASON_PREEMPTED}).Draw(t, "reason")
			case phaseOff:
				_, v, _ := openWait(&s, now)
				s.BlockedNs += v.BlockedNs
				s.RunnableNs += v.RunnableNs
				s.Phase = phaseRunning
			}
			s.Since = now
			if s.Phase == phaseOff && rapid.Bool().Draw(t, "woken") {
				s.Waking = now + rapid.Uint64Range(0, 500).Draw(t, "waking")
			}
		}
		at := now + rapid.Uint64Range(0, 1000).Draw(t, "end")
		l := lifeOf(&s, at)
		if got := l.running + l.blocked + l.runnable + l.unknown; got != l.total || l.total != at-s.Born {
			t.Fatalf("states hold %d of %d, life is %d: %+v", got, l.total, at-s.Born, s)
		}
	})
}

func TestTotalsBelowMin(t *testing.T) {
	k := waitKey{UserStack: 7, Reason: bpf.OffcpuReasonREASON_INTERRUPTIBLE}
	s := snapshot{at: 100,
		waits: map[waitKey]waitValue{k: {BlockedNs: 1000, Waits: 1}},
		tasks: map[uint64]taskState{
			1: {Phase: phaseOff, Since: 60, UserStack: 7, Reason: k.Reason},
			2: {Phase: phaseOff, Since: 95, UserStack: 7, Reason: k.Reason},
			3: {Phase: phaseOff, Since: 95, UserStack: 7, Reason: bpf.OffcpuReasonREASON_PREEMPTED},
		},
	}
	preempted := k
	preempted.Reason = bpf.OffcpuReasonREASON_PREEMPTED
	want := map[waitKey]waitValue{k: {BlockedNs: 1040, Waits: 2}, preempted: {RunnableNs: 5, Waits: 1}}
	if got := s.totals(10); !cmp.Equal(got, want) {
		t.Errorf("totals = %v, want %v", got, want)
	}
}

// Whatever totals are read, gains are never negative, lie in the right slices,
// and sum up to the last totals.
func TestSeries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSeries()
		last := map[waitKey]waitValue{}
		at := time.Duration(0)
		for range rapid.IntRange(1, 8).Draw(t, "readings") {
			at += time.Duration(rapid.IntRange(900, 1100).Draw(t, "step")) * time.Millisecond
			last = map[waitKey]waitValue{}
			for key := range rapid.Uint64Range(0, 4).Draw(t, "keys") {
				last[waitKey{UserStack: key}] = waitValue{
					BlockedNs:  rapid.Uint64Range(0, 100).Draw(t, "blocked"),
					RunnableNs: rapid.Uint64Range(0, 100).Draw(t, "runnable"),
					Waits:      rapid.Uint64Range(0, 3).Draw(t, "waits"),
				}
			}
			s.observe(at, last)
		}
		s.settle()
		for k, g := range s.gains {
			want := last[k]
			var got [3]int64
			for _, p := range g.point {
				for i, v := range p.value {
					if v < 0 || p.at > at {
						t.Fatalf("%v gained %d at %v of %v", k, v, p.at, at)
					}
					got[i] += v
				}
			}
			if got != [3]int64{int64(want.BlockedNs), int64(want.RunnableNs), int64(want.Waits)} || got != g.sum {
				t.Fatalf("gains of %v sum up to %v (%v), want %v", k, got, g.sum, want)
			}
		}
	})
}

// A wait of several seconds counts in each of them while it lasts, and readings
// that come a little late do not move gains to the next slice.
func TestSeriesSpreadsOpenWaits(t *testing.T) {
	s := newSeries()
	k := waitKey{UserStack: 1}
	for i := 1; i <= 3; i++ {
		at := time.Duration(i)*time.Second + 3*time.Millisecond
		s.observe(at, map[waitKey]waitValue{k: {BlockedNs: uint64(at), Waits: 1}})
	}
	s.settle()
	b := profile.NewSliceBuilder(time.Second)
	for _, p := range s.gains[k].point {
		b.Add(p.at, 0, p.value[:]...)
	}
	want := []profile.SliceEntry{
		{Slice: 0, Values: []int64{1_003_000_000, 0, 1}},
		{Slice: 1, Values: []int64{1_000_000_000, 0, 0}},
		{Slice: 2, Values: []int64{1_000_000_000, 0, 0}},
	}
	if d := cmp.Diff(want, b.Slices().Entries); d != "" {
		t.Errorf("slices (-want +got):\n%s", d)
	}
}

func TestReason(t *testing.T) {
	yield := []profile.Frame{{Function: "__schedule", Module: profile.KernelModule}, {Function: "__do_sys_sched_yield", Module: profile.KernelModule}}
	for _, c := range []struct {
		key    waitKey
		frames []profile.Frame
		want   string
	}{
		{waitKey{Reason: bpf.OffcpuReasonREASON_INTERRUPTIBLE}, nil, ReasonInterruptible},
		{waitKey{Reason: bpf.OffcpuReasonREASON_UNINTERRUPTIBLE}, nil, ReasonUninterruptible},
		{waitKey{Reason: bpf.OffcpuReasonREASON_IDLE}, nil, ReasonIdle},
		{waitKey{Reason: bpf.OffcpuReasonREASON_STOPPED}, nil, ReasonStopped},
		{waitKey{Reason: bpf.OffcpuReasonREASON_STARTED}, nil, ReasonStarted},
		{waitKey{Reason: bpf.OffcpuReasonREASON_PREEMPTED}, yield, ReasonPreempted},
		{waitKey{Reason: bpf.OffcpuReasonREASON_YIELDED}, yield, ReasonYielded},
		{waitKey{Reason: bpf.OffcpuReasonREASON_YIELDED}, nil, ReasonPreempted},
		{waitKey{Reason: bpf.OffcpuReasonREASON_YIELDED}, []profile.Frame{{Function: "main.sched_yield"}}, ReasonPreempted},
		{waitKey{Reason: bpf.OffcpuReasonREASON_INTERRUPTIBLE, Flags: flagMissed}, nil, ReasonMissedWakeup},
	} {
		if got := reason(&c.key, c.frames); got != c.want {
			t.Errorf("reason(%+v, %v) = %q, want %q", c.key, c.frames, got, c.want)
		}
	}
}

func TestBusiest(t *testing.T) {
	var b []profile.Busy
	for i := range int64(30) {
		b = append(b, profile.Busy{ID: i, RunningNs: i % 7 * math.MaxInt32 * 4})
	}
	b = busiest(b)
	if len(b) != maxBusiest {
		t.Fatalf("%d threads, want %d", len(b), maxBusiest)
	}
	for i := 1; i < len(b); i++ {
		if b[i-1].RunningNs < b[i].RunningNs || b[i-1].RunningNs == b[i].RunningNs && b[i-1].ID > b[i].ID {
			t.Errorf("thread %d is before %d: %+v", i-1, i, b)
		}
	}
}

func TestComm(t *testing.T) {
	if got := comm([16]uint8{'a', ';', 'b'}); got != "a;b" {
		t.Errorf("comm = %q", got)
	}
	full := [16]uint8{}
	for i := range full {
		full[i] = 'x'
	}
	if got := comm(full); len(got) != 16 {
		t.Errorf("comm = %q", got)
	}
}

func TestFramePointerWarning(t *testing.T) {
	for _, c := range []struct {
		shallow, all int64
		want         bool
	}{{0, 0, false}, {0, 10, false}, {5, 10, false}, {6, 10, true}, {10, 10, true}} {
		if got := framePointerWarning(c.shallow, c.all); (got != "") != c.want {
			t.Errorf("framePointerWarning(%d, %d) = %q", c.shallow, c.all, got)
		}
	}
}
