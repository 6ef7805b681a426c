package flamegraph

// box is one rectangle of a picture: a node, or neighbours too narrow to see
// drawn as one.
type box struct {
	first, end int // nodes in preorder; one node's subtree, or a run of siblings'
	merged     bool
	row        int
	x, w       float64 // in pixels
}

// pruned is what a layout did not draw as frames of their own.
type pruned struct {
	Frames int     // nodes, with all below them
	Time   float64 // width of the topmost of them, in the tree's measure
	Min    float64 // narrowest frame drawn, in pixels
}

// plan is a layout: boxes in preorder.
type plan struct {
	boxes  []box
	rows   int
	pruned pruned
}

// layouter places nodes. width is a node's width in the tree's measure, with
// callees; children fit their parent.
type layouter struct {
	node  func(i int) Node
	width func(i int) float64
	scale float64 // pixels per unit of the measure
	plan  plan
}

// layout places n nodes over the given pixels; frames narrower than minWidth
// are merged with their neighbours.
func layout(n int, node func(i int) Node, width func(i int) float64, pixels, minWidth float64) plan {
	l := &layouter{node: node, width: width}
	l.plan.pruned.Min = minWidth
	total := 0.0
	if n > 0 {
		total = width(0)
	}
	if total <= 0 {
		return l.plan
	}
	l.scale = pixels / total
	l.place(0, 0)
	return l.plan
}

func (l *layouter) place(i int, x float64) {
	n := l.node(i)
	l.add(box{first: i, end: int(n.Next), row: int(n.Depth), x: x, w: l.width(i) * l.scale})
	group := box{merged: true, row: int(n.Depth) + 1, first: i + 1, end: i + 1, x: x}
	for c := i + 1; c < int(n.Next); {
		next := int(l.node(c).Next)
		w := l.width(c) * l.scale
		if w < l.plan.pruned.Min {
			group.end = next
			group.w += w
			l.plan.pruned.Frames += next - c
			l.plan.pruned.Time += l.width(c)
		} else {
			l.flush(group)
			l.place(c, x)
			group = box{merged: true, row: group.row, first: next, end: next, x: x + w}
		}
		x += w
		c = next
	}
	l.flush(group)
}

// flush draws a run of narrow siblings when it is wide enough together.
func (l *layouter) flush(g box) {
	if g.end > g.first && g.w >= l.plan.pruned.Min {
		l.add(g)
	}
}

func (l *layouter) add(b box) {
	l.plan.boxes = append(l.plan.boxes, b)
	l.plan.rows = max(l.plan.rows, b.row+1)
}
