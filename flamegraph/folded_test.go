package flamegraph

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/contention-toolkit/contention/profile"
	"pgregory.net/rapid"
)

func folded(t testing.TB, p *profile.Profile, o Options) string {
	t.Helper()
	var b bytes.Buffer
	if err := WriteFolded(&b, p, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestWriteFolded(t *testing.T) {
	p := fromText(t, "a;b 1\na;b(x) 2\na;b;c 3\nz;read_[k] 4\na 9\nnothing 0\n")
	p.Add(p.InternFrames(nil), p.InternLabels(), 5)
	add(p, 6, "semi;colon\n", " space ", "#x", "")
	want := `[unknown] 5
a 9
a;b 1
a;b;c 3
a;b(x) 2
semi\x3bcolon\x0a;\x20space\x20;\x23x;[unknown] 6
z;read_[k] 4
`
	if got := folded(t, p, Options{Scale: 3}); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
	if got := folded(t, p, Options{Keep: func([]profile.Frame, profile.Labels) bool { return false }}); got != "" {
		t.Errorf("all is idle, got %q", got)
	}
}

// unescape undoes what WriteFolded documents, written anew.
func unescape(t *rapid.T, s string) string {
	var b []byte
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b = append(b, s[i])
			continue
		}
		v, err := strconv.ParseUint(s[i+2:i+4], 16, 8)
		if err != nil || s[i+1] != 'x' {
			t.Fatalf("bad escape in %q", s)
		}
		b = append(b, byte(v))
		i += 3
	}
	return string(b)
}

// Any names survive, a line each.
func TestFoldedNamesComeBack(t *testing.T) {
	name := rapid.Custom(func(t *rapid.T) string {
		return rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"//", "#", " ", `\x3b`, "\xff;", "a\r\n", "\u202e", "x 12"})).Draw(t, "name")
	})
	rapid.Check(t, func(t *rapid.T) {
		stack := rapid.SliceOfN(name, 1, 5).Draw(t, "stack")
		for i, s := range stack {
			if s == "" || strings.HasSuffix(s, "_[k]") {
				stack[i] = "f"
			}
		}
		p := profile.New(profile.Blocked)
		add(p, 42, stack...)
		var b bytes.Buffer
		if err := WriteFolded(&b, p, Options{}); err != nil {
			t.Fatal(err)
		}
		line, ok := strings.CutSuffix(b.String(), " 42\n")
		if !ok || strings.ContainsAny(line, "\n\r") || strings.HasPrefix(line, "#") || strings.HasPrefix(line, "/") && strings.HasPrefix(line, "//") {
			t.Fatalf("line %q", b.String())
		}
		got := strings.Split(line, ";")
		if len(got) != len(stack) {
			t.Fatalf("%q gave %d frames: %q", stack, len(got), line)
		}
		for i := range got {
			if back := unescape(t, got[i]); back != stack[i] {
				t.Fatalf("%q came back as %q", stack[i], back)
			}
		}
	})
}

type failing struct{ left int }

var errDisk = errors.New("disk full")

func (f *failing) Write(p []byte) (int, error) {
	if f.left -= len(p); f.left < 0 {
		return 0, errDisk
	}
	return len(p), nil
}

func TestWriteErrorsAreReported(t *testing.T) {
	p := profile.New(profile.Blocked)
	for i := range 1000 {
		add(p, 1, "frame"+strconv.Itoa(i))
	}
	for _, left := range []int{0, 5000} {
		if err := WriteFolded(&failing{left}, p, Options{}); !errors.Is(err, errDisk) {
			t.Errorf("folded, %d bytes of room: %v", left, err)
		}
	}
	if err := WriteSVG(&failing{0}, build(t, p, Options{}), SVGOptions{}); !errors.Is(err, errDisk) {
		t.Errorf("svg: %v", err)
	}
}
