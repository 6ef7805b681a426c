package main

import (
	"fmt"
	"math"
)

// ratio is a geometric mean of pairs' ratios, with the 95 % t interval of its
// logarithm.
type ratio struct {
	Ratio float64  `json:"ratio"`
	Low   *float64 `json:"ci_low"` // null with fewer than two pairs
	High  *float64 `json:"ci_high"`
	Pairs int      `json:"pairs"`
}

func (r *ratio) String() string {
	switch {
	case r == nil:
		return ""
	case r.Low == nil:
		return fmt.Sprintf("%.2f (%d pair)", r.Ratio, r.Pairs)
	}
	return fmt.Sprintf("%.2f [%.2f, %.2f]", r.Ratio, *r.Low, *r.High)
}

// pairedRatio compares a[i] with b[i]; nil where a value is not positive.
func pairedRatio(a, b []float64) *ratio {
	n := len(a)
	if n == 0 || n != len(b) {
		return nil
	}
	logs := make([]float64, n)
	mean := 0.0
	for i := range a {
		if a[i] <= 0 || b[i] <= 0 {
			return nil
		}
		logs[i] = math.Log(a[i] / b[i])
		mean += logs[i] / float64(n)
	}
	r := &ratio{Ratio: math.Exp(mean), Pairs: n}
	if n < 2 {
		return r
	}
	squares := 0.0
	for _, l := range logs {
		squares += (l - mean) * (l - mean)
	}
	half := t975(n-1) * math.Sqrt(squares/float64(n-1)/float64(n))
	low, high := math.Exp(mean-half), math.Exp(mean+half)
	r.Low, r.High = &low, &high
	return r
}

// t975 is the 97.5 % point of Student's t distribution with df degrees of
// freedom, by bisection of its distribution function.
func t975(df int) float64 {
	low, high := 0.0, 20.0 // 12.71 with one degree
	for range 60 {
		if mid := (low + high) / 2; studentT(mid, float64(df)) < 0.975 {
			low = mid
		} else {
			high = mid
		}
	}
	return (low + high) / 2
}

// studentT is the distribution function at t ≥ 0: Simpson's rule over the
// density, which is smooth.
func studentT(t, df float64) float64 {
	a, _ := math.Lgamma((df + 1) / 2)
	b, _ := math.Lgamma(df / 2)
	scale := math.Exp(a-b) / math.Sqrt(df*math.Pi)
	density := func(x float64) float64 { return scale * math.Pow(1+x*x/df, -(df+1)/2) }
	const steps = 2000
	h, sum := t/steps, 0.0
	for i := range steps {
		x := float64(i) * h
		sum += h / 6 * (density(x) + 4*density(x+h/2) + density(x+h))
	}
	return 0.5 + sum
}
