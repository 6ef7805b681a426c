package analysis

import "fmt"

// PerMessage is off-CPU nanoseconds per acknowledged message, nil when the work
// is not known.
func (a *Attribution) PerMessage(ns int64) *float64 {
	if a.Published <= 0 {
		return nil
	}
	v := float64(ns) / a.Published
	return &v
}

// ThreadsLost is blocked seconds per second: how many goroutines or threads the
// time amounts to at any moment.
func (a *Attribution) ThreadsLost(ns int64) float64 {
	if a.Window <= 0 {
		return 0
	}
	return float64(ns) / float64(a.Window)
}

// Share is a wait's part of the off-CPU time that has an application frame and
// is not idle. Time whose idleness is unknown is in the denominator; Low and
// High are what the share would be with all of it counted as contention and as
// idle.
type Share struct{ Share, Low, High float64 }

// Share returns the share of a wait; false for idle waits, waits without an
// application frame, and where the denominator rests on fewer than
// MinShareSamples samples.
func (a *Attribution) Share(w Wait) (Share, bool) {
	return a.share(w, Value.OffCPUNs)
}

// BlockedShare is Share over blocked time only, which leaves out waiting for a
// CPU. It is the figure to hold against other tools' lock shares.
func (a *Attribution) BlockedShare(w Wait) (Share, bool) {
	return a.share(w, func(v Value) int64 { return v.BlockedNs })
}

func (a *Attribution) share(w Wait, of func(Value) int64) (Share, bool) {
	all := of(a.contention) + of(a.doubtful)
	if w.Idle == IdleYes || w.Site == "" || all <= 0 || a.shareSamples() < MinShareSamples {
		return Share{}, false
	}
	ns := float64(of(w.Value))
	s := Share{Share: ns / float64(all), Low: ns / float64(all), High: ns / float64(all)}
	if w.Idle == IdleUnknown {
		s.Low = 0
	} else if c := of(a.contention); c > 0 {
		s.High = ns / float64(c)
	}
	return s, true
}

// shareSamples is the number of observations behind the denominator of shares.
func (a *Attribution) shareSamples() int64 {
	v := a.contention
	v.add(a.doubtful)
	if a.Counted {
		return v.Count
	}
	return v.Samples
}

// ShareWarning says why shares are missing, "" when they are not.
func (a *Attribution) ShareWarning() string {
	if n := a.shareSamples(); n < MinShareSamples {
		return fmt.Sprintf("%s: %d samples of off-CPU time with an application frame that is not idle, fewer than %d: no shares are given; record longer", a.Source, n, MinShareSamples)
	}
	return ""
}

// Operation sums the waits of one operation; class "" means every class.
func (a *Attribution) Operation(name, class string) Value {
	var v Value
	for _, w := range a.Waits {
		if w.Operation == name && (class == "" || w.Class == class) {
			v.add(w.Value)
		}
	}
	return v
}

// ByClass sums the waits that are not idle per wait class.
func (a *Attribution) ByClass() map[string]Value {
	out := map[string]Value{}
	for _, w := range a.Waits {
		if w.Idle == IdleYes {
			continue
		}
		v := out[w.Class]
		v.add(w.Value)
		out[w.Class] = v
	}
	return out
}
