package experiment

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A child gets the CPU set that it is given, and the next one does not inherit it.
func TestCPUSets(t *testing.T) {
	allowed := func(cpus []int) string {
		t.Helper()
		p, err := startProcess(processSpec{name: "child", argv: child(t, "silent"), logPath: filepath.Join(t.TempDir(), "log"), cpus: cpus})
		if err != nil {
			t.Fatal(err)
		}
		defer p.end(time.Second)
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid()))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(data), "Cpus_allowed_list:")
		list, _, _ := strings.Cut(rest, "\n")
		return strings.TrimSpace(list)
	}
	all := allowed(nil)
	if got := allowed([]int{0}); got != "0" {
		t.Errorf("the CPU set is %q, want 0", got)
	}
	if got := allowed(nil); got != all {
		t.Errorf("the next child's CPU set is %q, want %q", got, all)
	}
	p, err := startProcess(processSpec{name: "child", argv: child(t, "silent"), logPath: filepath.Join(t.TempDir(), "log"), cpus: []int{1000}})
	if err == nil {
		p.end(time.Second)
		t.Error("a CPU that this machine has not was accepted")
	} else if !strings.Contains(err.Error(), "CPU set [1000]") {
		t.Errorf("error is %v, want one that names the CPU set", err)
	}
}
