package report

import "fmt"

// document is a report before it is rendered.
type document struct {
	title    text
	tone     string // of the verdict: one of the tone constants
	lead     []block
	sections []section
}

// Tones of the verdict; they colour it, the words say the same.
const (
	toneUndecided = "undecided"
	toneBetter    = "better"
	toneWorse     = "worse"
	toneInvalid   = "invalid"
)

// section is a heading with blocks. fold is a line that stands for the section
// where a rendering may fold it away; "" never folds.
type section struct {
	id, title string
	fold      string
	blocks    []block
}

// block is a paragraph, callout, list, table, listing or picture.
type block interface{ isBlock() }

type paragraph struct{ text text }

// callout is a paragraph that stands out.
type callout struct {
	text text
	tone string
}

type list struct{ items []text }

type listing struct{ code string } // one command line or more

type picture struct {
	file    string // name beside the report; "" when it is not a plain name
	caption text
}

type table struct {
	caption string
	columns []column
	rows    [][]text
	note    text // stands under the table
}

type column struct {
	head  string
	right bool // numbers
}

func (paragraph) isBlock() {}
func (callout) isBlock()   {}
func (list) isBlock()      {}
func (listing) isBlock()   {}
func (picture) isBlock()   {}
func (*table) isBlock()    {}

// text is a line with styled parts.
type text []span

type span struct {
	s     string
	style style
}

type style int

const (
	plain style = iota
	strong
	code    // a name
	faint   // an aside
	newline // s is empty
)

// line joins parts: strings are plain text, spans and texts stand as they are.
func line(parts ...any) text {
	var t text
	for _, p := range parts {
		switch p := p.(type) {
		case string:
			if p != "" {
				t = append(t, span{p, plain})
			}
		case span:
			t = append(t, p)
		case text:
			t = append(t, p...)
		default:
			panic(fmt.Sprintf("report: %T in a line", p))
		}
	}
	return t
}

func bold(s string) span  { return span{s, strong} }
func aside(s string) span { return span{s, faint} }

var lineBreak = span{"", newline}

// join puts a separator between texts.
func join(ts []text, separator string) text {
	var out text
	for i, t := range ts {
		if i > 0 {
			out = append(out, span{separator, plain})
		}
		out = append(out, t...)
	}
	return out
}

func (t *table) add(cells ...text) { t.rows = append(t.rows, cells) }

// limits bounds a document, so that any result fits where it is shown.
type limits struct {
	rows int // of one table or list
	text int // bytes of one name
	long int // bytes of one warning, reason or command
	// brief leaves out columns and explanations, for a terminal.
	brief bool
}

// more says how many entries a table or list left out, "" for none.
func (l limits) more(all int, what string) string {
	if all <= l.rows {
		return ""
	}
	return fmt.Sprintf("%s more %s left out here; result.json has all.", count(int64(all-l.rows)), what)
}

// name is a name from elsewhere, as code.
func (l limits) name(s string) span {
	if s == "" {
		return span{none, plain}
	}
	return span{shorten(s, l.text), code}
}

// word is a name from elsewhere, as plain text.
func (l limits) word(s string) string { return shorten(s, l.text) }

// prose is a sentence from elsewhere.
func (l limits) prose(s string) string { return shorten(s, l.long) }
