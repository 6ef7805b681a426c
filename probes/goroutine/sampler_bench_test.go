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
