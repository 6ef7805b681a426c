package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/contention-toolkit/contention/tools/brokerbench/drive"
)

// report is everything that a comparison found.
type report struct {
	Bench    *bench             `json:"-"`
	Settings map[string]any     `json:"settings"`
	Runs     []one              `json:"runs"`
	Ratios   map[string]*ratio  `json:"ratios"` // of the first side over the second, by metric
	Mean     map[string]summary `json:"mean"`   // by side: arithmetic means over its runs
}

// metric is one figure of a run.
type metric struct {
	key, name, format string
	of                func(*drive.Result) float64
	ratio             bool // is compared
}

var metrics = []metric{
	{"messages_per_server_cpu_second", "messages per server CPU-second", "%.0f", func(r *drive.Result) float64 { return r.PerServerCPUSecond }, true},
	{"throughput_msgs_per_s", "throughput, msg/s", "%.0f", func(r *drive.Result) float64 { return r.Throughput }, true},
	{"publish_p50_ms", "publish p50, ms", "%.2f", func(r *drive.Result) float64 { return r.PublishMs.P50 }, true},
	{"publish_p99_ms", "publish p99, ms", "%.2f", func(r *drive.Result) float64 { return r.PublishMs.P99 }, true},
	{"end_to_end_p50_ms", "end to end p50, ms", "%.2f", func(r *drive.Result) float64 { return r.EndToEndMs.P50 }, true},
	{"end_to_end_p99_ms", "end to end p99, ms", "%.2f", func(r *drive.Result) float64 { return r.EndToEndMs.P99 }, true},
	{"server_cores", "server, CPUs", "%.2f", func(r *drive.Result) float64 { return r.ServerCores }, false},
	{"server_user_share", "of it in user mode", "%.2f", func(r *drive.Result) float64 { return r.ServerUserShare }, false},
	{"server_waited_for_cpu", "server waiting for its CPU, threads", "%.2f", func(r *drive.Result) float64 { return r.ServerWaited }, false},
	{"serial_stage_busy_share", "serial stage busy, share", "%.2f", func(r *drive.Result) float64 { return r.SerialBusy }, false},
	{"load_cores", "load, CPUs", "%.2f", func(r *drive.Result) float64 { return r.LoadCores }, false},
	{"allocs_per_msg", "server allocations per message", "%.2f", func(r *drive.Result) float64 { return r.AllocsPerMsg }, false},
	{"alloc_bytes_per_msg", "server bytes allocated per message", "%.0f", func(r *drive.Result) float64 { return r.AllocBytesPerMsg }, false},
	{"peak_rss_mib", "server peak memory, MiB", "%.0f", func(r *drive.Result) float64 { return float64(r.ServerRSSBytes) / (1 << 20) }, false},
	{"held_back", "times a publisher was held back", "%.0f", func(r *drive.Result) float64 { return float64(r.HeldBack) }, false},
}

type summary map[string]float64

// line is a run's progress line.
func (o *one) line() string {
	r := o.Run
	s := fmt.Sprintf("%2d %-6s %8.0f msg/CPU-s  %7.0f msg/s  server %.2f CPUs (+%.2f waiting), load %.2f  publish p50 %.1f p99 %.1f  end to end p50 %.1f p99 %.1f ms  %.2f allocs/msg",
		o.Order, o.Side, r.PerServerCPUSecond, r.Throughput, r.ServerCores, r.ServerWaited, r.LoadCores,
		r.PublishMs.P50, r.PublishMs.P99, r.EndToEndMs.P50, r.EndToEndMs.P99, r.AllocsPerMsg)
	if len(r.Invalidity) > 0 {
		s += "  INVALID: " + strings.Join(r.Invalidity, "; ")
	}
	return s
}

