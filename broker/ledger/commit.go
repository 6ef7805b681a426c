package ledger

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/contention-toolkit/contention/broker/executor"
	"github.com/contention-toolkit/contention/broker/stats"
)

// Bounds of one group commit.
const (
	maxCommitEntries = 1 << 16
	maxCommitBytes   = 8 << 20
)

// committer brings a ledger's entries into its log: what gathers while one
// group commit is under way is the next.
//
//	executor: add → write cache ─┐
//	commit goroutine:            └→ Log.Append → one executor task → receipts
type committer struct {
	l   *Ledger
	log Log

	mu      sync.Mutex
	pending []*Add
	spare   []*Add
	free    *group
	closed  bool
	flushes []chan struct{} // closed once nothing is pending
	recover []chan error
	ready   chan struct{} // there is something to do
	done    chan struct{}

	bytes  atomic.Int64  // in the write cache: pending or being stored
	room   chan struct{} // bytes went down
	trimTo atomic.Int64

	failed error // of the last group commit; the commit goroutine's
}

func startCommitter(l *Ledger) *committer {
	k := &committer{l: l, log: l.cfg.Log, ready: make(chan struct{}, 1), done: make(chan struct{}), room: make(chan struct{}, 1)}
	go k.loop()
	return k
}

// add puts a into the write cache, waiting for room. The executor calls it.
func (k *committer) add(a *Add) {
	n := int64(len(a.Data))
	if !k.hasRoom(n) && !k.waitForWriteCache(n) {
		a.Done.AddFailed(k.l.rejected(fmt.Errorf("%w: %d bytes for %v", ErrThrottled, k.bytes.Load(), k.l.cfg.WriteCacheTimeout)))
		return
	}
	k.bytes.Add(n)
	k.l.cfg.Storage.Pending.Add(n)
	k.mu.Lock()
	first := len(k.pending) == 0
	k.pending = append(k.pending, a)
	k.mu.Unlock()
	if first {
		wake(k.ready)
	}
}

func wake(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// hasRoom reports whether n bytes fit into the write cache; an empty one takes
// any entry.
func (k *committer) hasRoom(n int64) bool {
	held := k.bytes.Load()
	return held == 0 || held+n <= k.l.cfg.WriteCacheBytes
}

// waitForWriteCache waits for room for n bytes and reports false if that takes
// too long.
func (k *committer) waitForWriteCache(n int64) bool {
	start := time.Now()
	defer func() {
		k.l.cfg.Storage.Throttles.Add(1)
		k.l.cfg.Storage.ThrottledNanos.Add(int64(time.Since(start)))
	}()
	timer := time.NewTimer(k.l.cfg.WriteCacheTimeout)
	defer timer.Stop()
	for !k.hasRoom(n) {
		select {
		case <-k.room:
		case <-timer.C:
			return false
		}
	}
	return true
}

// trim has the commit goroutine drop entries before before from the log.
func (k *committer) trim(before int64) {
	k.trimTo.Store(before)
	wake(k.ready)
}

func (k *committer) loop() {
	defer close(k.done)
	trimmed := int64(0)
	for k.waitForAdds() {
		for adds := k.take(); len(adds) > 0; adds = k.take() {
			k.commit(adds)
		}
		k.mu.Lock()
		flushes, recover := k.flushes, k.recover
		k.flushes, k.recover = nil, nil
		k.mu.Unlock()
		for _, c := range flushes {
			close(c)
		}
		for _, c := range recover {
			c <- k.recoverLog()
		}
		if to := k.trimTo.Load(); to > trimmed && k.failed == nil {
			if err := k.log.TrimKeeping(to, k.l.cfg.RetentionBytes); err != nil {
				k.l.log.Error("trimming the log failed", "ledger", k.l.Name, "before", to, "err", err)
			}
			trimmed = to
		}
	}
}

// waitForAdds waits for something to do; false = closed, and nothing pending.
func (k *committer) waitForAdds() bool {
	<-k.ready
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.closed || len(k.pending) > 0
}

// take returns the next adds to commit together; they are the caller's.
func (k *committer) take() []*Add {
	k.mu.Lock()
	defer k.mu.Unlock()
	adds := k.pending
	var bytes int64
	n := 0
	for n < len(adds) && n < maxCommitEntries && (n == 0 || bytes+int64(len(adds[n].Data)) <= maxCommitBytes) {
		bytes += int64(len(adds[n].Data))
		n++
	}
	k.pending = append(k.spare[:0], adds[n:]...)
	k.spare = nil
	clear(adds[n:])
	return adds[:n]
}

// commit stores adds and hands their completions to the executor.
func (k *committer) commit(adds []*Add) {
	g := k.newGroup(adds)
	id, index, now := k.log.Next(), k.log.NextIndex(), k.l.now()
	var bytes int64
	for i, a := range adds {
		n := max(a.Messages, 1)
		index += int64(n)
		g.entries = append(g.entries, Entry{ID: id + int64(i), Data: a.Data, Messages: n, Index: index - 1, Timestamp: now})
		bytes += int64(len(a.Data))
	}
	g.err = k.store(g.entries, bytes)
	k.bytes.Add(-bytes)
	k.l.cfg.Storage.Pending.Add(-bytes)
	wake(k.room)
	if err := k.l.executor.Execute(executor.AddComplete, g); err != nil {
		g.fail(err) // shut down: stored, and nobody was told
	}
}

func (k *committer) store(entries []Entry, bytes int64) error {
	if k.failed != nil {
		return k.failed
	}
	start := stats.Now()
	err := k.log.Append(entries)
	st := k.l.cfg.Storage
	st.CommitTime.Observe(stats.Now() - start)
	st.Commits.Observe(int64(len(entries)))
	if err == nil {
		st.CommitBytes.Add(uint64(bytes))
		return nil
	}
	// What follows must not be stored before its producers know that this was
	// not: the ledger takes nothing until Recover.
	st.Failures.Add(1)
	k.failed = fmt.Errorf("%w: %w", ErrPersistence, err)
	k.l.SetState(Fenced)
	k.l.log.Error("storing entries failed, the ledger is fenced", "ledger", k.l.Name, "entries", len(entries), "bytes", bytes, "err", err)
	if k.l.cfg.OnLogFailure != nil {
		k.l.cfg.OnLogFailure(err)
	}
	return k.failed
}

// close ends the commit goroutine once everything pending is stored.
func (k *committer) close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	wake(k.ready)
	<-k.done
}

