package flamegraph_test

import (
	"fmt"
	"os"

	"github.com/contention-toolkit/contention/flamegraph"
	"github.com/contention-toolkit/contention/profile"
)

// Two recordings become one tree: per message on both sides, idle left out.
func ExampleBuildDiff() {
	recording := func(offer, flow int64) *profile.Profile {
		p := profile.New(profile.Blocked)
		for fn, v := range map[string]int64{"main.(*Queue).Offer": offer, "main.(*Dispatcher).Flow": flow} {
			stack := p.InternFrames([]profile.Frame{{Function: "sync.(*Mutex).Lock"}, {Function: fn}, {Function: "main.serve"}})
			p.Add(stack, p.InternLabels(profile.Label{Key: profile.LabelIdle, Value: "no"}), v)
		}
		idle := p.InternFrames([]profile.Frame{{Function: "internal/poll.(*FD).Read"}, {Function: "main.serve"}})
		p.Add(idle, p.InternLabels(profile.Label{Key: profile.LabelIdle, Value: "yes"}), 1e6)
		return p
	}
	d, err := flamegraph.BuildDiff(
		[]flamegraph.Run{{Profile: recording(9000, 1000), Scale: 100}}, // 100 messages
		[]flamegraph.Run{{Profile: recording(0, 1800), Scale: 200}},
		flamegraph.Options{
			Per:  "message",
			Keep: func(_ []profile.Frame, l profile.Labels) bool { return l.Get(profile.LabelIdle) != "yes" },
		})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	for _, s := range d.Sites {
		fmt.Printf("%s: %.0f → %.0f ns per message\n", s.Name, s.Before, s.After)
	}
	fmt.Printf("idle left out: %.0f and %.0f ns per message\n", d.Before.Idle, d.After.Idle)
	// Output:
	// main.(*Queue).Offer: 90 → 0 ns per message
	// main.(*Dispatcher).Flow: 10 → 9 ns per message
	// idle left out: 10000 and 5000 ns per message
}

func ExampleWriteFolded() {
	p := profile.New(profile.Blocked)
	p.Add(p.InternFrames([]profile.Frame{{Function: "sync.(*Mutex).Lock"}, {Function: "main.f"}}), p.InternLabels(), 42)
	if err := flamegraph.WriteFolded(os.Stdout, p, flamegraph.Options{}); err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	// Output:
	// main.f;sync.(*Mutex).Lock 42
}
