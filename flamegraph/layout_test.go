package flamegraph

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// Boxes of a row do not overlap, children lie within their parent, and what is
// drawn and what is pruned are all nodes.
func TestLayout(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree, err := Build(profileOf(genSamples(t, "samples")), Options{})
		if err != nil {
			t.Fatal(err)
		}
		const pixels = 1000.0
		minWidth := rapid.Float64Range(0.01, 1500).Draw(t, "narrowest")
		p := layout(len(tree.Nodes), func(i int) Node { return tree.Nodes[i].Node }, func(i int) float64 { return tree.Nodes[i].Value }, pixels, minWidth)
		if tree.Nodes[0].Value == 0 {
			if len(p.boxes) != 0 || p.rows != 0 {
				t.Fatalf("boxes without time: %+v", p)
			}
			return
		}
		drawn := 0
		end := map[int]float64{} // right edge by row
		var above [][2]float64   // the last frame of every row
		for i, b := range p.boxes {
			const eps = 1e-6
			if b.x < end[b.row]-eps || b.w <= 0 || b.x < -eps || b.x+b.w > pixels+eps {
				t.Fatalf("box %+v overlaps one that ends at %v, or leaves the picture", b, end[b.row])
			}
			if i == 0 && (b.row != 0 || math.Abs(b.w-pixels) > eps) {
				t.Fatalf("root %+v", b)
			}
			if i > 0 {
				if p := above[b.row-1]; b.x < p[0]-eps || b.x+b.w > p[1]+eps {
					t.Fatalf("box %+v leaves its parent %v", b, p)
				}
			}
			end[b.row] = b.x + b.w
			above = append(above[:b.row:b.row], [2]float64{b.x, b.x + b.w})
			if b.row >= p.rows {
				t.Fatalf("row %d of %d", b.row, p.rows)
			}
			if !b.merged {
				drawn++
				if want := tree.Nodes[b.first].Value / tree.Nodes[0].Value * pixels; math.Abs(b.w-want) > eps {
					t.Fatalf("box %+v is %v wide, want %v", b, b.w, want)
				}
				if i > 0 && b.w < minWidth {
					t.Fatalf("box %+v is narrower than %v", b, minWidth)
				}
			}
		}
		if drawn+p.pruned.Frames != len(tree.Nodes) {
			t.Fatalf("%d drawn and %d pruned of %d", drawn, p.pruned.Frames, len(tree.Nodes))
		}
		if (p.pruned.Time > 0) != (p.pruned.Frames > 0) || p.pruned.Time > tree.Nodes[0].Value*float64(p.rows) {
			t.Fatalf("pruned %+v", p.pruned)
		}
	})
}

func TestNarrowNeighboursAreMerged(t *testing.T) {
	tree := build(t, fromText(t, "a 1\nb 1\nc 1\nd 1000\ne 1\nf;g 1\n"), Options{})
	p := layout(len(tree.Nodes), func(i int) Node { return tree.Nodes[i].Node }, func(i int) float64 { return tree.Nodes[i].Value }, 1005, 1.5)
	type got struct {
		merged bool
		nodes  int
	}
	var all []got
	for _, b := range p.boxes {
		all = append(all, got{b.merged, b.end - b.first})
	}
	want := []got{{false, 8}, {true, 3}, {false, 1}, {true, 3}}
	if len(all) != len(want) {
		t.Fatalf("boxes = %+v, want %+v", all, want)
	}
	for i := range want {
		if all[i] != want[i] {
			t.Errorf("box %d = %+v, want %+v", i, all[i], want[i])
		}
	}
	if p.pruned.Frames != 6 || p.pruned.Time != 5 {
		t.Errorf("pruned = %+v, want 6 frames of time 5", p.pruned)
	}
}
