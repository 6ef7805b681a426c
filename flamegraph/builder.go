package flamegraph

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/contention-toolkit/contention/profile"
)

// Side is what the runs of one side hold beside the frames of the tree. Times
// are in the tree's measure, means over the runs.
type Side struct {
	Runs         int
	Shown        float64 // total of the tree
	Idle         float64 // left out by Options.Keep
	Unsymbolised float64 // part of Shown with at least one frame without a symbol
	Negative     int     // samples left out because a value was negative
	Deep         int     // samples whose stack's middle was folded
	DeepFrames   int     // most frames folded away in one stack
}

// builder joins the stacks of all runs into one trie. A table of edges instead
// of a map per node keeps a million nodes affordable.
type builder struct {
	o         Options
	canonical bool
	measure   Measure
	measured  bool

	names    []Name
	nameIDs  map[nameKey]int32
	recorded map[int32]map[string]struct{} // recorded names per canonical one
	nodes    []trieNode
	edges    map[uint64]int32

	path []int32
}

type nameKey struct {
	text   string
	kernel bool
}

type trieNode struct{ parent, name int32 }

// frameInfo is what is worth knowing once per frame of a profile.
type frameInfo struct {
	name      int32
	known     bool
	site      bool
	scheduler bool
	noSymbol  bool
}

// sums collects one side: per trie node and, for sites, per name + 1 (0 is
// the stacks without a site).
type sums struct {
	self, site []float64
	Side
}

func newBuilder(o Options, canonical bool) *builder {
	if o.Application == nil {
		o.Application = goApplication
	}
	b := &builder{
		o: o, canonical: canonical,
		nameIDs: map[nameKey]int32{}, recorded: map[int32]map[string]struct{}{},
		edges: map[uint64]int32{},
	}
	b.nodes = append(b.nodes, trieNode{-1, b.name(nameKey{rootName, false}, KindUnknown)})
	return b
}

func (b *builder) name(k nameKey, kind Kind) int32 {
	id, ok := b.nameIDs[k]
	if !ok {
		id = int32(len(b.names))
		b.names = append(b.names, Name{k.text, k.kernel, kind})
		b.nameIDs[k] = id
	}
	b.names[id].Kind = max(b.names[id].Kind, kind)
	return id
}

func (b *builder) frame(f profile.Frame) frameInfo {
	site := b.o.Application(f)
	text := f.Function
	if text == "" {
		text = emptyName
	}
	if b.canonical {
		text = canonical(f)
	}
	i := frameInfo{
		name:  b.name(nameKey{text, f.Kernel()}, kindOf(f, site)),
		known: true, site: site, scheduler: isSchedulerLeaf(f), noSymbol: unsymbolised(f.Function),
	}
	if b.canonical && text != f.Function {
		if b.recorded[i.name] == nil {
			b.recorded[i.name] = map[string]struct{}{}
		}
		b.recorded[i.name][f.Function] = struct{}{}
	}
	return i
}

func (b *builder) child(parent, name int32) int32 {
	k := uint64(uint32(parent))<<32 | uint64(uint32(name))
	id, ok := b.edges[k]
	if !ok {
		id = int32(len(b.nodes))
		b.nodes = append(b.nodes, trieNode{parent, name})
		b.edges[k] = id
	}
	return id
}

// addSide adds the runs of one side and returns their means.
func (b *builder) addSide(runs []Run) (*sums, error) {
	s := &sums{}
	s.Runs = len(runs)
	for i, r := range runs {
		if err := b.addRun(s, r, float64(len(runs))); err != nil {
			if len(runs) > 1 {
				return nil, fmt.Errorf("run %d: %w", i+1, err)
			}
			return nil, err
		}
	}
	return s, nil
}

func (b *builder) addRun(s *sums, r Run, n float64) error {
	p := r.Profile
	if err := checkProfile(p); err != nil {
		return err
	}
	scale, err := b.o.scaleOf(r)
	if err != nil {
		return err
	}
	values, m, err := b.o.choose(p)
	if err != nil {
		return err
	}
	if b.measured && !m.same(b.measure) {
		return fmt.Errorf("flamegraph: cannot compare %s with %s: choose one sample type for all runs", b.measure.what(), m.what())
	}
	b.measure, b.measured = m, true

	// Whole numbers within a run, so that the order of samples does not matter.
	w := &walk{b: b, p: p, site: make([]int64, len(b.names)+1), self: make([]int64, len(b.nodes))}
	for _, smp := range p.Samples {
		w.sample(smp, values)
	}
	div := scale * n
	s.self = addScaled(s.self, w.self, div)
	s.site = addScaled(s.site, w.site, div)
	s.Shown += float64(w.shown) / div
	s.Idle += float64(w.idle) / div
	s.Unsymbolised += float64(w.noSymbol) / div
	s.Negative += w.negative
	s.Deep += w.deep
	s.DeepFrames = max(s.DeepFrames, w.deepFrames)
	return nil
}

func addScaled(dst []float64, src []int64, div float64) []float64 {
	if n := len(src) - len(dst); n > 0 {
		dst = append(dst, make([]float64, n)...)
	}
	for i, v := range src {
		dst[i] += float64(v) / div
	}
	return dst
}

// walk sums the samples of one run.
type walk struct {
	b                          *builder
	p                          *profile.Profile
	frames                     []frameInfo // by FrameID
	self, site                 []int64
	shown, idle, noSymbol      int64
	negative, deep, deepFrames int
}

