package flamegraph

import (
	"math"
	"strconv"
	"strings"
)

// value prints v with three significant digits and its unit, per and all.
func (m Measure) value(v float64) string {
	s := m.amount(v)
	if m.Per != "" {
		s += " per " + m.Per
	}
	return s
}

var timeUnits = map[string]float64{
	"nanoseconds": 1, "microseconds": 1e3, "milliseconds": 1e6, "seconds": 1e9,
}

// amount is value without the "per".
func (m Measure) amount(v float64) string {
	f, ok := timeUnits[m.Unit]
	if !ok {
		if m.Unit == "" || m.Unit == "count" {
			if a := math.Abs(v); a < 1e15 && a == math.Trunc(a) {
				return minus(group(strconv.FormatFloat(v, 'f', 0, 64)))
			}
			return digits3(v)
		}
		return digits3(v) + " " + m.Unit
	}
	v *= f
	a := math.Abs(v)
	switch {
	case a == 0:
		return "0 ns"
	case a < 999.5:
		return digits3(v) + " ns"
	case a < 999.5e3:
		return digits3(v/1e3) + " µs"
	case a < 999.5e6:
		return digits3(v/1e6) + " ms"
	}
	return digits3(v/1e9) + " s"
}

// signed is amount with a sign, also for an increase.
func (m Measure) signed(v float64) string {
	if v > 0 {
		return "+" + m.amount(v)
	}
	return m.amount(v)
}

// digits3 prints three significant digits, larger numbers whole and grouped.
// The minus is U+2212, as wide as the plus.
func digits3(v float64) string {
	a := math.Abs(v)
	prec := 0
	switch {
	case a == 0 || a >= 99.95:
	case a >= 9.995:
		prec = 1
	case a >= 0.9995:
		prec = 2
	case a >= 0.0005:
		prec = 3
	default:
		return "<0.001"
	}
	s := strconv.FormatFloat(a, 'f', prec, 64)
	if prec == 0 && a < 1e18 {
		s = group(s)
	} else if a >= 1e18 {
		s = strconv.FormatFloat(a, 'e', 2, 64)
	}
	if v < 0 {
		return "−" + s
	}
	return s
}

func group(s string) string {
	for i := len(s) - 3; i > len(s)-len(strings.TrimLeft(s, "-")); i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// percent prints part of whole; "–" where there is no whole.
func percent(part, whole float64) string {
	if whole <= 0 {
		return "–"
	}
	p := 100 * part / whole
	switch a := math.Abs(p); {
	case a == 0:
		return "0 %"
	case a < 0.05:
		return "<0.1 %"
	case a < 9.95:
		return minus(strconv.FormatFloat(p, 'f', 1, 64)) + " %"
	case a > 99 && a < 100: // never rounded to all of it
		return minus(strconv.FormatFloat(math.Trunc(p*10)/10, 'f', 1, 64)) + " %"
	}
	return minus(strconv.FormatFloat(p, 'f', 0, 64)) + " %"
}

func minus(s string) string { return strings.Replace(s, "-", "−", 1) }

// change names how a value changed: (after-before)/before. It never divides by
// zero: without a before it is "new", without an after "gone".
func change(before, after float64) string {
	switch {
	case before <= 0 && after <= 0:
		return "0 %"
	case before <= 0:
		return "new"
	case after <= 0:
		return "gone"
	case after == before:
		return "0 %"
	case after/before >= 10:
		return "×" + digits3(after/before)
	}
	s := percent(after-before, before)
	if after > before {
		return "+" + s
	}
	if strings.HasPrefix(s, "<") {
		return "−" + s
	}
	return s
}

// fixed prints a coordinate: one decimal, without a trailing zero.
func fixed(v float64) string {
	s := strconv.FormatFloat(v, 'f', 1, 64)
	if s = strings.TrimSuffix(s, ".0"); s == "-0" {
		return "0"
	}
	return s
}

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return group(strconv.Itoa(n)) + " " + many
}
