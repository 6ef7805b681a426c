package dispatch

import (
	"errors"
	"time"

	"github.com/contention-toolkit/contention/broker/executor"
	"github.com/contention-toolkit/contention/broker/ledger"
)

// readMoreAsync asks the ledger executor to read more; requests made before the
// task starts are one.
func (d *Dispatcher) readMoreAsync() {
	if d.requested.CompareAndSwap(false, true) {
		if d.executor.Execute(executor.Dispatch, (*readMoreTask)(d)) != nil {
			d.requested.Store(false)
			d.retryLater(rejectedRetry)
		}
	}
}

type readMoreTask Dispatcher

func (t *readMoreTask) Run() {
	d := (*Dispatcher)(t)
	d.requested.Store(false)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.readMoreEntries()
}

// rejectedRetry is how long after a full executor rejected a task of ours it is
// submitted again.
const rejectedRetry = 10 * time.Millisecond

// retryLater asks again after a while, since nobody else may. It does not need
// mu: the timer's function takes it.
func (d *Dispatcher) retryLater(after time.Duration) {
	if !d.retrying.CompareAndSwap(false, true) {
		return
	}
	time.AfterFunc(after, func() {
		d.retrying.Store(false)
		if d.goesOn() {
			d.readMoreAsync()
		}
	})
}

// goesOn reports whether there is anybody to read for.
func (d *Dispatcher) goesOn() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return !d.closed && len(d.consumers) > 0
}

// readMoreEntries starts the next read if one is due: of what waits in the
// replay set, or else of what comes next. It needs mu.
func (d *Dispatcher) readMoreEntries() {
	if d.closed || d.failing || len(d.replayIDs) > 0 {
		return
	}
	d.replay.removeUpTo(d.cursor.MarkDeletePosition()) // acknowledged while they waited
	first := d.firstAvailable()
	if first == nil {
		return
	}
	if d.updateUnackedFull(); d.unackedFull {
		return
	}
	n := int(min(max(d.total.Load(), first.permits.Load()), int64(d.readBatch)))
	if d.readReplay(n) || d.readPending || d.replay.len() >= d.lookAhead() || d.unwritten.Load() != 0 {
		return
	}
	switch err := d.cursor.AsyncReadOrWait(n, d.cfg.MaxReadSizeBytes); {
	case err == nil, errors.Is(err, ledger.ErrReadPending):
		d.readPending, d.readFirst = true, d.replay.first()
	case !errors.Is(err, ledger.ErrClosed):
		d.readFailed(err)
	}
}

// readReplay starts a replay read of what can be sent now, if there is any.
func (d *Dispatcher) readReplay(n int) bool {
	may := d.mayReplay
	if d.selector != nil && !d.draining.active.Load() { // under mu none begins to
		may = nil
	}
	d.picked = d.replay.pick(d.picked[:0], n, may)
	if len(d.picked) == 0 {
		return false
	}
	d.replayIDs = d.replayIDs[:0]
	for _, it := range d.picked {
		d.replayIDs = append(d.replayIDs, it.id)
	}
	if err := d.cursor.AsyncReplay(d.replayIDs, d.cfg.MaxReadSizeBytes); err != nil {
		d.replayIDs = d.replayIDs[:0]
		d.readFailed(err)
		return true
	}
	d.replayStale = false
	return true
}

// mayReplay reports whether an entry of the hash can be sent now.
func (d *Dispatcher) mayReplay(h uint16) bool {
	c := d.owner(h)
	return c != nil && c.available() && !d.draining.blocks(h, c)
}

// readFailed makes the next read small and later. It needs mu.
func (d *Dispatcher) readFailed(err error) {
	d.readBatch = 1
	if d.closed {
		return
	}
	if errors.Is(err, executor.ErrRejected) {
		d.retryLater(rejectedRetry)
		return
	}
	wait := d.failures.next()
	d.cfg.Logger.Warn("read failed, will retry", "subscription", d.Name, "err", err, "after", wait)
	d.failing = true
	time.AfterFunc(wait, func() {
		d.mu.Lock()
		d.failing = false
		d.mu.Unlock()
		if d.goesOn() {
			d.readMoreAsync()
		}
	})
}

// readSucceeded lets the next read be larger. It needs mu.
func (d *Dispatcher) readSucceeded() {
	d.failures.reset()
	d.readBatch = min(2*d.readBatch, d.cfg.MaxReadBatchSize)
}

// callbacks are the dispatcher as its cursor sees it.
type callbacks struct{ d *Dispatcher }

func (cb callbacks) EntriesRead(entries []ledger.Entry) {
	d := cb.d
	d.mu.Lock()
	defer d.mu.Unlock()
	d.readPending = false
	d.readSucceeded()
	if d.closed {
		return
	}
	if d.ordered() && d.replay.first() < d.readFirst {
		d.putAside(entries)
	} else {
		d.sendMessagesToConsumers(entries, nil)
	}
	d.readMoreEntries()
}

func (cb callbacks) EntriesReplayed(entries []ledger.Entry) {
	d := cb.d
	d.mu.Lock()
	defer d.mu.Unlock()
	d.readSucceeded()
	if d.closed {
		d.replayIDs = d.replayIDs[:0]
		return
	}
	returned := d.dropGone(entries)
	d.replayIDs = d.replayIDs[:0]
	// An entry before these may have come meanwhile, of the same hash: then all
	// are picked again, that one first.
	if !d.replayStale {
		if d.sendMessagesToConsumers(entries, returned) == 0 && len(entries) > 0 {
			d.retryLater(d.retries.next()) // at once would go round in circles
			return
		}
		d.retries.reset()
	}
	d.readMoreEntries()
}

// dropGone forgets entries that were picked and no longer exist, and returns
// those that got has. Those after the last one returned may just not have
// fitted into the read.
func (d *Dispatcher) dropGone(got []ledger.Entry) (returned []replayItem) {
	d.gone, d.leaving = d.gone[:0], d.leaving[:0]
	all := len(got) == 0
	returned = d.picked[:0]
	for _, it := range d.picked {
		if len(got) > 0 && got[0].ID == it.id {
			got = got[1:]
			returned = append(returned, it)
			continue
		}
		if len(got) == 0 && !all {
			break
		}
		d.gone = append(d.gone, it.id)
		d.leaving = append(d.leaving, it)
	}
	d.replay.remove(d.leaving)
	d.redeliver.forget(d.gone)
	return returned
}

func (cb callbacks) ReplayFailed(err error) {
	d := cb.d
	d.mu.Lock()
	defer d.mu.Unlock()
	d.replayIDs = d.replayIDs[:0]
	d.readFailed(err)
}

func (cb callbacks) ReadFailed(err error) {
	d := cb.d
	d.mu.Lock()
	defer d.mu.Unlock()
	d.readPending = false
	d.readFailed(err)
}
