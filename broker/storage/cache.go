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

// cacheKey is a block's place. A segment's blocks never change once they can be
// read, and a reopened log has other segments.
type cacheKey struct {
	seg *segmentFile
	at  uint32
}

type cached struct {
	key     cacheKey
	entries []Entry
	bytes   int64
}

// NewCache returns a cache of at most limit bytes. A block that is larger is
// kept nevertheless while it is the most recent: readers take it in parts.
func NewCache(limit int64) *Cache { return &Cache{limit: limit} }

func (c *Cache) get(k cacheKey) []Entry {
	if c == nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	el := c.by[k]
	if el == nil {
		return nil
	}
	c.order.MoveToFront(el)
	return el.Value.(*cached).entries
}

func (c *Cache) put(k cacheKey, entries []Entry, bytes int64) {
	if c == nil || c.limit <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by == nil {
		c.by = map[cacheKey]*list.Element{}
	}
	if c.by[k] != nil {
		return
	}
	c.by[k] = c.order.PushFront(&cached{k, entries, bytes})
	c.bytes += bytes
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
	c.bytes -= v.bytes
}
