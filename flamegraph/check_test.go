package flamegraph

import (
	"bytes"
	"encoding/xml"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

var allowed = map[string]bool{
	"svg": true, "title": true, "desc": true, "style": true, "defs": true, "pattern": true,
	"rect": true, "text": true, "g": true, "path": true,
}

// checkSVG fails unless b is a whole XML document of harmless elements whose
// text is printable, whose boxes stay inside the picture, and whose labels stay
// inside their box.
func checkSVG(t failer, b []byte) {
	t.Helper()
	if !utf8.Valid(b) {
		t.Fatal("not UTF-8")
	}
	c := &checker{failer: t}
	d := xml.NewDecoder(bytes.NewReader(b))
	for {
		tok, err := d.Token()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
		switch tok := tok.(type) {
		case xml.StartElement:
			c.start(tok)
		case xml.EndElement:
			if tok.Name.Local == "g" {
				c.frames = false
			}
			c.open = c.open[:len(c.open)-1]
		case xml.CharData:
			c.text(string(tok))
		default: // no comment, processing instruction or directive is written
			t.Fatalf("%T", tok)
		}
	}
	if c.roots != 1 {
		t.Fatalf("%d svg elements", c.roots)
	}
}

type checker struct {
	failer
	open          []string
	roots         int
	frames        bool       // within the frames
	width, height float64    // of the picture
	box           [2]float64 // left and right edge of the last box
	label         float64    // where the last text begins
}

func (c *checker) inside() string {
	if len(c.open) == 0 {
		return ""
	}
	return c.open[len(c.open)-1]
}

func (c *checker) start(e xml.StartElement) {
	a := map[string]string{}
	for _, x := range e.Attr {
		a[x.Name.Local] = x.Value
		if n := strings.ToLower(x.Name.Local); strings.HasPrefix(n, "on") || n == "href" || n == "style" {
			c.Fatalf("attribute %s", n)
		}
	}
	num := func(k string) float64 {
		v, err := strconv.ParseFloat(a[k], 64)
		if err != nil {
			c.Fatalf("%s of %s: %v", k, e.Name.Local, err)
		}
		return v
	}
	switch name := e.Name.Local; {
	case !allowed[name]:
		c.Fatalf("element %s", name)
	case name == "svg":
		c.roots++
		c.width, c.height = num("width"), num("height")
	case name == "g":
		c.frames = true
	case name == "rect" && a["class"] != "bg" && c.inside() != "pattern":
		c.box = [2]float64{num("x"), num("x") + num("width")}
		if c.box[0] < 0 || c.box[1] < c.box[0] || c.box[1] > c.width || num("y")+num("height") > c.height {
			c.Fatalf("box %v at y %v leaves the picture of %v by %v", c.box, num("y"), c.width, c.height)
		}
	case name == "text":
		if c.label = num("x"); num("y") > c.height {
			c.Fatalf("text at y %v below the picture's %v", num("y"), c.height)
		}
	}
	c.open = append(c.open, e.Name.Local)
}

func (c *checker) text(s string) {
	for _, r := range s {
		if r != '\n' && r != ' ' && !unicode.IsPrint(r) {
			c.Fatalf("text holds %U", r)
		}
	}
	// 0.602 em at 11 px is the widest of the common monospaced fonts; positions
	// are rounded to a tenth.
	if end := c.label + float64(width(s))*6.63; c.frames && c.inside() == "text" && end > c.box[1]+0.11 {
		c.Fatalf("label %q ends at %v, its box at %v", s, end, c.box[1])
	}
}
