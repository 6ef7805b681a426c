package flamegraph

import (
	"bytes"
	_ "embed"
	"fmt"
	"io"
	"strings"
)

//go:embed style.css
var styleCSS string

// SVGOptions is what a picture says beside its frames. The zero value works.
type SVGOptions struct {
	Title  string   // "" names the kind of picture
	Plane  string   // such as "goroutine"
	Source string   // such as "sampler"
	Before string   // what the before side is, "" for "before"
	After  string   // what the after side is, "" for "after"
	Notes  []string // further lines under the title, such as warnings; at most 12 are drawn

	Width    int     // pixels, 0 means 1000; at least 400, at most 4000
	MinWidth float64 // narrowest frame drawn on its own, in pixels; 0 means 0.6
	Sites    int     // wait sites in the table, 0 means 10, negative none; at most 50
	// NoiseFloor draws changes smaller than this grey in a differential picture:
	// what a comparison of equal builds shows, in the tree's measure.
	NoiseFloor float64
	// MaxBytes bounds the file; frames are merged until it fits. 0 means
	// 300,000.
	MaxBytes int
}

const (
	margin     = 12.0
	lineHeight = 17.0
	monoColumn = 6.7 // one column of the 11 px monospaced font, at its widest
	bodySize   = 12.0
	headSize   = 13.0
	titleSize  = 16.0
	boldness   = 1.12 // how much wider bold text is
	nameLimit  = 240  // characters of a name in a frame's title
	textLimit  = 400  // characters of a note
	maxNotes   = 12
)

func (o SVGOptions) normal() SVGOptions {
	def := func(s *string, d string) {
		if *s == "" {
			*s = d
		}
		*s = visible(*s, textLimit/2)
	}
	def(&o.Before, "before")
	def(&o.After, "after")
	if o.Width == 0 {
		o.Width = 1000
	}
	o.Width = min(max(o.Width, 400), 4000)
	if !(o.MinWidth > 0) {
		o.MinWidth = 0.6
	}
	if o.Sites == 0 {
		o.Sites = 10
	}
	o.Sites = min(max(o.Sites, 0), 50)
	if o.MaxBytes <= 0 {
		o.MaxBytes = 300_000
	}
	return o
}

// sheet is a picture before it is written.
type sheet struct {
	title    string
	headline string
	lines    []string
	empty    string // why there is nothing to draw
	legend   []legendRow
	caption  string
	table    table
	diff     bool

	n      int
	node   func(i int) Node
	width  func(i int) float64
	amount func(v float64) string
	height float64 // of a row
	// frame returns a box's class, title and the forms of its label, long to
	// short, which all are visible text.
	frame func(b box) (class, title string, labels []string)
	// strips adds a box's segments, nil for none.
	strips func(b box, y float64, s *strips)
}

// strips collects the segments of a differential picture, one path per kind.
type strips struct{ common, shrunk, grown strings.Builder }

func segment(b *strings.Builder, x, y, w, h float64) {
	if w >= 0.05 {
		fmt.Fprintf(b, "M%s %sh%sv%sh-%sz", fixed(x), fixed(y), fixed(w), fixed(h), fixed(w))
	}
}

// write lays the sheet out and writes it, with wider and wider frames merged
// until it fits.
func (s *sheet) write(w io.Writer, o SVGOptions) error {
	const growth, tries = 1.35, 60
	minWidth := o.MinWidth
	for range tries {
		p := layout(s.n, s.node, s.width, float64(o.Width)-2*margin, minWidth)
		if out, ok := s.render(p, o); ok {
			if _, err := w.Write(out); err != nil {
				return fmt.Errorf("flamegraph: cannot write the picture: %w", err)
			}
			return nil
		}
		minWidth *= growth
	}
	return fmt.Errorf("flamegraph: the picture does not fit in %d bytes: allow more", o.MaxBytes)
}

// canvas writes elements from top to bottom.
type canvas struct {
	bytes.Buffer
	width float64
	y     float64
}

func (c *canvas) text(x, y float64, class, s string) {
	if class != "" {
		class = ` class="` + class + `"`
	}
	fmt.Fprintf(c, "<text%s x=\"%s\" y=\"%s\">%s</text>\n", class, fixed(x), fixed(y), escapeXML(s))
}

// line writes s, wrapped, and moves down.
func (c *canvas) line(class, s string) {
	size := bodySize
	switch class {
	case "h1":
		size = titleSize * boldness
	case "h2":
		size = headSize * boldness
	}
	for _, l := range wrap(visible(s, 4*textLimit), c.width-2*margin, size) {
		c.y += lineHeight
		c.text(margin, c.y, class, l)
	}
}

