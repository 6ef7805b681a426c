package flamegraph

import (
	"path"
	"regexp"
	"sort"

	"github.com/contention-toolkit/contention/profile"
)

// Merge is a name that stands for several recorded ones.
type Merge struct {
	Name  string
	Count int      // recorded names
	From  []string // the first of them in order, at most mergeShown
}

const mergeShown = 20

var canonicalRules = []struct {
	re *regexp.Regexp
	to string
}{
	// Go numbers function literals and wrappers in order of appearance, so that
	// one more literal renames those after it.
	{regexp.MustCompile(`\.(func|gowrap|deferwrap)\d+(?:(?:\.|-range)\d+)*`), ".$1*"},
	{regexp.MustCompile(`-range\d+`), "-range*"},
	// The JVM numbers lambdas, hidden classes and accessors per process.
	{regexp.MustCompile(`\$\$Lambda(?:\$\d+|\*)?(?:[/.]0x[0-9a-f]+)?`), "$$$$Lambda*"},
	{regexp.MustCompile(`(Generated\w+Accessor)\d+`), "$1*"},
	{regexp.MustCompile(`(LambdaForm\$\w+)/0x[0-9a-f]+`), "$1/*"},
	// Threads, goroutines and addresses.
	{regexp.MustCompile(`\b(tid|pid|goid|goroutine)([ =/:])\d+`), "$1$2*"},
	{regexp.MustCompile(`\+0x[0-9a-fA-F]+`), ""},
	{regexp.MustCompile(`\b0x[0-9a-fA-F]+`), "0x*"},
}

// canonical is the name of a frame with what differs between builds or runs of
// the same code replaced. No real name is as long as those it leaves alone.
func canonical(f profile.Frame) string {
	if unsymbolised(f.Function) {
		if f.Module == "" || f.Kernel() {
			return emptyName
		}
		return "[unknown in " + path.Base(f.Module) + "]"
	}
	fn := f.Function
	if len(fn) > nameWork {
		return fn
	}
	for _, r := range canonicalRules {
		fn = r.re.ReplaceAllString(fn, r.to)
	}
	return fn
}

// merges lists the canonical names that stand for more than one recorded name.
func (b *builder) merges() []Merge {
	var out []Merge
	for id, from := range b.recorded {
		if len(from) < 2 {
			continue
		}
		m := Merge{Name: b.names[id].Text, Count: len(from)}
		for s := range from {
			m.From = append(m.From, s)
		}
		sort.Strings(m.From)
		m.From = m.From[:min(len(m.From), mergeShown):min(len(m.From), mergeShown)]
		out = append(out, m)
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].Name != out[j].Name {
			return out[i].Name < out[j].Name
		}
		return out[i].From[0] < out[j].From[0]
	})
	return out
}
