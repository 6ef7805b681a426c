package child

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestPinned: the child has the CPU it was given, and the parent keeps its own.
func TestPinned(t *testing.T) {
	before := allowed(t, "/proc/thread-self/status")
	cmd := exec.Command("sh", "-c", "grep Cpus_allowed_list /proc/self/status")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c, err := Start(cmd, Options{CPUs: []int{0}})
	if err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(out).ReadString('\n')
	if f := strings.Fields(line); len(f) != 2 || f[1] != "0" {
		t.Errorf("the child says %q, want CPU 0", line)
	}
	if err := c.Err(); err != nil {
		t.Error(err)
	}
	if after := allowed(t, "/proc/thread-self/status"); after != before {
		t.Errorf("the parent's thread moved from CPUs %s to %s", before, after)
	}
}

func allowed(t *testing.T, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(text), "Cpus_allowed_list:")
	if !ok {
		t.Fatalf("%s has no Cpus_allowed_list", file)
	}
	list, _, _ := strings.Cut(rest, "\n")
	return strings.TrimSpace(list)
}

func TestImpossibleCPU(t *testing.T) {
	if _, err := Start(exec.Command("true"), Options{CPUs: []int{1000}}); err == nil || !strings.Contains(err.Error(), "1000") {
		t.Errorf("error %v, want one that names CPU 1000", err)
	}
}

// TestStop: a child that ends is stopped gently; one that does not is killed
// and told.
func TestStop(t *testing.T) {
	gentle, err := Start(exec.Command("sleep", "60"), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := gentle.Stop(10 * time.Second); err != nil {
		t.Error(err)
	}
	cmd := exec.Command("sh", "-c", "trap '' TERM; echo ready; while :; do sleep 60; done")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	stubborn, err := Start(cmd, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "ready\n" {
		t.Fatalf("the child says %q", line)
	}
	for range 2 {
		if err := stubborn.Stop(10 * time.Millisecond); err == nil || !strings.Contains(err.Error(), "killed") {
			t.Errorf("error %v, want one that says killed", err)
		}
	}
}
