package report

import (
	"fmt"
	"strings"

	"github.com/contention-toolkit/contention/analysis"
	"github.com/contention-toolkit/contention/analysis/result"
	"github.com/contention-toolkit/contention/profile"
)

const (
	goroutineSource = string(profile.SourceGoroutines)
	idleYes         = analysis.IdleYes
)

// sourceName is how a source is written for a reader.
func (b *builder) sourceName(source string) string {
	switch profile.Source(source) {
	case profile.SourceGoroutines:
		return "Goroutines (sampler)"
	case profile.SourceThreads:
		return "Threads (eBPF)"
	case profile.SourceMutex:
		return "Mutex profile"
	case profile.SourceBlock:
		return "Block profile"
	}
	return b.word(source)
}

// waitSum adds rows of waits. What is per message is nil as soon as one row
// does not know it.
type waitSum struct {
	rows                    int
	before, after           *float64 // nanoseconds per message
	shareBefore, shareAfter *float64
	lostBefore, lostAfter   float64 // threads
	verdict                 string
}

func (b *builder) sum(which func(*result.Wait) bool) waitSum {
	s := waitSum{before: new(float64), after: new(float64), shareBefore: new(float64), shareAfter: new(float64)}
	for i := range b.r.Waits {
		w := &b.r.Waits[i]
		if !which(w) {
			continue
		}
		s.before, s.after = plus(s.before, w.Before.NsPerMsg), plus(s.after, w.After.NsPerMsg)
		s.shareBefore, s.shareAfter = plus(s.shareBefore, w.Before.Share), plus(s.shareAfter, w.After.Share)
		s.lostBefore += w.Before.ThreadsLost
		s.lostAfter += w.After.ThreadsLost
		switch {
		case s.rows == 0:
			s.verdict = b.verdictWord(w.Verdict)
		case s.verdict != b.verdictWord(w.Verdict):
			s.verdict = "see the rows"
		}
		s.rows++
	}
	return s
}

func plus(sum, v *float64) *float64 {
	if sum == nil || !known(v) {
		return nil
	}
	return result.Float(*sum + *v)
}

// shares is ", 30.8 % → 0 % of …", "" where neither is known.
func (s waitSum) shares() string {
	if s.shareBefore == nil && s.shareAfter == nil {
		return ""
	}
	return fmt.Sprintf(", %s → %s of off-CPU time that is not idle", optional(s.shareBefore, percent), optional(s.shareAfter, percent))
}

// primarySum adds the primary operation's waits as the goroutine sampler saw
// them.
func (b *builder) primarySum() waitSum {
	return b.sum(func(w *result.Wait) bool {
		return w.Source == goroutineSource && w.Operation == b.r.PrimaryOperation && w.Idle != idleYes
	})
}

// waits has one table per source, the primary operation first.
func (b *builder) waits() []block {
	var blocks []block
	if t := b.queueLock(); t != nil && !b.brief {
		blocks = append(blocks, paragraph{t})
	}
	var sources []string
	bySource := map[string][]*result.Wait{}
	for i := range b.r.Waits {
		w := &b.r.Waits[i]
		if bySource[w.Source] == nil {
			sources = append(sources, w.Source)
		}
		bySource[w.Source] = append(bySource[w.Source], w)
	}
	if len(sources) == 0 {
		return append(blocks, paragraph{line("No waits to compare: no valid profiled run.")})
	}
	const maxSources = 6
	for _, s := range sources[:min(len(sources), maxSources)] {
		blocks = append(blocks, b.waitTable(s, bySource[s]))
	}
	if len(sources) > maxSources {
		blocks = append(blocks, paragraph{line(fmt.Sprintf("%d more sources left out here; result.json has all.", len(sources)-maxSources))})
	}
	if b.brief {
		return blocks
	}
	return append(blocks, paragraph{line(aside("Per message: off-CPU nanoseconds (blocked or runnable) divided by the messages acknowledged to producers in the window. " +
		"Share: of off-CPU time with an application frame that is not idle, the bounds with what is not known to be idle counted either way. " +
		"Threads lost: off-CPU seconds per second. Each is a mean over the profiled runs; samples are summed."))})
}

