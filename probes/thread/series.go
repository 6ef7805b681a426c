//go:build linux && (amd64 || arm64)

package thread

import "time"

// series turns totals that are read now and then into what each kind of wait
// gained in each slice of the window.
//
// Totals can go down for a moment: a wait that was open when it was read may
// turn out to have ended under another key (a missed wake-up). Such a debt is
// carried until later gains pay it, and taken back from the latest gains by
// settle, so that in the end the slices sum up to the totals.
type series struct {
	last  time.Duration // when it was read last, from the window's start
	gains map[waitKey]*gained
}

type gained struct {
	sum   [3]int64 // of points: blocked, runnable, waits
	total [3]int64 // as read last
	point []point
}

// point is what a kind of wait gained in the slice that at lies in.
type point struct {
	at    time.Duration
	value [3]int64
}

func newSeries() *series { return &series{gains: map[waitKey]*gained{}} }

// observe takes the totals that were read at a moment, which is counted from
// the window's start. The totals of absent keys are zero: their waits were open,
// and ended under another key.
func (s *series) observe(at time.Duration, totals map[waitKey]waitValue) {
	// The middle of the interval is in the right slice even where the reading
	// was a little late.
	mid := s.last + (at-s.last)/2
	s.last = at
	for k, v := range totals {
		if s.gains[k] == nil {
			s.gains[k] = &gained{}
		}
		s.gains[k].total = [3]int64{int64(v.BlockedNs), int64(v.RunnableNs), int64(v.Waits)}
	}
	for k, g := range s.gains {
		if _, ok := totals[k]; !ok {
			g.total = [3]int64{}
		}
		p := point{at: mid}
		for i := range p.value {
			p.value[i] = max(0, g.total[i]-g.sum[i])
			g.sum[i] += p.value[i]
		}
		if p.value != [3]int64{} {
			g.point = append(g.point, p)
		}
	}
}

// settle takes debts back from the latest points.
func (s *series) settle() {
	for _, g := range s.gains {
		for i := range g.sum {
			for j := len(g.point) - 1; j >= 0 && g.sum[i] > g.total[i]; j-- {
				d := min(g.sum[i]-g.total[i], g.point[j].value[i])
				g.point[j].value[i] -= d
				g.sum[i] -= d
			}
		}
	}
}
