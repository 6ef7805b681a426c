package load

import (
	"sync"
	"sync/atomic"
)

// pool holds the devices that have nothing in flight, first in first out, so
// that all take their turn.
type pool struct {
	size atomic.Int64 // kept beside the ring, to look without the lock

	mu   sync.Mutex
	ring []int32
	head int
}

func newPool(devices int) *pool {
	p := &pool{ring: make([]int32, devices)}
	for i := range p.ring {
		p.ring[i] = int32(i)
	}
	p.size.Store(int64(devices))
	return p
}

// exchange returns devices to the pool and takes up to n from it into the same
// slice's memory.
func (p *pool) exchange(devices []int32, n int) []int32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	size := int(p.size.Load())
	for _, d := range devices {
		p.ring[(p.head+size)%len(p.ring)] = d
		size++
	}
	devices = devices[:0]
	for n = min(n, size); n > 0; n-- {
		devices = append(devices, p.ring[p.head])
		if p.head++; p.head == len(p.ring) {
			p.head = 0
		}
		size--
	}
	p.size.Store(int64(size))
	return devices
}

// gate counts the messages that may still be sent in a phase.
type gate struct{ left atomic.Int64 }

func (g *gate) open(n int64) { g.left.Store(n) }
func (g *gate) close()       { g.left.Store(0) }
func (g *gate) closed() bool { return g.left.Load() == 0 }

// take claims up to n messages.
func (g *gate) take(n int) int {
	for {
		left := g.left.Load()
		if left <= 0 || n <= 0 {
			return 0
		}
		t := min(int64(n), left)
		if g.left.CompareAndSwap(left, left-t) {
			return int(t)
		}
	}
}
