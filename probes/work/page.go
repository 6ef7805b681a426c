package work

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// page is one answer in which metrics are looked up.
type page interface {
	// value returns a metric, summed over all it names; always finite.
	value(metric string) (float64, error)
}

// parsePage tells JSON from Prometheus text by the content.
func parsePage(body []byte) (page, error) {
	text := bytes.TrimLeft(body, " \t\r\n")
	switch {
	case len(text) == 0:
		return nil, errors.New("the answer is empty")
	case text[0] == '{' || text[0] == '[':
		d := json.NewDecoder(bytes.NewReader(text))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			return nil, fmt.Errorf("the answer is broken JSON: %w", err)
		}
		return jsonPage{v}, nil
	case text[0] == '<':
		return nil, errors.New("the answer is HTML, neither Prometheus text nor JSON: this is not the address of a page of counters")
	}
	p := expfmt.NewTextParser(model.UTF8Validation)
	families, err := p.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("the answer is neither JSON nor Prometheus text: %w", err)
	}
	return promPage(families), nil
}

type promPage map[string]*dto.MetricFamily

func (p promPage) value(metric string) (float64, error) {
	if f, ok := p[metric]; ok {
		return finite(metric, sumFamily(f))
	}
	// The number of observations is a series of its own in the text only.
	if base, ok := strings.CutSuffix(metric, "_count"); ok {
		if f, ok := p[base]; ok {
			return finite(metric, sumObservations(f))
		}
	}
	return 0, fmt.Errorf("no metric %q among the %d of the page%s", metric, len(p), p.similar(metric))
}

// similar names metrics that share a word with the one that is missing.
func (p promPage) similar(metric string) string {
	var names []string
	for name := range p {
		for w := range strings.SplitSeq(metric, "_") {
			if len(w) > 4 && strings.Contains(name, w) {
				names = append(names, strconv.Quote(name))
				break
			}
		}
	}
	return list("; it has", names)
}

// list ends a message with at most five names, "" without any.
func list(head string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	tail := ""
	if len(names) > 5 {
		names, tail = names[:5], " …"
	}
	return head + " " + strings.Join(names, ", ") + tail
}

func sumFamily(f *dto.MetricFamily) float64 {
	sum := 0.0
	for _, m := range f.GetMetric() {
		switch {
		case m.Counter != nil:
			sum += m.GetCounter().GetValue()
		case m.Gauge != nil:
			sum += m.GetGauge().GetValue()
		case m.Untyped != nil:
			sum += m.GetUntyped().GetValue()
		default:
			return math.NaN() // a distribution has no one value
		}
	}
	return sum
}

func sumObservations(f *dto.MetricFamily) float64 {
	sum := 0.0
	for _, m := range f.GetMetric() {
		switch {
		case m.Histogram != nil:
			sum += float64(m.GetHistogram().GetSampleCount())
		case m.Summary != nil:
			sum += float64(m.GetSummary().GetSampleCount())
		default:
			return math.NaN()
		}
	}
	return sum
}

func finite(metric string, v float64) (float64, error) {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0, fmt.Errorf("metric %q has no finite value that could count work; name a counter, or the _count of a distribution", metric)
	}
	return v, nil
}

type jsonPage struct{ root any }

func (p jsonPage) value(path string) (float64, error) {
	sum, found, err := walk(p.root, strings.Split(path, "."), "")
	if err != nil {
		return 0, err
	}
	if found == 0 {
		return 0, fmt.Errorf("%q names nothing on the page", path)
	}
	return finite(path, sum)
}

// walk sums the numbers that path leads to; at is where v stands. Below a "*" an
// element without the rest of the path counts as nothing.
func walk(v any, path []string, at string) (sum float64, found int, err error) {
	if len(path) == 0 {
		n, ok := v.(json.Number)
		if !ok {
			return 0, 0, fmt.Errorf("%q is not a number", at)
		}
		f, err := n.Float64()
		if err != nil {
			return 0, 0, fmt.Errorf("%q is not a number in range: %w", at, err)
		}
		return f, 1, nil
	}
	if path[0] == "*" {
		return walkAll(v, path[1:], at)
	}
	switch x := v.(type) {
	case map[string]any:
		if next, ok := x[path[0]]; ok {
			return walk(next, path[1:], join(at, path[0]))
		}
		var keys []string
		for k := range x {
			keys = append(keys, fmt.Sprintf("%.40q", k))
		}
		return 0, 0, &missing{at, path[0], list("; it has", keys)}
	case []any:
		if i, err := strconv.Atoi(path[0]); err == nil && i >= 0 && i < len(x) {
			return walk(x[i], path[1:], join(at, path[0]))
		}
		return 0, 0, &missing{at, path[0], fmt.Sprintf("; it is a list of %d, of which \"*\" means all", len(x))}
	}
	return 0, 0, &missing{at, path[0], "; it is a single value"}
}

func walkAll(v any, path []string, at string) (sum float64, found int, err error) {
	add := func(key string, e any) error {
		s, n, err := walk(e, path, join(at, key))
		if _, ok := errors.AsType[*missing](err); ok {
			return nil
		}
		sum, found = sum+s, found+n
		return err
	}
	switch x := v.(type) {
	case []any:
		for i, e := range x {
			if err := add(strconv.Itoa(i), e); err != nil {
				return 0, 0, err
			}
		}
	case map[string]any:
		for k, e := range x {
			if err := add(k, e); err != nil {
				return 0, 0, err
			}
		}
	default:
		return 0, 0, &missing{at, "*", "; it is a single value"}
	}
	return sum, found, nil
}

// missing is a path that leads nowhere.
type missing struct{ at, key, hint string }

func (m *missing) Error() string {
	where := "the page"
	if m.at != "" {
		where = strconv.Quote(m.at)
	}
	return fmt.Sprintf("%s has no %q%s", where, m.key, m.hint)
}

func join(at, key string) string {
	if at == "" {
		return key
	}
	return at + "." + key
}
