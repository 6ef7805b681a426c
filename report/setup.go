package report

import (
	"fmt"
	"strings"

	"github.com/contention-toolkit/contention/analysis/result"
)

// setup states what differs between the variants and what was the same.
func (b *builder) setup() []block {
	var blocks []block
	if t := b.differences(); t != nil {
		blocks = append(blocks, t)
	}
	items := []text{b.host(), b.scenario(), b.order()}
	return append(blocks, list{items})
}

// differences is a table of settings and versions, the same ones left out.
func (b *builder) differences() block {
	v, w := b.r.Side(result.Before), b.r.Side(result.After)
	if v == nil || w == nil {
		return nil
	}
	before, after := b.heads()
	before.right, after.right = false, false
	t := &table{columns: []column{{"what differs", false}, before, after}}
	same := 0
	add := func(what text, x, y string) {
		if x == y {
			same++
			return
		}
		t.add(what, line(b.name(x)), line(b.name(y)))
	}
	all := map[string]bool{}
	for k := range v.Settings {
		all[k] = true
	}
	for k := range w.Settings {
		all[k] = true
	}
	for _, k := range sortedKeys(all) {
		add(line(b.name(k)), v.Settings[k], w.Settings[k])
	}
	add(line("version"), v.Version, w.Version)
	if len(t.rows) == 0 && shellLine(v.Command) != shellLine(w.Command) {
		add(line("command"), shellLine(v.Command), shellLine(w.Command))
	}
	if len(t.rows) == 0 {
		return paragraph{line("The two variants are the same (A/A): any difference below is noise.")}
	}
	t.note = line(b.more(len(t.rows), "settings"))
	t.rows = t.rows[:min(len(t.rows), b.rows)]
	if v.Version == w.Version && v.Version != "" {
		t.note = append(line("Both sides: version ", b.name(v.Version), ". "), t.note...)
	}
	return t
}

func (b *builder) host() text {
	h := b.r.Host
	var parts []string
	for _, s := range []string{h.Kernel, h.Arch} {
		if s != "" {
			parts = append(parts, b.word(s))
		}
	}
	parts = append(parts, plural(h.CPUs, "CPU"))
	if h.GoVersion != "" {
		parts = append(parts, b.word(h.GoVersion))
	}
	set := func(who, cpus string) string {
		if cpus == "" {
			return who + " on all"
		}
		return who + " on CPU " + b.word(cpus)
	}
	sets := "broker, load and recorder share all CPUs"
	if h.BrokerCPUs+h.LoadCPUs+h.RecordCPUs != "" {
		sets = strings.Join([]string{set("broker", h.BrokerCPUs), set("load", h.LoadCPUs), set("recorder", h.RecordCPUs)}, ", ")
	}
	return line(bold("Host: "), strings.Join(parts, ", ")+"; "+sets+".")
}

func (b *builder) scenario() text {
	s := b.r.Scenario
	pace := "unpaced (as fast as acknowledgements allow)"
	if s.RateMsgsPerS > 0 {
		pace = "paced at " + rate(s.RateMsgsPerS)
	}
	consumers := plural(s.Applications, "application") + " with " + plural(s.Consumers, "consumer")
	if s.Applications > 1 {
		consumers += " each"
	}
	return line(bold("Load: "), b.name(s.Name), fmt.Sprintf(", %s, %s, %s messages in flight over all connections, %s-byte messages, %s; %s; %s warm-up messages, then %s measured per run.",
		plural(s.Connections, "connection"), plural(s.Devices, "device"), count(int64(s.InFlight)), count(int64(s.MessageBytes)), pace,
		consumers, count(s.WarmupMessages), seconds(s.MeasuredSeconds)))
}

// order says how many runs of each kind there were, and in which order the
// sides took turns.
func (b *builder) order() text {
	var kinds []string
	turns, n := map[string]string{}, map[string]int{}
	const maxTurns = 24
	for _, r := range b.ordered() {
		if n[r.Kind] == 0 {
			kinds = append(kinds, r.Kind)
		}
		n[r.Kind]++
		switch {
		case n[r.Kind] == maxTurns+1:
			turns[r.Kind] += " …"
		case n[r.Kind] <= maxTurns:
			letter := "?"
			switch r.Variant {
			case result.Before:
				letter = "A"
			case result.After:
				letter = "B"
			}
			turns[r.Kind] += " " + letter
		}
	}
	if len(kinds) == 0 {
		return line(bold("Runs: "), "none.")
	}
	var parts []string
	for _, k := range kinds[:min(len(kinds), 6)] {
		parts = append(parts, fmt.Sprintf("%s %s (%s)", count(int64(n[k])), b.word(k), strings.TrimSpace(turns[k])))
	}
	return line(bold("Runs, in order: "), strings.Join(parts, ", "), fmt.Sprintf("; A is %s, B is %s.", b.sideName(result.Before), b.sideName(result.After)))
}