func (p *report) summarise() {
	b := p.Bench
	p.Mean, p.Ratios = map[string]summary{}, map[string]*ratio{}
	p.Settings = map[string]any{
		"sides": b.Sides, "pairs": b.Pairs, "storage": b.Storage, "job": b.Job, "broker": b.Ours, "nats": b.NATS,
		"server_cpu": b.ServerCPU, "load_cpu": b.LoadCPU, "go": runtime.Version(), "time": time.Now().UTC().Format(time.RFC3339),
	}
	for _, side := range b.Sides {
		s := summary{}
		for _, m := range metrics {
			for _, o := range p.Runs {
				if o.Side == side {
					s[m.key] += m.of(o.Run) / float64(b.Pairs)
				}
			}
		}
		p.Mean[side] = s
	}
	if len(b.Sides) < 2 {
		return
	}
	for _, m := range metrics {
		if m.ratio {
			p.Ratios[m.key] = pairedRatio(p.values(m, b.Sides[0]), p.values(m, b.Sides[1]))
		}
	}
}

// values of a metric, in the order of the pairs.
func (p *report) values(m metric, side string) (v []float64) {
	for _, o := range p.Runs {
		if o.Side == side {
			v = append(v, m.of(o.Run))
		}
	}
	return v
}

// invalid is the error of a comparison with failed checks.
func (p *report) invalid() error {
	for _, o := range p.Runs {
		if len(o.Run.Invalidity) > 0 {
			return fmt.Errorf("run %d, %s, is invalid: %s", o.Order, o.Side, strings.Join(o.Run.Invalidity, "; "))
		}
	}
	return nil
}

func (p *report) markdown() string {
	var w strings.Builder
	b := p.Bench
	j := &b.Job
	fmt.Fprintf(&w, "%d connections × %d in flight, %d B, a group of %d, at most %d sent and not delivered; %s storage; %d runs of %v each after %v",
		j.Connections, j.InFlight, j.Size, j.Consumers, j.Backlog, b.Storage, b.Pairs, j.Measure, j.Warm)
	if b.LoadCPU >= 0 {
		fmt.Fprintf(&w, "; server on CPU %d, load on CPU %d", b.ServerCPU, b.LoadCPU)
	}
	w.WriteString(".\n")
	if b.Profile {
		w.WriteString("The servers were being profiled: not for the headline.\n")
	}
	w.WriteString("\n| |")
	for _, side := range b.Sides {
		fmt.Fprintf(&w, " %s |", side)
	}
	two := len(b.Sides) == 2
	if two {
		fmt.Fprintf(&w, " %s / %s, 95 %% interval |", b.Sides[0], b.Sides[1])
	}
	w.WriteString("\n|---|" + strings.Repeat("---:|", len(b.Sides)))
	if two {
		w.WriteString("---:|")
	}
	w.WriteByte('\n')
	for _, m := range metrics {
		fmt.Fprintf(&w, "| %s |", m.name)
		for _, side := range b.Sides {
			fmt.Fprintf(&w, " "+m.format+" |", p.Mean[side][m.key])
		}
		if two {
			w.WriteString(" " + p.Ratios[m.key].String() + " |")
		}
		w.WriteByte('\n')
	}
	w.WriteString("\n| run | pair | side | msg/CPU-s | msg/s | server CPUs | load CPUs | lost | twice | out of order | left over |\n|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|\n")
	for _, o := range p.Runs {
		r := o.Run
		disorder := fmt.Sprint(r.Disorder)
		if r.Disorder < 0 {
			disorder = "not promised"
		}
		fmt.Fprintf(&w, "| %d | %d | %s | %.0f | %.0f | %.2f | %.2f | %d | %d | %s | %d |\n",
			o.Order, o.Pair, o.Side, r.PerServerCPUSecond, r.Throughput, r.ServerCores, r.LoadCores, r.Lost, r.Duplicates, disorder, r.LeftOver)
	}
	return w.String()
}

// write prints the tables and keeps the results.
func (p *report) write(w io.Writer, dir string) error {
	text := p.markdown()
	if _, err := io.WriteString(w, text); err != nil || dir == "" {
		return err
	}
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir, "result.json"), append(data, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "result.md"), []byte(text), 0o644)
}
