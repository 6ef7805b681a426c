package load

import (
	"context"
	"math"
	"time"
)

// paceStep is the schedule's step: what falls due within one is intended for
// its end. Finer steps cost the broker CPU that it shares with the load.
const paceStep = int64(time.Millisecond)

// pacer sends on a schedule whatever the broker does: message i of the window
// is due at start + i/rate, rounded up to a step. What cannot be sent in time,
// because everything allowed is in flight, keeps its intended time.
type pacer struct {
	run    *run
	start  int64 // ns since the epoch
	rate   float64
	issued int64 // messages sent so far
	turn   int   // connection that sends next
	batch  []int32
}

// due returns how many messages are intended for time t or before.
func (p *pacer) due(t int64) int64 {
	steps := (t - p.start) / paceStep
	if steps <= 0 {
		return 0
	}
	return int64(math.Floor(p.rate * float64(steps*paceStep) / 1e9))
}

// intended returns when message i (from 0) is due: the first step at which
// due exceeds i.
func (p *pacer) intended(i int64) int64 {
	step := int64(math.Ceil(float64(i+1) / p.rate * 1e9 / float64(paceStep)))
	t := p.start + step*paceStep
	for p.due(t) <= i { // rounding of the two divisions
		t += paceStep
	}
	for t > p.start+paceStep && p.due(t-paceStep) > i {
		t -= paceStep
	}
	return t
}

// drive sends until all that is due in the window is sent or cannot be, the
// gate closes, or ctx ends.
func (p *pacer) drive(ctx context.Context) {
	for step := int64(1); ctx.Err() == nil && !p.run.gate.closed(); step++ {
		now := p.run.now()
		if at := p.start + step*paceStep; now < at {
			sleepPrecisely(time.Duration(at - now))
			now = p.run.now()
		}
		step = max(step, (now-p.start)/paceStep)
		p.catchUp(now)
		if now >= p.run.window.end.Load() {
			return
		}
	}
}

// catchUp sends what is due and can be sent.
func (p *pacer) catchUp(now int64) {
	r := p.run
	inFlight := r.sent.Load() - r.acked.Load()
	n := min(p.due(min(now, r.window.end.Load()))-p.issued, int64(r.sc.InFlight)-inFlight, r.pool.size.Load())
	if n <= 0 {
		return
	}
	n = int64(r.gate.take(int(n)))
	r.sent.Add(n)
	p.batch = r.pool.exchange(p.batch[:0], int(n))
	for i := range p.batch {
		to := r.producers[p.turn]
		p.turn = (p.turn + 1) % len(r.producers)
		to.send(p.batch[i:i+1], now, p.intended(p.issued), 0)
		p.issued++
	}
}
