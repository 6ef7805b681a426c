package ledger

import "github.com/contention-toolkit/contention/broker/executor"

// trimBytes asks for trimming when about so many bytes were acknowledged, where
// entries are large.
const trimBytes = 4 << 20

// moved asks for trimming when a cursor's mark has come far enough.
func (c *Cursor) moved(to int64) {
	l := c.ledger
	if gone := to + 1 - l.trimmed.Load(); gone >= segmentSize || gone > 0 && gone*l.averageSize.Load() >= trimBytes {
		l.requestTrim()
	}
}

// requestTrim has the executor drop what every cursor has acknowledged.
func (l *Ledger) requestTrim() {
	if l.trimming.CompareAndSwap(false, true) {
		if l.executor.Execute(executor.Other, (*trimTask)(l)) != nil {
			l.trimming.Store(false) // the next acknowledgement tries again
		}
	}
}

type trimTask Ledger

func (t *trimTask) Run() {
	l := (*Ledger)(t)
	l.trimming.Store(false)
	l.mu.Lock()
	before := l.leastMarkLocked()
	if held := l.entries.next - l.entries.base; held > 0 {
		l.averageSize.Store(l.entries.bytes / held)
	}
	if l.commits == nil {
		l.entries.trimKeeping(before, l.cfg.RetentionBytes)
	}
	l.mu.Unlock()
	l.trimmed.Store(before)
	if l.commits != nil {
		l.commits.trim(before)
	}
}

// leastMarkLocked returns the first entry that some cursor has not acknowledged
// up to. It needs mu.
func (l *Ledger) leastMarkLocked() int64 {
	before := l.LastConfirmed() + 1
	for _, c := range l.cursors {
		before = min(before, c.markDelete.Load()+1)
	}
	return before
}

// First returns the first entry kept; with none kept, the next one.
func (l *Ledger) First() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.firstLocked()
}

func (l *Ledger) firstLocked() int64 {
	if l.commits != nil {
		return l.cfg.Log.First()
	}
	return l.entries.base
}

// Stats of a ledger.
type Stats struct {
	Entries int64 // ever appended
	Kept    int64 // of these, in memory or in the log
	Bytes   int64 // of entries in memory
	Stored  int64 // bytes of the log, 0 without one
	Cursors int
	// Messages and Appended, in bytes, count what was appended since the ledger
	// was opened.
	Messages, Appended int64
}

// Stats reads a ledger's figures.
func (l *Ledger) Stats() Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.LastConfirmed() + 1
	s := Stats{Entries: next, Kept: max(0, next-l.firstLocked()), Bytes: l.entries.bytes, Cursors: len(l.cursors)}
	s.Messages, s.Appended = l.entries.index+1-l.entries.firstIndex, l.entries.appended
	if l.commits != nil {
		s.Stored = l.cfg.Log.Size()
	}
	return s
}
