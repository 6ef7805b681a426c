package report

import (
	"fmt"
	"strings"
)

// delivery says what the delivery checks counted.
func (b *builder) delivery() []block {
	d := b.r.Delivery
	if len(b.r.Runs) == 0 {
		return nil
	}
	runs := fmt.Sprintf("%s messages expected, %s received", count(d.Expected), count(d.Received))
	problems := d.Lost + d.Duplicates + d.Disorder + d.Invalid
	var blocks []block
	if problems == 0 && d.Expected == d.Received && d.Expected > 0 {
		blocks = append(blocks, paragraph{line(bold("Every run delivered every message once and in order."), fmt.Sprintf(" Over %s: %s; 0 lost, 0 duplicates, 0 out of order, 0 invalid.", plural(len(b.r.Runs), "run"), runs))})
	} else {
		blocks = append(blocks, callout{line(bold("Delivery was not perfect."), fmt.Sprintf(" Over %s: %s; %s lost, %s duplicates, %s out of order, %s invalid.", plural(len(b.r.Runs), "run"), runs,
			count(d.Lost), count(d.Duplicates), count(d.Disorder), count(d.Invalid))), toneInvalid})
	}
	if t := b.deliveryGap(); t != nil {
		blocks = append(blocks, paragraph{t})
	}
	return blocks
}

// deliveryGap names runs whose deliveries in the window differ from what was
// acknowledged by more than 1 % per application: figures per message differ by
// as much depending on which of them a message is.
func (b *builder) deliveryGap() text {
	apps := max(b.r.Scenario.Applications, 1)
	var out []string
	n := 0
	for _, r := range b.ordered() {
		want := float64(r.Published) * float64(apps)
		if want <= 0 || !r.Valid {
			continue
		}
		if d := float64(r.Delivered)/want - 1; d > 0.01 || d < -0.01 {
			if n++; n <= min(b.rows, 8) {
				out = append(out, fmt.Sprintf("run %d %s", r.Index, change(1+d)))
			}
		}
	}
	if n == 0 {
		return nil
	}
	if n > len(out) {
		out = append(out, fmt.Sprintf("%d more", n-len(out)))
	}
	return line("Delivered in the window against acknowledged × applications, where more than 1 % apart: " + strings.Join(out, ", ") + ". Figures per message count acknowledged messages.")
}

// runs is the table of all runs.
func (b *builder) runs() ([]block, string) {
	all := b.ordered()
	if len(all) == 0 {
		return nil, ""
	}
	t := &table{columns: []column{
		{"run", true}, {"side", false}, {"kind", false}, {"throughput", true}, {"publish p50", true}, {"p99", true}, {"end-to-end p50", true}, {"p99", true},
		{"broker CPU", true}, {"load CPU", true}, {"window", true}, {"valid", false},
	}}
	perMessage := func(v float64) string { return nanoseconds(v) + "/msg" }
	bad := 0
	for i, r := range all {
		valid := line("yes")
		if !r.Valid {
			bad++
			valid = line(bold("no"), ": "+shorten(strings.Join(r.WhyInvalid, ", "), min(b.long, 160)))
		}
		if i >= b.rows {
			continue
		}
		t.add(line(fmt.Sprint(r.Index)), line(b.word(r.Variant)), line(b.word(r.Kind)), line(rate(r.Throughput)),
			line(optional(r.PublishMs.P50, milliseconds)), line(optional(r.PublishMs.P99, milliseconds)),
			line(optional(r.EndToEndMs.P50, milliseconds)), line(optional(r.EndToEndMs.P99, milliseconds)),
			line(optional(r.CPUNsPerMsg.Broker, perMessage)), line(optional(r.CPUNsPerMsg.Load, perMessage)),
			line(seconds(r.WindowSeconds)), valid)
	}
	t.note = line(b.more(len(all), "runs"))
	validity := "all valid"
	if bad > 0 {
		validity = fmt.Sprintf("%d invalid", bad)
	}
	return []block{t}, plural(len(all), "run") + ", " + validity
}

func (b *builder) warnings() []block {
	var items []text
	for _, w := range b.r.Warnings[:min(len(b.r.Warnings), b.rows)] {
		items = append(items, line(b.prose(w)))
	}
	if len(items) == 0 {
		return []block{paragraph{line("None.")}}
	}
	blocks := []block{list{items}}
	if m := b.more(len(b.r.Warnings), "warnings"); m != "" {
		blocks = append(blocks, paragraph{line(m)})
	}
	return blocks
}

// reproduce is the command that was run, and what ran on each side.
func (b *builder) reproduce() []block {
	var blocks []block
	if len(b.r.Command) > 0 {
		blocks = append(blocks, listing{shorten(shellLine(b.r.Command), b.long)})
	}
	var items []text
	for _, v := range b.r.Variants[:min(len(b.r.Variants), b.rows)] {
		if len(v.Command) == 0 {
			continue
		}
		items = append(items, line(b.word(v.Side)+": ", span{shorten(shellLine(v.Command), b.long), code}))
	}
	if len(items) > 0 {
		blocks = append(blocks, paragraph{line("What ran as the broker:")}, list{items})
	}
	if b.r.DecideCommand != "" {
		blocks = append(blocks, paragraph{b.decide()})
	}
	return blocks
}
