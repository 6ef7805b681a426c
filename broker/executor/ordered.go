package executor

import (
	"context"
	"errors"
	"fmt"
)

// Ordered is a fixed set of executors among which work is divided by a hash,
// so that everything with one hash runs in order.
type Ordered struct{ executors []*Executor }

// NewOrdered starts n executors, at least one, named o.Name-0 and so on.
func NewOrdered(n int, o Options) *Ordered {
	s := &Ordered{executors: make([]*Executor, max(n, 1))}
	for i := range s.executors {
		one := o
		one.Name = fmt.Sprintf("%s-%d", o.Name, i)
		s.executors[i] = New(one)
	}
	return s
}

// Choose returns the executor of hash.
func (s *Ordered) Choose(hash uint64) *Executor {
	return s.executors[(hash>>1)%uint64(len(s.executors))]
}

// All returns the executors.
func (s *Ordered) All() []*Executor { return s.executors }

// Shutdown shuts every executor down as [Executor.Shutdown] does.
func (s *Ordered) Shutdown(ctx context.Context) error {
	for _, e := range s.executors {
		e.queue.Close()
	}
	var errs []error
	for _, e := range s.executors {
		errs = append(errs, e.Shutdown(ctx))
	}
	return errors.Join(errs...)
}
