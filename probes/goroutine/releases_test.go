//go:build linux && amd64

package goroutine

import (
	"flag"
	"go/version"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// toolchains finds the Go releases that this machine has besides the current
// one: Debian's, and those that the go command has downloaded.
func toolchains(t testing.TB) map[string]string {
	t.Helper()
	out, err := exec.Command("go", "env", "GOMODCACHE").Output()
	if err != nil {
		t.Fatal(err)
	}
	found, newest := map[string]string{}, map[string]string{}
	for _, pattern := range []string{"/usr/lib/go-1.*/bin/go", filepath.Join(strings.TrimSpace(string(out)), "golang.org", "toolchain@*linux-amd64", "bin", "go")} {
		tools, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, tool := range tools {
			out, err := exec.Command(tool, "env", "GOVERSION").Output()
			if err != nil {
				continue
			}
			v := strings.TrimSpace(string(out))
			if lang := version.Lang(v); newest[lang] == "" || version.Compare(v, newest[lang]) > 0 {
				newest[lang], found[lang] = v, tool
			}
		}
	}
	return found
}

// allReleases makes the test build with every toolchain that is here, minutes each
// where their standard libraries are not built yet:
//
//	go test ./probes/goroutine -run TestReleases -releases
var allReleases = flag.Bool("releases", false, "test every Go release whose toolchain is here, not the oldest alone")

// releases are those that a recording of any executable must work on.
var releases = []string{"go1.19", "go1.20", "go1.21", "go1.22", "go1.23", "go1.24", "go1.25", "go1.27"}

// wantsOf are the waits as a release names them.
func wantsOf(release string) []want {
	out := slices.Clone(wants)
	for i := range out {
		w := &out[i]
		switch {
		case version.Compare(release, "go1.20") < 0 && strings.HasPrefix(w.reason, "sync.") && w.reason != "sync.Cond.Wait",
			version.Compare(release, "go1.24") < 0 && w.reason == "sync.WaitGroup.Wait":
			w.reason = "semacquire"
		}
	}
	return out
}

// Stripped programs of every release that is here show the same waits, at the
// same places, with the reasons in the release's own words.
func TestReleases(t *testing.T) {
	if testing.Short() {
		t.Skip("builds with many toolchains")
	}
	have := toolchains(t)
	for _, r := range releases {
		t.Run(r, func(t *testing.T) {
			if r != releases[0] && !*allReleases {
				t.Skip("without -releases only the oldest is built")
			}
			tool, ok := have[r]
			if !ok {
				t.Skipf("no toolchain of %s here: GOTOOLCHAIN=%s.N go version downloads it", r, r)
			}
			k := kit{tool: tool, flags: []string{"-ldflags=-s -w"}}
			checkWaits(t, start(t, k.build(t), "waits"), wantsOf(r), "table")
		})
	}
}

// Debian's oldest supported release links in other ways too.
func TestOldestRelease(t *testing.T) {
	if testing.Short() {
		t.Skip("builds with another toolchain")
	}
	tool := "/usr/lib/go-1.19/bin/go"
	if _, err := os.Stat(tool); err != nil {
		t.Skip("needs Debian's golang-1.19-go")
	}
	for _, k := range []kit{
		{tool: tool, flags: []string{"-ldflags=-s -w", "-buildmode=pie"}},
		{tool: tool, cgo: true, flags: []string{"-ldflags=-linkmode=external"}, strip: true},
	} {
		t.Run(k.String(), func(t *testing.T) {
			checkWaits(t, start(t, k.build(t), "waits"), wantsOf("go1.19"), "table")
		})
	}
}
