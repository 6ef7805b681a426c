package report

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestNumbers(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{nanoseconds(0), "0 ns"},
		{nanoseconds(312), "312 ns"},
		{nanoseconds(1234), "1.23 µs"},
		{nanoseconds(999.6), "1.00 µs"},
		{nanoseconds(999_960), "1.00 ms"},
		{nanoseconds(402_200), "402 µs"},
		{nanoseconds(-431_000), "−431 µs"},
		{nanoseconds(12_345e9), "12,345 s"},
		{nanoseconds(0.0001), "<0.001 ns"},
		{nanoseconds(math.NaN()), "–"},
		{milliseconds(1071.2), "1.07 s"},
		{rate(90509.4), "90,509 msgs/s"},
		{rate(1e16), "1.00e+16 msgs/s"},
		{ratio(1.03), "×1.03 (+3 %)"},
		{ratio(1.104), "×1.10 (+10.4 %)"},
		{ratio(1), "×1 (±0 %)"},
		{ratio(1.0001), "×1.00 (+<0.1 %)"},
		{ratio(0.9999), "×1.00 (−<0.1 %)"},
		{ratio(0), "×0 (−100 %)"},
		{ratio(0.0001), "×<0.001 (−99.9 %)"},
		{ratio(14.7), "×14.7 (+1,370 %)"},
		{ratio(math.Inf(1)), "–"},
		{ratio(-1), "–"},
		{percent(0), "0 %"},
		{percent(0.308), "30.8 %"},
		{percent(0.0379), "3.79 %"},
		{percent(0.00001), "<0.01 %"},
		{percent(1), "100 %"},
		{percent(-0.02), "−2.00 %"},
		{pValue(0.0042), "0.004"},
		{pValue(0.00016), "<0.001"},
		{pValue(1.5), "–"},
		{threads(36.42), "36.4"},
		{threads(0.083), "0.08"},
		{threads(0.0001), "<0.01"},
		{threads(443.6), "444"},
		{signed(3, "3"), "+3"},
		{signed(0, "0 ns"), "±0 ns"},
		{count(-1234567), "−1,234,567"},
		{count(math.MinInt64), "−9,223,372,036,854,775,808"},
		{pair(" to ", "1.06 s", "1.08 s"), "1.06 to 1.08 s"},
		{pair(" to ", "991 ms", "1.01 s"), "991 ms to 1.01 s"},
		{optional(nil, percent), "–"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// Whatever the number, its text is short, is never NaN or Inf, and has the sign
// of the number.
func TestNumbersAlwaysReadable(t *testing.T) {
	formats := map[string]func(float64) string{
		"nanoseconds": nanoseconds, "milliseconds": milliseconds, "seconds": seconds, "rate": rate, "ratio": ratio,
		"percent": percent, "p": pValue, "number": number, "threads": threads, "change": change,
	}
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.NaN(), math.Inf(1), math.Inf(-1), math.MaxFloat64, math.SmallestNonzeroFloat64})).Draw(t, "v")
		for name, format := range formats {
			if name == "change" && (!finite(v) || v < 0) {
				continue
			}
			s := format(v)
			if s == "" || len(s) > 60 || strings.Contains(s, "NaN") || strings.Contains(s, "Inf") {
				t.Errorf("%s(%g) = %q", name, v, s)
			}
			if v < 0 && v > -1e290 && name != "ratio" && name != "p" && !strings.HasPrefix(s, "−") {
				t.Errorf("%s(%g) = %q loses the sign", name, v, s)
			}
			if name == "number" || name == "nanoseconds" || name == "percent" {
				if (v == 0) != (s == "0" || strings.HasPrefix(s, "0 ")) && finite(v) {
					t.Errorf("%s(%g) = %q: only nothing is 0", name, v, s)
				}
			}
		}
	})
}
