package ledger

import (
	"errors"
	"fmt"

	"github.com/contention-toolkit/contention/broker/executor"
	"github.com/contention-toolkit/contention/broker/storage"
)

// AsyncReplay reads the given entries again, whatever the read position, up to
// maxBytes bytes (0 = no limit; one entry at least): entries beyond the limit
// are left out and must be asked for again. ids ascend and must not change
// until the callback.
func (c *Cursor) AsyncReplay(ids []int64, maxBytes int64) error {
	c.opMu.Lock()
	round := c.round
	c.opMu.Unlock()
	err := c.ledger.executor.Execute(executor.Read, &replayTask{c: c, ids: ids, round: round, op: readOp{most: len(ids), maxBytes: maxBytes}})
	if err != nil {
		return fmt.Errorf("replaying at cursor %s: %w", c.Name, err)
	}
	return nil
}

type replayTask struct {
	c     *Cursor
	ids   []int64
	op    readOp
	round uint64
}

func (t *replayTask) Run() {
	c := t.c
	if !c.inRound(t.round) {
		return
	}
	entries := c.replayed[:0]
	var missing []int64 // a prefix of what is wanted: memory holds the newest
	c.mu.RLock()
	for _, id := range t.ids {
		if c.isAcked(id) {
			continue
		}
		e, ok := c.ledger.entries.at(id)
		if !ok {
			missing = append(missing, id)
			continue
		}
		if !t.op.fits(len(e.Data), len(entries)) {
			break
		}
		entries = append(entries, e)
	}
	c.mu.RUnlock()
	c.replayed = entries
	if len(missing) > 0 && c.ledger.commits != nil {
		t.readLog(missing)
		return
	}
	c.cb.EntriesReplayed(entries)
}

// inRound reports whether a read of that round is still wanted.
func (c *Cursor) inRound(round uint64) bool {
	c.opMu.Lock()
	defer c.opMu.Unlock()
	return !c.ended && c.round == round
}

// readLog reads what is not in memory on a goroutine of its own; the executor
// goes on with other tasks. What comes after the missing entries is left for
// another replay.
func (t *replayTask) readLog(missing []int64) {
	l := t.c.ledger
	l.cfg.Storage.CacheMisses.Add(1)
	l.reading.Go(func() {
		entries, err := l.readEach(missing, t.op.maxBytes, t.c.passOver)
		done := executor.Func(func() { t.logRead(entries, err) })
		if err := l.executor.Execute(executor.Read, done); err != nil {
			t.logRead(nil, err)
		}
	})
}

func (t *replayTask) logRead(entries []Entry, err error) {
	c := t.c
	if !c.inRound(t.round) {
		return
	}
	if err != nil {
		c.cb.ReplayFailed(fmt.Errorf("replaying at cursor %s: %w", c.Name, err))
		return
	}
	if len(entries) == 0 { // dropped from the log: those in memory are all there is
		c.cb.EntriesReplayed(c.replayed)
		return
	}
	c.cb.EntriesReplayed(entries)
}

// readEach reads entries of the log by their numbers, which ascend, up to
// maxBytes bytes; those dropped meanwhile are left out, and those passed over
// because of damage are given to damaged.
func (l *Ledger) readEach(ids []int64, maxBytes int64, damaged func(ids []int64)) (entries []Entry, err error) {
	op := readOp{most: len(ids), maxBytes: maxBytes}
	for i := 0; i < len(ids) && !op.full(len(entries)); {
		run := 1
		for i+run < len(ids) && ids[i+run] == ids[i]+int64(run) {
			run++
		}
		skip := int(min(max(0, l.cfg.Log.First()-ids[i]), int64(run)))
		if skip > 0 {
			i += skip
			continue
		}
		got, err := l.cfg.Log.Read(ids[i], run, maxBytes, nil)
		if damage := l.skippable(err); damage != nil {
			first := i
			for i++; i < len(ids) && ids[i] < damage.Next; i++ {
			}
			damaged(ids[first:i])
			continue
		}
		if err != nil {
			return nil, err
		}
		for k := range got {
			if !op.fits(len(got[k].Data), len(entries)) {
				return entries, nil
			}
			entries = append(entries, got[k])
		}
		i += len(got)
	}
	return entries, nil
}

