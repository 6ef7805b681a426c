package experiment

import (
	"context"
	"fmt"
	"math"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/contention-toolkit/contention/analysis/result"
)

// The reference broker's histogram of time in the executor's queue, and the
// kinds of task that result.json has.
const queueDelayMetric = "contention_broker_queue_delay_seconds"

var taskKinds = []string{"add", "wake", "read", "dispatch"}

// histogram is a cumulative histogram as read from a metrics page.
type histogram struct {
	bounds []float64 // upper, seconds; the last is +Inf
	counts []float64 // cumulative
	sum    float64
}

// readQueueDelays reads the broker's time-in-queue histograms, by task kind.
func readQueueDelays(ctx context.Context, client *http.Client, url string) (map[string]histogram, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("queue delays: %w", err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("queue delays: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("queue delays: %s answers %s", url, resp.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("queue delays: %s: %w", url, err)
	}
	f := families[queueDelayMetric]
	if f == nil {
		return nil, fmt.Errorf("queue delays: %s has no %s", url, queueDelayMetric)
	}
	out := map[string]histogram{}
	for _, m := range f.GetMetric() {
		out[label(m, "kind")] = toHistogram(m.GetHistogram())
	}
	return out, nil
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

func toHistogram(h *dto.Histogram) histogram {
	out := histogram{sum: h.GetSampleSum()}
	for _, b := range h.GetBucket() {
		out.bounds = append(out.bounds, b.GetUpperBound())
		out.counts = append(out.counts, float64(b.GetCumulativeCount()))
	}
	if n := len(out.bounds); n == 0 || !math.IsInf(out.bounds[n-1], 1) {
		out.bounds = append(out.bounds, math.Inf(1))
		out.counts = append(out.counts, float64(h.GetSampleCount()))
	}
	return out
}

// minus is what was added since old; ok is false when the buckets differ or
// the histogram was reset.
func (h histogram) minus(old histogram) (histogram, bool) {
	if len(old.counts) == 0 {
		return h, true
	}
	if len(h.counts) != len(old.counts) {
		return histogram{}, false
	}
	out := histogram{bounds: h.bounds, sum: h.sum - old.sum}
	for i := range h.counts {
		if h.counts[i] < old.counts[i] || h.bounds[i] != old.bounds[i] {
			return histogram{}, false
		}
		out.counts = append(out.counts, h.counts[i]-old.counts[i])
	}
	return out, true
}

// delay puts a histogram in milliseconds. Quantiles are interpolated within
// their bucket; one in the last, open bucket is the last bound.
func (h histogram) delay() result.Delay {
	n := len(h.counts)
	if n == 0 || h.counts[n-1] == 0 {
		return result.Delay{}
	}
	total := h.counts[n-1]
	return result.Delay{
		P50: result.Float(1000 * h.quantile(0.5)), P99: result.Float(1000 * h.quantile(0.99)),
		Mean: result.Float(1000 * h.sum / total), Count: int64(total),
	}
}

func (h histogram) quantile(q float64) float64 {
	rank := q * h.counts[len(h.counts)-1]
	low, below := 0.0, 0.0
	for i, c := range h.counts {
		if c >= rank && c > below {
			if math.IsInf(h.bounds[i], 1) {
				return low
			}
			return low + (h.bounds[i]-low)*(rank-below)/(c-below)
		}
		low, below = h.bounds[i], c
	}
	return low
}

// queueDelays is the time in queue between two reads, one entry per task kind.
func queueDelays(before, after map[string]histogram) map[string]result.Delay {
	out := map[string]result.Delay{}
	for _, k := range taskKinds {
		out[k] = result.Delay{}
		if d, ok := after[k].minus(before[k]); ok {
			out[k] = d.delay()
		}
	}
	return out
}
