//go:build linux && amd64

package goroutine

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"github.com/contention-toolkit/contention/internal/testutil"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/contention-toolkit/contention/profile"
)

// builds keeps what was built; TestMain makes and removes it.
var builds string

func TestMain(m *testing.M) { os.Exit(testMain(m)) }

func testMain(m *testing.M) int {
	if pid := os.Getenv(helperEnv); pid != "" {
		helper(pid)
		return 0
	}
	dir, err := os.MkdirTemp("", "goroutine")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	builds = dir
	if code := m.Run(); code != 0 {
		return code
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// kit is how to build the test's target.
type kit struct {
	tool  string // the go command; "" means the current one
	cgo   bool   // with the C library, dynamically linked
	flags []string
	strip bool // by strip, rather than by the linker
}

func (k kit) String() string {
	name := "go"
	if k.tool != "" {
		for _, part := range strings.Split(k.tool, "/") {
			if strings.Contains(part, "go1.") || strings.HasPrefix(part, "go-1.") {
				name = strings.TrimPrefix(part, "toolchain@v0.0.1-")
			}
		}
	}
	name += strings.NewReplacer(" ", "_", "/", "_").Replace(strings.Join(k.flags, ""))
	if k.cgo {
		name += "+cgo"
	}
	if k.strip {
		name += "+strip"
	}
	return name
}

// build compiles the test's target with flags of go build, once for each.
func build(t testing.TB, flags ...string) string {
	t.Helper()
	return kit{flags: flags}.build(t)
}

func (k kit) build(t testing.TB) string {
	t.Helper()
	exe := filepath.Join(builds, "target-"+k.String())
	if _, err := os.Stat(exe); err == nil {
		return exe
	}
	cgo := "CGO_ENABLED=0"
	if k.cgo {
		cgo = "CGO_ENABLED=1"
		if _, err := exec.LookPath("gcc"); err != nil {
			t.Skip("needs gcc, to link with the C library")
		}
	}
	tool := k.tool
	if tool == "" {
		tool = "go"
	}
	src, err := filepath.Abs(filepath.Join("testdata", "target", "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(tool, append(append([]string{"build", "-o", exe}, k.flags...), src)...)
	// Older releases do not understand this module's go.mod.
	cmd.Dir = builds
	cmd.Env = append(os.Environ(), cgo, "GOFLAGS=", "GO111MODULE=off", "GOTOOLCHAIN=local", "GOROOT=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	if k.strip {
		if out, err := exec.Command("strip", exe).CombinedOutput(); err != nil {
			t.Fatalf("strip: %v\n%s", err, out)
		}
	}
	return exe
}

// target is the test's program, running.
type target struct {
	t   testing.TB
	pid int
	cmd *exec.Cmd
	in  io.WriteCloser
}

func start(t testing.TB, exe string, args ...string) *target {
	t.Helper()
	cmd := exec.Command(exe, args...)
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
	g := &target{t, cmd.Process.Pid, cmd, in}
	t.Cleanup(g.end)
	if s, err := bufio.NewReader(out).ReadString('\n'); err != nil || s != "ready\n" {
		t.Fatalf("the target says %q: %v", s, err)
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

// permitted fails the test on an error, except that where reading other
// processes is refused it skips, as RequireBPF does.
func permitted(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, unix.EPERM) {
		testutil.RequireBPF(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// begin starts a sampler. A machine that lets nobody read other processes skips
// the test.
func begin(t testing.TB, o Options) *Sampler {
	t.Helper()
	s, err := Start(context.Background(), o)
	permitted(t, err)
	return s
}

// sample samples for a while and checks what holds for every capture.
func sample(t testing.TB, window time.Duration, o Options) *profile.Capture {
	t.Helper()
	s := begin(t, o)
	select {
	case <-time.After(window):
	case <-s.Done():
	}
	c, err := s.Stop()
	if err != nil {
		t.Fatal(err)
	}
	check(t, c)
	return c
}

// check checks what holds for every capture.
func check(t testing.TB, c *profile.Capture) {
	t.Helper()
	p, a := c.Profile, c.Accounting
	if err := p.CheckValid(); err != nil {
		t.Error(err)
	}
	if r := a.Residual(); r != 0 {
		t.Errorf("accounting leaves %d: %+v", r, a)
	}
	for _, v := range []struct {
		value int
		want  int64
	}{{blockedValue, a.BlockedNs}, {runnableValue, a.RunnableNs}, {syscallValue, a.SyscallNs}} {
		if got := p.Total(v.value); got != v.want {
			t.Errorf("the stacks hold %d %s, the accounting %d", got, p.SampleTypes[v.value].Type, v.want)
		}
	}
	whole, err := c.Slices.Between(p, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	for v := range p.SampleTypes {
		if got, want := whole.Total(v), p.Total(v); got != want {
			t.Errorf("the slices hold %d %s, the profile %d", got, p.SampleTypes[v].Type, want)
		}
	}
	if c.Cost.CPUNs <= 0 || c.Cost.MemBytes <= 0 {
		t.Errorf("cost %+v", c.Cost)
	}
}

// text renders a stack on one line, outermost function first.
func text(frames []profile.Frame) string {
	var names []string
	for _, f := range frames {
		names = append([]string{f.Function}, names...)
	}
	return strings.Join(names, ";")
}
