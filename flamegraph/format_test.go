package flamegraph

import "testing"

func TestAmount(t *testing.T) {
	ns := Measure{Unit: "nanoseconds"}
	for _, c := range []struct {
		m    Measure
		v    float64
		want string
	}{
		{ns, 0, "0 ns"},
		{ns, 0.0001, "<0.001 ns"},
		{ns, 0.5, "0.500 ns"},
		{ns, 999.4, "999 ns"},
		{ns, 999.6, "1.00 µs"},
		{ns, -12_345, "−12.3 µs"},
		{ns, 999_499_999, "999 ms"},
		{ns, 999_600_000, "1.00 s"},
		{ns, 1.686e12, "1,686 s"},
		{Measure{Unit: "seconds"}, 0.25, "250 ms"},
		{Measure{Unit: "count"}, 1234567, "1,234,567"},
		{Measure{Unit: "count"}, 2, "2"},
		{Measure{Unit: "count"}, 2.5, "2.50"},
		{Measure{Unit: "count"}, -123, "−123"},
		{Measure{Unit: "count"}, -1234, "−1,234"},
		{Measure{Unit: "bytes"}, 12, "12.0 bytes"},
		{Measure{Unit: "count"}, 9.2e18, "9.20e+18"},
	} {
		if got := c.m.amount(c.v); got != c.want {
			t.Errorf("amount(%v %s) = %q, want %q", c.v, c.m.Unit, got, c.want)
		}
	}
	if got := (Measure{Unit: "nanoseconds", Per: "message"}).value(1500); got != "1.50 µs per message" {
		t.Errorf("value = %q", got)
	}
	if got := ns.signed(1500); got != "+1.50 µs" {
		t.Errorf("signed = %q", got)
	}
}

func TestPercent(t *testing.T) {
	for _, c := range []struct {
		part, whole float64
		want        string
	}{
		{1, 0, "–"}, {0, 0, "–"}, {0, 5, "0 %"}, {1, 100_000, "<0.1 %"}, {1, 3, "33 %"}, {5, 100, "5.0 %"},
		{-1, 3, "−33 %"}, {99_999, 100_000, "99.9 %"}, {-99_999, 100_000, "−99.9 %"}, {7, 7, "100 %"},
	} {
		if got := percent(c.part, c.whole); got != c.want {
			t.Errorf("percent(%v, %v) = %q, want %q", c.part, c.whole, got, c.want)
		}
	}
}

// The formula is (after-before)/before, with its sign, and no zero divides.
func TestChange(t *testing.T) {
	for _, c := range []struct {
		before, after float64
		want          string
	}{
		{0, 0, "0 %"}, {4, 4, "0 %"}, {0, 4, "new"}, {4, 0, "gone"}, {100, 50, "−50 %"}, {50, 100, "+100 %"},
		{110, 15, "−86 %"}, {1, 10, "×10.0"}, {1_000_000, 1, "−99.9 %"}, {1_000_000, 1_000_001, "+<0.1 %"}, {1_000_000, 999_999, "−<0.1 %"},
	} {
		if got := change(c.before, c.after); got != c.want {
			t.Errorf("change(%v, %v) = %q, want %q", c.before, c.after, got, c.want)
		}
	}
}

func TestFixed(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 12: "12", 12.34: "12.3", -0.01: "0", 0.96: "1"} {
		if got := fixed(v); got != want {
			t.Errorf("fixed(%v) = %q, want %q", v, got, want)
		}
	}
}

func TestStep(t *testing.T) {
	for _, c := range []struct {
		before, after, floor float64
		want                 string
	}{
		{0, 0, 0, "same"}, {5, 5, 0, "same"}, {100, 96, 0, "same"}, {100, 104, 0, "same"},
		{100, 90, 0, "f1"}, {100, 60, 0, "f2"}, {100, 20, 0, "f3"}, {100, 0, 0, "gone"},
		{100, 120, 0, "g1"}, {100, 200, 0, "g2"}, {100, 400, 0, "g3"}, {0, 1, 0, "new"},
		// What equal builds differ by is grey, however large it is in the frame.
		{0, 1, 2, "same"}, {1, 0, 2, "same"}, {10, 5, 6, "same"}, {10, 5, 4, "f2"},
	} {
		if got := step(c.before, c.after, c.floor); got != c.want {
			t.Errorf("step(%v, %v, %v) = %q, want %q", c.before, c.after, c.floor, got, c.want)
		}
	}
}
