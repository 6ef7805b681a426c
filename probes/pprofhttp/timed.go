package pprofhttp

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"sync"
	"time"

	"github.com/contention-toolkit/contention/probes/internal/httpget"
	"github.com/contention-toolkit/contention/profile"
)

const (
	longestPiece = 10 * time.Second // of a window of known length
	openPiece    = 5 * time.Second  // of one of unknown length
	endGrace     = time.Second      // Stop waits for a piece that ends this soon
)

// timed records a profile that the target makes only while it is asked for one:
// CPU and fgprof. It asks piece after piece until the window's expected end.
type timed struct {
	source profile.Source
	o      Options
	url    *url.URL
	gone   func()

	begun    time.Time
	giveUp   chan struct{} // closed to cancel the piece under way
	finished chan struct{} // closed when run returns; guards what follows it

	sum      *profile.Profile
	pieces   int
	recorded time.Duration // by the target's own clock
	end      time.Time     // of the last whole piece
	err      error

	mu   sync.Mutex
	ends time.Time // expected end of the piece under way
}

func (t *timed) begin(context.Context) error {
	if t.o.Duration > 0 && t.o.Duration < time.Second {
		return fmt.Errorf("a window of %s is too short: the target records %s in whole seconds; use at least 1s", t.o.Duration, t.source)
	}
	t.begun, t.giveUp, t.finished = time.Now(), make(chan struct{}), make(chan struct{})
	t.ends = t.begun.Add(t.piece(0))
	return nil
}

// piece returns how long the next piece is, in whole seconds; 0 for no more.
func (t *timed) piece(elapsed time.Duration) time.Duration {
	if t.o.Duration == 0 {
		return openPiece
	}
	return min(t.o.Duration-elapsed, longestPiece).Truncate(time.Second)
}

func (t *timed) run(ctx context.Context, stopping <-chan struct{}) {
	defer close(t.finished)
	ctx, cancel := until(ctx, t.giveUp)
	defer cancel()
	// A window of d whole seconds is one of d pieces although asking took a
	// few milliseconds.
	const slack = 100 * time.Millisecond
	for {
		select {
		case <-stopping:
			return
		default:
		}
		start := time.Now()
		want := t.piece(max(0, start.Sub(t.begun)-slack))
		if want <= 0 {
			return
		}
		t.mu.Lock()
		t.ends = start.Add(want)
		t.mu.Unlock()
		if t.err = t.record(ctx, want); t.err != nil {
			if httpget.KindOf(t.err) == httpget.Unreachable || httpget.KindOf(t.err) == httpget.Truncated {
				t.gone()
			}
			return
		}
		t.end = start.Add(want)
	}
}

// record asks for one piece and adds it.
func (t *timed) record(ctx context.Context, want time.Duration) error {
	u := with(t.url, "seconds", strconv.Itoa(int(want/time.Second)))
	a, err := httpget.Get(ctx, t.o.Client, httpget.Request{URL: u, Timeout: want + t.o.Timeout, Limit: maxBody})
	if err != nil {
		return explain(err, t.source)
	}
	p, err := decode(a.Body)
	if err != nil {
		return fmt.Errorf("GET %s: %w", httpget.Redact(u), err)
	}
	if p.SampleTypes[len(p.SampleTypes)-1].Unit != "nanoseconds" {
		return fmt.Errorf("GET %s: the profile's sample types are %v, and the last is not in nanoseconds: this is not a %s profile", httpget.Redact(u), p.SampleTypes, t.source)
	}
	if t.sum == nil {
		t.sum = profile.New(p.SampleTypes...)
		t.sum.Default = p.SampleTypes[len(p.SampleTypes)-1].Type
		t.sum.PeriodType, t.sum.Period = p.PeriodType, p.Period
	} else if fmt.Sprint(p.SampleTypes) != fmt.Sprint(t.sum.SampleTypes) {
		return fmt.Errorf("GET %s: the profile's sample types are %v, before they were %v", httpget.Redact(u), p.SampleTypes, t.sum.SampleTypes)
	}
	addTo(t.sum, p.Profile, 1)
	t.pieces++
	t.recorded += min(max(p.Duration, 0), want+t.o.Timeout)
	return nil
}

func (t *timed) finish(context.Context) (*profile.Capture, *profile.Absent) {
	stop := time.Now()
	t.mu.Lock()
	soon := !stop.Before(t.ends.Add(-endGrace))
	t.mu.Unlock()
	if !soon {
		close(t.giveUp)
	}
	<-t.finished // at the latest when Get's timeout ends the piece
	cut := httpget.KindOf(t.err) == httpget.Canceled
	if t.sum == nil {
		return nil, t.absent(stop, cut)
	}
	t.sum.Start, t.sum.Duration = t.begun, t.recorded
	c := &profile.Capture{
		Source: t.source, Profile: t.sum, Start: t.begun, End: t.end,
		Settings:   t.settings(),
		Loss:       map[string]int64{"unrecorded_ns": int64(max(0, t.end.Sub(t.begun)-t.recorded)), "lost_pieces": 0},
		Incomplete: t.err != nil && !(cut && t.o.Duration == 0),
	}
	if t.err != nil {
		c.Loss["lost_pieces"] = 1
		c.Loss["unrecorded_ns"] += int64(max(0, stop.Sub(t.end)))
	}
	if t.err != nil && !cut {
		c.Warnings = append(c.Warnings, fmt.Sprintf("%s profile: it ends %s after the start: %v", t.source, t.end.Sub(t.begun).Round(time.Millisecond), t.err))
	}
	return c, nil
}

func (t *timed) absent(stop time.Time, cut bool) *profile.Absent {
	err := t.err
	if cut {
		err = fmt.Errorf("the window ended after %s, before the first piece that the target was asked for was complete", stop.Sub(t.begun).Round(time.Millisecond))
	}
	if err == nil {
		err = errors.New("the window ended before the target was asked")
	}
	return &profile.Absent{Source: t.source, Reason: err.Error()}
}

func (t *timed) settings() map[string]string {
	s := map[string]string{
		"url":    t.url.Redacted(),
		"method": "asked of the target in pieces of at most " + longestPiece.String() + "; what passes between two is in unrecorded_ns",
		"pieces": strconv.Itoa(t.pieces),
	}
	if t.source == profile.SourceFgprof {
		s["cost"] = "the target stops all goroutines for each of its 99 snapshots a second"
	}
	return s
}
