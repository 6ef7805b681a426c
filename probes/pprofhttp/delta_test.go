package pprofhttp

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/contention-toolkit/contention/profile"
)

// counts is the model of a cumulative profile: stack → values.
type counts map[string][2]int64

var someCounts = rapid.MapOf(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}),
	rapid.Custom(func(t *rapid.T) [2]int64 {
		return [2]int64{rapid.Int64Range(0, 1000).Draw(t, "count"), rapid.Int64Range(0, 1e9).Draw(t, "delay")}
	}))

// profileOf encodes the model, each stack in several samples as runtimes do.
func profileOf(t *rapid.T, m counts) *profile.Profile {
	p := profile.New(contentions, delay)
	for name, v := range m {
		frames := []profile.Frame{{Function: name, Inlined: true}, {Function: "root"}}
		part := rapid.Int64Range(0, v[0]).Draw(t, "part")
		p.Samples = append(p.Samples,
			profile.Sample{Stack: p.InternFrames(frames), Labels: p.InternLabels(), Values: []int64{part, 0}},
			profile.Sample{Stack: p.InternFrames(frames), Labels: p.InternLabels(), Values: []int64{v[0] - part, v[1]}})
	}
	return p
}

func TestSubtractGivesWhatWasAdded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, grown := someCounts.Draw(t, "before"), someCounts.Draw(t, "grown")
		after := counts{}
		for _, m := range []counts{before, grown} {
			for k, v := range m {
				after[k] = [2]int64{after[k][0] + v[0], after[k][1] + v[1]}
			}
		}
		d := subtract(profileOf(t, after), profileOf(t, before))
		if d.down != 0 {
			t.Fatalf("%d stacks went down", d.down)
		}
		want := profile.New(contentions, delay)
		for k, v := range grown {
			if v != [2]int64{} {
				want.Add(want.InternFrames([]profile.Frame{{Function: k, Inlined: true}, {Function: "root"}}), want.InternLabels(), v[0], v[1])
			}
		}
		if got := d.p.String(); got != want.String() {
			t.Fatalf("got %s want %s", got, want)
		}
	})
}

func TestSubtractSeesEveryReset(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := counts(someCounts.Draw(t, "before")), counts(someCounts.Draw(t, "after"))
		down := 0
		for k, v := range before {
			if after[k][0] < v[0] || after[k][1] < v[1] {
				down++
			}
		}
		d := subtract(profileOf(t, after), profileOf(t, before))
		if d.down != down || (down > 0) != (d.ex != "") {
			t.Fatalf("%d stacks (such as %q) went down, want %d", d.down, d.ex, down)
		}
	})
}

func TestGuessGoVersion(t *testing.T) {
	for file, want := range map[string]string{
		"/root/go/pkg/mod/golang.org/toolchain@v0.0.1-go1.26.8.linux-amd64/src/runtime/sema.go": "go1.26.8",
		"/home/u/sdk/go1.22.1/src/sync/mutex.go":                                                "go1.22.1",
		"/opt/homebrew/Cellar/go/1.21.0/libexec/src/sync/mutex.go":                              "go1.21.0",
		"/usr/lib/go-1.19/src/runtime/proc.go":                                                  "go1.19",
		"/opt/go1.27rc1/src/runtime/proc.go":                                                    "go1.27rc1",
		"/usr/local/go/src/sync/mutex.go":                                                       "",
		"sync/mutex.go":                                                                         "",
	} {
		p := profile.New(contentions, delay)
		p.Add(p.InternFrames([]profile.Frame{{Function: "main.f", File: "/x/go1.2.3/src/f.go"}, {Function: "sync.(*Mutex).Unlock", File: file}}), p.InternLabels(), 1, 1)
		if got := guessGoVersion(p); got != want {
			t.Errorf("%s: %q, want %q", file, got, want)
		}
	}
}

func TestVersionWarnings(t *testing.T) {
	p := profile.New(contentions, delay)
	p.Add(p.InternFrames([]profile.Frame{{Function: lostLock}}), p.InternLabels(), 1, 75)
	p.Add(p.InternFrames([]profile.Frame{{Function: "sync.(*Mutex).Unlock"}}), p.InternLabels(), 1, 25)
	for _, c := range []struct {
		source    profile.Source
		version   string
		has, lack []string
	}{
		{profile.SourceMutex, "go1.26.8", []string{"73760"}, []string{"61015", "69335", "lost ("}},
		{profile.SourceMutex, "go1.23.1", []string{"73760", "69335", "75 %"}, []string{"61015"}},
		{profile.SourceMutex, "go1.23.2", []string{"75 %"}, []string{"69335"}},
		{profile.SourceMutex, "go1.21.9", []string{"61015", "go1.21.9 counts"}, []string{"75 %", "note"}},
		{profile.SourceMutex, "go1.19", []string{"61015", "note"}, nil},
		{profile.SourceMutex, "", []string{"not known"}, nil},
		{profile.SourceBlock, "go1.16.3", []string{"44192"}, []string{"73760"}},
		{profile.SourceBlock, "go1.26.8", nil, []string{"44192", "73760"}},
	} {
		w := fmt.Sprint(versionWarnings(c.source, c.version, p))
		for _, x := range c.has {
			if !strings.Contains(w, x) {
				t.Errorf("%s of %q: %s lacks %q", c.source, c.version, w, x)
			}
		}
		for _, x := range c.lack {
			if strings.Contains(w, x) {
				t.Errorf("%s of %q: %s has %q", c.source, c.version, w, x)
			}
		}
	}
}
