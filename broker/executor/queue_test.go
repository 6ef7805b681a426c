package executor

import (
	"bytes"
	"errors"
	"fmt"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/pprof/profile"
	"pgregory.net/rapid"
)

var queueKinds = []struct {
	name string
	kind QueueKind
}{{"lock", QueueLock}, {"parking", QueueParking}, {"channel", QueueChannel}}

// eachKind runs a test for every kind of queue.
func eachKind(t *testing.T, test func(*testing.T, QueueKind)) {
	for _, k := range queueKinds {
		t.Run(k.name, func(t *testing.T) {
			if err := k.kind.Validate(); err != nil {
				if runtime.GOOS == "linux" {
					t.Fatal(err)
				}
				t.Skip(err)
			}
			test(t, k.kind)
		})
	}
}

// eventually polls a condition.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

func offer(t testing.TB, q queue, items ...Item) {
	t.Helper()
	for _, it := range items {
		if err := q.Offer(it); err != nil {
			t.Fatal(err)
		}
	}
}

func ids(items []Item) []int64 {
	out := make([]int64, len(items))
	for i := range items {
		out[i] = items[i].At
	}
	return out
}

// TestQueueAgainstASlice: items of every kind that never waits for room come
// out in the order in which they went in, also past a channel's capacity.
func TestQueueAgainstASlice(t *testing.T) {
	eachKind(t, func(t *testing.T, kind QueueKind) {
		rapid.Check(t, func(t *rapid.T) {
			limit := rapid.SampledFrom([]int{0, 0, 50, 300}).Draw(t, "limit")
			q := newQueue(kind, limit, rapid.IntRange(1, 100).Draw(t, "channel"))
			var model []int64
			var next int64
			running := 0
			t.Repeat(map[string]func(*rapid.T){
				"offer": func(t *rapid.T) {
					for range rapid.IntRange(1, 100).Draw(t, "n") {
						k := rapid.SampledFrom([]Kind{Other, AddBatch, Wake, Read, Dispatch, AddComplete}).Draw(t, "kind")
						err := q.Offer(Item{Kind: k, At: next})
						if full := limit > 0 && k != AddComplete && len(model)+running >= limit; full != errors.Is(err, ErrRejected) {
							t.Fatalf("Offer says %v with %d queued and %d running of %d", err, len(model), running, limit)
						} else if !full {
							model = append(model, next)
							next++
						}
					}
				},
				"take": func(t *rapid.T) {
					if len(model) == 0 {
						return // TakeAll would wait
					}
					into := make([]Item, rapid.IntRange(1, 150).Draw(t, "room"))
					n := q.TakeAll(into)
					if n == 0 || n > len(model) || !slices.Equal(ids(into[:n]), model[:n]) {
						t.Fatalf("took %v, queued %v", ids(into[:n]), model)
					}
					model = model[n:]
					running += n
				},
				"finish": func(t *rapid.T) {
					for range rapid.IntRange(0, running).Draw(t, "n") {
						running--
						if limit > 0 {
							q.finished()
						}
					}
				},
				"drain": func(t *rapid.T) {
					if got := ids(q.Drain()); !slices.Equal(got, model) {
						t.Fatalf("drained %v, queued %v", got, model)
					}
					model = nil
				},
				"": func(t *rapid.T) {
					if q.Len() != len(model) || q.Submitted() != uint64(next) {
						t.Fatalf("Len %d, Submitted %d; want %d, %d", q.Len(), q.Submitted(), len(model), next)
					}
				},
			})
			q.Close()
			rest := slices.Clone(model)
			for n, into := 0, make([]Item, 7); ; rest = rest[n:] {
				if n = q.TakeAll(into); n == 0 {
					break
				}
				if !slices.Equal(ids(into[:n]), rest[:n]) {
					t.Fatalf("took %v after Close, want %v", ids(into[:n]), rest)
				}
			}
			if len(rest) != 0 {
				t.Fatalf("%v left behind by Close", rest)
			}
		})
	})
}