func (b *builder) queueLock() text {
	q := b.r.QueueLock
	if b.r.PrimaryOperation == "" || len(q) == 0 {
		return nil
	}
	t := line("Goroutines waiting for the lock of ", b.name(b.r.PrimaryOperation), " at any time: ")
	var parts []text
	for _, s := range sides(q)[:min(len(q), 8)] {
		v := q[s]
		if v.Runs == 0 {
			parts = append(parts, line(b.word(s)+" – (no valid profiled run)"))
			continue
		}
		parts = append(parts, line(b.word(s)+" ", bold(threads(v.Mean)), " on average ("+runRange(v)+")"))
	}
	return append(append(t, join(parts, ", ")...), span{".", plain})
}

var waitColumns = []column{
	{"operation, wait site, class", false}, {"before, per message", true}, {"after, per message", true}, {"delta, per message", true},
	{"share", true}, {"threads lost, samples", true}, {"verdict", false},
}

var briefWaitColumns = []column{
	{"operation, wait site, class", false}, {"before/msg", true}, {"after/msg", true}, {"threads lost", true}, {"verdict", false},
}

func (b *builder) waitTable(source string, waits []*result.Wait) *table {
	t := &table{caption: b.sourceName(source), columns: waitColumns}
	if b.brief {
		t.columns = briefWaitColumns
	}
	var shown []*result.Wait
	var idle []*result.Wait
	for _, w := range waits {
		if w.Idle == idleYes {
			idle = append(idle, w)
			continue
		}
		shown = append(shown, w)
	}
	for _, w := range shown[:min(len(shown), b.rows)] {
		t.add(b.waitRow(w)...)
	}
	if rest := shown[min(len(shown), b.rows):]; len(rest) > 0 {
		t.note = append(t.note, line(fmt.Sprintf("%s more rows left out here, together %s; result.json has all. ", count(int64(len(rest))), b.size(rest)))...)
	}
	if len(idle) > 0 {
		t.note = append(t.note, line(fmt.Sprintf("Idle (waiting for work), left out: %s, %s.", plural(len(idle), "row"), b.size(idle)))...)
	} else {
		t.note = append(t.note, line("No idle time was seen.")...)
	}
	if len(shown) == 0 {
		cells := []text{line("no wait that is not idle")}
		for range t.columns[1:] {
			cells = append(cells, line(none))
		}
		t.add(cells...)
	}
	return t
}

// size states what rows amount to.
func (b *builder) size(rows []*result.Wait) string {
	in := map[*result.Wait]bool{}
	for _, w := range rows {
		in[w] = true
	}
	s := b.sum(func(w *result.Wait) bool { return in[w] })
	return fmt.Sprintf("%s → %s per message, %s → %s threads lost",
		optional(s.before, nanoseconds), optional(s.after, nanoseconds), threads(s.lostBefore), threads(s.lostAfter))
}

func (b *builder) waitRow(w *result.Wait) []text {
	if b.brief {
		return []text{
			b.waitName(w), line(optional(w.Before.NsPerMsg, nanoseconds)), line(optional(w.After.NsPerMsg, nanoseconds)),
			line(threads(w.Before.ThreadsLost) + " → " + threads(w.After.ThreadsLost)), line(b.verdictWord(w.Verdict)),
		}
	}
	return []text{
		b.waitName(w),
		line(optional(w.Before.NsPerMsg, nanoseconds)),
		line(optional(w.After.NsPerMsg, nanoseconds)),
		b.delta(w.Delta),
		b.shareCell(w),
		line(threads(w.Before.ThreadsLost)+" → "+threads(w.After.ThreadsLost), lineBreak, aside(count(w.Before.Samples)+" → "+count(w.After.Samples))),
		b.waitVerdict(w),
	}
}

