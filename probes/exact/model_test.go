//go:build linux && amd64

package exact

import (
	"debug/dwarf"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/contention-toolkit/contention/profile"
)

// Locks belong together exactly where a chain of common lines leads from one to
// the other.
func TestGatherAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 8).Draw(t, "locks")
		all := make([]*instance, n)
		for i := range all {
			all[i] = &instance{addr: uint64(rapid.IntRange(0, 3).Draw(t, "seen")*100 + i), sites: map[site]int64{}}
			if all[i].addr < 100 {
				all[i].addr = 0
			}
			for _, line := range rapid.SliceOfN(rapid.IntRange(1, 8), 1, 3).Draw(t, "lines") {
				all[i].sites[site{"f", "file", line}] = 1
			}
		}
		near := func(i, j int) bool {
			if i == j {
				return true
			}
			for s := range all[i].sites {
				if all[j].sites[s] > 0 {
					return all[i].addr != 0 && all[j].addr != 0
				}
			}
			return false
		}
		reach := make([][]bool, n)
		for i := range reach {
			reach[i] = make([]bool, n)
			for j := range reach[i] {
				reach[i][j] = near(i, j)
			}
		}
		for k := range n {
			for i := range n {
				for j := range n {
					reach[i][j] = reach[i][j] || reach[i][k] && reach[k][j]
				}
			}
		}
		groups := gather(all)
		group := map[*instance]int{}
		for g, list := range groups {
			for _, in := range list {
				group[in] = g
			}
		}
		if len(group) != n {
			t.Fatalf("%d locks in groups, want %d", len(group), n)
		}
		for i := range n {
			for j := range n {
				if (group[all[i]] == group[all[j]]) != reach[i][j] {
					t.Fatalf("locks %d and %d: together %v, want %v", i, j, !reach[i][j], reach[i][j])
				}
			}
		}
	})
}

func TestLockName(t *testing.T) {
	for _, c := range []struct {
		sites map[string]int64
		want  string
	}{
		{map[string]int64{"example.com/x/executor.(*Queue).Offer": 90, "example.com/x/executor.(*Queue).TakeAll": 10}, "executor.(*Queue).Offer+TakeAll"},
		{map[string]int64{"example.com/x/executor.(*Queue[...]).Offer": 1}, "executor.(*Queue[...]).Offer"},
		{map[string]int64{"main.f": 999, "main.rare": 1}, "main.f"},
		{map[string]int64{"a.(*T).x": 1, "b.y": 1}, "a.(*T).x+b.y"},
		{map[string]int64{"p.a": 1, "p.b": 1, "p.c": 1, "p.d": 1, "p.e": 1, "p.f": 1}, "p.a+b+c+d+2 more"},
		{map[string]int64{"nodot": 1}, "nodot"},
		{nil, ""},
	} {
		sites := map[site]int64{}
		for f, n := range c.sites {
			sites[site{f, "file", 1}] = n
		}
		if got := lockName(sites); got != c.want {
			t.Errorf("%v: %q, want %q", c.sites, got, c.want)
		}
	}
}

// Waits that are open at the end count up to there, within the window.
func TestOpenWaits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		at := rapid.Uint64Range(0, 40)
		n := &snapshot{start: 10, end: 30, waits: map[waitKey]waitValue{}, wakes: map[wakeKey]wakeValue{}}
		st := state{Since: at.Draw(t, "since"), Phase: uint32(rapid.IntRange(0, 2).Draw(t, "phase")), Stack: 77, Reason: 3}
		st.Ready = st.Since + at.Draw(t, "ready")
		n.closeOpen(&st)
		var blocked, runnable, waits uint64
		for tick := uint64(10); tick < 30; tick++ {
			switch {
			case st.Phase == 0 || tick < st.Since:
			case st.Phase == phaseReady && tick >= st.Ready:
				runnable++
			default:
				blocked++
			}
		}
		if st.Phase != 0 && st.Since < 30 {
			waits = 1
		}
		v := n.waits[waitKey{Stack: 77, Reason: 3}]
		if v.BlockedNs != blocked || v.RunnableNs != runnable || v.Waits != waits {
			t.Fatalf("%d, %d, %d; want %d, %d, %d", v.BlockedNs, v.RunnableNs, v.Waits, blocked, runnable, waits)
		}
		if b := profile.Histogram(signed(v.Blocked[:])).Count(); b != int64(waits) {
			t.Fatalf("%d waits in the distribution, want %d", b, waits)
		}
	})
}

func TestBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ns := rapid.Uint64().Draw(t, "ns")
		k := bucket(ns)
		if k < 39 && ns >= 1<<(k+1) || k > 0 && ns < 1<<k {
			t.Fatalf("%d ns are in bucket %d", ns, k)
		}
	})
}

func TestMeter(t *testing.T) {
	const second = 1_000_000_000
	var m meter
	var got []string
	at, hits := uint64(second), int64(0)
	for _, more := range []int64{0, 100, 100, 100, 100, 1000, 0, 0, 0, 0, 0} {
		hits += more
		got = append(got, fmt.Sprintf("%.0f", m.add(at, hits)))
		at += second / 4
	}
	// Over a second and a quarter once it has been that long.
	want := []string{"0", "400", "400", "400", "400", "1120", "1040", "960", "880", "800", "0"}
	if !slices.Equal(got, want) {
		t.Errorf("rates %v, want %v", got, want)
	}
}

func TestLockPath(t *testing.T) {
	word := &dwarf.UintType{BasicType: dwarf.BasicType{CommonType: dwarf.CommonType{ByteSize: 8}}}
	field := func(name string, at int64, t dwarf.Type) *dwarf.StructField {
		return &dwarf.StructField{Name: name, ByteOffset: at, Type: t}
	}
	mutex := &dwarf.StructType{CommonType: dwarf.CommonType{ByteSize: 8}, StructName: "sync.Mutex", Field: []*dwarf.StructField{field("state", 0, word)}}
	both := &dwarf.StructType{CommonType: dwarf.CommonType{ByteSize: 24}, StructName: "main.both", Field: []*dwarf.StructField{
		field("n", 0, word), field("a", 8, mutex), field("b", 16, &dwarf.TypedefType{Type: mutex}),
	}}
	list := &dwarf.ArrayType{CommonType: dwarf.CommonType{ByteSize: 48}, Type: both, Count: 2}
	for _, c := range []struct {
		t    dwarf.Type
		at   int64
		path string
		ok   bool
	}{
		{mutex, 0, "", true}, {both, 8, ".a", true}, {list, 40, "[1].b", true},
		{both, 0, "", false}, {both, 12, "", false}, {both, 24, "", false}, {list, -1, "", false}, {nil, 0, "", false}, {word, 0, "", false},
		{&dwarf.ArrayType{CommonType: dwarf.CommonType{ByteSize: 8}, Type: &dwarf.StructType{}}, 0, "", false},
	} {
		path, ok := lockPath(c.t, c.at)
		if ok != c.ok || ok && path != c.path {
			t.Errorf("%v at %d: %q, %v; want %q, %v", c.t, c.at, path, ok, c.path, c.ok)
		}
	}
}
