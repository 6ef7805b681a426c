package load

import "sync/atomic"

// counter is a sum that many connections add to without sharing a cache line.
type counter struct {
	cells [8]struct {
		n atomic.Int64
		_ [56]byte
	}
}

func (c *counter) add(who int, n int64) { c.cells[who%len(c.cells)].n.Add(n) }

func (c *counter) sum() (total int64) {
	for i := range c.cells {
		total += c.cells[i].n.Load()
	}
	return total
}