func (b *builder) waitName(w *result.Wait) text {
	var t text
	switch {
	case w.Operation != "" && w.Operation == b.r.PrimaryOperation:
		t = line(bold(b.word(w.Operation)))
	case w.Operation != "":
		t = line(b.word(w.Operation))
	}
	switch {
	case w.Site == "" && t == nil:
		t = line("no application frame")
	case w.Site != "" && t == nil:
		t = line(b.name(shortSite(w.Site)))
	case w.Site != "":
		t = append(t, lineBreak, b.name(shortSite(w.Site)))
	}
	class := w.Class
	if class == "" {
		class = analysis.ClassUnknown
	}
	if w.Idle == analysis.IdleUnknown {
		class += ", perhaps idle"
	}
	if w.Site != "" {
		return append(t, span{", ", plain}, aside(b.word(class)))
	}
	return append(t, lineBreak, aside(b.word(class)))
}

func (b *builder) delta(d result.Delta) text {
	if !known(d.NsPerMsg) {
		return line(none)
	}
	t := line(signed(*d.NsPerMsg, nanoseconds(*d.NsPerMsg)))
	if known(d.CILow) && known(d.CIHigh) {
		t = append(t, lineBreak, aside(pair(" to ", signed(*d.CILow, nanoseconds(*d.CILow)), signed(*d.CIHigh, nanoseconds(*d.CIHigh)))))
	}
	return t
}

func (b *builder) shareCell(w *result.Wait) text {
	if !known(w.Before.Share) && !known(w.After.Share) {
		return line(none)
	}
	t := line(pair(" → ", optional(w.Before.Share, percent), optional(w.After.Share, percent)))
	if before, after := shareBounds(w.Before), shareBounds(w.After); before != "" && after != "" {
		t = append(t, lineBreak, aside(before+" → "+after))
	}
	return t
}

// shareBounds is "28.1 to 33.0", in percent as the share above it, or one number
// where both are printed the same.
func shareBounds(v result.WaitValue) string {
	if !known(v.ShareLow) || !known(v.ShareHigh) {
		return ""
	}
	bare := func(v float64) string { return strings.TrimSuffix(percent(v), " %") }
	low, high := bare(*v.ShareLow), bare(*v.ShareHigh)
	if low == high {
		return low
	}
	return low + " to " + high
}

func (b *builder) waitVerdict(w *result.Wait) text {
	t := line(b.verdictWord(w.Verdict))
	if known(w.Delta.PHolm) {
		t = append(t, lineBreak, aside("p "+equals(pValue(*w.Delta.PHolm))))
	}
	if known(w.UpperBound) {
		t = append(t, lineBreak, aside("at most "+nanoseconds(*w.UpperBound)+"/msg"))
	}
	return t
}

// graphs lists the pictures beside the report.
func (b *builder) graphs() []block {
	var blocks []block
	for _, g := range b.r.Graphs[:min(len(b.r.Graphs), b.rows, 12)] {
		p := picture{caption: line(b.prose(g.Caption))}
		if isFileName(g.File) {
			p.file = g.File
		} else {
			p.caption = append(line(b.name(g.File), " "), p.caption...)
		}
		blocks = append(blocks, p)
	}
	if n := len(b.r.Graphs) - len(blocks); n > 0 {
		blocks = append(blocks, paragraph{line(fmt.Sprintf("%d more graphs left out here; result.json has all.", n))})
	}
	return blocks
}

// isFileName tells whether a graph's name is a plain SVG file beside the report.
func isFileName(s string) bool {
	const suffix = ".svg"
	if len(s) <= len(suffix) || len(s) > 100 || s[0] == '.' || s[len(s)-len(suffix):] != suffix {
		return false
	}
	for _, r := range s {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '-' || r == '_') {
			return false
		}
	}
	return true
}