func TestQueueForgetsWhatWasTaken(t *testing.T) {
	eachKind(t, func(t *testing.T, kind QueueKind) {
		q := newQueue(kind, 0, 10)
		for range 100 {
			offer(t, q, Item{Kind: Read, Task: Func(func() {})})
		}
		into := make([]Item, 100)
		for taken := 0; taken < 100; {
			taken += q.TakeAll(into)
		}
		var kept []Item
		switch q := q.(type) {
		case *Queue:
			kept = q.items
		case *ParkingQueue:
			kept = q.items
		case *ChannelQueue:
			kept = q.overflow[:cap(q.overflow)]
		}
		if len(kept) == 0 {
			t.Fatal("nothing to look at")
		}
		for i := range kept {
			if kept[i].Task != nil {
				t.Fatalf("slot %d still holds its task", i)
			}
		}
	})
}

func TestOfferAndCloseWakeTheConsumer(t *testing.T) {
	eachKind(t, func(t *testing.T, kind QueueKind) {
		q := newQueue(kind, 0, 1)
		took := make(chan int)
		go func() {
			into := make([]Item, 4)
			for {
				n := q.TakeAll(into)
				took <- n
				if n == 0 {
					return
				}
			}
		}()
		for k := range NumKinds {
			waitFor(t, "TakeAll", waitReasons[kind].take)
			offer(t, q, Item{Kind: k})
			if n := <-took; n != 1 {
				t.Fatalf("took %d items, want 1", n)
			}
		}
		waitFor(t, "TakeAll", waitReasons[kind].take)
		q.Close()
		q.Close()
		if n := <-took; n != 0 {
			t.Fatalf("took %d items from a closed empty queue", n)
		}
		if err := q.Offer(Item{}); !errors.Is(err, ErrRejected) {
			t.Fatalf("Offer after Close: %v", err)
		}
	})
}

// TestLimitIsExact: without a task finished, exactly limit items are accepted,
// however many goroutines offer and however many are taken meanwhile.
func TestLimitIsExact(t *testing.T) {
	const limit = 500
	eachKind(t, func(t *testing.T, kind QueueKind) {
		q := newQueue(kind, limit, 64)
		var accepted atomic.Int64
		var producers, consumer sync.WaitGroup
		for range 8 {
			producers.Go(func() {
				for range limit {
					if q.Offer(Item{Kind: Dispatch}) == nil {
						accepted.Add(1)
					}
				}
			})
		}
		taken := 0
		consumer.Go(func() {
			into := make([]Item, 32)
			for n := -1; n != 0; taken += n {
				n = q.TakeAll(into)
			}
		})
		producers.Wait()
		q.Close()
		consumer.Wait()
		if accepted.Load() != limit || taken != limit {
			t.Fatalf("%d accepted and %d taken, want %d", accepted.Load(), taken, limit)
		}
	})
}

// TestQueueUnderConcurrency: with the queue closed somewhere on the way, what
// was accepted is taken or drained exactly once, in each producer's order.
func TestQueueUnderConcurrency(t *testing.T) {
	const producers, each = 8, 5000
	for _, closeAt := range []uint64{0, 3000} { // 0: after the last item
		eachKind(t, func(t *testing.T, kind QueueKind) {
			for _, drain := range []bool{false, true} {
				concurrently(t, newQueue(kind, 0, 16), producers, each, closeAt, drain)
			}
		})
	}
}

func concurrently(t *testing.T, q queue, producers, each int, closeAt uint64, drain bool) {
	t.Helper()
	accepted := make([][]bool, producers)
	var offering, consumer sync.WaitGroup
	for p := range producers {
		accepted[p] = make([]bool, each)
		offering.Go(func() {
			for n := range each {
				k := []Kind{Add, Read}[(n/3+p)%2]
				accepted[p][n] = q.Offer(Item{Kind: k, At: int64(p*each + n)}) == nil
			}
		})
	}
	var taken []Item
	consumer.Go(func() {
		into := make([]Item, MaxDrain)
		for n := -1; n != 0; {
			n = q.TakeAll(into)
			taken = append(taken, into[:max(n, 0)]...)
		}
	})
	if closeAt == 0 {
		offering.Wait()
	} else {
		eventually(t, "the queue takes items", func() bool { return q.Submitted() >= closeAt })
	}
	q.Close()
	var rest []Item
	if drain {
		rest = q.Drain()
	}
	consumer.Wait()
	offering.Wait()

	// By lane: adds and the others keep their order each; between the two a
	// full channel may let an add overtake.
	type lane struct {
		producer int64
		add      bool
	}
	got := make(map[int64]bool)
	for _, part := range [][]Item{taken, rest} {
		last := map[lane]int64{}
		for _, it := range part {
			l := lane{it.At / int64(each), it.Kind == Add}
			if before, ok := last[l]; ok && before >= it.At {
				t.Fatalf("producer %d: item %d came after %d", l.producer, it.At, before)
			}
			if last[l] = it.At; got[it.At] {
				t.Fatalf("item %d came twice", it.At)
			}
			got[it.At] = true
		}
	}
	for p := range accepted {
		for n, ok := range accepted[p] {
			if id := int64(p*each + n); ok != got[id] {
				t.Fatalf("item %d: accepted %v, came out %v", id, ok, got[id])
			}
		}
	}
	if closeAt == 0 && len(got) != producers*each {
		t.Fatalf("%d of %d items", len(got), producers*each)
	}
	if q.Submitted() != uint64(len(got)) || q.Len() != 0 {
		t.Fatalf("Submitted %d, Len %d after %d items", q.Submitted(), q.Len(), len(got))
	}
}