// group is the completions of one group commit: one executor task.
type group struct {
	k       *committer
	adds    []*Add
	entries []Entry
	err     error
	next    *group // free
}

func (k *committer) newGroup(adds []*Add) *group {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := k.free
	if g == nil {
		return &group{k: k, adds: adds}
	}
	k.free = g.next
	g.adds, g.next = adds, nil
	return g
}

// Run completes the adds; the executor calls it.
func (g *group) Run() {
	if g.err != nil {
		g.fail(g.err)
		return
	}
	l := g.k.l
	l.confirm(g.entries)
	for i, a := range g.adds {
		a.Done.AddCompleted(g.entries[i].ID)
	}
	g.recycle()
	if l.waiters.Load() > 0 {
		l.notifyCursors()
	}
}

// confirm takes entries that the log has into the read cache and makes them
// readable. It runs on the executor.
func (l *Ledger) confirm(entries []Entry) {
	l.mu.Lock()
	for i := range entries {
		e := &entries[i]
		l.entries.append(e.Data, e.Messages, e.Timestamp)
	}
	l.evictLocked()
	l.mu.Unlock()
	l.lastConfirmed.Store(entries[len(entries)-1].ID)
}

func (g *group) fail(err error) {
	for _, a := range g.adds {
		a.Done.AddFailed(g.k.l.rejected(err))
	}
	g.recycle()
}

func (g *group) recycle() {
	clear(g.adds)
	clear(g.entries)
	k := g.k
	k.mu.Lock()
	defer k.mu.Unlock()
	if cap(g.adds) > cap(k.spare) {
		k.spare = g.adds
	}
	*g = group{k: k, entries: g.entries[:0], next: k.free}
	k.free = g
}

// evictLocked drops the oldest entries from memory while they exceed the read
// cache. It needs mu.
func (l *Ledger) evictLocked() {
	if l.entries.bytes <= l.cfg.ReadCacheBytes {
		return
	}
	to, bytes := l.entries.base, l.entries.bytes
	for ; to < l.entries.next && bytes > l.cfg.ReadCacheBytes; to++ {
		bytes -= l.entries.size(to)
	}
	l.entries.trim(to)
}
