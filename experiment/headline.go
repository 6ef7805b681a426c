package experiment

import (
	"sort"

	"github.com/contention-toolkit/contention/analysis/result"
)

// headline compares the figures that a reviewer reads first, over the valid
// unprofiled runs. It describes; it establishes nothing, so intervals and p
// stay empty and every verdict is undecided.
func headline(runs []result.Run) result.Headline {
	of := func(unit string, get func(result.Run) *float64) result.Effect {
		return effect(unit, values(runs, result.Before, get), values(runs, result.After, get))
	}
	return result.Headline{
		Throughput:        of("msgs/s", func(r result.Run) *float64 { return &r.Throughput }),
		Delivered:         of("msgs/s", deliveredRate),
		PublishP50:        of("ms", func(r result.Run) *float64 { return r.PublishMs.P50 }),
		PublishP99:        of("ms", func(r result.Run) *float64 { return r.PublishMs.P99 }),
		EndToEndP50:       of("ms", func(r result.Run) *float64 { return r.EndToEndMs.P50 }),
		EndToEndP99:       of("ms", func(r result.Run) *float64 { return r.EndToEndMs.P99 }),
		EndToEndOverhead:  of("ms", endToEndOverhead),
		QueueDelayWakeP50: of("ms", func(r result.Run) *float64 { return r.QueueDelayMs["wake"].P50 }),
		BrokerCPU:         of("ns/msg", func(r result.Run) *float64 { return r.CPUNsPerMsg.Broker }),
	}
}

// deliveredRate is what consumers received inside the window.
func deliveredRate(r result.Run) *float64 {
	if r.WindowSeconds <= 0 {
		return nil
	}
	return result.Float(float64(r.Delivered) / r.WindowSeconds)
}

func endToEndOverhead(r result.Run) *float64 {
	if r.EndToEndMs.P50 == nil || r.PublishMs.P50 == nil {
		return nil
	}
	return result.Float(*r.EndToEndMs.P50 - *r.PublishMs.P50)
}

func values(runs []result.Run, side string, get func(result.Run) *float64) []float64 {
	var out []float64
	for _, r := range runs {
		if r.Variant != side || r.Kind != result.KindPlain || !r.Valid {
			continue
		}
		if v := get(r); v != nil {
			out = append(out, *v)
		}
	}
	return out
}

// effect sets the medians of both sides beside each other.
func effect(unit string, before, after []float64) result.Effect {
	e := result.Effect{Unit: unit, Before: median(before), After: median(after), N: min(len(before), len(after)), Verdict: result.Undecided}
	if e.Before != nil && e.After != nil && *e.Before > 0 {
		e.Ratio = result.Float(*e.After / *e.Before)
	}
	return e
}

// median returns nil for no values.
func median(v []float64) *float64 {
	if len(v) == 0 {
		return nil
	}
	s := append([]float64(nil), v...)
	sort.Float64s(s)
	n := len(s)
	return result.Float((s[(n-1)/2] + s[n/2]) / 2)
}
