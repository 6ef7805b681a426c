package profile

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
)

// MaxBuckets bounds the buckets of a histogram.
const MaxBuckets = 64

// Histogram counts durations by the power of two below them: bucket k holds
// those from 2^k up to 2^(k+1) nanoseconds; bucket 0 holds 0 as well, and the
// last one all that is longer. Buckets behind the last count that is not zero
// are left out.
type Histogram []int64

// Count is the number of durations.
func (h Histogram) Count() int64 {
	var n int64
	for _, c := range h {
		n += c
	}
	return n
}

// Quantile is the upper bound in nanoseconds of the bucket in which the share q
// of all durations is reached, 0 for an empty histogram.
func (h Histogram) Quantile(q float64) int64 {
	want := int64(math.Ceil(q * float64(h.Count())))
	var n int64
	for k, c := range h {
		if n += c; c > 0 && n >= want {
			return int64(1)<<min(k+1, 62) - 1
		}
	}
	return 0
}

// Merge adds o and returns the sum; h may be changed.
func (h Histogram) Merge(o Histogram) Histogram {
	for len(h) < len(o) {
		h = append(h, 0)
	}
	for i, c := range o {
		h[i] += c
	}
	return h
}

// Trim returns h without empty buckets at its end.
func (h Histogram) Trim() Histogram {
	n := len(h)
	for n > 0 && h[n-1] == 0 {
		n--
	}
	return h[:n]
}

func (h Histogram) check() error {
	if len(h) > MaxBuckets {
		return fmt.Errorf("a histogram has %d buckets, more than %d", len(h), MaxBuckets)
	}
	for _, c := range h {
		if c < 0 {
			return fmt.Errorf("a histogram counts %d", c)
		}
	}
	return nil
}

// Distribution holds how long the waits of one sample of a profile took.
type Distribution struct {
	Sample   int       `json:"sample"` // index into the profile's samples
	Blocked  Histogram `json:"blocked"`
	Runnable Histogram `json:"runnable"`
}

// Lock is what was seen of one lock, or of several that are waited for at the
// same sites. Times are in nanoseconds.
type Lock struct {
	Name       string      `json:"name"`             // by the functions that wait for it; the same from run to run
	Kind       string      `json:"kind"`             // such as sync.Mutex
	Target     string      `json:"target,omitempty"` // Target.ID, where the recording has several targets
	Instances  int         `json:"instances"`        // addresses
	Addresses  []string    `json:"addresses"`        // of some of them
	Parks      int64       `json:"parks"`            // waits, in which a goroutine was parked
	BlockedNs  int64       `json:"blocked_ns"`
	RunnableNs int64       `json:"runnable_ns"`
	QueueMax   int64       `json:"queue_max"`  // waiters at once, of one instance
	QueueMean  float64     `json:"queue_mean"` // waiters that a waiter found, itself counted
	Releases   int64       `json:"releases"`   // with somebody waiting
	Interval   Histogram   `json:"interval"`   // from release to release: an upper bound on holding
	IntervalNs int64       `json:"interval_ns"`
	Intervals  int64       `json:"intervals"`
	Waits      Histogram   `json:"waits"` // blocked time per park
	Pairs      []LockPair  `json:"pairs"` // most blocked time first
	PairsLeft  int         `json:"pairs_left_out"`
	Sites      []LockSites `json:"sites"`
}

// LockPair is a waiter with the one who let it go on.
type LockPair struct {
	Waiter    string `json:"waiter"`
	Releaser  string `json:"releaser"` // "" where it was not seen
	Waits     int64  `json:"waits"`
	BlockedNs int64  `json:"blocked_ns"`
}

// LockSites is a place where a lock is waited for.
type LockSites struct {
	Function string `json:"function"`
	File     string `json:"file"`
	Line     int    `json:"line"`
	Parks    int64  `json:"parks"`
}

// lockFile is the name of the file with the locks of a recording.
const lockFile = "locks.json"

// maxDetails bounds what is read of distributions and of locks.
const maxDetails = 256 << 20

// details writes what stands beside a source's profile.
func (w *Writer) details(c *Capture, info *SourceInfo) error {
	if c.Distributions != nil {
		info.DistFile = c.Source.DistributionFile()
		if err := w.putJSON(info.DistFile, c.Distributions); err != nil {
			return err
		}
	}
	if c.Locks != nil {
		info.LockFile = lockFile
		return w.putJSON(info.LockFile, c.Locks)
	}
	return nil
}

func (w *Writer) putJSON(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("recording %s: %s: %w", w.dir, name, err)
	}
	return w.sink.put(name, append(data, '\n'))
}

// loadDetails reads what stands beside a source's profile.
func (r *Recording) loadDetails(s SourceInfo, p *Profile) error {
	if s.DistFile != "" {
		var ds []Distribution
		if err := r.readJSON(s.DistFile, &ds, func() error { return checkDistributions(ds, p) }); err != nil {
			return err
		}
		r.Distributions[s.Source] = ds
	}
	if s.LockFile == "" {
		return nil
	}
	r.Locks = []Lock{}
	return r.readJSON(s.LockFile, &r.Locks, func() error {
		for _, l := range r.Locks {
			for _, h := range []Histogram{l.Interval, l.Waits} {
				if err := h.check(); err != nil {
					return fmt.Errorf("lock %q: %w", l.Name, err)
				}
			}
		}
		return nil
	})
}

func checkDistributions(ds []Distribution, p *Profile) error {
	for i, d := range ds {
		if d.Sample < 0 || d.Sample >= len(p.Samples) {
			return fmt.Errorf("distribution %d is of sample %d of %d", i, d.Sample, len(p.Samples))
		}
		for _, h := range []Histogram{d.Blocked, d.Runnable} {
			if err := h.check(); err != nil {
				return fmt.Errorf("distribution %d: %w", i, err)
			}
		}
	}
	return nil
}

func (r *Recording) readJSON(name string, v any, check func() error) error {
	return r.read(name, func(f io.Reader) error {
		data, err := io.ReadAll(io.LimitReader(f, maxDetails+1))
		if err != nil {
			return err
		}
		if len(data) > maxDetails {
			return fmt.Errorf("it is larger than %d bytes", maxDetails)
		}
		if err := json.Unmarshal(data, v); err != nil {
			return err
		}
		return check()
	})
}
