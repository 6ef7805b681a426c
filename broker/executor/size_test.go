package executor

import (
	"runtime"
	"testing"
	"unsafe"
)

// heapPer returns the bytes of heap per owner that make leaves behind.
func heapPer(t *testing.T, make func() *Batching[job]) int {
	t.Helper()
	const owners = 128
	var keep [owners]*Batching[job]
	var before, after runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&before)
	for i := range keep {
		keep[i] = make()
	}
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(&keep)
	return int(int64(after.HeapAlloc)-int64(before.HeapAlloc)) / owners
}

// TestBytesPerOwner: an owner that never submitted costs its options and a
// flag; one that did costs a chunk of pointers more, and for good a second one
// once it has used its first up, however much was queued at a time. (The
// model's 512-entry chunk is about 2.7 KB, with 4-byte references; a pointer
// here is 8 bytes.)
func TestBytesPerOwner(t *testing.T) {
	if unsafe.Sizeof(uintptr(0)) != 8 {
		t.Skip("the figures are those of 8-byte pointers")
	}
	const (
		owner  = 256 // the Batching itself
		header = 256 // the queue's words on two cache lines, the chunk's header
		slack  = 32  // what the runtime allocates meanwhile, per owner
	)
	d := &counting{}
	build := func(o BatchOptions[job]) *Batching[job] {
		o.Run, o.Rejected, o.Failed, o.MaxItems = func(*job) {}, func(*job, error) {}, func(*job, any) {}, 1<<20
		b, err := NewBatching(d, o)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	one := &job{}
	write := func(b *Batching[job], n int) *Batching[job] {
		for range n {
			if err := b.Submit(one); err != nil {
				t.Fatal(err)
			}
		}
		b.Run()
		return b
	}
	for _, chunk := range []int{512, 256} {
		bytes := 8 * chunk
		rounded := bytes * 5 / 4 // the allocator's size classes: 4,864 for 4,096 bytes of pointers
		for _, c := range []struct {
			name     string
			eager    bool
			written  int
			min, max int
		}{
			{"lazy, never written", false, 0, 1, owner},
			{"eager, never written", true, 0, bytes, owner + header + rounded},
			{"lazy, written", false, 1, bytes, owner + header + rounded},
			{"eager, written", true, 1, bytes, owner + header + rounded},
			{"lazy, first chunk used up", false, chunk + 1, 2 * bytes, owner + header + 2*rounded},
			{"lazy, 4 chunks were queued", false, 4 * chunk, 2 * bytes, owner + header + 2*rounded},
		} {
			got := heapPer(t, func() *Batching[job] {
				b := build(BatchOptions[job]{Chunk: chunk, Eager: c.eager})
				if c.written > 0 {
					write(b, c.written)
				}
				return b
			})
			t.Logf("chunk of %d: %-28s %6d bytes", chunk, c.name, got)
			if got < c.min || got > c.max+slack {
				t.Errorf("chunk of %d: %s: %d bytes per owner, want %d to %d", chunk, c.name, got, c.min, c.max+slack)
			}
		}
	}
}
