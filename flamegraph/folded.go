package flamegraph

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/contention-toolkit/contention/profile"
)

// WriteFolded writes a profile as folded stacks: a line per distinct stack,
// outermost frame first, frames separated by ";", then a space and the value as
// a whole number. Lines are in the order of their frames. Options.Values, Keep,
// Names, TrimScheduler and MaxDepth apply; values are not scaled, since the
// format has whole numbers only, and zeros are left out.
//
// Names hold any byte, the format does not: ";", "\", control and format
// characters, bytes that are not UTF-8, a space at either end and a "#" or "//"
// at the beginning are written as \xNN per byte. Undoing \xNN gives the name
// back. A frame without a name is [unknown]; kernel frames end in _[k].
func WriteFolded(w io.Writer, p *profile.Profile, o Options) error {
	o.Scale = 0
	b := newBuilder(o, o.Names == NamesCanonical)
	if err := checkProfile(p); err != nil {
		return err
	}
	values, _, err := b.o.choose(p)
	if err != nil {
		return err
	}
	k := &walk{b: b, p: p}
	for _, s := range p.Samples {
		k.sample(s, values)
	}
	escaped := make([]string, len(b.names))
	for i, n := range b.names {
		escaped[i] = foldedName(n)
	}
	out := bufio.NewWriter(w)
	nodes, at := b.order()
	ends := make([]int, 1, 64) // length of line up to each depth
	var line []byte
	for i, n := range nodes {
		if n.Depth == 0 {
			continue
		}
		line = line[:ends[n.Depth-1]]
		if n.Depth > 1 {
			line = append(line, ';')
		}
		line = append(line, escaped[n.Name]...)
		ends = append(ends[:n.Depth], len(line))
		if int(at[i]) >= len(k.self) || k.self[at[i]] == 0 {
			continue
		}
		if err := writeLine(out, line, k.self[at[i]]); err != nil {
			return err
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("flamegraph: cannot write folded stacks: %w", err)
	}
	return nil
}

func writeLine(out *bufio.Writer, line []byte, v int64) error {
	out.Write(line)
	out.WriteByte(' ')
	out.WriteString(strconv.FormatInt(v, 10))
	if err := out.WriteByte('\n'); err != nil { // bufio keeps the first error
		return fmt.Errorf("flamegraph: cannot write folded stacks: %w", err)
	}
	return nil
}

func foldedName(n Name) string {
	s := foldedEscape(n.Text)
	if n.Kernel {
		s += "_[k]"
	}
	return s
}

func foldedEscape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		edge := i == 0 || i+size == len(s)
		comment := i == 0 && (r == '#' || strings.HasPrefix(s, "//"))
		switch {
		case r == utf8.RuneError && size == 1, r == ';', r == '\\', comment,
			r != ' ' && !unicode.IsPrint(r), r == ' ' && edge:
			for _, c := range []byte(s[i : i+size]) {
				fmt.Fprintf(&b, `\x%02x`, c)
			}
		default:
			b.WriteString(s[i : i+size])
		}
		i += size
	}
	return b.String()
}
