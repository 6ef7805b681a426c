package futex

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func supported(t testing.TB) {
	if err := Supported(); err != nil {
		if runtime.GOOS == "linux" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

// TestMutexExcludes: the counter is plain, so the race detector checks as well
// that the lock orders memory.
func TestMutexExcludes(t *testing.T) {
	supported(t)
	const goroutines, each = 8, 5000
	var m Mutex
	n := 0
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for i := range each {
				m.Lock()
				n++
				if i%50 == 0 {
					runtime.Gosched() // with the lock held, so that others have to sleep
				}
				m.Unlock()
			}
		})
	}
	wg.Wait()
	if n != goroutines*each {
		t.Fatalf("counted %d, want %d", n, goroutines*each)
	}
	if m.state.Load() != free {
		t.Fatalf("state %d at the end", m.state.Load())
	}
}

func TestUnlockWithoutContentionMakesNoCall(t *testing.T) {
	var m Mutex
	m.Lock()
	if m.state.Load() != held {
		t.Fatalf("state %d after an uncontended Lock, want %d", m.state.Load(), held)
	}
	m.Unlock()
	defer func() {
		if recover() == nil {
			t.Error("unlocking a free mutex went unnoticed")
		}
	}()
	m.Unlock()
}

// TestSignalIsNotMissed: a consumer that waits for a flag sees every setting of
// it, wherever the signal falls between its look and its sleep.
func TestSignalIsNotMissed(t *testing.T) {
	supported(t)
	const rounds = 20_000
	var m Mutex
	var c Cond
	set := false
	acknowledged := make(chan struct{})
	go func() {
		for range rounds {
			m.Lock()
			for !set {
				c.Wait(&m)
			}
			set = false
			m.Unlock()
			acknowledged <- struct{}{}
		}
	}()
	for range rounds {
		m.Lock()
		set = true
		m.Unlock()
		c.Signal()
		<-acknowledged
	}
}

func TestBroadcastWakesAll(t *testing.T) {
	supported(t)
	var m Mutex
	var c Cond
	open := false
	var wg sync.WaitGroup
	const waiters = 5
	for range waiters {
		wg.Go(func() {
			m.Lock()
			for !open {
				c.Wait(&m)
			}
			m.Unlock()
		})
	}
	eventually(t, "all wait", func() bool { return c.waiters.Load() == waiters })
	m.Lock()
	open = true
	m.Unlock()
	c.Broadcast()
	wg.Wait()
}

func BenchmarkMutexUncontended(b *testing.B) {
	var m Mutex
	n := 0
	b.ReportAllocs()
	for b.Loop() {
		m.Lock()
		n++
		m.Unlock()
	}
}
