package goroutine

import "time"

// plan keeps the sampler's CPU time within its budget: it says how many states
// and stacks a tick reads.
type plan struct {
	perTick time.Duration // CPU time that a tick may take

	// What reading one takes, in nanoseconds; averages.
	state, stack float64

	// Of the tick under way.
	states, stacks         int
	statesTook, stacksTook time.Duration
}

// Guesses before the first tick, in nanoseconds.
const (
	guessState = 200
	guessStack = 800
)

// leastStacks is how many stacks a tick reads whatever it costs; the sampler
// then ticks more seldom.
const leastStacks = 64

func newPlan(perTick time.Duration) plan {
	return plan{perTick: perTick, state: guessState, stack: guessStack}
}

// stride says that, of n goroutines, the states of one group in so many are
// read: of all while that takes no more than half of the budget.
func (p *plan) stride(n int) int {
	return 1 + int(float64(n)*p.state/(float64(p.perTick)/2))
}

// quota is how many stacks the next tick may read.
func (p *plan) quota() int {
	return max(leastStacks, int((float64(p.perTick)-float64(p.states)*p.state)/p.stack))
}

// end closes a tick: what it took tells what the next ones will.
func (p *plan) end() {
	average(&p.state, p.states, p.statesTook)
	average(&p.stack, p.stacks, p.stacksTook)
}

func (p *plan) begin() {
	p.states, p.stacks, p.statesTook, p.stacksTook = 0, 0, 0, 0
}

// average lets one measurement of n things move an average by a part.
func average(a *float64, n int, took time.Duration) {
	if n > 0 {
		*a += 0.1 * (float64(took)/float64(n) - *a)
	}
}
