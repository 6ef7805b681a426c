//go:build linux && (amd64 || arm64)

package thread

import (
	"bufio"
	"debug/elf"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/profile"
)

// target is a running program of testdata/target.
type target struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	out   *bufio.Reader
	pid   int
	once  sync.Once
}

var (
	buildOnce sync.Once
	buildErr  error
	targetExe string
)

// startTarget builds the program once, starts it and waits until it has begun.
func startTarget(t testing.TB, args ...string) *target {
	t.Helper()
	buildOnce.Do(func() {
		targetExe = filepath.Join(scratchDir, "target")
		cmd := exec.Command("go", "build", "-o", targetExe, "./testdata/target")
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			buildErr = fmt.Errorf("build the target: %w\n%s", err, out)
		}
	})
	if buildErr != nil {
		t.Fatal(buildErr)
	}
	cmd := exec.Command(targetExe, args...)
	// Go's preemption signals would interrupt the raw system calls.
	cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1", "GOMAXPROCS=4")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	tg := &target{cmd: cmd, stdin: stdin, out: bufio.NewReader(stdout), pid: cmd.Process.Pid}
	t.Cleanup(tg.stop)
	if line, err := tg.out.ReadString('\n'); line != "begun\n" {
		t.Fatalf("target %v said %q: %v", args, line, err)
	}
	return tg
}

// tell sends the line that the program waits for.
func (tg *target) tell(t testing.TB) {
	t.Helper()
	if _, err := io.WriteString(tg.stdin, "\n"); err != nil {
		t.Fatal(err)
	}
}

// said reads a line of the program's output.
func (tg *target) said(t testing.TB) string {
	t.Helper()
	line, err := tg.out.ReadString('\n')
	if err != nil {
		t.Fatalf("the target said %q: %v", line, err)
	}
	return line
}

// stop ends the program and reaps it.
func (tg *target) stop() {
	tg.once.Do(func() {
		_ = tg.stdin.Close()
		kill := time.AfterFunc(5*time.Second, func() { _ = tg.cmd.Process.Kill() })
		defer kill.Stop()
		_ = tg.cmd.Wait() // how it ends is not what is tested
	})
}

// elfSymbols resolves addresses of a static executable that is not moved.
type elfSymbols []elf.Symbol

func elfOf(path string) (elfSymbols, error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	all, err := f.Symbols()
	if err != nil {
		return nil, err
	}
	var s elfSymbols
	for _, x := range all {
		if elf.ST_TYPE(x.Info) == elf.STT_FUNC {
			s = append(s, x)
		}
	}
	sort.Slice(s, func(i, j int) bool { return s[i].Value < s[j].Value })
	return s, nil
}

func (s elfSymbols) Frames(addr uint64, ret bool) []profile.Frame {
	at := addr
	if ret {
		at--
	}
	i := sort.Search(len(s), func(i int) bool { return s[i].Value > at }) - 1
	if i < 0 || at >= s[i].Value+s[i].Size {
		return []profile.Frame{{Function: fmt.Sprintf("%#x", addr)}}
	}
	return []profile.Frame{{Function: s[i].Name}}
}

// targetSymbols is Options.Symbols for programs of testdata/target.
func targetSymbols(t testing.TB) func(int) (Resolver, error) {
	t.Helper()
	s, err := elfOf(targetExe)
	if err != nil {
		t.Fatal(err)
	}
	return func(int) (Resolver, error) { return s, nil }
}

// sum adds up one value of the samples that pick chooses.
func sum(p *profile.Profile, value int, pick func(stack string, l profile.Labels) bool) int64 {
	var n int64
	for _, s := range p.Samples {
		if pick(stackText(p, s), p.Labels(s.Labels)) {
			n += s.Values[value]
		}
	}
	return n
}

// stackText is a stack as text, innermost first.
func stackText(p *profile.Profile, s profile.Sample) string {
	var names []string
	for _, f := range p.Frames(s.Stack) {
		names = append(names, f.Function)
	}
	return strings.Join(names, ";")
}

// in says whether a stack has a function.
func in(function string) func(string, profile.Labels) bool {
	return func(stack string, _ profile.Labels) bool {
		return strings.Contains(";"+stack+";", ";"+function+";")
	}
}

// sleeping picks the waits of the target's sleep.
func sleeping(stack string, l profile.Labels) bool {
	return in("main.sleep20ms")(stack, l) && l.Get(profile.LabelReason) == ReasonInterruptible
}

const (
	valueBlocked = iota
	valueRunnable
	valueWaits
)
