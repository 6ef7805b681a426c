package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"
)

type load struct {
	size  int
	sync  bool
	bytes int64         // stop after
	limit time.Duration // or after
}

type cost struct{ mbs, blocks, cpu, mallocs, alloc float64 }

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func fill(size int) []byte {
	b := make([]byte, size)
	r := rand.NewChaCha8([32]byte{1})
	r.Read(b)
	return b
}

// appendRun appends to a new log until the load is done.
func appendRun(dir string, c candidate, l load) (cost, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return cost{}, err
	}
	defer os.RemoveAll(dir)
	log, err := c.open(dir, l.sync)
	if err != nil {
		return cost{}, err
	}
	block := fill(l.size)
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, start := cpuTime(), time.Now()
	var n uint64
	for done := int64(0); done < l.bytes; done += int64(l.size) {
		n++
		if err := log.Append(n, block); err != nil {
			return cost{}, errors.Join(err, log.Close())
		}
		if n%16 == 0 && time.Since(start) > l.limit {
			break
		}
	}
	took, spent := time.Since(start), cpuTime()-cpu
	runtime.ReadMemStats(&after)
	k := float64(n)
	return cost{
		mbs: k * float64(l.size) / 1e6 / took.Seconds(), blocks: k / took.Seconds(), cpu: float64(spent.Nanoseconds()) / k,
		mallocs: float64(after.Mallocs-before.Mallocs) / k, alloc: float64(after.TotalAlloc-before.TotalAlloc) / k,
	}, log.Close()
}

func median(v []float64) float64 {
	slices.Sort(v)
	return v[len(v)/2]
}

func appends(base string, quick bool) {
	rounds, bytes, limit := 5, int64(256<<20), 2*time.Second
	if quick {
		rounds, bytes, limit = 1, 32<<20, 300*time.Millisecond
	}
	fmt.Printf("Appends, medians of %d interleaved rounds; in brackets the ratio to write(2).\n\n", rounds)
	fmt.Println("| sync | block | library | MB/s | blocks/s | CPU µs/block | allocations/block | bytes allocated/block |\n|---|---|---|---|---|---|---|---|")
	for _, sync := range []bool{false, true} {
		for _, size := range []int{200, 6400, 200 << 10, 5 << 20} {
			got := make([][]cost, len(candidates))
			for range rounds {
				for _, i := range rand.Perm(len(candidates)) {
					c, err := appendRun(filepath.Join(base, "append"), candidates[i], load{size, sync, bytes, limit})
					if err != nil {
						fmt.Fprintf(os.Stderr, "%s, blocks of %d: %v\n", candidates[i].name, size, err)
						continue
					}
					got[i] = append(got[i], c)
				}
			}
			printAppends(sync, size, got)
		}
	}
	fmt.Println()
}

func printAppends(sync bool, size int, got [][]cost) {
	var yard float64
	for i, c := range candidates {
		if len(got[i]) == 0 {
			continue
		}
		m := func(f func(cost) float64) float64 {
			v := make([]float64, len(got[i]))
			for j, g := range got[i] {
				v[j] = f(g)
			}
			return median(v)
		}
		mbs := m(func(c cost) float64 { return c.mbs })
		if i == 0 {
			yard = mbs
		}
		mode := "none"
		if sync {
			mode = "always"
		}
		fmt.Printf("| %s | %d | %s | %.1f (%.2f) | %.0f | %.1f | %.1f | %.0f |\n", mode, size, c.name, mbs, mbs/yard,
			m(func(c cost) float64 { return c.blocks }), m(func(c cost) float64 { return c.cpu })/1e3,
			m(func(c cost) float64 { return c.mallocs }), m(func(c cost) float64 { return c.alloc }))
	}
}

func openFiles() int {
	es, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0
	}
	return len(es)
}

