package report

import (
	"fmt"
	"strings"

	"github.com/contention-toolkit/contention/analysis/result"
)

// verdict is the first screen: one sentence on speed, one on the waits that the
// experiment is about, and what a reader must know before believing either.
func (b *builder) verdict() (tone string, blocks []block) {
	tone, sentence := b.speed()
	if t := b.decide(); t != nil {
		sentence = append(append(sentence, span{" ", plain}), t...)
	}
	blocks = append(blocks, callout{sentence, tone})
	if t := b.primary(); t != nil {
		blocks = append(blocks, paragraph{t})
	}
	if bad := b.invalidRuns(); len(bad) > 0 {
		blocks = append(blocks, callout{line(bold(fmt.Sprintf("%s of %d invalid and not used:", plural(len(bad), "run"), len(b.r.Runs))), " ", b.reasons(bad)), toneInvalid})
	}
	var first text
	if q := b.r.Question; q != "" {
		first = line(bold("Question: "), b.prose(q))
	}
	if n := len(b.r.Warnings); n > 0 {
		first = append(first, line(" ", aside("("+plural(n, "warning")+" below)"))...)
	}
	if len(first) > 0 {
		blocks = append(blocks, paragraph{first})
	}
	return tone, blocks
}

// lead is the effect that decides about speed: throughput where the load is
// unpaced, end-to-end latency where a fixed rate makes throughput the same.
func (b *builder) lead() (e result.Effect, name string, moreIsBetter bool) {
	if b.r.Scenario.RateMsgsPerS > 0 {
		return b.r.Headline.EndToEndP99, "end-to-end p99", false
	}
	return b.r.Headline.Throughput, "throughput", true
}

// speed is the verdict in one sentence.
func (b *builder) speed() (string, text) {
	e, name, moreIsBetter := b.lead()
	figures := b.effectText(e)
	after := b.sideName(result.After)
	switch {
	case !known(e.Before) || !known(e.After):
		return toneUndecided, line(bold("No verdict on speed:"), " ", b.missing(), ".")
	case e.Verdict == result.Same:
		return toneUndecided, line(bold("No difference in "+name+":"), " ", figures, ".")
	case established(e.Verdict):
		more := *e.After > *e.Before
		word, tone := "lower", toneWorse
		if more {
			word = "higher"
		}
		if more == moreIsBetter {
			tone = toneBetter
		}
		return tone, line(bold(fmt.Sprintf("%s is %s with %s:", capital(name), word, after)), " ", figures, b.alsoEstablished(name), ".")
	case b.r.Quick:
		return toneUndecided, line(bold("Undecided: descriptive, too few runs"), " (", b.runsPerSide(e), "): ", name, " ", figures, "; nothing is established.")
	}
	doNot := " do not"
	if e.N == 1 {
		doNot = " does not"
	}
	return toneUndecided, line(bold("Undecided:"), " ", b.runsPerSide(e), doNot, " establish a difference in ", name, ": ", figures, ".")
}

