//go:build linux && amd64

package symbol

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/profile"
)

// builds keeps what was built; TestMain makes and removes it.
var builds string

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "symbol")
	if err != nil {
		panic(err)
	}
	builds = dir
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// build compiles the test's target with flags of go build, once for each.
func build(t testing.TB, flags ...string) string {
	t.Helper()
	exe := filepath.Join(builds, "target"+strings.Join(flags, ""))
	if _, err := os.Stat(exe); err == nil {
		return exe
	}
	cmd := exec.Command("go", append(append([]string{"build", "-o", exe}, flags...), "main.go")...)
	cmd.Dir = filepath.Join("testdata", "target")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return exe
}

// target is the test's program, running.
type target struct {
	t   testing.TB
	pid int
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func start(t testing.TB, exe string) *target {
	t.Helper()
	cmd := exec.Command(exe)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g := &target{t, cmd.Process.Pid, cmd, in, bufio.NewReader(out)}
	t.Cleanup(g.end)
	if s := g.line(); s != "ready" {
		t.Fatalf("the target says %q", s)
	}
	return g
}

func (g *target) end() {
	if g.cmd.ProcessState != nil {
		return
	}
	g.in.Close()
	timer := time.AfterFunc(10*time.Second, func() { _ = g.cmd.Process.Kill() })
	defer timer.Stop()
	if err := g.cmd.Wait(); err != nil {
		g.t.Errorf("target: %v", err)
	}
}

func (g *target) line() string {
	g.t.Helper()
	s, err := g.out.ReadString('\n')
	if err != nil {
		g.t.Fatalf("target: %v", err)
	}
	return strings.TrimSuffix(s, "\n")
}

func (g *target) ask(request string) string {
	g.t.Helper()
	if _, err := fmt.Fprintln(g.in, request); err != nil {
		g.t.Fatal(err)
	}
	return g.line()
}

// frames asks the target's own runtime for the frames at addresses.
func (g *target) frames(pcs []uint64) [][]profile.Frame {
	g.t.Helper()
	request := "frames"
	for _, pc := range pcs {
		request += fmt.Sprintf(" %d", pc)
	}
	if _, err := fmt.Fprintln(g.in, request); err != nil {
		g.t.Fatal(err)
	}
	out := make([][]profile.Frame, len(pcs))
	for i := range out {
		line := strings.TrimSuffix(g.line(), "\t")
		if line == "" {
			continue // of no function
		}
		f := strings.Split(line, "\t")
		if len(f)%3 != 0 {
			g.t.Fatalf("target answers %q", f)
		}
		for ; len(f) > 0; f = f[3:] {
			var line int
			if _, err := fmt.Sscan(f[2], &line); err != nil {
				g.t.Fatal(err)
			}
			// The runtime has "?" for an unknown file.
			out[i] = append(out[i], profile.Frame{Function: f[0], File: strings.TrimPrefix(f[1], "?"), Line: line})
		}
	}
	return out
}

func open(t testing.TB, pid int) *Process {
	t.Helper()
	p, err := OpenProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}
