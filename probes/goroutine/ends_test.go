//go:build linux && amd64

package goroutine

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/probes/symbol"
)

// A target may be sampled from the moment that it was started.
func TestTargetJustStarted(t *testing.T) {
	for i := range 40 {
		exe := build(t)
		if i%2 == 1 {
			exe = build(t, "-buildmode=pie")
		}
		cmd := exec.Command(exe, "waits")
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		s, err := Start(context.Background(), Options{PID: cmd.Process.Pid})
		if err == nil {
			_, err = s.Stop()
		}
		in.Close()
		if e := cmd.Wait(); e != nil {
			t.Error(e)
		}
		if err != nil {
			t.Fatalf("target %d: %v", i, err)
		}
	}
}

// A target that ends closes Done, and what was sampled is kept.
func TestTargetEnds(t *testing.T) {
	g := start(t, build(t), "exit", "0")
	settle(t, g.pid, wants)
	s := begin(t, Options{PID: g.pid})
	select {
	case <-time.After(500 * time.Millisecond):
	case <-s.Done():
		t.Fatal("the target has ended early")
	}
	g.end()
	select {
	case <-s.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the target has ended, and the sampler does not notice")
	}
	c, err := s.Stop()
	if err != nil {
		t.Fatal(err)
	}
	check(t, c)
	if !c.Incomplete {
		t.Error("the capture is not marked incomplete")
	}
	if find(c, "sync.Mutex.Lock", "main.producer;main.(*queue).offer") == nil {
		t.Errorf("names are lost with the target:\n%s", c.Profile)
	}
	if again, err := s.Stop(); again != c || err != nil {
		t.Errorf("a second Stop returns %p, %v; the first returned %p", again, err, c)
	}
}

// A target that runs another program in the same process is not mistaken for
// the old one.
func TestTargetReplaced(t *testing.T) {
	g := start(t, build(t), "exec", "50")
	s := begin(t, Options{PID: g.pid})
	select {
	case <-time.After(200 * time.Millisecond):
	case <-s.Done():
		t.Fatal("the target has ended early")
	}
	if _, err := fmt.Fprintln(g.in); err != nil {
		t.Fatal(err)
	}
	select {
	case <-s.Done():
	case <-time.After(10 * time.Second):
		t.Fatal("the target runs another program, and the sampler does not notice")
	}
	c, err := s.Stop()
	if err != nil {
		t.Fatal(err)
	}
	check(t, c)
	if !c.Incomplete || len(c.Warnings) != 1 || !strings.Contains(c.Warnings[0], "another program") {
		t.Errorf("incomplete %v, warnings %q", c.Incomplete, c.Warnings)
	}
}

// The window ends when the context does; Stop still hands over what there is.
func TestContextEnds(t *testing.T) {
	g := start(t, build(t), "waits")
	ctx, cancel := context.WithCancel(context.Background())
	s, err := Start(ctx, Options{PID: g.pid})
	permitted(t, err)
	cancel()
	<-s.done
	select {
	case <-s.Done():
		t.Error("Done says that the target has ended")
	default:
	}
	c, err := s.Stop()
	if err != nil {
		t.Fatal(err)
	}
	check(t, c)
}

// What is known by name agrees with the runtime's own table.
func TestRunningReasonsOfTheRuntime(t *testing.T) {
	g := start(t, build(t), "waits")
	s, err := prepare(Options{PID: g.pid}.withDefaults())
	permitted(t, err)
	defer s.close()
	if s.image.Suspendable == 0 {
		t.Fatal("the runtime's table is not found")
	}
	if named := newKinds(s.reasons, nil); named.spurious != s.tick.kinds.spurious {
		t.Errorf("by name %v, the runtime says %v", named.spurious, s.tick.kinds.spurious)
	}
}

// A shared Process stays the caller's.
func TestSharedProcess(t *testing.T) {
	g := start(t, build(t), "waits")
	p, err := symbol.OpenProcess(g.pid)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for range 2 {
		sample(t, 50*time.Millisecond, Options{PID: g.pid, Process: p})
	}
}