func established(verdict string) bool {
	switch verdict {
	case result.Gone, result.Less, result.More, result.New, result.Moved:
		return true
	}
	return false
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

func (b *builder) runsPerSide(e result.Effect) string {
	return plural(e.N, "unprofiled run") + " per side"
}

// effectText is "90,509 → 99,923 msgs/s, ×1.10 (+10.4 %), 95 % interval ×1.08 to
// ×1.13, p = 0.004, 8 runs per side".
func (b *builder) effectText(e result.Effect) text {
	if !known(e.Before) || !known(e.After) {
		return nil
	}
	format := withUnit(e.Unit)
	s := pair(" → ", format(*e.Before), format(*e.After))
	if known(e.Ratio) {
		s += ", " + ratio(*e.Ratio)
	}
	if known(e.CILow) && known(e.CIHigh) {
		s += ", 95 % interval " + interval(e)
	}
	if known(e.P) {
		s += ", p " + equals(pValue(*e.P))
	}
	if established(e.Verdict) || e.Verdict == result.Same {
		s += ", " + plural(e.N, "run") + " per side"
	}
	return line(s)
}

// equals puts "= " before a value that has no sign of its own.
func equals(s string) string {
	if strings.HasPrefix(s, "<") {
		return s
	}
	return "= " + s
}

func interval(e result.Effect) string {
	return "×" + number(*e.CILow) + " to ×" + number(*e.CIHigh)
}

// alsoEstablished lists the other figures that the runs establish a change of.
func (b *builder) alsoEstablished(lead string) string {
	var out []string
	for _, m := range metrics {
		e := m.effect(&b.r.Headline)
		if m.name == lead || !m.speed || !established(e.Verdict) || !known(e.Ratio) {
			continue
		}
		out = append(out, fmt.Sprintf("%s %s", m.name, ratio(*e.Ratio)))
	}
	if len(out) == 0 {
		return ""
	}
	return "; also established: " + strings.Join(out, ", ")
}

// missing says why there is no figure to judge.
func (b *builder) missing() string {
	var without []string
	for _, side := range []string{result.Before, result.After} {
		if len(b.usable(side, result.KindPlain)) == 0 {
			without = append(without, side)
		}
	}
	if len(without) == 0 {
		return "the runs do not hold the figure"
	}
	return "no valid unprofiled run of " + strings.Join(without, " and ")
}

// decide is the command that would establish more.
func (b *builder) decide() text {
	if b.r.DecideCommand == "" {
		return nil
	}
	return line("To decide: ", span{b.prose(b.r.DecideCommand), code}, ".")
}

// primary states the waits of the primary operation, apart from speed.
func (b *builder) primary() text {
	if b.r.PrimaryOperation == "" {
		return nil
	}
	op := b.name(b.r.PrimaryOperation)
	q := b.r.QueueLock
	before, after := q[result.Before], q[result.After]
	var t text
	switch {
	case before.Runs > 0 && after.Runs > 0:
		runs := runRange(before) + " → " + runRange(after)
		if before.Runs == 1 && after.Runs == 1 {
			runs = "1 run per side"
		}
		t = line(bold(threads(before.Mean)+" → "+threads(after.Mean)+" goroutines wait for the lock"), " of ", op, " at any time ("+runs+")")
	case before.Runs > 0:
		t = line(bold(threads(before.Mean)+" goroutines wait for the lock"), " of ", op, " at any time before; no valid profiled run after")
	case after.Runs > 0:
		t = line(bold(threads(after.Mean)+" goroutines wait for the lock"), " of ", op, " at any time after; no valid profiled run before")
	default:
		return line(bold("No verdict on waits"), " of ", op, ": no valid profiled run.")
	}
	p := b.primarySum()
	if p.rows > 0 {
		t = append(t, line("; off-CPU per message ", optional(p.before, nanoseconds), " → ", optional(p.after, nanoseconds), p.shares(), "; verdict: ", bold(p.verdict))...)
	}
	return append(t, line(". Less contention is not faster: speed is judged above, from unprofiled runs.")...)
}

func runRange(q result.QueueLock) string {
	switch {
	case q.Runs == 1:
		return "1 run"
	case threads(q.Min) == threads(q.Max):
		return threads(q.Min) + " in each of " + plural(q.Runs, "run")
	}
	return fmt.Sprintf("%s to %s over %s", threads(q.Min), threads(q.Max), plural(q.Runs, "run"))
}

// reasons names runs that do not count.
func (b *builder) reasons(bad []result.Run) text {
	var out []text
	for _, r := range bad[:min(len(bad), 5, b.rows)] {
		why := strings.Join(r.WhyInvalid, ", ")
		if why == "" {
			why = "no reason given"
		}
		out = append(out, line(fmt.Sprintf("run %d (%s, %s): %s", r.Index, b.word(r.Variant), b.word(r.Kind), b.prose(why))))
	}
	t := join(out, "; ")
	if n := len(bad) - len(out); n > 0 {
		t = append(t, span{fmt.Sprintf("; and %d more, see the runs", n), plain})
	}
	return append(t, span{".", plain})
}
