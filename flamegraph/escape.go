package flamegraph

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// visible makes a name safe to show: bytes that are not UTF-8, control and
// format characters (line breaks, bidirectional overrides) and stacked marks
// appear as escapes instead of acting. At most limit characters are kept; a cut
// name ends in "…".
func visible(s string, limit int) string {
	var b strings.Builder
	n := 0
	mark := false
	for len(s) > 0 {
		if n >= limit {
			b.WriteString("…")
			break
		}
		r, size := utf8.DecodeRuneInString(s)
		m := unicode.Is(unicode.M, r)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
			n += 4
		case r == ' ' || unicode.IsPrint(r) && !(m && mark):
			b.WriteRune(r)
			n += cells(r)
		default:
			e := fmt.Sprintf(`\u%04x`, r)
			b.WriteString(e)
			n += len(e)
		}
		mark = m
		s = s[size:]
	}
	return b.String()
}

// cells is the width of a character in columns of a monospaced font, rounded up.
func cells(r rune) int {
	if r >= 0x1100 {
		switch {
		case r >= 0x2010 && r <= 0x2027, r == '−', r == '→', r == '⋯':
			return 1
		}
		return 2
	}
	return 1
}

func width(s string) int {
	n := 0
	for _, r := range s {
		n += cells(r)
	}
	return n
}

// sansWidth is the width of s in the sans-serif font of the given size, in
// pixels, at the widest of the fonts that may stand in for it.
func sansWidth(s string, size float64) float64 {
	em := 0.0
	for _, r := range s {
		switch {
		case strings.ContainsRune(" .,:;|!'ijlIt()[]·", r):
			em += 0.38
		case strings.ContainsRune("mwMW%→", r):
			em += 0.98
		case r >= 'A' && r <= 'Z' || r == '×' || r == '−' || r == '+':
			em += 0.78
		case cells(r) == 2:
			em += 1.1
		default:
			em += 0.64
		}
	}
	return em * size
}

// cut shortens s, which is visible already, to n columns, ending in "…".
func cut(s string, n int) string {
	if width(s) <= n {
		return s
	}
	if n < 1 {
		return ""
	}
	used := 1
	for i, r := range s {
		if used += cells(r); used > n {
			return s[:i] + "…"
		}
	}
	return s
}

var xmlEscape = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&quot;", "'", "&#39;")

// escapeXML escapes text for element content and attributes. It is the last
// gate: whatever is not printable becomes an escape even where a caller forgot
// to make it visible.
func escapeXML(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return r == utf8.RuneError || r != '\n' && !unicode.IsPrint(r) }) {
		lines := strings.Split(s, "\n")
		for i, l := range lines {
			lines[i] = visible(l, len(l)*8)
		}
		s = strings.Join(lines, "\n")
	}
	return xmlEscape.Replace(s)
}
