package pprofhttp

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"sync"
	"time"

	"github.com/contention-toolkit/contention/probes/internal/httpget"
	"github.com/contention-toolkit/contention/profile"
)

var (
	contentions = profile.ValueType{Type: "contentions", Unit: "count"}
	delay       = profile.ValueType{Type: "delay", Unit: "nanoseconds"}
)

// unknown is the mutex fraction where the target does not tell it.
const unknown = -1

// read is one cumulative read.
type read struct {
	at       time.Time
	p        *decoded
	fraction int // of the mutex profile: 0 is off, unknown for the block profile and between the edges
}

// cumulative records the mutex or the block profile. Its window is split into
// epochs by restarts: acc holds the finished ones, base is the first read of the
// present one, nil when that started from nothing.
type cumulative struct {
	source profile.Source
	o      Options
	url    *url.URL
	gone   func()

	mu       sync.Mutex // guards what follows between run and finish
	first    *read      // opens the window
	base     *read
	last     *read
	acc      *profile.Profile
	reads    int
	failed   int
	restarts []restart
}

// restart is a reset that the reads found.
type restart struct {
	after, before time.Time // it happened between these
	stacks        int       // that went down
	example       string
}

func (c *cumulative) begin(ctx context.Context) error {
	r, err := c.read(ctx, true)
	if err != nil {
		return err
	}
	c.first, c.base, c.last, c.reads = r, r, r, 1
	c.acc = profile.New(r.p.SampleTypes...)
	return nil
}

// read reads the profile. At an edge of the window it reads the fraction that
// the mutex profile is sampled at too; only the text form tells that, and it
// costs the target more to make.
func (c *cumulative) read(ctx context.Context, edge bool) (*read, error) {
	a, err := httpget.Get(ctx, c.o.Client, httpget.Request{URL: c.url.String(), Timeout: c.o.Timeout, Limit: maxBody})
	if err != nil {
		return nil, explain(err, c.source)
	}
	r := &read{at: a.At, fraction: unknown}
	if r.p, err = decode(a.Body); err != nil {
		return nil, fmt.Errorf("GET %s: %w", c.url.Redacted(), err)
	}
	if err := checkContention(r.p.Profile); err != nil {
		return nil, fmt.Errorf("GET %s: %w", c.url.Redacted(), err)
	}
	if edge && c.source == profile.SourceMutex {
		head, err := httpget.Get(ctx, c.o.Client, httpget.Request{URL: with(c.url, "debug", "1"), Timeout: c.o.Timeout, Limit: 4096, Head: true})
		if err == nil {
			r.fraction = mutexFraction(head.Body)
		}
	}
	return r, nil
}

// checkContention says whether p is a cumulative contention profile.
func checkContention(p *profile.Profile) error {
	if len(p.SampleTypes) != 2 || p.SampleTypes[0] != contentions || p.SampleTypes[1] != delay {
		return fmt.Errorf("the profile's sample types are %v, not contentions/count and delay/nanoseconds: this is another kind of profile", p.SampleTypes)
	}
	for _, s := range p.Samples {
		if s.Values[0] < 0 || s.Values[1] < 0 {
			return fmt.Errorf("the profile has a negative count at %s: it is a difference already, not counted since the start", stackName(p.Frames(s.Stack)))
		}
	}
	return nil
}

var fractionLine = regexp.MustCompile(`(?m)^sampling period=(\d{1,18})\s*$`)

// mutexFraction finds the sampling period in the text form of a mutex profile.
func mutexFraction(head []byte) int {
	m := fractionLine.FindSubmatch(head)
	if m == nil {
		return unknown
	}
	n, err := strconv.Atoi(string(m[1]))
	if err != nil {
		return unknown
	}
	return n
}

func (c *cumulative) run(ctx context.Context, stopping <-chan struct{}) {
	if c.o.Refresh < 0 {
		return
	}
	// The reads themselves must end when Stop begins, which reads again.
	ctx, cancel := until(ctx, stopping)
	defer cancel()
	t := time.NewTicker(c.o.Refresh)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		r, err := c.read(ctx, false)
		if ctx.Err() != nil {
			return
		}
		c.observe(r, err)
	}
}

// observe takes a further read into the window.
func (c *cumulative) observe(r *read, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.failed++
		if httpget.KindOf(err) == httpget.Unreachable {
			c.gone()
		}
		return
	}
	if r.at.Before(c.last.at) {
		return // an interim read that Stop's own read overtook
	}
	c.reads++
	d := subtract(r.p.Profile, c.last.p.Profile)
	if d.down > 0 || r.p.identity != c.last.p.identity {
		c.restarts = append(c.restarts, restart{c.last.at, r.at, d.down, d.ex})
		c.closeEpoch()
		c.base = nil
	}
	c.last = r
}

// closeEpoch adds what the present epoch counted to acc.
func (c *cumulative) closeEpoch() {
	var before *profile.Profile
	if c.base != nil {
		before = c.base.p.Profile
	}
	addTo(c.acc, subtract(c.last.p.Profile, before).p, 1)
}

func (c *cumulative) finish(ctx context.Context) (*profile.Capture, *profile.Absent) {
	r, err := c.read(ctx, true)
	c.observe(r, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil && c.last == c.first {
		return nil, c.absent(fmt.Sprintf("the read at the end of the window failed, so there is nothing to subtract from: %v", err))
	}
	c.closeEpoch()
	if why := c.off(); why != "" {
		return nil, c.absent(why)
	}
	p := c.acc
	p.Default = delay.Type
	p.Start, p.Duration = c.first.at, c.last.at.Sub(c.first.at)
	p.PeriodType, p.Period = contentions, 1
	out := &profile.Capture{
		Source: c.source, Profile: p, Start: c.first.at, End: c.last.at,
		Settings: c.settings(), Loss: c.loss(),
		Warnings:   c.warnings(),
		Incomplete: err != nil || len(c.restarts) > 0,
	}
	if err != nil {
		out.Warnings = append(out.Warnings, fmt.Sprintf("%s profile: the read at the end of the window failed, the figures end at the last good one, %s after the start: %v",
			c.source, p.Duration.Round(time.Millisecond), err))
	}
	return out, nil
}

func (c *cumulative) absent(why string) *profile.Absent {
	return &profile.Absent{Source: c.source, Reason: why}
}

// explain adds to a failed read what a user can do about it.
func explain(err error, s profile.Source) error {
	e, ok := errors.AsType[*httpget.Error](err)
	if !ok || e.Kind != httpget.Status {
		return err
	}
	switch e.Status {
	case 404, 405:
		if s == profile.SourceFgprof {
			return fmt.Errorf("%w: the target does not serve fgprof; it is felixge/fgprof's handler at /debug/fgprof", err)
		}
		return fmt.Errorf("%w: the target does not serve net/http/pprof there; import it in the target, or check the address", err)
	case 401, 403:
		return fmt.Errorf("%w: the target wants credentials; put them into the address, or record from where it trusts", err)
	}
	return err
}
