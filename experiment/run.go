package experiment

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/contention-toolkit/contention/analysis/result"
	"github.com/contention-toolkit/contention/load"
	"github.com/contention-toolkit/contention/probes"
	"github.com/contention-toolkit/contention/probes/work"
	"github.com/contention-toolkit/contention/profile"
)

// RecordingDir is the name of the recording within a run's directory.
const RecordingDir = "recording"

// The reference broker's counters of work done.
const (
	publishedMetric = "contention_broker_messages_published_total"
	deliveredMetric = "contention_broker_messages_delivered_total"
)

// Phases of a run, as progress reports them.
const (
	PhaseStart   = "start"
	PhaseWarmup  = "warm-up"
	PhaseMeasure = "measure"
	PhaseDrain   = "drain"
	PhaseDone    = "done"
	PhaseNotice  = "notice" // something that a reader should know now
)

// run makes one run. An error ends the experiment; a run that went wrong by
// itself comes back as invalid, without one.
func (r *runner) run(ctx context.Context, p Planned) (*outcome, error) {
	out := &outcome{Run: result.Run{
		Variant: p.Side, Index: p.Index, Kind: p.Kind, Profiled: p.Kind != result.KindPlain,
		Dir: filepath.Join("runs", fmt.Sprintf("%02d-%s", p.Index, p.Side)), WhyInvalid: []string{}, QueueDelayMs: queueDelays(nil, nil),
	}}
	dir := filepath.Join(r.o.Dir, out.Dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("run %d: %w", p.Index, err)
	}
	limited, cancel := context.WithTimeout(ctx, r.o.Spec.Timeout)
	defer cancel()
	m := &measurement{runner: r, plan: p, dir: dir, out: out, client: &http.Client{Timeout: 5 * time.Second}}
	err := m.run(limited)
	m.client.CloseIdleConnections()
	if ctx.Err() != nil {
		return nil, fmt.Errorf("experiment %s stopped in run %d of %d: %w", r.o.Spec.Name, p.Index, len(r.plan), context.Cause(ctx))
	}
	if err != nil {
		out.WhyInvalid = append(out.WhyInvalid, err.Error())
	}
	out.Valid = len(out.WhyInvalid) == 0
	r.progress(p, PhaseDone, out.summary())
	return out, nil
}

func (o *outcome) summary() string {
	if !o.Valid {
		return "invalid: " + strings.Join(o.WhyInvalid, "; ")
	}
	return fmt.Sprintf("%.0f msg/s", o.Throughput)
}

// measurement is one run under way.
type measurement struct {
	*runner
	plan   Planned
	dir    string
	out    *outcome
	client *http.Client

	broker  *brokerChild
	load    *loadChild
	session *probes.Session
}

func (m *measurement) run(ctx context.Context) error {
	var err error
	m.progress(m.plan, PhaseStart, "")
	if m.broker, err = startBroker(ctx, m.brokerArgs(m.plan, m.plan.Kind == result.KindReconcile), m.dir, m.cpus(m.o.BrokerCPUs)); err != nil {
		return err
	}
	defer m.broker.end(stopGrace)
	if m.load, err = startLoad(m.loadArgs(m.broker.ready.Broker, m.dir), m.dir, m.cpus(m.o.LoadCPUs)); err != nil {
		return err
	}
	defer m.load.end(stopGrace)
	m.progress(m.plan, PhaseWarmup, "")
	if _, err := m.load.await(ctx, load.PhaseWarm); err != nil {
		return m.explain(err)
	}
	if err := m.load.begin(); err != nil {
		return err
	}
	if _, err := m.load.await(ctx, load.PhaseMeasuring); err != nil {
		return m.explain(err)
	}
	if err := m.window(ctx); err != nil {
		return m.explain(err)
	}
	m.progress(m.plan, PhaseDrain, "")
	werr := m.load.wait(ctx)
	return m.takeLoad(werr)
}

// cpus is the CPU set of a child: every CPU unless one is asked for, since a
// child would otherwise inherit the recorder's.
func (m *measurement) cpus(asked []int) []int {
	if len(asked) == 0 && len(m.o.RecordCPUs) > 0 {
		return m.allCPUs
	}
	return asked
}

