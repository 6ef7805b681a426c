package report

import (
	"bytes"
	"fmt"
	"strings"
)

// markdown renders a document as GitHub-flavoured Markdown.
func markdown(d *document) []byte {
	m := &markdownWriter{}
	m.printf("## %s\n\n", m.text(d.title))
	m.blocks(d.lead)
	for _, s := range d.sections {
		m.printf("### %s\n\n", m.escape(s.title))
		if s.fold != "" {
			m.printf("<details><summary>%s</summary>\n\n", m.escape(s.fold))
		}
		m.blocks(s.blocks)
		if s.fold != "" {
			m.printf("</details>\n\n")
		}
	}
	return append(bytes.TrimRight(m.Bytes(), "\n"), '\n')
}

type markdownWriter struct{ bytes.Buffer }

func (m *markdownWriter) printf(format string, args ...any) { fmt.Fprintf(m, format, args...) }

func (m *markdownWriter) blocks(blocks []block) {
	for i, b := range blocks {
		switch b := b.(type) {
		case paragraph:
			m.printf("%s\n\n", m.start(b.text))
		case callout:
			m.printf("> %s\n\n", m.start(b.text))
		case list:
			for _, t := range b.items {
				m.printf("- %s\n", m.start(t))
			}
			m.printf("\n")
		case listing:
			m.listing(b.code)
		case picture:
			m.picture(b)
			if i+1 == len(blocks) || !isPicture(blocks[i+1]) {
				m.printf("\n")
			}
		case *table:
			m.table(b)
		}
	}
}

func isPicture(b block) bool {
	_, ok := b.(picture)
	return ok
}

// listing is fenced by more backticks than it holds in a row.
func (m *markdownWriter) listing(code string) {
	code = visible(code)
	fence := strings.Repeat("`", max(3, longestRun(code, '`')+1))
	m.printf("%sshell\n%s\n%s\n\n", fence, code, fence)
}

func (m *markdownWriter) picture(p picture) {
	if p.file == "" {
		m.printf("- %s\n", m.start(p.caption))
		return
	}
	m.printf("- [%s](%s): %s\n", m.escape(p.file), p.file, m.text(p.caption))
}

func (m *markdownWriter) table(t *table) {
	if t.caption != "" {
		m.printf("%s\n\n", m.start(line(bold(t.caption))))
	}
	for _, c := range t.columns {
		head := m.escape(c.head)
		if head == "" {
			head = " "
		}
		m.printf("| %s ", head)
	}
	m.printf("|\n")
	for _, c := range t.columns {
		if c.right {
			m.printf("|--:")
		} else {
			m.printf("|:--")
		}
	}
	m.printf("|\n")
	for _, row := range t.rows {
		for i, cell := range row {
			s := m.text(cell)
			if t.columns[i].right {
				s = together(s)
			}
			m.printf("| %s ", s)
		}
		m.printf("|\n")
	}
	m.printf("\n")
	if len(t.note) > 0 {
		m.printf("%s\n\n", m.start(t.note))
	}
}

// together keeps a number with its unit on one line: GitHub would break a narrow
// cell at any blank.
func together(s string) string {
	return strings.ReplaceAll(s, " ", "\u00a0")
}

// start renders a text that begins a line, where some characters would begin a
// list, a quote or a heading.
func (m *markdownWriter) start(t text) string {
	s := strings.TrimSpace(m.text(t))
	if s == "" {
		return s
	}
	if strings.ContainsRune("-+#>=:", rune(s[0])) {
		return `\` + s
	}
	digits := strings.TrimLeft(s, "0123456789")
	if n := len(s) - len(digits); n > 0 && digits != "" && (digits[0] == '.' || digits[0] == ')') {
		return s[:n] + `\` + digits
	}
	return s
}

func (m *markdownWriter) text(t text) string {
	var b strings.Builder
	for _, s := range t {
		switch s.style {
		case newline:
			b.WriteString("<br>")
		case strong:
			b.WriteString(m.around("**", s.s, "**"))
		case faint:
			b.WriteString(m.around("<sub>", s.s, "</sub>"))
		case code:
			b.WriteString(m.code(s.s))
		default:
			b.WriteString(m.escape(s.s))
		}
	}
	return b.String()
}

// around puts marks around text; blanks at its ends stay outside, where Markdown
// wants them.
func (m *markdownWriter) around(open, s, end string) string {
	inner := strings.TrimSpace(s)
	if inner == "" {
		return s
	}
	left, right, _ := strings.Cut(s, inner)
	return left + open + m.escape(inner) + end + right
}

// code is a code span. What a code span cannot hold in every place becomes an
// HTML element with character references, in which GitHub links no names either.
func (m *markdownWriter) code(s string) string {
	s = strings.TrimSpace(visible(s))
	if s == "" {
		return none
	}
	if !strings.ContainsAny(s, "`|\\") {
		return "`" + s + "`"
	}
	var b strings.Builder
	b.WriteString("<code>")
	for i, r := range s {
		if r < 0x80 && strings.ContainsRune("`|\\*_~[]<>&\"'$@#!:{}()", r) || r == '.' && afterWWW(s, i) {
			fmt.Fprintf(&b, "&#%d;", r)
			continue
		}
		b.WriteRune(r)
	}
	b.WriteString("</code>")
	return b.String()
}

// escape makes text stand for itself: no markup, no HTML, no mention of a user
// or issue, no link.
func (m *markdownWriter) escape(s string) string {
	s = visible(s)
	var b strings.Builder
	for i, r := range s {
		switch r {
		case '\\', '`', '*', '_', '[', ']', '~', '|', '$':
			b.WriteByte('\\')
			b.WriteRune(r)
		case '<':
			b.WriteString("&lt;")
		case '>':
			b.WriteString("&gt;")
		case '&':
			b.WriteString("&amp;")
		case '@', '#':
			// A zero-width space after it: GitHub then sees no mention of a user,
			// and no issue.
			b.WriteRune(r)
			b.WriteString("&#8203;")
		case ':':
			b.WriteByte(':')
			if strings.HasPrefix(s[i+1:], "//") { // a link only in a reader's eye
				b.WriteString("&#8203;")
			}
		case '.':
			b.WriteByte('.')
			if afterWWW(s, i) {
				b.WriteString("&#8203;")
			}
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// afterWWW tells whether the dot at i would make a link of what follows.
func afterWWW(s string, i int) bool { return i >= 3 && strings.EqualFold(s[i-3:i], "www") }

// longestRun is the length of the longest run of c in s.
func longestRun(s string, c byte) int {
	longest, n := 0, 0
	for i := range len(s) {
		if s[i] != c {
			n = 0
			continue
		}
		n++
		longest = max(longest, n)
	}
	return longest
}
