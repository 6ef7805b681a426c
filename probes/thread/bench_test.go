//go:build linux && (amd64 || arm64)

package thread

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/internal/testutil"
)

// BenchmarkSwitches records two threads that do nothing but wake each other: the
// worst case. It reports what one switch of theirs costs in BPF programs, the
// recorder's own share of a CPU, and how many switches a second there are with
// and without the recorder.
func BenchmarkSwitches(b *testing.B) {
	testutil.RequireBPF(b, Available())
	tg := startTarget(b, "pingpong")
	const window = 2 * time.Second
	var bpfNs, switches, alone, cpu int64
	for range b.N {
		alone += countSwitches(b, tg.pid, window)
		r, err := Start(context.Background(), Options{PIDs: []int{tg.pid}})
		if err != nil {
			b.Fatal(err)
		}
		n := countSwitches(b, tg.pid, window)
		cs, err := r.Stop()
		if err != nil {
			b.Fatal(err)
		}
		c := cs[0]
		switches += n
		bpfNs += c.Cost.BPFNs
		cpu += c.Cost.CPUNs
	}
	seconds := window.Seconds() * float64(b.N)
	b.ReportMetric(float64(bpfNs)/float64(switches), "bpf-ns/switch-out")
	b.ReportMetric(float64(switches)/seconds, "switch-outs/s")
	b.ReportMetric(float64(alone)/seconds, "switch-outs-alone/s")
	b.ReportMetric(float64(cpu)/seconds/1e7, "recorder-%cpu")
	b.ReportMetric(0, "ns/op") // its duration is the windows'
}

// countSwitches counts how often the threads of a process leave their CPU
// within a time.
func countSwitches(b *testing.B, pid int, window time.Duration) int64 {
	b.Helper()
	before := switchesOf(b, pid)
	time.Sleep(window)
	return switchesOf(b, pid) - before
}

func switchesOf(b *testing.B, pid int) int64 {
	b.Helper()
	tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		b.Fatal(err)
	}
	var sum int64
	for _, task := range tasks {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%s/status", pid, task.Name()))
		if err != nil {
			b.Fatal(err)
		}
		for line := range strings.Lines(string(data)) {
			if _, v, ok := strings.Cut(line, "ctxt_switches:"); ok {
				var n int64
				if _, err := fmt.Sscan(v, &n); err != nil {
					b.Fatal(err)
				}
				sum += n
			}
		}
	}
	return sum
}
