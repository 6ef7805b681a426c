package flamegraph

import (
	"cmp"
	"slices"

	"github.com/contention-toolkit/contention/profile"
)

// TreeNode is a node of a Tree with its time in the tree's measure.
type TreeNode struct {
	Node
	Value float64 // with callees
	Self  float64 // of stacks that end here
}

// Site is the time of one wait site: the application frame nearest the leaf.
type Site struct {
	Name  string // "[no application frame]" for stacks without
	Value float64
}

// Tree is one profile's stacks joined by name.
type Tree struct {
	Measure
	Side
	Names    []Name
	Nodes    []TreeNode
	Sites    []Site // most time first, then by name
	Merged   []Merge
	Filtered bool // idle time was left out
}

// Build joins the stacks of a profile. It fails on a profile that breaks its
// own invariants, a sample type that it has not, or a scale that is no divisor.
func Build(p *profile.Profile, o Options) (*Tree, error) {
	b := newBuilder(o, o.Names == NamesCanonical)
	s, err := b.addSide([]Run{{Profile: p}})
	if err != nil {
		return nil, err
	}
	nodes, at := b.order()
	t := &Tree{
		Measure: b.measure, Side: s.Side, Names: b.names, Merged: b.merges(),
		Nodes: make([]TreeNode, len(nodes)), Filtered: o.Keep != nil,
	}
	for i := len(nodes) - 1; i >= 0; i-- {
		self := valueAt(s.self, at[i])
		n := &t.Nodes[i]
		n.Node, n.Self, n.Value = nodes[i], self, self
		for c := int32(i) + 1; c < nodes[i].Next; c = nodes[c].Next {
			n.Value += t.Nodes[c].Value
		}
	}
	for i, v := range s.site {
		if v > 0 {
			t.Sites = append(t.Sites, Site{b.siteName(i), v})
		}
	}
	slices.SortFunc(t.Sites, func(x, y Site) int {
		if x.Value != y.Value {
			return cmp.Compare(y.Value, x.Value)
		}
		return cmp.Compare(x.Name, y.Name)
	})
	return t, nil
}

func (b *builder) siteName(i int) string {
	if i == 0 {
		return noSiteName
	}
	return b.names[i-1].Text
}

// valueAt reads a side's value of a node that the side may never have seen.
func valueAt(s []float64, i int32) float64 {
	if int(i) < len(s) {
		return s[i]
	}
	return 0
}
