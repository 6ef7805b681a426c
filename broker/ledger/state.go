package ledger

// CursorState is what has to be kept of a cursor for it to go on elsewhere.
type CursorState struct {
	MarkDelete int64      // this entry and all before it are acknowledged
	Acked      [][2]int64 // ranges acknowledged beyond it, first and last entry, ascending
}

// State reads the cursor's state.
func (c *Cursor) State() CursorState {
	c.mu.RLock()
	defer c.mu.RUnlock()
	s := CursorState{MarkDelete: c.markDelete.Load()}
	s.Acked = c.acked.ranges(s.MarkDelete + 1)
	return s
}

// TakeDirty reports whether the state has changed since the last call.
func (c *Cursor) TakeDirty() bool { return c.dirty.Swap(false) }

// SetDirty makes the next TakeDirty report a change.
func (c *Cursor) SetDirty() { c.dirty.Store(true) }

// Restore puts a new cursor into a state that was kept, as far as the ledger
// still has it. It must come before the first read.
func (c *Cursor) Restore(s CursorState) {
	l := c.ledger
	last := l.LastConfirmed()
	mark := min(max(s.MarkDelete, l.First()-1), last)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.startAt(mark + 1)
	for _, r := range s.Acked {
		for id := max(r[0], mark+1); id <= min(r[1], last); id++ {
			if c.acked.add(id) {
				c.ackedCount++
			}
		}
	}
	c.markDelete.Store(c.acked.advance(mark))
	c.readPos.Store(c.markDelete.Load() + 1)
}
