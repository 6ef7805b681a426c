package probes

import (
	"strconv"
	"time"

	"github.com/contention-toolkit/contention/probes/cgroup"
	"github.com/contention-toolkit/contention/profile"
)

// throttle follows the CPU limits of one target. The reads are the caller's, once
// a second; a limit that cannot be read any more keeps what was read.
type throttle struct {
	limits []cgroup.Limit
	first  []cgroup.Stat
	last   []cgroup.Stat
	second [][]int64
	at     time.Time // of the last full second
}

// startThrottle reads the limits of a process; it has none where they cannot be
// read.
func startThrottle(pid int) *throttle {
	t := &throttle{at: time.Now()}
	limits, err := cgroup.Limits("", strconv.Itoa(pid))
	if err != nil {
		return t
	}
	for _, l := range limits {
		s, err := l.Stat()
		if err != nil {
			continue
		}
		t.limits, t.first, t.last = append(t.limits, l), append(t.first, s), append(t.last, s)
		t.second = append(t.second, nil)
	}
	return t
}

// tick reads the limits when a second has passed since it last did.
func (t *throttle) tick(now time.Time) {
	if now.Sub(t.at) >= time.Second {
		t.read()
		t.at = t.at.Add(time.Second)
	}
}

func (t *throttle) read() {
	for i, l := range t.limits {
		s, err := l.Stat()
		if err != nil {
			s = t.last[i]
		}
		t.second[i] = append(t.second[i], int64(s.Lost-t.last[i].Lost))
		t.last[i] = s
	}
}

// stop reads once more and returns what every limit did.
func (t *throttle) stop() []profile.CPULimit {
	t.read()
	var out []profile.CPULimit
	for i, l := range t.limits {
		a, b := t.first[i], t.last[i]
		out = append(out, profile.CPULimit{
			Cgroup: l.Path, Version: l.Version, QuotaNs: int64(l.Quota), PeriodNs: int64(l.Period),
			Periods: b.Periods - a.Periods, Throttled: b.Throttled - a.Throttled, NanosLost: int64(b.Lost - a.Lost), PerSecond: t.second[i],
		})
	}
	return out
}
