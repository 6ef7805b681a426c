package storage

import (
	"container/list"
	"sync"
)

// Cache keeps decoded blocks, the most recently read ones, for the logs that
// share it. It is safe for concurrent use; the zero value and nil keep nothing.
type Cache struct {
	limit int64

	mu    sync.Mutex
	bytes int64
	order list.List // of *cached, the most recent first
	by    map[cacheKey]*list.Element
}

// cacheKey is a run's place. A segment's blocks never change once they can be
// read, though there may be more of them, and a reopened log has other segments.
type cacheKey struct {
	seg *segmentFile
	at  uint32 // of its first block, less the last runBits
}

type cached struct {
	key cacheKey
	run
}

// held is about the memory it takes.
func (c *cached) held() int64 { return c.bytes + 64*int64(len(c.entries)) }

// NewCache returns a cache of at most limit bytes. A block that is larger is
// kept nevertheless while it is the most recent: readers take it in parts.
func NewCache(limit int64) *Cache { return &Cache{limit: limit} }

func (c *Cache) get(k cacheKey) run {
	if c == nil {
		return run{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	el := c.by[k]
	if el == nil {
		return run{}
	}
	c.order.MoveToFront(el)
	return el.Value.(*cached).run
}

func (c *Cache) put(k cacheKey, r run) {
	if c == nil || c.limit <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[cacheKey]*list.Element{}
	}
	if el := c.by[k]; el != nil {
		if len(el.Value.(*cached).entries) >= len(r.entries) {
			return
		}
		c.drop(el) // the end of the log has moved
	}
	v := &cached{k, r}
	c.by[k] = c.order.PushFront(v)
	c.bytes += v.held()
	for c.bytes > c.limit && c.order.Len() > 1 {
		c.drop(c.order.Back())
	}
}

// forget drops the blocks of segments.
func (c *Cache) forget(gone func(*segmentFile) bool) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for el := c.order.Front(); el != nil; {
		next := el.Next()
		if gone(el.Value.(*cached).key.seg) {
			c.drop(el)
		}
		el = next
	}
}

func (c *Cache) drop(el *list.Element) {
	v := c.order.Remove(el).(*cached)
	delete(c.by, v.key)
	c.bytes -= v.held()
}