// waitReasons say how the Go runtime sees each kind's waits. A thread that
// waits in a futex is no waiting goroutine: that is the parking queue's point.
var waitReasons = map[QueueKind]struct{ offer, take string }{
	QueueLock:    {"sync.Mutex.Lock", "sync.Cond.Wait"},
	QueueParking: {"syscall", "syscall"},
	QueueChannel: {"select", "select"},
}

// waitFor waits until a goroutine is in method of a queue for this reason.
func waitFor(t *testing.T, method, reason string) {
	t.Helper()
	buf := make([]byte, 1<<20)
	eventually(t, fmt.Sprintf("a goroutine waits in %s, %s", method, reason), func() bool {
		for g := range strings.SplitSeq(string(buf[:runtime.Stack(buf, true)]), "\n\n") {
			head, _, _ := strings.Cut(g, "\n")
			if strings.Contains(g, "Queue)."+method+"(") && strings.Contains(head, "["+reason) &&
				(reason != "syscall" || strings.Contains(g, "futex.wait")) {
				return true
			}
		}
		return false
	})
}

// TestWaitSitesAreSeen: a goroutine profile of a contended queue shows where
// the waits are, by the names that the rules of package analysis match.
func TestWaitSitesAreSeen(t *testing.T) {
	const pkg = "github.com/contention-toolkit/contention/broker/executor"
	sites := map[QueueKind]string{
		QueueLock:    pkg + ".(*Queue).Offer",
		QueueParking: pkg + ".(*ParkingQueue).Offer",
		QueueChannel: pkg + ".(*ChannelQueue).Offer",
	}
	eachKind(t, func(t *testing.T, kind QueueKind) {
		q := newQueue(kind, 0, 1)
		var free func()
		switch q := q.(type) {
		case *Queue:
			q.mu.Lock()
			free = q.mu.Unlock
		case *ParkingQueue:
			q.mu.Lock()
			free = q.mu.Unlock
		case *ChannelQueue:
			offer(t, q, Item{Kind: Add})
			free = func() { q.TakeAll(make([]Item, 1)) }
		}
		offered := make(chan error)
		go func() { offered <- q.Offer(Item{Kind: Add}) }()
		waitFor(t, "Offer", waitReasons[kind].offer)
		var out bytes.Buffer
		if err := pprof.Lookup("goroutine").WriteTo(&out, 0); err != nil {
			t.Fatal(err)
		}
		free()
		if err := <-offered; err != nil {
			t.Fatal(err)
		}
		p, err := profile.Parse(&out)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, f := range p.Function {
			names = append(names, f.Name)
		}
		if !slices.Contains(names, sites[kind]) {
			t.Fatalf("%s is not in the profile: %q", sites[kind], names)
		}
	})
}

func TestQueueOptionsAreChecked(t *testing.T) {
	for _, o := range []Options{{Queue: "heap"}, {MaxTasks: -1}, {ChannelSize: -1}} {
		if err := o.Validate(); err == nil {
			t.Errorf("%+v was accepted", o)
		}
	}
	for _, k := range queueKinds {
		if err := (Options{Queue: k.kind, ChannelSize: 3}).Validate(); err != nil && (k.kind != QueueParking || runtime.GOOS == "linux") {
			t.Errorf("%s: %v", k.name, err)
		}
	}
	defer func() {
		if recover() == nil {
			t.Error("New took options that Validate refuses")
		}
	}()
	New(Options{Queue: "heap"})
}
