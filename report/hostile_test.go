package report_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/contention-toolkit/contention/analysis/result"
	"github.com/contention-toolkit/contention/report"
)

// hostileNames are what a profiled process, a label or an error may hold.
var hostileNames = []string{
	"<script>alert(1)</script>", `"><img src=x onerror=alert(1)>`, "a|b||c", "`x` ``y`` |z|", "line\nbreak\r\n| forged | row |", "\x1b[31mred\x1b[0m\x07",
	"@torvalds fixes #1 and GH-2", "](javascript:alert(1))", "![x](https://evil.example/p.png)", "https://evil.example www.evil.example", "\u202egnp.exe", "\xff\xfe\x00",
	"</style><style>*{display:none}</style>", "</details>\n\n# heading", "&lt;b&gt; &amp; &#124;", "**bold** _it_ ~~no~~ $x$", "\\", "a\\|b", "- item", "1. item", "> quote", "# head", "||",
	"]]>", "<!-- ", "}", "%s%d%!", strings.Repeat("Z̸", 200), strings.Repeat("long", 5000), " ", "", "\u2028\u2029", "`", "``", "``` fence",
}

// poison puts a name wherever a result holds text.
func poison(r *result.Result, next func() string) *result.Result {
	r.Title, r.Experiment, r.Question, r.DecideCommand, r.PrimaryOperation = next(), next(), next(), next(), next()
	r.Command = []string{next(), next()}
	for i := range r.Variants {
		v := &r.Variants[i]
		v.Name, v.Version, v.Command, v.Settings = next(), next(), []string{next(), next()}, map[string]string{next(): next(), next(): next()}
	}
	r.Scenario.Name = next()
	r.Host = result.Host{Kernel: next(), Arch: next(), GoVersion: next(), BrokerCPUs: next(), LoadCPUs: next(), RecordCPUs: next(), CPUs: 2}
	for i := range r.Runs {
		run := &r.Runs[i]
		if i%5 == 4 {
			run.Valid, run.WhyInvalid, run.Kind, run.Variant = false, []string{next(), next()}, next(), next()
		}
		run.QueueDelayMs[next()] = result.Delay{P50: f(1), Count: 3}
	}
	for i := range r.Waits {
		w := &r.Waits[i]
		w.Operation, w.Site, w.Class, w.Verdict = next(), next(), next(), next()
		if i == len(r.Waits)-1 {
			w.Source, w.Plane, w.Idle = next(), next(), next()
		}
	}
	r.Headline.Throughput.Verdict, r.Headline.Throughput.Unit = next(), next()
	r.QueueLock[next()] = result.QueueLock{Mean: 1, Runs: 1}
	for i := range r.Reconciliation {
		r.Reconciliation[i].Operation, r.Reconciliation[i].Side, r.Reconciliation[i].Note = next(), next(), next()
	}
	r.Accounting[next()] = map[string]result.Accounting{next(): {GoroutineSeconds: 1, Running: 5}}
	r.Overhead[next()] = map[string]result.Overhead{next(): {Loss: map[string]int64{next(): 1}}}
	r.Graphs = append(r.Graphs, result.Graph{File: next(), Caption: next()}, result.Graph{File: "../x.svg", Caption: next()}, result.Graph{File: "javascript:alert(1).svg", Caption: next()})
	r.Warnings = append(r.Warnings, next(), next(), next())
	return r
}

// cycle hands out the hostile names from the nth on, so that over all n every
// name comes to every place.
func cycle(n int) func() string {
	return func() string {
		n++
		return hostileNames[n%len(hostileNames)]
	}
}

// reporter is what a *testing.T and a *rapid.T have in common here.
type reporter interface {
	Helper()
	Fatal(args ...any)
}

func render(t reporter, write func(io.Writer, *result.Result) error, r *result.Result) string {
	t.Helper()
	var buf bytes.Buffer
	if err := write(&buf, r); err != nil {
		t.Fatal(err)
	}
	return buf.String()
}

func html(w io.Writer, r *result.Result) error {
	return report.HTML(w, r, map[string][]byte{"diff.svg": []byte("<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>")})
}

func TestHostileText(t *testing.T) {
	for n := range hostileNames {
		r := poison(sample(), cycle(n))
		if err := checkMarkdown(render(t, report.Markdown, r)); err != nil {
			t.Errorf("Markdown, names from %d: %v", n, err)
		}
		if err := checkHTML(render(t, html, r)); err != nil {
			t.Errorf("HTML, names from %d: %v", n, err)
		}
		if s := render(t, report.Summary, r); strings.IndexFunc(s, control) >= 0 {
			t.Errorf("summary, names from %d: control character %q", n, s[strings.IndexFunc(s, control)])
		}
	}
}

