package report

import (
	"bytes"
	"fmt"
	"strings"

	prettytable "github.com/jedib0t/go-pretty/v6/table"
	prettytext "github.com/jedib0t/go-pretty/v6/text"
)

// terminal renders a document as plain text: no escape sequence, whatever the
// names in it hold.
func terminal(d *document) []byte {
	w := &terminalWriter{}
	fmt.Fprintf(w, "%s\n\n", w.text(d.title))
	w.blocks(d.lead)
	for _, s := range d.sections {
		fmt.Fprintf(w, "%s\n\n", strings.ToUpper(s.title))
		w.blocks(s.blocks)
	}
	return append(bytes.TrimRight(w.Bytes(), "\n"), '\n')
}

type terminalWriter struct{ bytes.Buffer }

const terminalWidth = 100 // of paragraphs

func (w *terminalWriter) blocks(blocks []block) {
	for _, b := range blocks {
		switch b := b.(type) {
		case paragraph:
			w.paragraph("", b.text)
		case callout:
			w.paragraph("", b.text)
		case list:
			for _, t := range b.items {
				w.paragraph("- ", t)
			}
		case listing:
			fmt.Fprintf(w, "  %s\n\n", visible(b.code))
		case *table:
			w.table(b)
		}
	}
}

func (w *terminalWriter) paragraph(prefix string, t text) {
	w.lines(prefix + prettytext.WrapSoft(strings.TrimSpace(w.text(t)), terminalWidth))
}

// lines writes text without blanks at the ends of lines, and an empty line.
func (w *terminalWriter) lines(s string) {
	for _, l := range strings.Split(s, "\n") {
		fmt.Fprintf(w, "%s\n", strings.TrimRight(l, " "))
	}
	fmt.Fprintln(w)
}

func (w *terminalWriter) table(t *table) {
	if t.caption != "" {
		fmt.Fprintf(w, "%s\n", t.caption)
	}
	p := prettytable.NewWriter()
	style := prettytable.StyleLight
	style.Options = prettytable.Options{SeparateHeader: true}
	style.Format.Header = prettytext.FormatDefault
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	p.SetStyle(style)
	head := prettytable.Row{}
	configs := []prettytable.ColumnConfig{}
	for i, c := range t.columns {
		head = append(head, c.head)
		align := prettytext.AlignLeft
		if c.right {
			align = prettytext.AlignRight
		}
		configs = append(configs, prettytable.ColumnConfig{Number: i + 1, Align: align, AlignHeader: align})
	}
	p.SetColumnConfigs(configs)
	p.AppendHeader(head)
	for _, r := range t.rows {
		row := prettytable.Row{}
		for _, c := range r {
			row = append(row, w.text(c))
		}
		p.AppendRow(row)
	}
	w.lines(p.Render())
	if len(t.note) > 0 {
		w.paragraph("", t.note)
	}
}

func (w *terminalWriter) text(t text) string {
	var b strings.Builder
	for _, s := range t {
		if s.style == newline {
			b.WriteByte('\n')
			continue
		}
		b.WriteString(visible(s.s))
	}
	return b.String()
}
