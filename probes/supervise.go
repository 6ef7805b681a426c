package probes

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/contention-toolkit/contention/profile"
)

const (
	pollEvery   = 100 * time.Millisecond // for targets that end or run another program
	scanEvery   = time.Second            // for children, and for what costs more to read
	lookFor     = 5 * time.Second        // how long a young process may take to serve its endpoints
	maxParts    = 200                    // of one recording: a target that crashes in a loop
	awaitsEvery = 250 * time.Millisecond // for successors
)

// supervise follows the targets until the window ends.
func (s *Session) supervise(ctx context.Context) {
	defer close(s.supervised)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var scanned, awaited time.Time
	scanned = time.Now()
	for {
		select {
		case <-s.quit:
			return
		case <-tick.C:
		}
		now := time.Now()
		s.checkLive(ctx)
		if len(s.awaited) > 0 && now.Sub(awaited) >= awaitsEvery {
			awaited = now
			s.findSuccessors(ctx)
		}
		if now.Sub(scanned) >= scanEvery {
			scanned = now
			s.scan(ctx, now)
		}
		if len(s.live) == 0 && len(s.awaited) == 0 {
			s.endEarly("the target ended")
		}
	}
}

// checkLive ends the parts whose process has ended or runs another program.
func (s *Session) checkLive(ctx context.Context) {
	for _, p := range slices.Clone(s.live) {
		f := p.image.fate(p.pid)
		stopped := false
		select {
		case <-p.done:
			stopped = true
		default:
		}
		switch {
		case f == replaced:
			s.end(p, replaced, profile.EndedExec)
			s.follow(ctx, p.pid, p, profile.BeganExec)
		case f == gone:
			s.end(p, gone, profile.EndedExit)
			if s.opt.Follow {
				s.awaited = append(s.awaited, p)
			}
		case stopped:
			// The sources noticed first, or can read no more of a process that lives.
			s.end(p, lives, "its sources ended")
		}
	}
}

// end takes a part out of the live ones; its sources are stopped beside.
func (s *Session) end(p *part, f fate, why string) {
	s.live = slices.DeleteFunc(s.live, func(q *part) bool { return q == p })
	p.mu.Lock()
	p.fate, p.target.Ended = f, why
	p.mu.Unlock()
	go p.finish()
}

// follow begins the part of a process that came within the window.
func (s *Session) follow(ctx context.Context, pid int, before *part, began string) bool {
	if len(s.live) >= maxTargets || len(s.parts) >= maxParts {
		s.left++
		return false
	}
	counts := began != profile.BeganFork && len(before.opt.Work) > 0
	p, err := startPart(ctx, s.partOptions(counts), pid)
	if err != nil {
		s.warn = append(s.warn, fmt.Sprintf("process %d (%s of %s) is not recorded: %v", pid, began, before.target.ID, err))
		return false
	}
	p.lookUntil = time.Now().Add(lookFor)
	p.target.Began, p.target.Before = began, before.target.ID
	s.mu.Lock()
	defer s.mu.Unlock()
	p.target.ID = s.newID(pid)
	s.parts = append(s.parts, p)
	s.live = append(s.live, p)
	return true
}

// newID names a target by its process id, and the second image of that id PID.2.
func (s *Session) newID(pid int) string {
	n := 1
	for _, p := range s.parts {
		if p.pid == pid {
			n++
		}
	}
	if n == 1 {
		return strconv.Itoa(pid)
	}
	return fmt.Sprintf("%d.%d", pid, n)
}

// findSuccessors looks for processes that take the place of those that ended.
func (s *Session) findSuccessors(ctx context.Context) {
	var candidates []int
	if s.opt.Successor != nil {
		candidates = s.opt.Successor()
	} else {
		all, err := processes()
		if err != nil {
			return
		}
		for _, st := range all {
			if !st.ended() {
				candidates = append(candidates, st.pid)
			}
		}
	}
	for _, pid := range candidates {
		i := slices.IndexFunc(s.awaited, func(p *part) bool { return s.succeeds(pid, p) })
		if i < 0 {
			continue
		}
		p := s.awaited[i]
		s.awaited = slices.Delete(s.awaited, i, i+1)
		s.follow(ctx, pid, p, profile.BeganRestart)
	}
}

// succeeds says whether a process takes the place of one that ended: it is not
// recorded itself, started later, and is of the same kind.
func (s *Session) succeeds(pid int, ended *part) bool {
	st, err := readStat(pid)
	if err != nil || st.ended() || !later(st.started, ended.image.started) {
		return false
	}
	for _, p := range s.parts {
		if p.pid == pid && p.image.started == st.started {
			return false
		}
	}
	if s.opt.Successor != nil {
		return true
	}
	t, err := identify(pid)
	return err == nil && t.Executable != "" && t.Executable == ended.target.Executable && slices.Equal(t.Arguments, ended.target.Arguments)
}

// later compares start times as /proc gives them.
func later(a, b string) bool {
	x, err1 := strconv.ParseUint(a, 10, 64)
	y, err2 := strconv.ParseUint(b, 10, 64)
	return err1 == nil && err2 == nil && x >= y
}

// scan does what is done once a second.
func (s *Session) scan(ctx context.Context, now time.Time) {
	if why := s.own.over(s.opt); why != "" {
		s.endEarly(why)
	}
	all, _ := processes() // without /proc there is nothing to follow
	for _, p := range slices.Clone(s.live) {
		p.limits.tick(now)
		if e := readEdge(p.pid); e.targetKnown {
			p.seen = e
		}
		p.look(ctx)
		for _, child := range p.kids.found(p.pid, all) {
			if s.known(child) {
				continue
			}
			if !s.opt.Follow || !s.follow(ctx, child.pid, p, profile.BeganFork) {
				p.kids.skip(child)
			}
		}
	}
}

// known says whether a process is recorded already.
func (s *Session) known(st stat) bool {
	return slices.ContainsFunc(s.parts, func(p *part) bool { return p.pid == st.pid && p.image.started == st.started })
}
