package analysis

import (
	"math"
	"sort"

	"github.com/contention-toolkit/contention/profile"
)

// Reconciled is what sources that should agree say of one wait reason, each over
// its own window, in goroutines: blocked seconds per second.
type Reconciled struct {
	Reason  string   `json:"reason"`
	Exact   float64  `json:"exact"`   // blocked, every wait counted
	Sampled *float64 `json:"sampled"` // blocked, by the sampler; nil where it was not recorded
	// Block is the delay of Go's block profile, which ends at the wake-up as
	// blocked time does; nil where it was not recorded or has no such reason. It
	// counts a wait when it has ended, with all of its length: waits that are open
	// at an edge of the window make a difference.
	Block *float64 `json:"block"`
	// Mutex is the delay of Go's mutex profile, which charges who unlocks; nil
	// where it was not recorded, and for other reasons than waits for a Mutex: of
	// an RWMutex it does not tell readers that wait from writers.
	Mutex *float64 `json:"mutex"`
	// Why says what can make each of those differ that does, by more than a tenth.
	Why []string `json:"why"`
}

// apart is from which ratio on two sources are said to differ, and least the
// blocked goroutines below which that is noise.
const apart, least = 0.1, 0.001

func (r *Reconciled) explain() {
	r.Why = []string{}
	differs := func(v *float64) bool {
		return v != nil && math.Abs(*v-r.Exact) > max(apart*max(*v, r.Exact), least)
	}
	if differs(r.Sampled) {
		r.Why = append(r.Why, "sampler: it looks 99 times per second, so that rare waits have large errors, and its window is longer than that of uprobes")
	}
	if differs(r.Block) {
		r.Why = append(r.Why, "block profile: it counts a wait when it has ended and in full, so that waits open at an edge of the window are missing or too long; above a rate of 1 ns it samples")
	}
	if differs(r.Mutex) {
		r.Why = append(r.Why, "mutex profile: the unlocker is charged with an estimate for all that wait behind the one it wakes, at the moment of unlocking, and one event in its fraction is sampled")
	}
}

// Reconcile compares the exact source of a recording with the sampler and with
// the block and mutex profiles, by wait reason, most blocked first. It returns nil where
// the recording has no exact source, or nothing to compare it with.
func Reconcile(rec *profile.Recording) []Reconciled {
	blocked := byReason(rec, profile.SourceExact)
	if blocked == nil {
		return nil
	}
	sampled := byReason(rec, profile.SourceGoroutines)
	delay := byReason(rec, profile.SourceBlock)
	unlocked := byReason(rec, profile.SourceMutex)
	if sampled == nil && delay == nil && unlocked == nil {
		return nil
	}
	out := []Reconciled{}
	for reason, v := range blocked {
		r := Reconciled{Reason: reason, Exact: v}
		if sampled != nil {
			s := sampled[reason]
			r.Sampled = &s
		}
		if d, ok := delay[reason]; ok {
			r.Block = &d
		}
		if d, ok := unlocked[reason]; ok && reason == reasonMutex {
			r.Mutex = &d
		}
		r.explain()
		out = append(out, r)
	}
	sort.Slice(out, func(i, j int) bool {
		if out[i].Exact != out[j].Exact {
			return out[i].Exact > out[j].Exact
		}
		return out[i].Reason < out[j].Reason
	})
	return out
}

const reasonMutex = "sync.Mutex.Lock"

// byReason sums a source's blocked time by wait reason, in seconds per second;
// nil where it was not recorded.
func byReason(rec *profile.Recording, s profile.Source) map[string]float64 {
	info, p := rec.Meta.Info(s), rec.Profiles[s]
	if info == nil || p == nil || info.Window.DurationNs <= 0 {
		return nil
	}
	cols, err := columnsOf(p)
	if err != nil {
		return nil
	}
	blocked := map[string]float64{}
	for _, sample := range p.Samples {
		reason := p.Labels(sample.Labels).Get(profile.LabelReason)
		if reason == "" {
			reason = reasonOfStack(p.Frames(sample.Stack))
		}
		v := cols.value(sample.Values)
		blocked[reason] += float64(v.BlockedNs) / float64(info.Window.DurationNs)
	}
	return blocked
}

// Messages is the work of a role that was done in a window, 0 when unknown.
func Messages(rec *profile.Recording, role string, window profile.Window) float64 {
	return messages(rec.Meta.WorkOf(role), window)
}
