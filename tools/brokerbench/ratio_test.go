package main

import (
	"math"
	"testing"
)

// TestT975 compares with the printed tables of Student's distribution.
func TestT975(t *testing.T) {
	for df, want := range map[int]float64{1: 12.706, 2: 4.303, 5: 2.571, 9: 2.262, 30: 2.042} {
		if got := t975(df); math.Abs(got-want) > 0.001 {
			t.Errorf("%d degrees of freedom: %.4f, want %.3f", df, got, want)
		}
	}
}

func TestPairedRatio(t *testing.T) {
	// Ratios 2 and 8: mean 4 in logarithms, deviation ln 2 · √2, divided by √2.
	r := pairedRatio([]float64{2, 8}, []float64{1, 1})
	half := 12.706 * math.Log(2)
	if math.Abs(r.Ratio-4) > 1e-9 || math.Abs(math.Log(*r.High/4)-half) > 1e-3 || math.Abs(math.Log(4/(*r.Low))-half) > 1e-3 {
		t.Errorf("got %v, want 4 with a half width of %.3f in logarithms", r, half)
	}
	if r := pairedRatio([]float64{3}, []float64{2}); r.Low != nil || r.Ratio < 1.49 || r.Ratio > 1.51 {
		t.Errorf("one pair: %v, want 1.5 without an interval", r)
	}
	if r := pairedRatio([]float64{3, 0}, []float64{2, 2}); r != nil {
		t.Errorf("a run without a figure: %v, want none", r)
	}
}