func control(r rune) bool {
	return r < ' ' && r != '\n' || r >= 0x7f && r < 0xa0 || r >= 0x2028 && r <= 0x202e || r >= 0x2066 && r <= 0x2069
}

var (
	rule      = regexp.MustCompile(`^((\* *){3,}|(_ *){3,}|(- *){3,})$`)
	tableRow  = regexp.MustCompile(`^\|.*\|$`)
	codeSpan  = regexp.MustCompile("`[^`|\\\\\n]+`")
	escaped   = regexp.MustCompile("\\\\[!-/:-@\\[-`{-~]")
	reference = regexp.MustCompile(`&#[0-9]+;`)
	mention   = regexp.MustCompile(`[@#][0-9A-Za-z]`)
	tagOf     = regexp.MustCompile(`</?(details|summary|code|sub|br)>`)
	allowed   = regexp.MustCompile(`^\[[a-z-]+\.svg\]\([a-z-]+\.svg\)`)
)

// checkMarkdown tells whether hostile text stayed text: rows have as many cells
// as their head, no HTML but the report's own, no mention, no link but to the
// report's own pictures, no control character.
func checkMarkdown(s string) error {
	if len(s) >= report.MaxMarkdown {
		return fmt.Errorf("%d bytes", len(s))
	}
	if i := strings.IndexFunc(s, control); i >= 0 || !utf8.ValidString(s) {
		return fmt.Errorf("control character or invalid UTF-8 at %q", s[max(i, 0):min(len(s), max(i, 0)+20)])
	}
	cells, fenced, details := 0, false, 0
	for _, l := range strings.Split(s, "\n") {
		if strings.HasPrefix(l, "```") {
			fenced = !fenced
			continue
		}
		if fenced {
			continue
		}
		if rule.MatchString(l) {
			return fmt.Errorf("a rule across the page: %q", l)
		}
		details += strings.Count(l, "<details>") - strings.Count(l, "</details>")
		if !tableRow.MatchString(l) {
			cells = 0
		} else if n := strings.Count(escaped.ReplaceAllString(l, ""), "|"); cells == 0 {
			cells = n
		} else if n != cells {
			return fmt.Errorf("row with %d bars under a head with %d: %s", n, cells, l)
		}
		bare := tagOf.ReplaceAllString(codeSpan.ReplaceAllString(escaped.ReplaceAllString(l, ""), ""), "")
		for _, bad := range []string{"<", "](", "://e", "www.e"} {
			if i := strings.Index(bare, bad); i >= 0 && !allowed.MatchString(strings.TrimPrefix(bare, "- ")) {
				return fmt.Errorf("%q acts in %s", bad, l)
			}
		}
		if m := mention.FindString(reference.ReplaceAllString(bare, " ")); m != "" {
			return fmt.Errorf("%q is a mention in %s", m, l)
		}
	}
	if fenced || details != 0 {
		return errors.New("a listing or a fold is not closed")
	}
	return nil
}

// checkHTML parses the page and allows only the elements and attributes that
// the report writes itself.
func checkHTML(s string) error {
	if i := strings.IndexFunc(s, control); i >= 0 || !utf8.ValidString(s) {
		return fmt.Errorf("control character or invalid UTF-8 at %q", s[max(i, 0):min(len(s), max(i, 0)+20)])
	}
	elements := map[string]bool{}
	for _, e := range strings.Fields("html head meta title style body header h1 p strong code small br main section h2 div table caption thead tbody tr th td ul li pre figure figcaption a img") {
		elements[e] = true
	}
	attributes := map[string]*regexp.Regexp{
		"lang": regexp.MustCompile(`^en$`), "charset": regexp.MustCompile(`^utf-8$`), "http-equiv": regexp.MustCompile(`^Content-Security-Policy$`),
		"name": regexp.MustCompile(`^(viewport|color-scheme)$`), "content": regexp.MustCompile(`^(default-src 'none'; style-src 'sha256-[A-Za-z0-9+/=]+'; img-src data:; base-uri 'none'; form-action 'none'|width=device-width, initial-scale=1|light dark)$`),
		"class": regexp.MustCompile(`^[a-z ]+$`), "id": regexp.MustCompile(`^[a-z]+$`), "aria-labelledby": regexp.MustCompile(`^[a-z]+$`),
		"aria-label": regexp.MustCompile(`.`), "alt": regexp.MustCompile(`.`), "role": regexp.MustCompile(`^group$`), "tabindex": regexp.MustCompile(`^0$`), "scope": regexp.MustCompile(`^(col|row)$`),
		"href": regexp.MustCompile(`^[A-Za-z0-9_-]+[A-Za-z0-9._-]*\.svg$`), "src": regexp.MustCompile(`^data:image/svg\+xml;base64,[A-Za-z0-9+/=]+$`),
	}
	d := xml.NewDecoder(strings.NewReader(strings.Replace(s, "<!DOCTYPE html>", "", 1)))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	styles := 0
	for {
		tok, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		switch e := tok.(type) {
		case xml.StartElement:
			if !elements[e.Name.Local] {
				return fmt.Errorf("element %s", e.Name.Local)
			}
			if e.Name.Local == "style" {
				styles++
			}
			for _, a := range e.Attr {
				if re := attributes[a.Name.Local]; re == nil || !re.MatchString(a.Value) {
					return fmt.Errorf("attribute %s=%q of %s", a.Name.Local, a.Value, e.Name.Local)
				}
			}
		case xml.Comment, xml.ProcInst, xml.Directive:
			return fmt.Errorf("%T in the page", e)
		}
	}
	if styles != 1 {
		return fmt.Errorf("%d style elements", styles)
	}
	return nil
}