// render returns the picture, or false when it is too large.
func (s *sheet) render(p plan, o SVGOptions) ([]byte, bool) {
	c := &canvas{width: float64(o.Width), y: margin - 6}
	c.line("h1", s.title)
	c.y += 3
	if s.empty != "" {
		c.line("h2", s.empty)
	} else {
		c.line("h2", s.headline)
	}
	lines := s.lines
	if p.pruned.Frames > 0 {
		lines = append(lines[:len(lines):len(lines)], fmt.Sprintf(
			"%s narrower than %s px (%s, %s of the width) not drawn on their own; neighbours among them share a grey block.",
			plural(p.pruned.Frames, "frame", "frames"), fixed(p.pruned.Min), s.amount(p.pruned.Time), percent(p.pruned.Time, s.width(0))))
	}
	for _, l := range lines {
		c.line("", l)
	}
	if s.empty == "" {
		s.drawLegend(c)
		c.y += 8
		if !s.drawFrames(c, p, o.MaxBytes) {
			return nil, false
		}
		c.line("dim", s.caption)
		s.drawTable(c)
	}
	c.y += margin
	out := s.document(c, o)
	return out, len(out) <= o.MaxBytes
}

// document puts the head around the canvas.
func (s *sheet) document(c *canvas, o SVGOptions) []byte {
	var b bytes.Buffer
	h := fixed(c.y)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" class="cf" role="img" width="%d" height="%s" viewBox="0 0 %d %s">`+"\n", o.Width, h, o.Width, h)
	fmt.Fprintf(&b, "<title>%s</title>\n<desc>%s</desc>\n<style>\n%s</style>\n", escapeXML(s.title), escapeXML(s.describe()), styleCSS)
	if s.diff {
		b.WriteString(hatches)
	}
	fmt.Fprintf(&b, `<rect class="bg" width="%d" height="%s"/>`+"\n", o.Width, h)
	b.Write(c.Bytes())
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// The hatches lean to different sides, so that they differ without colour.
const hatches = `<defs>
<pattern id="cf-gone" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="gone-a" width="7" height="7"/><rect class="gone-b" width="3" height="7"/></pattern>
<pattern id="cf-new" width="7" height="7" patternUnits="userSpaceOnUse" patternTransform="rotate(-45)"><rect class="new-a" width="7" height="7"/><rect class="new-b" width="3" height="7"/></pattern>
</defs>
`

// describe is the picture in words, for readers who do not see it.
func (s *sheet) describe() string {
	var b strings.Builder
	if s.empty != "" {
		b.WriteString(s.empty)
	} else {
		b.WriteString(s.headline)
	}
	for _, l := range s.lines {
		b.WriteString("\n" + l)
	}
	for i, r := range s.table.rows {
		if i == 0 {
			b.WriteString("\n" + s.table.title + ":")
		}
		b.WriteString("\n" + s.table.names[i])
		for j, v := range r[1:] {
			fmt.Fprintf(&b, "; %s %s", s.table.head[j+1], v)
		}
	}
	return b.String()
}

const stripHeight = 4.0

// drawFrames writes the boxes; it gives up beyond limit bytes.
func (s *sheet) drawFrames(c *canvas, p plan, limit int) bool {
	var st strips
	top := c.y
	c.WriteString("<g class=\"fr\">\n")
	for _, b := range p.boxes {
		if c.Len() > limit {
			return false
		}
		class, title, labels := s.frame(b)
		y := top + float64(b.row)*(s.height+1)
		w := b.w - min(0.5, b.w*0.15) // a gap between neighbours that leaves narrow ones visible
		fmt.Fprintf(c, `<rect class="%s" x="%s" y="%s" width="%s" height="%s"><title>%s</title></rect>`,
			class, fixed(margin+b.x), fixed(y), fixed(w), fixed(s.height), escapeXML(title))
		if l := fit(labels, w-4); l != "" {
			fmt.Fprintf(c, `<text x="%s" y="%s">%s</text>`, fixed(margin+b.x+2), fixed(y+12.5), escapeXML(l))
		}
		c.WriteByte('\n')
		if s.strips != nil {
			s.strips(b, y+s.height-stripHeight, &st)
		}
	}
	for _, p := range []struct {
		class string
		path  *strings.Builder
	}{{"sc", &st.common}, {"ss", &st.shrunk}, {"sg", &st.grown}} {
		if p.path.Len() > 0 {
			fmt.Fprintf(c, "<path pointer-events=\"none\" class=\"%s\" d=\"%s\"/>\n", p.class, p.path)
		}
	}
	c.WriteString("</g>\n")
	c.y = top + float64(p.rows)*(s.height+1)
	return true
}

// fit returns the first form of a label that fits in so many pixels; the last
// is cut when at least three columns are left of it.
func fit(labels []string, pixels float64) string {
	n := int(pixels / monoColumn)
	if n < 1 {
		return ""
	}
	for _, l := range labels {
		if width(l) <= n {
			return l
		}
	}
	if n < 3 || len(labels) == 0 {
		return ""
	}
	return cut(labels[len(labels)-1], n)
}

// wrap breaks s into lines of at most so many pixels, at spaces where it can.
func wrap(s string, pixels, size float64) []string {
	var out []string
	line := ""
	for _, word := range strings.Fields(s) {
		if line != "" && sansWidth(line+" "+word, size) > pixels {
			out = append(out, line)
			line = ""
		}
		for sansWidth(word, size) > pixels {
			n := 0
			for i := range word {
				if i > 0 && sansWidth(word[:i], size) > pixels {
					break
				}
				n = i
			}
			if n == 0 {
				break
			}
			out = append(out, word[:n])
			word = word[n:]
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	if line != "" {
		out = append(out, line)
	}
	return out
}
