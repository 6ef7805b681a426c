package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"

	"golang.org/x/perf/benchfmt"

	"github.com/contention-toolkit/contention/analysis/result"
)

// Benchfmt writes the valid unprofiled runs in Go's benchmark format, one line
// per run in the order they ran. To compare the sides:
//
//	benchstat -col side bench.txt
func Benchfmt(w io.Writer, r *result.Result) error {
	b := &builder{limits{text: 200}, r}
	bw := benchfmt.NewWriter(w)
	for _, u := range benchUnits {
		m := benchfmt.UnitMetadata{UnitMetadataKey: benchfmt.UnitMetadataKey{Unit: u.unit, Key: "better"}, OrigUnit: u.unit, Value: u.better}
		if err := bw.Write(&m); err != nil {
			return fmt.Errorf("write benchmarks of %q: %w", r.Experiment, err)
		}
	}
	for _, run := range b.ordered() {
		if run.Kind != result.KindPlain || !run.Valid {
			continue
		}
		rec := b.benchResult(&run)
		if len(rec.Values) == 0 {
			continue
		}
		if err := bw.Write(rec); err != nil {
			return fmt.Errorf("write benchmarks of %q: %w", r.Experiment, err)
		}
	}
	return nil
}

// benchUnit is one value of a benchmark line.
type benchUnit struct {
	unit, better string
	run          func(*result.Run) *float64
}

var benchUnits = func() []benchUnit {
	var out []benchUnit
	for _, m := range metrics {
		out = append(out, benchUnit{m.unit, m.better, m.run})
	}
	return append(out, benchUnit{"load-cpu-ns/msg", "lower", func(r *result.Run) *float64 { return r.CPUNsPerMsg.Load }})
}()

func (b *builder) benchResult(run *result.Run) *benchfmt.Result {
	s, h := b.r.Scenario, b.r.Host
	res := &benchfmt.Result{Name: benchfmt.Name(benchName(b.r.Experiment)), Iters: int(max(run.Published, 1))}
	for _, c := range []struct{ key, value string }{
		{"experiment", b.r.Experiment},
		{"goarch", h.Arch},
		{"kernel", h.Kernel},
		{"cpus", strconv.Itoa(h.CPUs)},
		{"go", h.GoVersion},
		{"scenario", s.Name},
		{"connections", strconv.Itoa(s.Connections)},
		{"in-flight", strconv.Itoa(s.InFlight)},
		{"message-bytes", strconv.Itoa(s.MessageBytes)},
		{"side", run.Variant},
		{"variant", b.sideName(run.Variant)},
		{"version", b.version(run.Variant)},
	} {
		if v := strings.TrimSpace(b.word(c.value)); v != "" {
			res.Config = append(res.Config, benchfmt.Config{Key: c.key, Value: []byte(v), File: true})
		}
	}
	for _, u := range benchUnits {
		if v := u.run(run); known(v) {
			res.Values = append(res.Values, benchfmt.Value{Value: *v, Unit: u.unit})
		}
	}
	return res
}

func (b *builder) version(side string) string {
	if v := b.r.Side(side); v != nil {
		return v.Version
	}
	return ""
}

// benchName makes a benchmark's name of an experiment's: "handoff" is "Handoff".
func benchName(experiment string) string {
	var out strings.Builder
	for _, r := range experiment {
		if out.Len() > 100 {
			break
		}
		switch {
		case r == '-', r == '_', r == '.', r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)):
			if out.Len() == 0 {
				r = unicode.ToUpper(r)
			}
			out.WriteRune(r)
		default:
			out.WriteByte('_')
		}
	}
	if out.Len() == 0 {
		return "Experiment"
	}
	return out.String()
}
