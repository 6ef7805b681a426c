package main

import (
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/term"

	"github.com/contention-toolkit/contention/experiment"
)

// meter shows how far an experiment is: one line that changes on a terminal,
// a line per run elsewhere.
type meter struct {
	w        io.Writer
	terminal bool
	started  time.Time
}

func newMeter(w io.Writer) *meter {
	m := &meter{w: w, started: time.Now()}
	if f, ok := w.(*os.File); ok {
		m.terminal = term.IsTerminal(int(f.Fd()))
	}
	return m
}

func (m *meter) update(p experiment.Progress) {
	elapsed := time.Since(m.started).Round(time.Second)
	line := fmt.Sprintf("run %d/%d  %s (%s)  %s", p.Run, p.Runs, p.Variant, p.Side, p.Kind)
	switch {
	case m.terminal:
		fmt.Fprintf(m.w, "\r\x1b[K%s: %s  %s  %v", line, p.Phase, p.Message, elapsed)
		if p.Phase == experiment.PhaseDone {
			fmt.Fprintln(m.w)
		}
	case p.Phase == experiment.PhaseDone || p.Phase == experiment.PhaseNotice:
		fmt.Fprintf(m.w, "%s: %s  %v\n", line, p.Message, elapsed)
	}
}

// finish ends a line that is still open.
func (m *meter) finish() {
	if m.terminal {
		fmt.Fprint(m.w, "\r\x1b[K")
	}
}
