package executor

import (
	"errors"
	"slices"
	"testing"
	"time"
)

func TestFullChannelHoldsAddsBack(t *testing.T) {
	q := newChannelQueue(0, 2)
	offer(t, q, Item{Kind: Add, At: 1}, Item{Kind: Add, At: 2})
	done := make(chan error)
	go func() { done <- q.Offer(Item{Kind: Add, At: 3}) }()
	waitFor(t, "Offer", "select")
	if q.Len() != 2 || q.Submitted() != 2 {
		t.Fatalf("Len %d, Submitted %d: the add that waits was counted as accepted", q.Len(), q.Submitted())
	}
	into := make([]Item, 1)
	q.TakeAll(into)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	go func() { done <- q.Offer(Item{Kind: Add, At: 4}) }()
	waitFor(t, "Offer", "select")
	q.Close()
	if err := <-done; !errors.Is(err, ErrRejected) {
		t.Fatalf("the add that waited at Close: %v", err)
	}
	if got := ids(q.Drain()); !slices.Equal(got, []int64{2, 3}) || q.TakeAll(into) != 0 {
		t.Fatalf("drained %v, want 2 and 3", got)
	}
}

// TestExecutorMayFillItsOwnChannel: with the channel full of adds and more
// waiting, tasks that the executor submits to itself neither block it nor stay
// behind.
func TestExecutorMayFillItsOwnChannel(t *testing.T) {
	e := New(Options{Queue: QueueChannel, ChannelSize: 2})
	const adders, own = 5, 20
	added := make(chan error, adders)
	var ran []int
	err := e.Execute(Other, Func(func() {
		for range adders {
			go func() { added <- e.Execute(Add, Func(func() { ran = append(ran, -1) })) }()
		}
		waitFor(t, "Offer", "select")
		for i := range own {
			if err := e.Execute([]Kind{Wake, Read, Dispatch, AddComplete, AddBatch, Other}[i%6], Func(func() { ran = append(ran, i) })); err != nil {
				t.Error(err)
			}
		}
	}))
	if err != nil {
		t.Fatal(err)
	}
	for range adders {
		if err := <-added; err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	var want []int
	for i := range own {
		want = append(want, i)
	}
	adds := 0
	others := slices.DeleteFunc(ran, func(i int) bool {
		if i < 0 {
			adds++
		}
		return i < 0
	})
	if adds != adders || !slices.Equal(others, want) {
		t.Fatalf("%d adds and %v ran; want %d, and 0 to %d in order", adds, others, adders, own-1)
	}
}

// TestOverflowComesAfterWhatWasAheadAndIsNotStarved: an item on the overflow
// list runs after the adds that were in the channel, although the channel is
// refilled after every item taken.
func TestOverflowComesAfterWhatWasAheadAndIsNotStarved(t *testing.T) {
	const size = 4
	q := newChannelQueue(0, size)
	for i := range int64(size) {
		offer(t, q, Item{Kind: Add, At: i})
	}
	offer(t, q, Item{Kind: Dispatch, At: 100}, Item{Kind: Read, At: 101})
	var order []int64
	into := make([]Item, 1)
	for next := int64(size); len(order) < size+2; next++ {
		if q.TakeAll(into) != 1 {
			t.Fatal("nothing taken")
		}
		if order = append(order, into[0].At); into[0].Kind == Add {
			offer(t, q, Item{Kind: Add, At: next}) // there is room for one
		}
	}
	if !slices.Equal(order, []int64{0, 1, 2, 3, 100, 101}) {
		t.Fatalf("took %v", order)
	}
}

// TestLaterItemsGoBehindTheOverflow: while something overflows, there being
// room in the channel again does not let a later item pass it, and one that
// overflowed later waits for the adds before it.
func TestLaterItemsGoBehindTheOverflow(t *testing.T) {
	q := newChannelQueue(0, 2)
	offer(t, q, Item{Kind: Add, At: 0}, Item{Kind: Add, At: 1}, Item{Kind: Read, At: 2})
	into := make([]Item, 1)
	q.TakeAll(into) // counts what is ahead of 2
	offer(t, q, Item{Kind: Read, At: 3})
	order := ids(into)
	offer(t, q, Item{Kind: Add, At: 4}, Item{Kind: Read, At: 5})
	for len(order) < 6 {
		q.TakeAll(into)
		order = append(order, into[0].At)
	}
	// 4 may overtake 3, which overflowed; 5 was offered after 4.
	if !slices.Equal(order, []int64{0, 1, 2, 4, 3, 5}) {
		t.Fatalf("took %v", order)
	}
}

// TestSpillWakesTheConsumer: an Offer found the channel full, and before it put
// its item on the overflow list the consumer emptied the channel and waits.
func TestSpillWakesTheConsumer(t *testing.T) {
	q := newChannelQueue(0, 1)
	into := make([]Item, 4)
	took := make(chan int)
	go func() { took <- q.TakeAll(into) }()
	waitFor(t, "TakeAll", "select")
	if !q.reserve(Other) {
		t.Fatal("an open queue refuses")
	}
	q.mu.Lock()
	q.spill(Item{Kind: Read, At: 7})
	q.mu.Unlock()
	if n := <-took; n != 1 || into[0].At != 7 {
		t.Fatalf("took %v", ids(into[:n]))
	}
}

// TestConsumerWaitsForAnOfferUnderWay: an Offer passed the check for a closed
// queue before Close and sends after it.
func TestConsumerWaitsForAnOfferUnderWay(t *testing.T) {
	q := newChannelQueue(0, 1)
	if !q.reserve(Other) {
		t.Fatal("an open queue refuses")
	}
	q.Close()
	into := make([]Item, 4)
	took := make(chan int)
	go func() { took <- q.TakeAll(into) }()
	select {
	case n := <-took:
		t.Fatalf("TakeAll returned %d although an Offer is under way", n)
	case <-time.After(20 * time.Millisecond): // only gives a defect the time to show
	}
	q.send(Item{Kind: Add, At: 7})
	if n := <-took; n != 1 || into[0].At != 7 {
		t.Fatalf("took %v", ids(into[:n]))
	}
	if n := q.TakeAll(into); n != 0 {
		t.Fatalf("took %d from a closed empty queue", n)
	}
}
