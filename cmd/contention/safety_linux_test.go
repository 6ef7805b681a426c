package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/contention-toolkit/contention/internal/testutil"
	"github.com/contention-toolkit/contention/probes/thread"
)

// On demand: go test ./cmd/contention -run TestAttachUnderLoad -attaches 1000 -timeout 60m.
var attaches = flag.Int("attaches", 10, "how often to attach and detach under load")

// Recording again and again, with everything that attaches, costs a loaded broker
// no message and the recorder no descriptor.
func TestAttachUnderLoad(t *testing.T) {
	testutil.RequireBPF(t, thread.Available())
	_, ready, _ := brokerProcess(t)
	stop, loads := make(chan struct{}), make(chan error)
	go func() { loads <- loadUntil(ready.Broker, stop) }()
	dir := t.TempDir()
	record := func(i int) {
		out := filepath.Join(dir, strconv.Itoa(i))
		code, _, stderr := contention(t, "record", "--pid", strconv.Itoa(ready.PID), "--exact", "--locks", "--duration", "50ms", "--no-discover", "-o", out)
		if code != 0 {
			t.Fatalf("recording %d: status %d: %s", i, code, stderr)
		}
		if err := os.RemoveAll(out); err != nil {
			t.Fatal(err)
		}
	}
	record(0) // what is opened once and for all
	before := descriptors(t)
	for i := range *attaches {
		record(i + 1)
	}
	close(stop)
	if err := <-loads; err != nil {
		t.Error(err)
	}
	testutil.Eventually(t, 10*time.Second, "the descriptors of before", func() bool { return descriptors(t) <= before })
}

// loadUntil loads the broker with one verified run after another.
func loadUntil(broker string, stop <-chan struct{}) error {
	for n := 1; ; n++ {
		cmd := exec.Command(os.Args[0], "load", "iot-telemetry-max-rate", "--broker", broker, "--messages", "50000")
		cmd.Env = append(os.Environ(), asCommand+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("load %d while recording: %w\n%s", n, err, out)
		}
		select {
		case <-stop:
			return nil
		default:
		}
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

// A recorder that is killed leaves no program in the kernel, and the target goes on.
func TestKilledRecorderLeavesNothing(t *testing.T) {
	testutil.RequireBPF(t, thread.Available())
	_, ready, _ := brokerProcess(t)
	cmd := exec.Command(os.Args[0], "record", "--pid", strconv.Itoa(ready.PID), "--exact", "--locks", "--duration", "60s", "--no-discover", "-o", filepath.Join(t.TempDir(), "rec"))
	cmd.Env = append(os.Environ(), asCommand+"=1")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = cmd.Process.Kill() // again
		_ = cmd.Wait()         // it was killed
	}()
	line, err := bufio.NewReader(stderr).ReadString('\n')
	if err != nil || !strings.Contains(line, "goroutines-exact") || !strings.Contains(line, "threads") {
		t.Fatalf("the recorder says %q, %v", line, err)
	}
	programs := programsOf(t, cmd.Process.Pid)
	if len(programs) < 5 {
		t.Fatalf("the recorder holds %d programs", len(programs))
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, stderr) // until it is gone
	for _, id := range programs {
		testutil.Eventually(t, 20*time.Second, fmt.Sprintf("the end of program %d", id), func() bool {
			p, err := ebpf.NewProgramFromID(id)
			if err == nil {
				p.Close()
			}
			return errors.Is(err, os.ErrNotExist)
		})
	}
	stop := make(chan struct{})
	close(stop)
	if err := loadUntil(ready.Broker, stop); err != nil {
		t.Error(err)
	}
}

// programsOf lists the BPF programs that a process holds.
func programsOf(t *testing.T, pid int) []ebpf.ProgramID {
	t.Helper()
	infos, err := filepath.Glob(fmt.Sprintf("/proc/%d/fdinfo/*", pid))
	if err != nil {
		t.Fatal(err)
	}
	seen := map[uint64]bool{}
	var out []ebpf.ProgramID
	for _, name := range infos {
		data, err := os.ReadFile(name)
		if err != nil {
			continue // closed by now
		}
		for l := range bytes.Lines(data) {
			rest, ok := bytes.CutPrefix(l, []byte("prog_id:"))
			id, err := strconv.ParseUint(string(bytes.TrimSpace(rest)), 10, 32)
			if ok && err == nil && id != 0 && !seen[id] {
				seen[id] = true
				out = append(out, ebpf.ProgramID(id))
			}
		}
	}
	return out
}
