package experiment

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"sort"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"pgregory.net/rapid"
)

func TestReadQueueDelays(t *testing.T) {
	reg := prometheus.NewRegistry()
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: queueDelayMetric, Buckets: []float64{0.001, 0.002, 0.004}}, []string{"kind"})
	reg.MustRegister(h)
	srv := httptest.NewServer(promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	defer srv.Close()
	read := func() map[string]histogram {
		t.Helper()
		m, err := readQueueDelays(context.Background(), srv.Client(), srv.URL)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	if _, err := readQueueDelays(context.Background(), srv.Client(), srv.URL); err == nil || !strings.Contains(err.Error(), queueDelayMetric) {
		t.Errorf("a page without the histogram: %v", err)
	}
	h.WithLabelValues("add").Observe(100) // before the window
	before := read()
	for range 10 {
		h.WithLabelValues("add").Observe(0.0015)
	}
	h.WithLabelValues("wake").Observe(9) // above every bound
	d := queueDelays(before, read())
	if d["add"].Count != 10 || math.Abs(*d["add"].P50-1.5) > 1e-9 || math.Abs(*d["add"].Mean-1.5) > 1e-9 {
		t.Errorf("add: %+v", d["add"])
	}
	if *d["wake"].P99 != 4 {
		t.Errorf("a delay above every bound is %v ms, want the last bound", *d["wake"].P99)
	}
	if d["read"].P50 != nil || d["read"].Count != 0 {
		t.Errorf("a kind that never ran: %+v", d["read"])
	}
	if len(d) != len(taskKinds) {
		t.Errorf("%d kinds", len(d))
	}
}

func TestReadQueueDelaysFails(t *testing.T) {
	for want, handler := range map[string]http.HandlerFunc{
		"404":        http.NotFound,
		"text forma": func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "a b c d {") },
	} {
		srv := httptest.NewServer(handler)
		if _, err := readQueueDelays(context.Background(), srv.Client(), srv.URL); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want one with %q", err, want)
		}
		srv.Close()
	}
}

// A histogram that went down was reset, and gives nothing.
func TestHistogramReset(t *testing.T) {
	old := histogram{bounds: []float64{1, math.Inf(1)}, counts: []float64{5, 9}}
	if _, ok := (histogram{bounds: old.bounds, counts: []float64{4, 9}}).minus(old); ok {
		t.Error("a reset passed unseen")
	}
	if _, ok := (histogram{bounds: []float64{2, math.Inf(1)}, counts: []float64{5, 9}}).minus(old); ok {
		t.Error("other buckets passed unseen")
	}
}

// An interpolated quantile lies in the bucket that holds the true one.
func TestQuantileIsInItsBucket(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bounds := []float64{1, 2, 4, 8, 16, math.Inf(1)}
		values := rapid.SliceOfN(rapid.Float64Range(0, 15.9), 1, 50).Draw(t, "values")
		sort.Float64s(values)
		h := histogram{bounds: bounds, counts: make([]float64, len(bounds))}
		for i, b := range bounds {
			for _, v := range values {
				if v <= b {
					h.counts[i]++
				}
			}
		}
		q := rapid.Float64Range(0.01, 1).Draw(t, "q")
		rank := max(int(math.Ceil(q*float64(len(values)))), 1)
		want := values[rank-1]
		got := h.quantile(q)
		i := sort.SearchFloat64s(bounds, want)
		low := 0.0
		if i > 0 {
			low = bounds[i-1]
		}
		if got < low-1e-9 || got > bounds[i]+1e-9 {
			t.Fatalf("quantile %v of %v is %v, true value %v lies in (%v, %v]", q, values, got, want, low, bounds[i])
		}
	})
}