func diskBytes(dir string) (n int64) {
	_ = filepath.Walk(dir, func(_ string, fi os.FileInfo, err error) error {
		if err == nil && fi.Mode().IsRegular() {
			n += fi.Sys().(*syscall.Stat_t).Blocks * 512
		}
		return nil
	})
	return n
}

// perLog opens many logs and divides.
func perLog(base string, quick bool) {
	k := 100
	if quick {
		k = 10
	}
	fmt.Printf("Per open log (%d opened, one block of 200 bytes each).\n\n| library | files | goroutines | heap KB | disk KB | open ms |\n|---|---|---|---|---|---|\n", k)
	for _, c := range candidates {
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		fds, gs, start := openFiles(), runtime.NumGoroutine(), time.Now()
		var logs []blockLog
		for i := range k {
			dir := filepath.Join(base, "many", fmt.Sprint(i))
			err := os.MkdirAll(dir, 0o755)
			var l blockLog
			if err == nil {
				l, err = c.open(dir, false)
			}
			if err == nil {
				logs = append(logs, l)
				err = l.Append(1, fill(200))
			}
			if err != nil {
				fmt.Fprintln(os.Stderr, c.name, err)
				break
			}
		}
		took := time.Since(start)
		runtime.GC()
		runtime.ReadMemStats(&after)
		n := float64(len(logs))
		fmt.Printf("| %s | %.1f | %.1f | %.0f | %.0f | %.2f |\n", c.name, float64(openFiles()-fds)/n, float64(runtime.NumGoroutine()-gs)/n,
			(float64(after.HeapInuse)-float64(before.HeapInuse))/1024/n, float64(diskBytes(filepath.Join(base, "many")))/1024/n, took.Seconds()*1e3/n)
		for _, l := range logs {
			_ = l.Close()
		}
		os.RemoveAll(filepath.Join(base, "many"))
	}
	fmt.Println()
}

func recovery(base string, quick bool) {
	total := int64(1 << 30)
	if quick {
		total = 64 << 20
	}
	fmt.Printf("%d MB in blocks of 200 KB: time to open, to read all in order, to drop the first half, and what that frees.\n\n| library | open ms | read MB/s | trim ms | freed MB |\n|---|---|---|---|---|\n", total>>20)
	for _, c := range candidates[1:] {
		dir := filepath.Join(base, "recover")
		if err := recoverOne(dir, c, total); err != nil {
			fmt.Fprintln(os.Stderr, c.name, err)
		}
		os.RemoveAll(dir)
	}
	fmt.Println()
}

func recoverOne(dir string, c candidate, total int64) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	l, err := c.open(dir, false)
	if err != nil {
		return err
	}
	block := fill(200 << 10)
	n := uint64(total / int64(len(block)))
	for i := range n {
		if err := l.Append(i+1, block); err != nil {
			return err
		}
	}
	if err := l.Close(); err != nil {
		return err
	}
	start := time.Now()
	if l, err = c.open(dir, false); err != nil {
		return err
	}
	opened := time.Since(start)
	if last, err := l.Last(); err != nil || last != n {
		return fmt.Errorf("last is %d of %d: %v", last, n, err)
	}
	start = time.Now()
	for i := range n {
		if b, err := l.Read(i + 1); err != nil || len(b) != len(block) {
			return fmt.Errorf("block %d: %d bytes, %v", i+1, len(b), err)
		}
	}
	read, before := time.Since(start), diskBytes(dir)
	start = time.Now()
	if err := l.TrimBefore(n / 2); err != nil {
		return err
	}
	trimmed := time.Since(start)
	if c.name == "pebble" {
		time.Sleep(2 * time.Second) // its space comes back in the background
	}
	fmt.Printf("| %s | %.1f | %.0f | %.1f | %d |\n", c.name, opened.Seconds()*1e3, float64(total)/1e6/read.Seconds(),
		trimmed.Seconds()*1e3, (before-diskBytes(dir))>>20)
	return l.Close()
}
