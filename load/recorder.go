package load

import (
	"sync"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// maxLatency bounds the histograms, in µs; longer ones count as this long.
	maxLatency = 3_600_000_000
	// recorderStripes spreads the connections over a few histograms: one per
	// connection would take 100 kB each and fall out of the CPU's caches.
	recorderStripes = 4
)

// sample is one message's latencies in ns: from the intended and from the real
// send time.
type sample struct{ intended, sent int64 }

// recorder collects one kind of latency.
type recorder struct {
	paced   bool
	stripes [recorderStripes]stripe
}

type stripe struct {
	mu         sync.Mutex
	intended   *hdrhistogram.Histogram
	sent       *hdrhistogram.Histogram // nil when unpaced: both are the same then
	notInRange int64
}

func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, maxLatency, 3) }

func newRecorder(paced bool) *recorder {
	r := &recorder{paced: paced}
	for i := range r.stripes {
		r.stripes[i].intended = newHistogram()
		if paced {
			r.stripes[i].sent = newHistogram()
		}
	}
	return r
}

// record adds what one read returned; who spreads the callers.
func (r *recorder) record(who int, samples []sample) {
	if len(samples) == 0 {
		return
	}
	s := &r.stripes[who%recorderStripes]
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range samples {
		s.add(s.intended, v.intended)
		if r.paced {
			s.add(s.sent, v.sent)
		}
	}
}

func (s *stripe) add(h *hdrhistogram.Histogram, ns int64) {
	us := ns / 1000
	if us < 0 || us > maxLatency {
		s.notInRange++
		us = min(max(us, 0), maxLatency)
	}
	if h.RecordValue(us) != nil { // in range, so it cannot
		s.notInRange++
	}
}

// merged returns the sums over the stripes: counted from the intended send
// time, and from the real one (nil when unpaced), and how many values were out
// of range.
func (r *recorder) merged() (intended, sent *hdrhistogram.Histogram, notInRange int64) {
	intended = newHistogram()
	if r.paced {
		sent = newHistogram()
	}
	for i := range r.stripes {
		s := &r.stripes[i]
		s.mu.Lock()
		intended.Merge(s.intended)
		if r.paced {
			sent.Merge(s.sent)
		}
		notInRange += s.notInRange
		s.mu.Unlock()
	}
	return intended, sent, notInRange
}
