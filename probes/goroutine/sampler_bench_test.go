//go:build linux && amd64

package goroutine

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// BenchmarkTick measures a tick over a live target whose goroutines wait, every
// stack read. The metric cpu%@99Hz is what sampling it takes of one CPU.
func BenchmarkTick(b *testing.B) {
	for _, n := range []int{500, 1000, 10000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			g := start(b, build(b), "idle", fmt.Sprint(n))
			s, err := prepare(Options{PID: g.pid, Budget: 1000}.withDefaults())
			if err != nil {
				b.Skip(err)
			}
			defer s.close()
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			t := &s.tick
			before := threadCPU()
			b.ReportAllocs()
			for b.Loop() {
				if err := t.run(time.Now(), time.Second/99); err != nil {
					b.Fatal(err)
				}
			}
			cpu := float64(threadCPU()-before) / float64(b.N)
			b.ReportMetric(cpu*99/1e7, "cpu%@99Hz")
			b.ReportMetric(float64(t.agg.loss.racy)/float64(b.N), "racy/op")
		})
	}
}

// BenchmarkManyGoroutines samples 100,000 goroutines of which 30 wait for a lock,
// for two seconds at the budget of eight per cent. The metrics are what that took
// of one CPU, and how many goroutines the lock wait was found to have.
func BenchmarkManyGoroutines(b *testing.B) {
	g := start(b, build(b), "idle", "100000", "30")
	var cpu, waiters, window float64
	for b.Loop() {
		c := sample(b, 2*time.Second, Options{PID: g.pid, Budget: 0.08})
		cpu += float64(c.Cost.CPUNs)
		window += float64(c.Profile.Duration)
		if s := find(c, "sync.Mutex.Lock", "main.(*queue).offer"); s != nil {
			waiters += float64(s.Values[blockedValue])
		}
	}
	b.ReportMetric(100*cpu/window, "cpu%")
	b.ReportMetric(waiters/window, "waiters")
}
