package goroutine

import "time"

// plan keeps the sampler's CPU time within its budget: it says how many states
// and stacks a tick reads.
type plan struct {
	perTick time.Duration // CPU time that a tick may take

	// What reading one takes, in nanoseconds; averages.
	state, stack float64
	scattered    float64 // a state whose neighbours are not read
	walking      float64 // all stacks of a tick

	// Of the tick under way.
	states, stacks, hots             int
	statesTook, stacksTook, hotsTook time.Duration
}

// Guesses before the first tick, in nanoseconds.
const (
	guessState = 150
	guessStack = 800
)

// leastStacks is how many stacks a tick reads whatever it costs; the sampler
// then ticks more seldom.
const leastStacks = 64

func newPlan(perTick time.Duration) plan {
	return plan{perTick: perTick, state: guessState, stack: guessStack, scattered: guessStack}
}

// reserve is the part of the budget that plans leave for what they do not see.
const reserve = 0.15

// usable is the CPU time that a tick's reading may take.
func (p *plan) usable() float64 { return (1 - reserve) * float64(p.perTick) }

// stride says that, of n goroutines, the states of one group in so many are
// read: as many as the budget holds beside the stacks, at least half of it.
func (p *plan) stride(n int) int {
	return 1 + int(float64(n)*p.state/max(p.usable()/2, p.usable()-1.2*p.walking))
}

// census says whether the first tick can afford the states of all n, whatever
// its budget: few that wait are then found at once.
func (p *plan) census(n int) bool { return float64(n)*p.state < float64(mostCensus) }

const mostCensus = 50 * time.Millisecond

// hot is how many goroutines every tick may read.
func (p *plan) hot() int { return int(p.usable() / 4 / p.scattered) }

// quota is how many stacks the next tick may read.
func (p *plan) quota() int {
	return max(leastStacks, int((p.usable()-float64(p.states)*p.state-float64(p.hots)*p.scattered)/p.stack))
}

// end closes a tick: what it took tells what the next ones will.
func (p *plan) end() {
	average(&p.state, p.states, p.statesTook)
	average(&p.stack, p.stacks, p.stacksTook)
	average(&p.scattered, p.hots, p.hotsTook)
	average(&p.walking, 1, p.stacksTook)
}

func (p *plan) begin() {
	p.states, p.stacks, p.hots, p.statesTook, p.stacksTook, p.hotsTook = 0, 0, 0, 0, 0, 0
}

// average lets one measurement of n things move an average by a part.
func average(a *float64, n int, took time.Duration) {
	if n > 0 {
		*a += 0.1 * (float64(took)/float64(n) - *a)
	}
}