func (w *walk) sample(s profile.Sample, values []int) {
	var v int64
	for _, i := range values {
		if s.Values[i] < 0 {
			w.negative++
			return
		}
		v = saturate(v, s.Values[i])
	}
	if v == 0 {
		return
	}
	if keep := w.b.o.Keep; keep != nil && !keep(w.p.Frames(s.Stack), w.p.Labels(s.Labels)) {
		w.idle = saturate(w.idle, v)
		return
	}
	path, site, noSymbol := w.resolve(w.p.Stack(s.Stack))
	node := int32(0)
	for _, name := range path {
		node = w.b.child(node, name)
	}
	w.self = addAt(w.self, int(node), v)
	w.site = addAt(w.site, int(site+1), v)
	w.shown = saturate(w.shown, v)
	if noSymbol {
		w.noSymbol = saturate(w.noSymbol, v)
	}
}

// resolve returns the names of a stack, outermost first, its wait site (-1
// for none) and whether a frame has no symbol. The path is valid until the next
// call.
func (w *walk) resolve(stack []profile.FrameID) (path []int32, site int32, noSymbol bool) {
	site = -1
	path = w.b.path[:0]
	leaf := true
	for i, id := range stack {
		f := w.frame(id)
		if f.site && site < 0 {
			site = f.name
		}
		noSymbol = noSymbol || f.noSymbol
		leaf = leaf && w.b.o.TrimScheduler && f.scheduler
		if leaf && i < len(stack)-1 {
			continue
		}
		path = append(path, f.name)
	}
	slices.Reverse(path)
	if limit := w.b.o.maxDepth(); len(path) > limit {
		w.deep++
		w.deepFrames = max(w.deepFrames, len(path)-limit+1)
		head := (limit - 1) / 2
		path[head] = w.b.name(nameKey{foldName, false}, KindUnknown)
		path = append(path[:head+1], path[len(path)-(limit-1-head):]...)
	}
	if len(path) == 0 {
		path = append(path, w.b.name(nameKey{emptyName, false}, KindUnknown))
		noSymbol = true
	}
	w.b.path = path[:0]
	return path, site, noSymbol
}

func (w *walk) frame(id profile.FrameID) frameInfo {
	if n := int(id) + 1 - len(w.frames); n > 0 {
		w.frames = append(w.frames, make([]frameInfo, n)...)
	}
	if !w.frames[id].known {
		w.frames[id] = w.b.frame(w.p.Frame(id))
	}
	return w.frames[id]
}

func addAt(s []int64, i int, v int64) []int64 {
	if n := i + 1 - len(s); n > 0 {
		s = append(s, make([]int64, n)...)
	}
	s[i] = saturate(s[i], v)
	return s
}

// saturate adds values that are not negative; sums beyond int64 stay at its end.
func saturate(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// Node is one frame in its context. A tree keeps its nodes in preorder, the
// children of a node sorted by name; node 0 is the root, "all".
type Node struct {
	Name  int32 // index into Names
	Depth int32 // 0 for the root
	Next  int32 // index of the first node behind this one's subtree
}

// order returns the nodes in preorder with, for each, its place in the trie.
func (b *builder) order() (nodes []Node, at []int32) {
	rank := b.ranks()
	ids := make([]int32, len(b.nodes))
	for i := range ids {
		ids[i] = int32(i)
	}
	slices.SortFunc(ids, func(x, y int32) int {
		a, c := b.nodes[x], b.nodes[y]
		if a.parent != c.parent {
			return cmp.Compare(a.parent, c.parent)
		}
		return cmp.Compare(rank[a.name], rank[c.name])
	})
	first := make([]int32, len(b.nodes)+1) // children of n: ids[first[n]:first[n+1]]
	for i := len(ids) - 1; i > 0; i-- {
		first[b.nodes[ids[i]].parent] = int32(i)
	}
	first[len(b.nodes)] = int32(len(ids))
	for i := len(b.nodes) - 1; i >= 0; i-- {
		if first[i] == 0 { // no child: begins where the next node's children do
			first[i] = first[i+1]
		}
	}
	nodes = make([]Node, 0, len(b.nodes))
	at = make([]int32, 0, len(b.nodes))
	var visit func(id, depth int32)
	visit = func(id, depth int32) {
		i := len(nodes)
		nodes = append(nodes, Node{Name: b.nodes[id].name, Depth: depth})
		at = append(at, id)
		for _, c := range ids[first[id]:first[id+1]] {
			visit(c, depth+1)
		}
		nodes[i].Next = int32(len(nodes))
	}
	visit(0, 0)
	return nodes, at
}

// ranks gives every name its place in the order of siblings.
func (b *builder) ranks() []int32 {
	ids := make([]int32, len(b.names))
	for i := range ids {
		ids[i] = int32(i)
	}
	slices.SortFunc(ids, func(x, y int32) int {
		m, n := b.names[x], b.names[y]
		if m.Text != n.Text {
			return cmp.Compare(m.Text, n.Text)
		}
		if m.Kernel == n.Kernel {
			return 0
		}
		if m.Kernel {
			return 1
		}
		return -1
	})
	rank := make([]int32, len(ids))
	for i, id := range ids {
		rank[id] = int32(i)
	}
	return rank
}
