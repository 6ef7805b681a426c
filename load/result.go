package load

import (
	"fmt"
	"math"
	"runtime"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is what a run measured. It is valid when everything that was asked
// for was measured and every delivery check passed.
type Result struct {
	Settings Settings `json:"settings"`
	Broker   string   `json:"broker"`

	WindowStartNs int64   `json:"window_start_unix_ns"` // 0 when the window was not reached
	WindowEndNs   int64   `json:"window_end_unix_ns"`
	WindowSeconds float64 `json:"window_seconds"`

	Sent      int64 `json:"sent"`      // messages, warm-up included
	Published int64 `json:"published"` // acknowledged inside the window
	Delivered int64 `json:"delivered"` // unique messages received inside the window, over all applications
	// Scheduled is what the rate asked for inside the window, and Unsent what
	// of it was not sent; 0 when unpaced.
	Scheduled int64 `json:"scheduled"`
	Unsent    int64 `json:"unsent"`

	Throughput          float64 `json:"throughput_msgs_per_s"` // published
	DeliveredThroughput float64 `json:"delivered_msgs_per_s"`  // over all applications
	DrainSeconds        float64 `json:"drain_seconds"`         // from the window's end to the last message

	PublishMs Latency `json:"publish_ms"`
	// EndToEndMs is the application with the largest p99: applications are not
	// merged.
	EndToEndMs Latency `json:"end_to_end_ms"`
	// The same from the real send times; null when unpaced, where they are no
	// different.
	PublishUncorrectedMs  *Latency `json:"publish_uncorrected_ms"`
	EndToEndUncorrectedMs *Latency `json:"end_to_end_uncorrected_ms"`

	CPU          CPU           `json:"cpu"`
	Delivery     Delivery      `json:"delivery"` // over all applications
	Applications []Application `json:"applications"`

	Valid      bool     `json:"valid"`       // the run may be used in a comparison
	WhyInvalid []string `json:"why_invalid"` // one reason each; never null
	Warnings   []string `json:"warnings"`

	histograms []namedHistogram
}

// Settings are the scenario as it ran, with units in the names.
type Settings struct {
	Name             string  `json:"name"`
	Topic            string  `json:"topic"`
	Connections      int     `json:"connections"`
	Devices          int     `json:"devices"`
	InFlight         int     `json:"in_flight"` // messages, over all connections
	MessageBytes     int64   `json:"message_bytes"`
	RateMsgsPerS     float64 `json:"rate_msgs_per_s"` // 0 is unpaced
	SubscriptionType string  `json:"subscription_type"`
	Consumers        int     `json:"consumers"` // per application
	Applications     int     `json:"applications"`
	ReceiverQueue    int     `json:"receiver_queue"` // messages
	WarmupMessages   int64   `json:"warmup_messages"`
	MeasuredSeconds  float64 `json:"measured_seconds"`  // asked for; 0 when messages were
	MeasuredMessages int64   `json:"measured_messages"` // asked for; 0 when seconds were
	TimeoutSeconds   float64 `json:"timeout_seconds"`
}

// Latency is in milliseconds; all zero when Count is.
type Latency struct {
	P50   float64 `json:"p50"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	P999  float64 `json:"p999"`
	Max   float64 `json:"max"`
	Mean  float64 `json:"mean"`
	Count int64   `json:"count"`
}

// CPU is the load's own cost over the window.
type CPU struct {
	Known    bool    `json:"known"` // false where the system does not tell
	Seconds  float64 `json:"seconds"`
	Cores    float64 `json:"cores"`         // seconds per second
	Share    float64 `json:"share_of_host"` // of all the host's CPUs, 0 to 1
	HostCPUs int     `json:"host_cpus"`
}

// Delivery is what the checks counted, over warm-up and measurement. Received
// counts acknowledged messages once each, so Received + Lost = Expected.
type Delivery struct {
	Expected   int64 `json:"expected"` // acknowledged to producers, times applications
	Received   int64 `json:"received"`
	Lost       int64 `json:"lost"`
	Duplicates int64 `json:"duplicates"`
	Disorder   int64 `json:"disorder"` // first deliveries above the key's expected counter
	Invalid    int64 `json:"invalid"`  // damaged, or never sent
	// Foreign messages belong to another run, which left them in the
	// subscription. They are acknowledged and do not make the run invalid.
	Foreign int64 `json:"foreign"`
	// DevicesIncomplete counts the devices whose end state at an application
	// is behind the producers'.
	DevicesIncomplete int64 `json:"devices_incomplete"`
}

// Valid reports whether every message came once, in order and whole.
func (d *Delivery) Valid() bool {
	return d.Lost == 0 && d.Duplicates == 0 && d.Disorder == 0 && d.Invalid == 0
}

// Application is one subscription's part.
type Application struct {
	Subscription          string   `json:"subscription"`
	Delivered             int64    `json:"delivered"` // inside the window
	DrainSeconds          float64  `json:"drain_seconds"`
	EndToEndMs            Latency  `json:"end_to_end_ms"`
	EndToEndUncorrectedMs *Latency `json:"end_to_end_uncorrected_ms"`
	Delivery              Delivery `json:"delivery"`
}

// minReached is the part of a schedule that must be sent for the run to count.
const minReached = 0.99

func (r *run) result(err error) *Result {
	s := &r.sc
	res := &Result{
		Broker: r.opts.Broker, Sent: r.sent.Load(), WhyInvalid: []string{}, Warnings: []string{}, Applications: []Application{},
		Settings: Settings{
			Name: s.Name, Topic: s.Topic, Connections: s.Connections, Devices: s.Devices, InFlight: s.InFlight,
			MessageBytes: int64(s.MessageSize), RateMsgsPerS: s.Rate, SubscriptionType: s.SubscriptionType, Consumers: s.Consumers,
			Applications: s.Applications, ReceiverQueue: s.ReceiverQueue, WarmupMessages: s.WarmupMessages,
			MeasuredMessages: s.Messages, TimeoutSeconds: s.Timeout.Seconds(),
		},
	}
	if s.Messages == 0 {
		res.Settings.MeasuredSeconds = s.Duration.Seconds()
	}
	if err != nil {
		res.WhyInvalid = append(res.WhyInvalid, err.Error())
	}
	start, end := r.window.start.Load(), r.window.end.Load()
	measured := start != math.MaxInt64 && end != math.MaxInt64 && end > start
	if measured {
		res.WindowStartNs, res.WindowEndNs = r.unixNs(start), r.unixNs(end)
		res.WindowSeconds = float64(end-start) / 1e9
		r.fillCPU(res)
	}
	res.Published = r.published.sum()
	r.fillSchedule(res)
	r.fillApplications(res, end, measured)
	r.fillPublish(res)
	if res.WindowSeconds > 0 {
		res.Throughput = float64(res.Published) / res.WindowSeconds
		res.DeliveredThroughput = float64(res.Delivered) / res.WindowSeconds
	}
	if err == nil && res.Published == 0 {
		res.WhyInvalid = append(res.WhyInvalid, "no message was acknowledged inside the window")
	}
	res.Valid = len(res.WhyInvalid) == 0
	return res
}

func (r *run) fillCPU(res *Result) {
	c := CPU{Known: r.cpuKnown, Seconds: r.cpu.Seconds(), HostCPUs: runtime.NumCPU()}
	c.Cores = c.Seconds / res.WindowSeconds
	c.Share = c.Cores / float64(c.HostCPUs)
	res.CPU = c
}

func (r *run) fillSchedule(res *Result) {
	if r.paced == nil {
		return
	}
	res.Scheduled = r.paced.due(r.window.end.Load())
	if r.sc.Messages > 0 {
		res.Scheduled = min(res.Scheduled, r.sc.Messages)
	}
	res.Unsent = res.Scheduled - r.paced.issued
	if float64(res.Unsent) > (1-minReached)*float64(res.Scheduled) {
		res.WhyInvalid = append(res.WhyInvalid, fmt.Sprintf(
			"load not reached: %d of %d scheduled messages were not sent, because %d were in flight: lower the rate", res.Unsent, res.Scheduled, r.sc.InFlight))
	}
}

func (r *run) fillPublish(res *Result) {
	h, sent, bad := r.publish.merged()
	res.PublishMs, res.PublishUncorrectedMs = latency(h), optionalLatency(sent)
	res.keep("publish", h, sent, bad)
}

func (r *run) fillApplications(res *Result, end int64, measured bool) {
	acked, unacked := r.endState()
	for i, a := range r.apps {
		h, sent, bad := a.endToEnd.merged()
		app := Application{
			Subscription: a.name, EndToEndMs: latency(h), EndToEndUncorrectedMs: optionalLatency(sent),
			Delivery: a.track.finish(acked, unacked), Delivered: a.track.inWindow,
		}
		if measured {
			app.DrainSeconds = max(0, float64(a.track.lastUnique.Load()-end)/1e9)
		}
		res.keep("end-to-end-"+a.name, h, sent, bad)
		res.addApplication(app, a.track.firstBad)
		if i == 0 || app.EndToEndMs.P99 > res.EndToEndMs.P99 {
			res.EndToEndMs, res.EndToEndUncorrectedMs = app.EndToEndMs, app.EndToEndUncorrectedMs
		}
	}
}

// endState returns, by device, how many messages were acknowledged, and the
// devices with one more under way. The goroutines have ended.
func (r *run) endState() ([]uint32, map[int32]bool) {
	unacked := map[int32]bool{}
	for _, p := range r.producers {
		if p == nil {
			continue
		}
		for seq := p.head; seq != p.next; seq++ {
			d := p.slots[seq&uint64(len(p.slots)-1)].device
			unacked[d] = true
			r.sentCount[d]--
		}
	}
	return r.sentCount, unacked
}

func (res *Result) addApplication(app Application, firstBad error) {
	res.Applications = append(res.Applications, app)
	res.Delivered += app.Delivered
	res.DrainSeconds = max(res.DrainSeconds, app.DrainSeconds)
	t, d := &res.Delivery, &app.Delivery
	t.Expected += d.Expected
	t.Received += d.Received
	t.Lost += d.Lost
	t.Duplicates += d.Duplicates
	t.Disorder += d.Disorder
	t.Invalid += d.Invalid
	t.Foreign += d.Foreign
	t.DevicesIncomplete += d.DevicesIncomplete
	why := func(n int64, format string, args ...any) {
		if n > 0 {
			res.WhyInvalid = append(res.WhyInvalid, app.Subscription+": "+fmt.Sprintf(format, args...))
		}
	}
	why(d.Lost, "%d of %d acknowledged messages were not received, of %d devices", d.Lost, d.Expected, d.DevicesIncomplete)
	why(d.Duplicates, "%d messages were received more than once", d.Duplicates)
	why(d.Disorder, "%d messages came before an earlier one of their key", d.Disorder)
	if firstBad != nil {
		why(d.Invalid, "%d messages were damaged or never sent, first: %v", d.Invalid, firstBad)
	} else {
		why(d.Invalid, "%d messages were received that were never sent", d.Invalid)
	}
	if d.Foreign > 0 {
		res.Warnings = append(res.Warnings, fmt.Sprintf("%s: %d messages of another run were in the subscription; they were acknowledged and not counted", app.Subscription, d.Foreign))
	}
}

func (res *Result) keep(name string, h, sent *hdrhistogram.Histogram, notInRange int64) {
	res.histograms = append(res.histograms, namedHistogram{name, h})
	if sent != nil {
		res.histograms = append(res.histograms, namedHistogram{name + "-uncorrected", sent})
	}
	if notInRange > 0 {
		res.Warnings = append(res.Warnings, fmt.Sprintf("%s: %d latencies were outside of 0 to %v and count as that", name, notInRange, maxLatency*time.Microsecond))
	}
}

func optionalLatency(h *hdrhistogram.Histogram) *Latency {
	if h == nil {
		return nil
	}
	l := latency(h)
	return &l
}

// latency summarises a histogram of µs in ms.
func latency(h *hdrhistogram.Histogram) Latency {
	if h.TotalCount() == 0 {
		return Latency{}
	}
	ms := func(us int64) float64 { return float64(us) / 1000 }
	return Latency{
		P50: ms(h.ValueAtPercentile(50)), P90: ms(h.ValueAtPercentile(90)), P99: ms(h.ValueAtPercentile(99)),
		P999: ms(h.ValueAtPercentile(99.9)), Max: ms(h.Max()), Mean: h.Mean() / 1000, Count: h.TotalCount(),
	}
}
