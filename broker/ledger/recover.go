package ledger

import (
	"context"
	"errors"
	"fmt"

	"github.com/contention-toolkit/contention/broker/executor"
)

// Recover makes a ledger that a failed commit has fenced usable again: adds of
// an earlier epoch fail from then on, later ones are stored.
func (l *Ledger) Recover() error {
	if l.commits == nil {
		return fmt.Errorf("recovering ledger %s: it has no log", l.Name)
	}
	done := make(chan error, 1)
	l.commits.mu.Lock()
	closed := l.commits.closed
	l.commits.recover = append(l.commits.recover, done)
	l.commits.mu.Unlock()
	if closed {
		return fmt.Errorf("recovering ledger %s: %w", l.Name, ErrClosed)
	}
	wake(l.commits.ready)
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("recovering ledger %s: %w", l.Name, err)
		}
		return nil
	case <-l.commits.done:
		return fmt.Errorf("recovering ledger %s: %w", l.Name, ErrClosed)
	}
}

// recoverLog runs on the commit goroutine.
func (k *committer) recoverLog() error {
	if k.failed == nil {
		return nil
	}
	if err := k.log.Recover(); err != nil {
		return err
	}
	// A commit whose end was not known may be in the log after all. Its
	// producers were told that it failed; readers get it all the same.
	adopted := make(chan error, 1)
	if err := k.l.executor.Execute(executor.AddComplete, executor.Func(func() { adopted <- k.l.adopt() })); err != nil {
		return err
	}
	if err := <-adopted; err != nil {
		return err
	}
	k.failed = nil
	l := k.l
	l.mu.Lock()
	defer l.mu.Unlock()
	l.epoch.Add(1)
	if l.state == Fenced {
		l.state = Open
	}
	return nil
}

// adopt confirms what the log has beyond the last confirmed entry; it runs on
// the executor.
func (l *Ledger) adopt() error {
	for next := l.LastConfirmed() + 1; next < l.cfg.Log.Next(); next = l.LastConfirmed() + 1 {
		entries, err := l.cfg.Log.Read(next, segmentSize, maxCommitBytes, nil)
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			return errors.New("log ends before its next entry")
		}
		l.confirm(entries)
	}
	return nil
}

// Epoch is to be put into adds; it changes with Recover.
func (l *Ledger) Epoch() uint32 { return l.epoch.Load() }

// Flush waits until every add handed over before has completed or failed, or
// for ctx. The executor must be running.
func (l *Ledger) Flush(ctx context.Context) error {
	barrier := func() error {
		done := make(chan struct{})
		if err := l.executor.Execute(executor.AddComplete, executor.Func(func() { close(done) })); err != nil {
			return err
		}
		return await(ctx, done)
	}
	err := barrier()
	if err == nil && l.batching != nil {
		// A batch task in front of the barrier may have left some to the next
		// one, which it submitted behind.
		for err == nil && l.batching.Pending() > 0 {
			err = barrier()
		}
		if err == nil {
			err = barrier()
		}
	}
	if err == nil && l.commits != nil {
		done := make(chan struct{})
		l.commits.mu.Lock()
		l.commits.flushes = append(l.commits.flushes, done)
		l.commits.mu.Unlock()
		wake(l.commits.ready)
		if err = await(ctx, done); err == nil {
			err = barrier()
		}
	}
	if err != nil {
		return fmt.Errorf("flushing ledger %s: %w", l.Name, err)
	}
	return nil
}

func await(ctx context.Context, done <-chan struct{}) error {
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// CloseLog stores what is pending and closes the log. The ledger must have been
// closed; adds that complete after the executor has shut down fail.
func (l *Ledger) CloseLog() error {
	if l.commits == nil {
		return nil
	}
	l.commits.close()
	l.reading.Wait()
	if err := l.cfg.Log.Close(); err != nil {
		return fmt.Errorf("closing ledger %s: %w", l.Name, err)
	}
	return nil
}
