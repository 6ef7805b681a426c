package flamegraph

import (
	"fmt"
	"strings"
)

type legendRow struct {
	heading string
	items   []legendItem
}

// legendItem is a swatch with its meaning, or words alone.
type legendItem struct {
	class, text string
	strip       bool
}

// table lists the wait sites; the first column is the name, the others are
// numbers.
type table struct {
	title string
	head  []string
	rows  [][]string
	names []string // full names, by row
}

func (s *sheet) drawLegend(c *canvas) {
	const swatch, gap = 22.0, 5.0
	indent := margin
	for _, r := range s.legend {
		indent = max(indent, margin+sansWidth(r.heading, bodySize)+10)
	}
	for _, r := range s.legend {
		c.y += lineHeight + 2
		c.text(margin, c.y, "dim", r.heading)
		x := indent
		for _, it := range r.items {
			w := sansWidth(it.text, bodySize)
			if it.class != "" {
				w += swatch + gap
			}
			if x > indent && x+w > c.width-margin {
				x = indent
				c.y += lineHeight
			}
			if it.class != "" {
				y, h := c.y-10, 12.0
				if it.strip {
					y, h = c.y-6, stripHeight
				}
				fmt.Fprintf(c, "<rect class=\"%s\" x=\"%s\" y=\"%s\" width=\"%s\" height=\"%s\"/>\n", it.class, fixed(x), fixed(y), fixed(swatch), fixed(h))
				c.text(x+swatch+gap, c.y, "", it.text)
			} else {
				c.text(x, c.y, "dim", it.text)
			}
			x += w + 8
		}
	}
}

func (s *sheet) drawTable(c *canvas) {
	t := &s.table
	if len(t.rows) == 0 {
		return
	}
	c.y += 8
	c.line("h2", t.title)
	columns := make([]float64, len(t.head)) // widths in columns of text
	for _, r := range append([][]string{t.head}, t.rows...) {
		for j, v := range r[1:] {
			columns[j+1] = max(columns[j+1], float64(width(v)))
		}
	}
	room := c.width - 2*margin
	for j := range columns {
		columns[j] = (columns[j] + 2) * monoColumn
		if j > 0 {
			room -= columns[j]
		}
	}
	row := func(class string, r []string) {
		c.y += lineHeight
		c.text(margin, c.y, strings.TrimSpace("m "+class), cut(r[0], int(room/monoColumn)))
		x := margin + room
		for j, v := range r[1:] {
			x += columns[j+1]
			c.text(x, c.y, strings.TrimSpace("m e "+class), v)
		}
	}
	row("dim", t.head)
	fmt.Fprintf(c, "<path class=\"ln\" d=\"M%s %sh%s\"/>\n", fixed(margin), fixed(c.y+4.5), fixed(c.width-2*margin))
	c.y += 2
	for _, r := range t.rows {
		row("", r)
	}
}
