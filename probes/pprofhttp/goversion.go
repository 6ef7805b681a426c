package pprofhttp

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/contention-toolkit/contention/profile"
)

// release is a Go release, zero when unknown.
type release struct{ minor, patch int } // of go1.minor.patch

func (r release) known() bool { return r.minor > 0 }

func (r release) before(minor int) bool { return r.known() && r.minor < minor }

var releasePattern = regexp.MustCompile(`^(?:devel )?go1\.(\d{1,4})(?:\.(\d{1,4}))?`)

func parseRelease(v string) release {
	m := releasePattern.FindStringSubmatch(v)
	if m == nil {
		return release{}
	}
	minor, _ := strconv.Atoi(m[1])
	patch, _ := strconv.Atoi(m[2]) // "" is 0
	return release{minor, patch}
}

// installPath finds the release in the usual names of a Go installation:
// …/toolchain@v0.0.1-go1.26.8.linux-amd64/src/…, …/sdk/go1.22.1/src/…,
// …/go-1.22/src/… and …/Cellar/go/1.22.0/libexec/src/….
var installPath = regexp.MustCompile(`(?:[/-]go-?|/Cellar/go/)(1\.\d{1,3}(?:\.\d{1,3}|rc\d{1,2}|beta\d{1,2})?)(?:\.[a-z0-9]+-[a-z0-9]+)?/(?:libexec/)?src/`)

// guessGoVersion takes the release from the file names of runtime and sync
// frames; "" when they do not tell.
func guessGoVersion(p *profile.Profile) string {
	for _, s := range p.Samples {
		for _, id := range p.Stack(s.Stack) {
			f := p.Frame(id)
			if !strings.HasPrefix(f.Function, "runtime.") && !strings.HasPrefix(f.Function, "sync.") {
				continue
			}
			if m := installPath.FindStringSubmatch(f.File); m != nil {
				return "go" + m[1]
			}
		}
	}
	return ""
}

// stackLimit is how many frames the release records of one stack.
func stackLimit(version string) int {
	if parseRelease(version).before(23) {
		return 32
	}
	return 128
}

// lostLock is the frame that stands for all locks inside the runtime.
const lostLock = "runtime._LostContendedRuntimeLock"

// versionWarnings says what the profiles of a release get wrong.
func versionWarnings(s profile.Source, version string, p *profile.Profile) []string {
	if len(p.Samples) == 0 {
		return nil
	}
	r := parseRelease(version)
	var w []string
	add := func(format string, a ...any) { w = append(w, fmt.Sprintf(format, a...)) }
	if s == profile.SourceBlock {
		if r.before(17) {
			add("%s over-reports rare long waits against frequent short ones unless its rate is 1 (golang/go#44192)", version)
		}
		return w
	}
	switch {
	case !r.known():
		add("the target's Go release is not known; before go1.22 the delay counts only one waiter per unlock, so do not compare across that release (golang/go#61015)")
	case r.before(22):
		add("%s counts the delay of one waiter per unlock, go1.22 and later that of all: do not compare across that release (golang/go#61015)", version)
	}
	if r.before(20) {
		add("%s scales all counts by the fraction set when it is read: a fraction that was changed skews them (DataDog/go-profiler-notes#11)", version)
	}
	if r.minor == 23 && r.patch <= 1 {
		add("%s may lose the outermost frames of a stack (golang/go#69335)", version)
	}
	if r.minor == 22 || r.minor == 23 {
		if total, lost := delays(p); lost > 0 {
			add("%.0f %% of the delay is of locks inside the runtime whose stack is lost (%s), which no change of the program's locks can remove", 100*float64(lost)/float64(total), lostLock)
		}
	}
	add("with more than two waiters on a lock the time per stack is approximate, since the start of the last waiter's wait is reset too early (golang/go#73760)")
	return w
}

// delays returns the delay of all stacks and of those at lostLock.
func delays(p *profile.Profile) (total, lost int64) {
	for _, s := range p.Samples {
		total += s.Values[1]
		for _, f := range p.Stack(s.Stack) {
			if p.Frame(f).Function == lostLock {
				lost += s.Values[1]
				break
			}
		}
	}
	return total, lost
}