// window measures between the load's first and last send.
func (m *measurement) window(ctx context.Context) error {
	m.progress(m.plan, PhaseMeasure, "")
	metrics := m.broker.ready.Admin + "/metrics"
	before, err := readQueueDelays(ctx, m.client, metrics)
	if err != nil {
		return err
	}
	cpu, cpuErr := probes.ProcessCPU(m.broker.pid())
	if err := m.record(ctx); err != nil {
		return err
	}
	_, err = m.load.await(ctx, load.PhaseMeasured)
	cpuAfter, cpuErr2 := probes.ProcessCPU(m.broker.pid())
	rerr := m.stopRecording()
	if err != nil || rerr != nil {
		return errors.Join(err, rerr)
	}
	after, err := readQueueDelays(ctx, m.client, metrics)
	if err != nil {
		return err
	}
	m.out.QueueDelayMs = queueDelays(before, after)
	if cpuErr == nil && cpuErr2 == nil {
		m.brokerCPU(cpuAfter - cpu)
	}
	return nil
}

func (m *measurement) brokerCPU(used time.Duration) {
	v := float64(used.Nanoseconds()) // divided by the messages when they are known
	m.out.CPUNsPerMsg.Broker = &v
}

// record starts the recording of a profiled run.
func (m *measurement) record(ctx context.Context) error {
	if m.plan.Kind == result.KindPlain {
		return nil
	}
	sources := probes.DefaultSources()
	if m.plan.Kind == result.KindReconcile {
		sources = []profile.Source{profile.SourceGoroutines, profile.SourceMutex, profile.SourceBlock}
	}
	admin := m.broker.ready.Admin
	var counters []work.Counter
	for metric, role := range map[string]string{publishedMetric: profile.WorkPublished, deliveredMetric: profile.WorkDelivered} {
		c, err := work.Parse(admin+"/metrics#"+metric, role)
		if err != nil {
			return err
		}
		counters = append(counters, c)
	}
	rec := filepath.Join(m.dir, RecordingDir)
	s, err := probes.Start(ctx, probes.Options{
		PIDs: []int{m.broker.pid()}, Dir: rec, Sources: sources, PprofURL: admin + "/debug/pprof", Work: counters, NoDiscover: true,
		Annotate: func(t profile.Target, c *profile.Capture) { m.o.Rules.For(t).Annotate(c) },
		Tool:     m.o.Tool, Command: m.o.Command,
	})
	if err != nil {
		return err
	}
	m.session, m.out.recording = s, rec
	for _, a := range s.Absent() {
		m.notice(m.plan, fmt.Sprintf("not recorded: %s: %s", a.Source, a.Reason))
	}
	return nil
}

// notice tells the reader something once, now and in the result.
func (r *runner) notice(p Planned, text string) {
	for _, w := range r.warnings {
		if w == text {
			return
		}
	}
	r.warnings = append(r.warnings, text)
	r.progress(p, PhaseNotice, text)
}

func (m *measurement) stopRecording() error {
	if m.session == nil {
		return nil
	}
	if _, err := m.session.Stop(); err != nil {
		return fmt.Errorf("recording: %w", err)
	}
	return nil
}

// explain adds what the broker said when it was the broker that failed.
func (m *measurement) explain(err error) error {
	if err := m.stopRecording(); err != nil {
		m.out.WhyInvalid = append(m.out.WhyInvalid, err.Error())
	}
	if !m.broker.alive() {
		return errors.Join(err, m.broker.failure())
	}
	return err
}

// takeLoad copies what the load measured into the run. The load's exit status
// says the same as its result, which is more precise.
func (m *measurement) takeLoad(exit error) error {
	res, err := m.load.result()
	if err != nil {
		return errors.Join(exit, err)
	}
	o := m.out
	o.WindowSeconds, o.Published, o.Delivered = res.WindowSeconds, res.Published, res.Delivered
	o.Throughput, o.DrainSeconds = res.Throughput, res.DrainSeconds
	o.PublishMs, o.EndToEndMs = latencyOf(res.PublishMs), latencyOf(res.EndToEndMs)
	d := res.Delivery
	o.Delivery = result.Delivery{Expected: d.Expected, Received: d.Received, Lost: d.Lost, Duplicates: d.Duplicates, Disorder: d.Disorder, Invalid: d.Invalid}
	if res.Published > 0 {
		if v := o.CPUNsPerMsg.Broker; v != nil {
			*v /= float64(res.Published)
		}
		if res.CPU.Known {
			o.CPUNsPerMsg.Load = result.Float(res.CPU.Seconds * 1e9 / float64(res.Published))
		}
	} else {
		o.CPUNsPerMsg.Broker = nil
	}
	if !res.Valid {
		o.WhyInvalid = append(o.WhyInvalid, res.WhyInvalid...)
		return nil
	}
	return exit
}

func latencyOf(l load.Latency) result.Latency {
	if l.Count == 0 {
		return result.Latency{}
	}
	return result.Latency{P50: result.Float(l.P50), P99: result.Float(l.P99), P999: result.Float(l.P999), Max: result.Float(l.Max)}
}
