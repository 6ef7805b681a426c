//go:build linux && amd64

package exact

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/contention-toolkit/contention/profile"
)

// Programs of other releases and link modes, where the toolchain can be had.
func TestReleasesAndLinkModes(t *testing.T) {
	if testing.Short() {
		t.Skip("builds with several toolchains")
	}
	source, err := os.ReadFile("testdata/target/main.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, toolchain string
		flags           []string
	}{
		{"go1.21", "go1.21.13", nil},
		{"go1.22", "go1.22.12", nil},
		{"go1.24", "go1.24.11", nil},
		{"go1.25", "go1.25.14", nil},
		{"go1.27", "go1.27.4", nil},
		{"stripped", "local", []string{"-ldflags=-s -w"}},
		{"position-independent", "local", []string{"-buildmode=pie"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			env := append(os.Environ(), "GOTOOLCHAIN="+c.toolchain, "GOFLAGS=-mod=mod", "CGO_ENABLED=0")
			have := exec.Command("go", "version")
			have.Env, have.Dir = env, t.TempDir()
			if out, err := have.CombinedOutput(); err != nil {
				t.Skipf("%s cannot be had: %v\n%s", c.toolchain, err, out)
			}
			dir := t.TempDir()
			for name, content := range map[string][]byte{"main.go": source, "go.mod": []byte("module target\n\ngo 1.21\n")} {
				if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			build := exec.Command("go", append(append([]string{"build"}, c.flags...), "-o", "target", ".")...)
			build.Dir = dir
			build.Env = env
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			s := startAt(t, filepath.Join(dir, "target"))
			s.do("park 3")
			r := record(t, Options{PID: s.pid, Waits: true, Locks: true})
			before := s.lateness()
			want, took := s.do("mutex 10 20ms")
			late := s.lateness() - before
			got := stop(t, r)
			blocked, runnable, n := sum(got[profile.SourceExact], "sync.Mutex.Lock", "main.lockAndUnlock")
			if n != want {
				t.Errorf("%d waits, want %d", n, want)
			}
			near(t, "the mutex", blocked+runnable, took, late)
			if _, _, n := sum(got[profile.SourceExact], "select (no cases)", "main.parkForever"); n != 3 {
				t.Errorf("%d goroutines were seen to be parked before, want 3", n)
			}
			if l := got[profile.SourceLocks].Locks; len(l) != 1 || l[0].Name != "main.lockAndUnlock" || len(l[0].Pairs) != 1 || l[0].Pairs[0].Releaser != "main.unlock" {
				t.Errorf("locks: %+v", l)
			}
			// Locks alone, by the calls that contended ones make.
			s.do("park 1")
			r = record(t, Options{PID: s.pid, Locks: true})
			s.do("mutex 10 20ms")
			s.do("rwmutex 5 20ms")
			got = stop(t, r)
			locks := got[profile.SourceLocks]
			if why, ok := locks.Settings["every_park_is_probed"]; ok {
				t.Errorf("every park is probed: %s", why)
			}
			parks := map[string]int64{}
			for _, l := range locks.Locks {
				parks[l.Name+" "+l.Kind] = l.Parks
			}
			table := "main.table.mu"
			if slices.Contains(c.flags, "-ldflags=-s -w") {
				table = "main.(*table).read+write"
			}
			if len(parks) != 2 || parks["main.lockAndUnlock sync.Mutex"] != 10 || parks[table+" sync.RWMutex"] != 10 {
				t.Errorf("locks by lean probes: %+v", parks)
			}
		})
	}
}