// The checks themselves must see what they are for.
func TestChecksSee(t *testing.T) {
	for _, bad := range []string{"| a | b |\n|--|--|\n| x | y | z |\n", "<b>x</b>\n", "see @user\n", "[x](http://e)\n", "a\x1b[0m\n", "```shell\nx\n", "<details>\n"} {
		if checkMarkdown(bad) == nil {
			t.Errorf("checkMarkdown takes %q", bad)
		}
	}
	for _, bad := range []string{"<html><script>1</script></html>", "<html><style></style><p onclick='x'>y</p></html>", "<html><style></style><img src='http://x'></html>", "<html></html>"} {
		if checkHTML(bad) == nil {
			t.Errorf("checkHTML takes %q", bad)
		}
	}
}

// Whatever a result holds and however much of it, the Markdown fits a comment
// and both renderings stay well-formed.
func TestAnyResult(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := sample()
		name := rapid.OneOf(rapid.SampledFrom(hostileNames), rapid.String())
		poison(r, func() string { return name.Draw(t, "name") })
		size := rapid.SampledFrom([]int{0, 1, 7, 300})
		long := func() string {
			return strings.Repeat(name.Draw(t, "long"), rapid.SampledFrom([]int{1, 40}).Draw(t, "times"))
		}
		for range size.Draw(t, "warnings") {
			r.Warnings = append(r.Warnings, long())
		}
		w := long()
		for range size.Draw(t, "waits") {
			r.Waits = append(r.Waits, result.Wait{Operation: w, Site: w, Class: w, Source: "goroutines", Verdict: w})
		}
		for range size.Draw(t, "runs") {
			run := sampleRun(len(r.Runs)+1, 0, result.Before, result.KindPlain)
			run.Valid, run.WhyInvalid = false, []string{w}
			r.Runs = append(r.Runs, run)
		}
		for range size.Draw(t, "variants") {
			r.Variants = append(r.Variants, result.Variant{Side: w, Name: w, Command: []string{w, w}, Settings: map[string]string{w: w}})
		}
		for i := range size.Draw(t, "rest") {
			k := fmt.Sprint(w, i)
			r.Graphs = append(r.Graphs, result.Graph{File: w, Caption: w})
			r.Reconciliation = append(r.Reconciliation, result.Reconciliation{Side: w, Operation: w, Note: k})
			r.Accounting[k] = map[string]result.Accounting{w: {GoroutineSeconds: 10}}
			r.Overhead[k] = map[string]result.Overhead{w: {Loss: map[string]int64{w: 1, k: 2}}}
			r.QueueLock[k] = result.QueueLock{Runs: 2}
			r.Variants[0].Settings[k] = w
			r.Runs[0].QueueDelayMs[k] = result.Delay{Count: 1}
		}
		if err := checkMarkdown(render(t, report.Markdown, r)); err != nil {
			t.Fatal(err)
		}
		if err := checkHTML(render(t, html, r)); err != nil {
			t.Fatal(err)
		}
		render(t, report.Summary, r)
		if err := readBack(render(t, report.Benchfmt, r)); err != nil {
			t.Fatal(err)
		}
	})
}

func TestTenThousandWaits(t *testing.T) {
	r := sample()
	for i := range 10_000 {
		w := r.Waits[2]
		w.Operation, w.Site = fmt.Sprintf("operation %d", i), fmt.Sprintf("%squeue.(*Shard[%d]).Put", brokerPkg, i)
		r.Waits = append(r.Waits, w)
	}
	md := render(t, report.Markdown, r)
	if err := checkMarkdown(md); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(md, "9,965 more rows left out here, together 617 ms → 718 ms per message") {
		t.Errorf("what was left out is not counted:\n%s", md[:4000])
	}
}
