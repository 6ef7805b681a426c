package report

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// visible makes text safe to show: bytes that are not UTF-8, and control and
// format characters (line breaks, terminal escapes, bidirectional overrides),
// appear as escapes instead of acting. Of stacked marks one is kept.
func visible(s string) string {
	var b strings.Builder
	mark := false
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		isMark := unicode.Is(unicode.M, r)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == '\n':
			b.WriteString(`\n`)
		case r == ' ' || unicode.IsPrint(r) && !(isMark && mark):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		mark = isMark
		s = s[size:]
	}
	return b.String()
}

// shorten keeps at most limit bytes of text from elsewhere, made visible, and
// says how much it cut.
func shorten(s string, limit int) string {
	// An escape may be longer than what it stands for, never shorter: what is
	// beyond the limit in s is beyond it afterwards, too.
	cut := 0
	if len(s) > limit {
		n := limit
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s, cut = s[:n], len(s)-n
	}
	v := visible(s)
	if len(v) > limit {
		n := limit
		for n > 0 && !utf8.RuneStart(v[n]) {
			n--
		}
		cut += len(v) - n
		v = v[:n]
	}
	if cut > 0 {
		v += fmt.Sprintf("… (%d bytes more)", cut)
	}
	return v
}

// shortSite is a wait site without its import path: the path ends at the last
// slash before any type parameter.
func shortSite(s string) string {
	head, tail, generic := strings.Cut(s, "[")
	if i := strings.LastIndexByte(head, '/'); i >= 0 {
		head = head[i+1:]
	}
	if generic {
		return head + "[" + tail
	}
	return head
}

// shellWord quotes an argument for a POSIX shell where it must be.
func shellWord(s string) string {
	plain := s != ""
	for _, r := range s {
		if !strings.ContainsRune("-_./:=,+@%", r) && !(r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r))) {
			plain = false
		}
	}
	if plain {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

func shellLine(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = shellWord(w)
	}
	return strings.Join(quoted, " ")
}
