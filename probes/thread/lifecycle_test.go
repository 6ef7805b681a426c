//go:build linux && (amd64 || arm64)

package thread

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/internal/testutil"
	"github.com/contention-toolkit/contention/profile"
)

// What was recorded until the target ended is kept.
func TestTargetEnds(t *testing.T) {
	testutil.RequireBPF(t, Available())
	tg := startTarget(t, "sleep")
	begin := time.Now()
	r, err := Start(context.Background(), Options{PIDs: []int{tg.pid}, Symbols: targetSymbols(t)})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(300 * time.Millisecond) // part of the window
	tg.stop()
	select {
	case <-r.Done():
	case <-time.After(20 * time.Second):
		t.Fatal("Done is not closed after the target's end")
	}
	cs, err := r.Stop()
	if err != nil {
		t.Fatal(err)
	}
	c := cs[0]
	checkCapture(t, c)
	if !c.Incomplete || len(c.Warnings) == 0 || !strings.Contains(c.Warnings[0], "the target ended") {
		t.Errorf("incomplete %v, warnings %q", c.Incomplete, c.Warnings)
	}
	if c.Profile.Duration > time.Since(begin) {
		t.Errorf("the window is %v", c.Profile.Duration)
	}
	if sum(c.Profile, valueWaits, in("main.sleep20ms")) < 3 {
		t.Errorf("waits before the end are missing:\n%v", c.Profile)
	}
}

// Stop gives the same each time, and nothing is left behind.
func TestStopTwice(t *testing.T) {
	testutil.RequireBPF(t, Available())
	tg := startTarget(t, "idle")
	before := descriptors(t)
	for range 3 {
		r, err := Start(context.Background(), Options{PIDs: []int{tg.pid}, Symbols: targetSymbols(t)})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		results := make([]*profile.Capture, 4)
		for i := range results {
			wg.Go(func() {
				if cs, err := r.Stop(); err == nil {
					results[i] = cs[0]
				}
			})
		}
		wg.Wait()
		for _, c := range results {
			if c == nil || c != results[0] {
				t.Fatalf("Stop gave different captures: %p", results)
			}
		}
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors open, were %d", after, before)
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}

func TestContextEnds(t *testing.T) {
	testutil.RequireBPF(t, Available())
	tg := startTarget(t, "sleep")
	ctx, cancel := context.WithCancel(context.Background())
	r, err := Start(ctx, Options{PIDs: []int{tg.pid}})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	<-r.over
	cs, err := r.Stop()
	if err != nil {
		t.Fatal(err)
	}
	c := cs[0]
	if !c.Incomplete || !strings.Contains(strings.Join(c.Warnings, "\n"), "called off") {
		t.Errorf("incomplete %v, warnings %q", c.Incomplete, c.Warnings)
	}
}

func TestWrongTargets(t *testing.T) {
	testutil.RequireBPF(t, Available())
	thread := otherThread(t)
	before := descriptors(t)
	for _, c := range []struct {
		name string
		pids []int
		want string
	}{
		{"none", nil, "no process was named"},
		{"negative", []int{-1}, "not a process id"},
		{"absent", []int{1 << 22}, "no such process"},
		{"itself", []int{os.Getpid()}, "the recorder itself"},
		{"thread", []int{thread}, "perhaps a thread"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, err := Start(context.Background(), Options{PIDs: c.pids})
			if err == nil {
				r.Stop()
				t.Fatal("Start succeeded")
			}
			if !strings.Contains(err.Error(), c.want) || errors.Is(err, ErrUnavailable) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %q, want %q in one line", err, c.want)
			}
		})
	}
	if after := descriptors(t); after > before {
		t.Errorf("%d descriptors open, were %d", after, before)
	}
}

// otherThread is a thread of a target that is not its process id.
func otherThread(t *testing.T) int {
	tg := startTarget(t, "idle")
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", tg.pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range tasks {
		if id, err := strconv.Atoi(e.Name()); err == nil && id != tg.pid {
			return id
		}
	}
	t.Fatal("the target has one thread")
	return 0
}
