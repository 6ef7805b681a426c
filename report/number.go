package report

import (
	"math"
	"strconv"
	"strings"
)

// none stands for a number that is not known.
const none = "–"

func finite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

// known reports whether a nullable number can be shown.
func known(v *float64) bool { return v != nil && finite(*v) }

// sign puts a real minus before a negative number's text.
func sign(v float64, text string) string {
	if v < 0 {
		return "−" + text
	}
	return text
}

// number writes three significant digits, and whole numbers with separators
// from 100 on.
func number(v float64) string {
	if !finite(v) {
		return none
	}
	a := math.Abs(v)
	switch {
	case a == 0:
		return "0"
	case a < 0.001:
		return sign(v, "<0.001")
	case a >= 1e15:
		return sign(v, strconv.FormatFloat(a, 'e', 2, 64))
	case a >= 99.95:
		return sign(v, grouped(strconv.FormatFloat(a, 'f', 0, 64)))
	}
	decimals := 0
	if a != math.Trunc(a) {
		_, exponent, _ := strings.Cut(strconv.FormatFloat(a, 'e', 2, 64), "e") // of the rounded number
		n, _ := strconv.Atoi(exponent)                                         // FormatFloat writes an integer
		decimals = max(2-n, 0)
	}
	return sign(v, strconv.FormatFloat(a, 'f', decimals, 64))
}

// threads writes a number of threads or goroutines, an average: two decimals at
// most.
func threads(v float64) string {
	a := math.Abs(v)
	switch {
	case !finite(v) || a == 0 || a >= 10:
		return number(v)
	case a < 0.005:
		return sign(v, "<0.01")
	}
	return sign(v, strconv.FormatFloat(a, 'f', 2, 64))
}

// grouped puts separators into the digits of a whole number.
func grouped(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func count(n int64) string {
	if n < 0 {
		return "−" + grouped(strconv.FormatUint(-uint64(n), 10))
	}
	return grouped(strconv.FormatInt(n, 10))
}

// nanoseconds writes a time in the unit that reads best.
func nanoseconds(ns float64) string {
	if !finite(ns) {
		return none
	}
	a := math.Abs(ns)
	for _, u := range []struct {
		ns   float64
		name string
	}{{1e9, "s"}, {1e6, "ms"}, {1e3, "µs"}} {
		if a >= 0.9995*u.ns { // what rounds up to one unit is one unit
			return number(ns/u.ns) + " " + u.name
		}
	}
	return number(ns) + " ns"
}

// signed puts a plus before what is more than nothing, and "±" before nothing.
func signed(v float64, text string) string {
	switch {
	case !finite(v):
		return none
	case v > 0:
		return "+" + text
	case v == 0:
		return "±" + text
	}
	return text
}

// optional formats a nullable number.
func optional(v *float64, format func(float64) string) string {
	if !known(v) {
		return none
	}
	return format(*v)
}

// ratio is after ÷ before, with the change in percent of before.
func ratio(v float64) string {
	if !finite(v) || v < 0 {
		return none
	}
	return "×" + number(v) + " (" + change(v) + ")"
}

// change is a ratio as a signed percentage. Something that remains is never
// called −100 %, and a difference never ±0 %.
func change(v float64) string {
	p := (v - 1) * 100
	text := oneDecimal(math.Abs(p))
	switch {
	case p == 0:
		return "±0 %"
	case text == "0":
		text = "<0.1"
	case v > 0 && p < 0 && text == "100":
		text = "99.9"
	}
	if p < 0 {
		return "−" + text + " %"
	}
	return "+" + text + " %"
}

func oneDecimal(a float64) string {
	if a >= 999.95 {
		return number(a)
	}
	return strings.TrimSuffix(strconv.FormatFloat(a, 'f', 1, 64), ".0")
}

// percent writes a part of one.
func percent(v float64) string {
	if !finite(v) {
		return none
	}
	p := math.Abs(v) * 100
	var text string
	switch {
	case p == 0:
		text = "0"
	case p < 0.005:
		text = "<0.01"
	case p == 100:
		text = "100"
	case p < 9.995:
		text = strconv.FormatFloat(p, 'f', 2, 64)
	case p < 999.95:
		text = strconv.FormatFloat(p, 'f', 1, 64)
	default:
		text = number(p)
	}
	return sign(v, text+" %")
}

// pValue writes a probability, such as "0.004".
func pValue(p float64) string {
	switch {
	case !finite(p) || p < 0 || p > 1:
		return none
	case p < 0.001:
		return "<0.001"
	}
	return strconv.FormatFloat(p, 'f', 3, 64)
}

// pair joins two values; a unit that both have is written once.
func pair(between, x, y string) string {
	if i := strings.LastIndexByte(x, ' '); i > 0 && strings.HasSuffix(y, x[i:]) && !strings.Contains(x[:i], " ") {
		x = x[:i]
	}
	return x + between + y
}

func milliseconds(ms float64) string { return nanoseconds(ms * 1e6) }
func seconds(s float64) string       { return number(s) + " s" }
func rate(perSecond float64) string  { return number(perSecond) + " msgs/s" }

// withUnit formats a figure of a headline in the unit that it names.
func withUnit(unit string) func(float64) string {
	switch unit {
	case "ms":
		return milliseconds
	case "ns/msg":
		return func(v float64) string { return nanoseconds(v) + "/msg" }
	case "msgs/s":
		return rate
	}
	return number
}
