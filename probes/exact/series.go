//go:build linux && amd64

package exact

import (
	"time"

	"github.com/contention-toolkit/contention/profile"
)

// total is what a kind of wait has: blocked and runnable nanoseconds, and waits
// that have ended.
type total [3]int64

// series turns totals that are read about once a second into what each kind of
// wait gained in each slice of the window. A wait that is open counts with its
// time so far. Whether its wake-up will be seen is not known then, so that both
// kinds are one here, and parted in proportion in the end.
type series struct {
	last  time.Duration // when it was read last, from the window's start
	gains map[waitKey]*gained
}

type gained struct {
	sum  total
	gain []gain
}

// gain is what was gained in the slice that at lies in.
type gain struct {
	at    time.Duration
	value total
}

func newSeries() *series { return &series{gains: map[waitKey]*gained{}} }

// observe takes the totals that were read at a moment, from the window's start.
func (s *series) observe(at time.Duration, totals map[waitKey]total) {
	mid := s.last + (at-s.last)/2 // in the right slice, where the reading was a little late
	s.last = at
	for k, v := range totals {
		g := s.gains[k]
		if g == nil {
			g = &gained{}
			s.gains[k] = g
		}
		var p total
		for i := range p {
			// What is less than it was had been read while it changed: the
			// difference is taken back by later gains, or in the end.
			p[i] = max(0, v[i]-g.sum[i])
			g.sum[i] += p[i]
		}
		if p != (total{}) {
			g.gain = append(g.gain, gain{mid, p})
		}
	}
}

// settle takes back from the latest points what is more than the totals.
func (s *series) settle(totals map[waitKey]total) {
	for k, g := range s.gains {
		for i := range g.sum {
			for j := len(g.gain) - 1; j >= 0 && g.sum[i] > totals[k][i]; j-- {
				d := min(g.sum[i]-totals[k][i], g.gain[j].value[i])
				g.gain[j].value[i] -= d
				g.sum[i] -= d
			}
		}
	}
}

// kindOf is a kind of wait as a series has it.
func kindOf(k waitKey) waitKey {
	k.Flags = 0
	return k
}

// totalsOf adds up waits that have ended, and the time of those that are open.
func (n *snapshot) totalsOf() map[waitKey]total {
	out := map[waitKey]total{}
	for k, v := range n.waits {
		t := out[kindOf(k)]
		t[0], t[1], t[2] = t[0]+int64(v.BlockedNs), t[1]+int64(v.RunnableNs), t[2]+int64(v.Waits)
		out[kindOf(k)] = t
	}
	return out
}

// addOpen adds the time so far of a wait that is open.
func (n *snapshot) addOpen(st *state, to map[waitKey]total) {
	if st.Phase != phaseParked && st.Phase != phaseReady || st.Since >= n.end {
		return
	}
	k := openKey(st)
	t := to[k]
	if st.Phase == phaseReady {
		t[0] += int64(n.within(st.Since, st.Ready))
		t[1] += int64(n.within(st.Ready, n.end))
	} else {
		t[0] += int64(n.within(st.Since, n.end))
	}
	to[k] = t
}

// slices adds a series to the slices of a profile, in which each kind of wait is
// one sample or two: sample tells which, by wait.
func (s *series) slices(waits map[waitKey]waitValue, sample map[waitKey]int) *profile.Slices {
	b := profile.NewSliceBuilder(profile.SliceWidth)
	for k, v := range waits {
		g := s.gains[kindOf(k)]
		if g == nil {
			continue
		}
		other := k
		other.Flags ^= flagNoWakeup
		part := total{int64(v.BlockedNs), int64(v.RunnableNs), int64(v.Waits)}
		_, shared := waits[other]
		var seen, given total
		for _, p := range g.gain {
			value := p.value
			if shared {
				for i := range value {
					seen[i] += p.value[i]
					want := share(seen[i], part[i], g.sum[i], k.Flags&flagNoWakeup != 0)
					value[i] = want - given[i]
					given[i] = want
				}
			}
			if value != (total{}) {
				b.Add(p.at, sample[k], value[:]...)
			}
		}
	}
	return b.Slices()
}

// share is seen × part / all, rounded so that both parts of all make up seen.
func share(seen, part, all int64, rest bool) int64 {
	if all == 0 {
		return 0
	}
	if rest {
		return seen - share(seen, all-part, all, false)
	}
	return int64(float64(seen) / float64(all) * float64(part))
}
