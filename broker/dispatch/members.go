package dispatch

import (
	"fmt"
	"slices"

	"github.com/contention-toolkit/contention/broker/wire"
)

// AddConsumer connects a consumer. A subscription without consumers takes the
// type, and the Key_Shared policy, of the first one. The reasons to refuse are
// ErrClosed, ErrConsumerBusy, ErrOtherType, ErrOtherPolicy and ErrKeyRanges.
func (d *Dispatcher) AddConsumer(o ConsumerOptions) (*Consumer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.admit(&o); err != nil {
		return nil, fmt.Errorf("subscription %s: %w", d.Name, err)
	}
	if d.subType != o.Type {
		d.subType = o.Type
		d.forgetHashes()
	}
	d.policy = policyOf(&o)
	d.nextNumber++
	c := &Consumer{ConsumerOptions: o, d: d, number: d.nextNumber}
	i := 0
	for i < len(d.consumers) && d.consumers[i].Priority <= c.Priority {
		i++
	}
	d.setConsumers(slices.Insert(slices.Clone(d.consumers), i, c))
	if d.subType == wire.Failover && !c.Active() {
		c.Sink.ActiveChanged(c.ID, false)
	}
	d.readMoreAsync() // what waited for an owner may have one now
	return c, nil
}

// admit needs mu.
func (d *Dispatcher) admit(o *ConsumerOptions) error {
	policy := policyOf(o)
	switch {
	case d.closed:
		return ErrClosed
	case len(d.consumers) == 0:
	case d.subType != o.Type:
		return fmt.Errorf("it is %v, consumer %s wants %v: %w", d.subType, o.Name, o.Type, ErrOtherType)
	case o.Type == wire.Exclusive:
		return ErrConsumerBusy
	case policy != d.policy:
		return fmt.Errorf("it is %v, consumer %s wants %v: %w", d.policy, o.Name, policy, ErrOtherPolicy)
	case len(d.consumers) == maxConsumers:
		return fmt.Errorf("it has %d consumers, the most there can be: %w", maxConsumers, ErrConsumerBusy)
	}
	if policy.sticky {
		return checkRanges(o, d.consumers)
	}
	return nil
}

// setConsumers needs mu.
func (d *Dispatcher) setConsumers(now []*Consumer) {
	d.consumers = now
	d.members.Store(&now)
	d.selector = nil
	switch {
	case d.subType != wire.KeyShared:
	case d.policy.sticky:
		d.selector = sticky(now)
	default:
		d.selector = autoSplit(now)
	}
	d.replay.assign(d.selector)
	if d.selector != nil && d.ordered() {
		d.draining.recompute(now, d.selector.owner)
	} else {
		d.draining.clear()
	}
	d.chooseActive()
}

// forgetHashes is for a change of type, after which entries hash differently:
// those that wait, and those being read again. It needs mu.
func (d *Dispatcher) forgetHashes() {
	d.replay.forgetHashes()
	for i := range d.picked {
		d.picked[i].hash = unknownHash
	}
}

// chooseActive makes the first consumer of Exclusive and Failover the active
// one. What the former one has not acknowledged is sent to the new one. It
// needs mu.
func (d *Dispatcher) chooseActive() {
	var now *Consumer
	if d.single() && len(d.consumers) > 0 {
		now = d.consumers[0]
	}
	if now == d.active {
		return
	}
	if old := d.active; old != nil {
		old.active.Store(false)
		d.withdraw(old, old.pending.all())
	}
	if d.active = now; now != nil {
		now.active.Store(true)
	}
	if d.subType == wire.Failover {
		for _, c := range d.consumers {
			c.Sink.ActiveChanged(c.ID, c == now)
		}
	}
}

// removeConsumer sends what c has not acknowledged to the replay set.
func (d *Dispatcher) removeConsumer(c *Consumer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.Index(d.consumers, c)
	if i < 0 {
		return
	}
	d.toReplay(d.detach(c))
	d.updateUnackedFull()
	d.setConsumers(slices.Delete(slices.Clone(d.consumers), i, i+1))
	d.unwritten.Store(0) // its connection may never release what it has
	if !d.closed {
		d.readMoreAsync()
	}
}

// detach takes c out of the subscription's counts and returns what it has not
// acknowledged. It needs mu.
func (d *Dispatcher) detach(c *Consumer) []replayItem {
	// Only what Flow has credited to the total may be debited: permits that
	// the consumer has and the dispatcher has not seen yet are not part of it.
	d.total.Add(-c.closeCredit())
	// Likewise only what is pending: what is just being acknowledged is taken
	// off the counts there.
	left, messages := c.pending.close()
	c.unacked.Add(-messages)
	d.unacked.Add(-messages)
	d.chunks.leave(c)
	c.active.Store(false)
	if d.active == c {
		d.active = nil
	}
	return left
}
