package pprofhttp

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/contention-toolkit/contention/profile"
)

// off returns why the profile counts as switched off, "" when it does not.
//
// The mutex profile's text form tells its fraction, so there the answer is
// certain. Nothing tells the block profile's rate: a profile that has never
// counted anything is taken for off, one that counted before the window but not
// in it is not.
func (c *cumulative) off() string {
	if len(c.acc.Samples) > 0 {
		return ""
	}
	before := len(c.first.p.Samples)
	if c.source == profile.SourceMutex {
		const remedy = "; turn it on with runtime.SetMutexProfileFraction(n), which samples one contended unlock in n"
		if c.first.fraction == 0 && c.last.fraction <= 0 {
			why := "profiling is off in the target: its mutex profile says sampling period 0"
			if before > 0 {
				why += fmt.Sprintf(" (its %d stacks are from before)", before)
			}
			return why + remedy
		}
		if c.first.fraction == unknown && c.last.fraction == unknown && c.neverCounted() {
			return "profiling seems to be off in the target: its mutex profile has counted nothing since the process started, and does not tell its sampling period" + remedy
		}
		return ""
	}
	if c.neverCounted() {
		return "profiling is off in the target, as far as can be told: its block profile has counted nothing since the process started (pprof does not tell the rate; a very coarse one looks the same)" +
			"; turn it on with runtime.SetBlockProfileRate(ns), which samples one event per ns of blocking (1 counts all and costs throughput)"
	}
	return ""
}

func (c *cumulative) neverCounted() bool {
	return len(c.first.p.Samples) == 0 && len(c.last.p.Samples) == 0
}

// evidence says how it is known that profiling is on.
func (c *cumulative) evidence() string {
	switch {
	case c.source == profile.SourceMutex && c.last.fraction > 0:
		return fmt.Sprintf("on: the target's mutex profile says sampling period %d", c.last.fraction)
	case len(c.acc.Samples) > 0:
		return "on: stacks grew within the window"
	}
	return fmt.Sprintf("not known: %d stacks from before the window, and none grew in it", len(c.first.p.Samples))
}

func (c *cumulative) settings() map[string]string {
	s := map[string]string{
		"url":      c.url.Redacted(),
		"method":   "cumulative reads, subtracted by symbolised stack",
		"evidence": c.evidence(),
		"counts":   "a wait when it ends, whole: also what of it was before the window; a wait still open at the end is not in it",
		"reads":    strconv.Itoa(c.reads),
		"blind_to": "network, pipe and system-call waits; uncontended locks",
	}
	if c.source == profile.SourceMutex {
		s["charges"] = "the unlocker: the stack is of Unlock, the delay is what others waited"
		if c.last.fraction != unknown {
			s["fraction"] = strconv.Itoa(c.last.fraction)
		}
	} else {
		s["charges"] = "the waiter: the stack is of the wait, which includes waiting for work to arrive"
		s["rate"] = "not told by pprof"
	}
	if v := c.goVersion(); v != "" {
		s["go_version"] = v
	}
	return s
}

func (c *cumulative) goVersion() string {
	if c.o.GoVersion != "" {
		return c.o.GoVersion
	}
	return guessGoVersion(c.last.p.Profile)
}

func (c *cumulative) loss() map[string]int64 {
	l := map[string]int64{
		"restarts":            int64(len(c.restarts)),
		"reset_stacks":        0,
		"merged_stacks":       int64(c.last.p.merged),
		"failed_reads":        int64(c.failed),
		"truncated_stacks":    0,
		"unsymbolised_frames": 0,
	}
	for _, r := range c.restarts {
		l["reset_stacks"] += int64(r.stacks)
	}
	limit := stackLimit(c.goVersion())
	for _, s := range c.acc.Samples {
		st := c.acc.Stack(s.Stack)
		if len(st) >= limit {
			l["truncated_stacks"]++
		}
		for _, f := range st {
			if strings.HasPrefix(c.acc.Frame(f).Function, "0x") {
				l["unsymbolised_frames"]++
			}
		}
	}
	return l
}

func (c *cumulative) warnings() []string {
	var w []string
	add := func(format string, a ...any) {
		w = append(w, string(c.source)+" profile: "+fmt.Sprintf(format, a...))
	}
	for _, r := range c.restarts {
		what := "its executable image changed"
		if r.stacks > 0 {
			what = fmt.Sprintf("%d stacks counted less than before, such as %s", r.stacks, r.example)
		}
		add("its counters were reset between %s and %s after the start (%s): the target restarted; what it counted from the last read before to its end is missing",
			r.after.Sub(c.first.at).Round(time.Millisecond), r.before.Sub(c.first.at).Round(time.Millisecond), what)
	}
	if a, b := c.first.fraction, c.last.fraction; a != b && a != unknown && b != unknown {
		add("the sampling fraction went from %d to %d inside the window: the figures mix both", a, b)
	}
	if c.source == profile.SourceBlock && len(c.acc.Samples) == 0 {
		add("nothing grew inside the window, though %d stacks are from before: block profiling was turned off, or nothing was blocked; pprof does not tell which", len(c.first.p.Samples))
	}
	for _, t := range versionWarnings(c.source, c.goVersion(), c.acc) {
		add("%s", t)
	}
	return w
}
