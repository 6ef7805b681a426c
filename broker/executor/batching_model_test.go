package executor

import (
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// dumb is the rules of hand-over on a slice: no flag is atomic, no queue is
// linked, everything happens at once. What "others" submit happens while the
// flag is set, so it only appends.
type dumb struct {
	items         int
	weight        int64 // 0 = no limit
	queue         []*job
	scheduled     bool
	batches       int // accepted by the delegate and not run
	ran, rejected []int
	own           []int // ids whose Submit failed
}

// A plan says what happens inside one call of the delegate's Execute.
type plan struct {
	others []*job // submitted by other goroutines before it returns
	reject bool
}

func (d *dumb) submit(j *job, p plan) {
	d.queue = append(d.queue, j)
	if !d.scheduled {
		d.schedule(j, p)
	}
}

func (d *dumb) schedule(own *job, p plan) {
	d.queue = append(d.queue, p.others...)
	if d.scheduled = !p.reject; d.scheduled {
		d.batches++
		return
	}
	for _, j := range d.queue {
		if j == own {
			d.own = append(d.own, j.id)
		} else {
			d.rejected = append(d.rejected, j.id)
		}
	}
	d.queue = nil
}

// run runs one batch; p is what happens should it schedule another.
func (d *dumb) run(p plan) {
	d.batches--
	w := int64(0)
	for n := 0; n < d.items && (d.weight == 0 || w < d.weight) && len(d.queue) > 0; n++ {
		j := d.queue[0]
		d.queue = d.queue[1:]
		w += j.weight
		d.ran = append(d.ran, j.id)
		d.queue = append(d.queue, j.inner...)
	}
	if d.scheduled = false; len(d.queue) > 0 {
		d.schedule(nil, p)
	}
}

// TestAgainstAModel drives the wrapper by random steps beside the slice: other
// goroutines submit while a batch is being scheduled, tasks are submitted while
// a batch runs, the delegate rejects at any point.
func TestAgainstAModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		model := &dumb{items: rapid.IntRange(2, 5).Draw(rt, "items"), weight: rapid.Int64Range(0, 9).Draw(rt, "weight")}
		r := newRig(t, BatchOptions[job]{MaxItems: model.items, MaxWeight: model.weight, Weight: weightOf, Chunk: 2, Eager: rapid.Bool().Draw(rt, "eager")})
		var own []int
		next := 0
		jobs := func(rt *rapid.T, label string, depth int) []*job {
			return drawJobs(rt, label, depth, &next, func(j *job) {
				if err := r.Submit(j); err != nil {
					rt.Fatalf("task %d was submitted while the flag was set and failed: %v", j.id, err)
				}
			})
		}
		planned := func(rt *rapid.T) plan {
			p := plan{others: jobs(rt, "others", 1), reject: rapid.Bool().Draw(rt, "reject")}
			r.reject = func() error {
				for _, j := range p.others {
					if err := r.Submit(j); err != nil {
						rt.Fatalf("task %d was submitted while the flag was set and failed: %v", j.id, err)
					}
				}
				if p.reject {
					return ErrRejected
				}
				return nil
			}
			return p
		}
		rt.Repeat(map[string]func(*rapid.T){
			"submit": func(rt *rapid.T) {
				for _, j := range jobs(rt, "jobs", 1) {
					p := planned(rt)
					model.submit(j, p)
					if err := r.Submit(j); err != nil {
						own = append(own, j.id)
					}
				}
			},
			"run": func(rt *rapid.T) {
				if model.batches > 0 && len(r.tasks) > 0 {
					p := planned(rt)
					model.run(p)
					r.runBatch()
				}
			},
			"": func(rt *rapid.T) {
				if !slices.Equal(r.ran, model.ran) || !slices.Equal(r.rejected, model.rejected) || !slices.Equal(own, model.own) || len(r.tasks) != model.batches {
					rt.Fatalf("ran %v, handler got %v, callers failed %v, %d batches;\nwant %v, %v, %v, %d",
						r.ran, r.rejected, own, len(r.tasks), model.ran, model.rejected, model.own, model.batches)
				}
			},
		})
		for r.reject = nil; model.batches > 0; {
			model.run(plan{})
			r.runBatch()
		}
		settled := append(append(slices.Clone(r.ran), r.rejected...), own...)
		slices.Sort(settled)
		if len(settled) != len(slices.Compact(slices.Clone(settled))) || len(r.tasks) != 0 || !slices.Equal(r.ran, model.ran) {
			rt.Fatalf("ran %v, handler got %v, callers failed %v, %d batches left", r.ran, r.rejected, own, len(r.tasks))
		}
	})
}

// drawJobs draws tasks, some of which have inner ones that submit gets when
// they run.
func drawJobs(rt *rapid.T, label string, depth int, next *int, submit func(*job)) []*job {
	var out []*job
	for range rapid.IntRange(0, 3).Draw(rt, label) {
		j := &job{id: *next, weight: rapid.Int64Range(0, 6).Draw(rt, "w")}
		*next++
		if depth > 0 {
			j.inner = drawJobs(rt, "inner", depth-1, next, submit)
			j.do = func() {
				for _, in := range j.inner {
					submit(in)
				}
			}
		}
		out = append(out, j)
	}
	return out
}