// readLog is a normal read's miss: it reads the log from entry from on, on a
// goroutine of its own.
func (c *Cursor) readLog(from int64, round uint64) {
	l := c.ledger
	l.cfg.Storage.CacheMisses.Add(1)
	op := c.op
	l.reading.Go(func() {
		from = max(from, l.cfg.Log.First())
		entries, err := l.cfg.Log.Read(from, op.most, op.maxBytes, nil)
		done := executor.Func(func() { c.logRead(entries, err, round) })
		if err := l.executor.Execute(executor.Read, done); err != nil {
			c.logRead(nil, err, round)
		}
	})
}

func (c *Cursor) logRead(entries []Entry, err error, round uint64) {
	c.opMu.Lock()
	wanted := c.pending && c.round == round
	c.opMu.Unlock()
	if !wanted {
		return
	}
	if damage := c.ledger.skippable(err); damage != nil {
		c.skip(c.readPos.Load(), damage.Next)
		c.report(c.submitRead())
		return
	}
	if err != nil {
		if c.takeOp() {
			c.cb.ReadFailed(fmt.Errorf("reading at cursor %s: %w", c.Name, err))
		}
		return
	}
	c.mu.RLock()
	id := c.readPos.Load()
	for i := range entries {
		e := &entries[i]
		if e.ID < id || c.isAcked(e.ID) || e.ID > c.ledger.LastConfirmed() {
			continue
		}
		if !c.op.fits(len(e.Data), len(c.entries)) {
			break
		}
		c.entries = append(c.entries, *e)
		id = e.ID + 1
	}
	c.mu.RUnlock()
	c.readPos.Store(id)
	c.collected(len(c.entries)) // a read of the log is not extended
}

// skippable returns the damage that err reports if it is to be passed over.
func (l *Ledger) skippable(err error) *storage.CorruptError {
	var damage *storage.CorruptError
	if l.cfg.SkipCorrupt && errors.As(err, &damage) {
		return damage
	}
	return nil
}

// skip acknowledges the entries from first to before next, which cannot be read.
func (c *Cursor) skip(first, next int64) {
	next = max(min(next, c.ledger.LastConfirmed()+1), first+1)
	var ids []int64
	for id := first; id < next; id++ {
		ids = append(ids, id)
	}
	c.passOver(ids)
	c.readPos.Store(next)
}

// passOver acknowledges damaged entries.
func (c *Cursor) passOver(ids []int64) {
	c.ledger.cfg.Storage.Skipped.Add(uint64(c.Delete(ids)))
	c.ledger.log.Error("damaged entries are passed over", "ledger", c.ledger.Name, "cursor", c.Name, "first", ids[0], "last", ids[len(ids)-1])
}

// Entry returns entry id, from memory or from the log, and whether it is kept.
// It may read the disk; the executor must not call it.
func (l *Ledger) Entry(id int64) (Entry, bool, error) {
	l.mu.Lock()
	e, ok := l.entries.at(id)
	l.mu.Unlock()
	if ok || l.commits == nil || id < l.cfg.Log.First() || id > l.LastConfirmed() {
		return e, ok, nil
	}
	got, err := l.cfg.Log.Read(id, 1, 0, nil)
	if err != nil || len(got) == 0 {
		return Entry{}, false, err
	}
	return got[0], true, nil
}

// Search returns the first entry kept for which found is true, where it is
// false for all before and true for all after; the number of the next entry to
// be written if there is none. It may read the disk; the executor must not
// call it.
func (l *Ledger) Search(found func(Entry) bool) (int64, error) {
	lo, hi := l.First(), l.LastConfirmed()+1
	for lo < hi {
		mid := lo + (hi-lo)/2
		e, ok, err := l.Entry(mid)
		switch {
		case err != nil:
			return 0, fmt.Errorf("searching ledger %s at entry %d: %w", l.Name, mid, err)
		case ok && found(e):
			hi = mid
		default: // one dropped meanwhile lies before what is sought
			lo = mid + 1
		}
	}
	return lo, nil
}
