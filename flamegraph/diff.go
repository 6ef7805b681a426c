package flamegraph

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// DiffNode is a node of a DiffTree. Its parts are sums over the stacks through
// it, in the tree's measure; see the package documentation.
type DiffNode struct {
	Node
	Common float64 // on both sides
	Grown  float64 // only after
	Shrunk float64 // only before
}

// Before is the time before, with callees.
func (n DiffNode) Before() float64 { return n.Common + n.Shrunk }

// After is the time after, with callees.
func (n DiffNode) After() float64 { return n.Common + n.Grown }

// Delta is after minus before.
func (n DiffNode) Delta() float64 { return n.Grown - n.Shrunk }

// Width is the time that the frame stands for in a picture.
func (n DiffNode) Width() float64 { return n.Common + n.Grown + n.Shrunk }

func (n *DiffNode) add(m DiffNode) {
	n.Common += m.Common
	n.Grown += m.Grown
	n.Shrunk += m.Shrunk
}

// DiffSite is the time of one wait site on both sides.
type DiffSite struct {
	Name          string // "[no application frame]" for stacks without
	Before, After float64
}

// DiffTree is two sides' stacks joined by name.
type DiffTree struct {
	Measure
	Before, After Side
	Names         []Name
	Nodes         []DiffNode
	Sites         []DiffSite // most time on either side first, then by name
	Merged        []Merge
	Filtered      bool // idle time was left out
}

// BuildDiff joins the stacks of both sides. With several runs on a side the
// values are their means. It fails as Build does, and when the runs do not
// measure the same thing; both sides need at least one run.
func BuildDiff(before, after []Run, o Options) (*DiffTree, error) {
	if len(before) == 0 || len(after) == 0 {
		return nil, errors.New("flamegraph: a comparison needs at least one run on each side")
	}
	b := newBuilder(o, o.Names != NamesRaw)
	bs, err := b.addSide(before)
	if err != nil {
		return nil, fmt.Errorf("before: %w", err)
	}
	as, err := b.addSide(after)
	if err != nil {
		return nil, fmt.Errorf("after: %w", err)
	}
	nodes, at := b.order()
	t := &DiffTree{
		Measure: b.measure, Before: bs.Side, After: as.Side, Names: b.names, Merged: b.merges(),
		Nodes: make([]DiffNode, len(nodes)), Filtered: o.Keep != nil,
	}
	for i := len(nodes) - 1; i >= 0; i-- {
		n := &t.Nodes[i]
		*n = split(valueAt(bs.self, at[i]), valueAt(as.self, at[i]))
		n.Node = nodes[i]
		for c := int32(i) + 1; c < nodes[i].Next; c = nodes[c].Next {
			n.add(t.Nodes[c])
		}
	}
	t.Sites = b.diffSites(bs.site, as.site)
	return t, nil
}

// split parts a stack's own time.
func split(before, after float64) DiffNode {
	return DiffNode{
		Common: min(before, after),
		Grown:  max(0, after-before),
		Shrunk: max(0, before-after),
	}
}

func (b *builder) diffSites(before, after []float64) []DiffSite {
	var out []DiffSite
	for i := range max(len(before), len(after)) {
		s := DiffSite{b.siteName(i), valueAt(before, int32(i)), valueAt(after, int32(i))}
		if s.Before > 0 || s.After > 0 {
			out = append(out, s)
		}
	}
	slices.SortFunc(out, func(x, y DiffSite) int {
		if a, c := max(x.Before, x.After), max(y.Before, y.After); a != c {
			return cmp.Compare(c, a)
		}
		return cmp.Compare(x.Name, y.Name)
	})
	return out
}
