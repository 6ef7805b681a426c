//go:build race || pause

package mpsc

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// producers runs Offers that stop at the points of interest. Only one Offer
// moves at a time: start and resume return when it has stopped again or ended.
type producers struct {
	q       *Queue[int]
	at      map[point]bool
	stopped chan stop // from an Offer that stops; ended if its resume is nil
}

type stop struct {
	at     point
	resume chan struct{}
}

func newProducers(t interface{ Cleanup(func()) }, q *Queue[int], at ...point) *producers {
	p := &producers{q: q, at: map[point]bool{}, stopped: make(chan stop)}
	for _, a := range at {
		p.at[a] = true
	}
	f := func(a point) {
		if p.at[a] {
			s := stop{a, make(chan struct{})}
			p.stopped <- s
			<-s.resume
		}
	}
	onPause.Store(&f)
	t.Cleanup(func() { onPause.Store(nil) })
	return p
}

// start begins an Offer of v.
func (p *producers) start(v int) stop {
	go func() {
		p.q.Offer(&v)
		p.stopped <- stop{}
	}()
	return <-p.stopped
}

func (p *producers) resume(s stop) stop {
	close(s.resume)
	return <-p.stopped
}

func TestClaimedElementIsNeitherLostNorSpunOn(t *testing.T) {
	q := New[int](4)
	p := newProducers(t, q, claimed)
	one := p.start(1)
	if two := p.resume(p.start(2)); two.resume != nil { // later, but visible first
		t.Fatal("the second Offer did not end")
	}
	if v := q.PollRelaxed(); v != nil {
		t.Fatalf("relaxed poll took %d before the older element was visible", *v)
	}
	if q.Empty() || q.Len() != 2 {
		t.Fatalf("Empty %v, Len %d with an element claimed and another stored", q.Empty(), q.Len())
	}
	took := make(chan int)
	go func() {
		for range 2 {
			if v := q.Poll(); v != nil {
				took <- *v
			} else {
				took <- -1
			}
		}
	}()
	select {
	case v := <-took:
		t.Fatalf("strict poll returned %d before the element was visible", v)
	case <-time.After(20 * time.Millisecond): // only gives a defect the time to show
	}
	p.resume(one)
	if a, b := <-took, <-took; a != 1 || b != 2 {
		t.Fatalf("took %d, %d; want the order of claims 1, 2", a, b)
	}
	if !q.Empty() || q.Poll() != nil {
		t.Fatal("not empty at the end")
	}
}

func TestUnlinkedChunkLooksLikeAnInvisibleElement(t *testing.T) {
	q := New[int](2)
	p := newProducers(t, q, unlinked)
	p.start(0)
	p.start(1)
	third := p.start(2)
	if third.at != unlinked {
		t.Fatal("the third Offer links no chunk")
	}
	p.start(3) // into the chunk that is not linked
	for want := range 2 {
		if v := q.PollRelaxed(); v == nil || *v != want {
			t.Fatalf("took %v, want %d", v, want)
		}
	}
	if q.PollRelaxed() != nil || q.Empty() || q.Len() != 2 {
		t.Fatalf("Empty %v, Len %d; two elements must be claimed and not visible", q.Empty(), q.Len())
	}
	p.resume(third)
	for want := 2; want < 4; want++ {
		if v := q.PollRelaxed(); v == nil || *v != want {
			t.Fatalf("took %v, want %d", v, want)
		}
	}
}

// TestGrowthRace: while one producer makes a chunk the others wait for it, and
// those that loaded the old tail do not write into the wrong chunk.
func TestGrowthRace(t *testing.T) {
	q := New[int](2)
	p := newProducers(t, q, growing)
	p.start(0)
	p.start(1)
	grower := p.start(2)
	if grower.at != growing {
		t.Fatal("the third Offer does not grow")
	}
	const others = 4
	var begun atomic.Int32
	for i := range others {
		go func() {
			begun.Add(1)
			v := 10 + i
			q.Offer(&v)
			p.stopped <- stop{}
		}()
	}
	for begun.Load() < others {
		time.Sleep(time.Microsecond)
	}
	if q.Len() != 2 {
		t.Fatalf("Len %d: somebody claimed during growth", q.Len())
	}
	// The consumer is not held up by a producer that grows.
	for want := range 2 {
		if v := q.Poll(); v == nil || *v != want {
			t.Fatalf("took %v, want %d", v, want)
		}
	}
	if q.Poll() != nil || !q.Empty() {
		t.Fatal("nothing is claimed yet")
	}
	close(grower.resume)
	for ended := 0; ended <= others; { // the others may have to grow too
		if s := <-p.stopped; s.resume == nil {
			ended++
		} else {
			close(s.resume)
		}
	}
	var got []int
	for v := q.Poll(); v != nil; v = q.Poll() {
		got = append(got, *v)
	}
	if len(got) != 1+others || got[0] != 2 {
		t.Fatalf("took %v, want 2 and then the four others", got)
	}
	slices.Sort(got)
	if !slices.Equal(got, []int{2, 10, 11, 12, 13}) {
		t.Fatalf("took %v", got)
	}
}

// TestInterleavingsAgainstASlice stops producers between their writes, in any
// number and for any time, and compares with a slice of what is claimed.
func TestInterleavingsAgainstASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := New[int](rapid.SampledFrom([]int{2, 4}).Draw(t, "chunk"))
		p := newProducers(t, q, claimed, growing, unlinked)
		type element struct {
			v       int
			visible bool
		}
		var model []element
		stopped := map[int]stop{}
		next := 0
		grower := -1 // the producer in growing: no other can move on
		see := func(v int, s stop) {
			i := slices.IndexFunc(model, func(e element) bool { return e.v == v })
			if i < 0 && (s.resume == nil || s.at != growing) {
				model, i = append(model, element{v: v}), len(model)
			}
			delete(stopped, v)
			if s.resume == nil {
				model[i].visible = true
			} else {
				stopped[v] = s
			}
			if grower == v {
				grower = -1
			}
			if s.resume != nil && s.at == growing {
				grower = v
			}
		}
		poll := func(v *int) {
			if len(model) == 0 || !model[0].visible {
				if v != nil {
					t.Fatalf("took %d, claimed %v", *v, model)
				}
				return
			}
			if v == nil || *v != model[0].v {
				t.Fatalf("took %v, claimed %v", v, model)
			}
			model = model[1:]
		}
		t.Repeat(map[string]func(*rapid.T){
			"start": func(*rapid.T) {
				if grower < 0 {
					see(next, p.start(next))
					next++
				}
			},
			"resume": func(t *rapid.T) {
				if len(stopped) == 0 {
					return
				}
				var ids []int
				for v := range stopped {
					ids = append(ids, v)
				}
				slices.Sort(ids)
				v := rapid.SampledFrom(ids).Draw(t, "producer")
				see(v, p.resume(stopped[v]))
			},
			"relaxed": func(*rapid.T) { poll(q.PollRelaxed()) },
			"poll": func(*rapid.T) {
				if len(model) == 0 || model[0].visible { // else it would wait
					poll(q.Poll())
				}
			},
			"": func(t *rapid.T) {
				if q.Len() != len(model) || q.Empty() != (len(model) == 0) {
					t.Fatalf("Len %d, Empty %v; claimed %v", q.Len(), q.Empty(), model)
				}
			},
		})
		if grower >= 0 {
			see(grower, p.resume(stopped[grower]))
		}
		for v, s := range stopped {
			for s.resume != nil {
				s = p.resume(s)
			}
			see(v, s)
		}
		for len(model) > 0 {
			poll(q.Poll())
		}
	})
}
