package report_test

import (
	"github.com/contention-toolkit/contention/analysis/result"
)

const brokerPkg = "github.com/contention-toolkit/contention/broker/"

var f = result.Float

// sample is what `ab handoff` finds at full length: eight unprofiled runs, four
// profiled ones and a reconciliation run per side, and everything established.
func sample() *result.Result {
	r := &result.Result{
		Schema: result.Schema, Experiment: "handoff", Title: "Batched hand-over of adds to the ledger executor",
		Question:         "Does handing adds to the ledger executor in batches remove the waits for the executor queue's lock, and does throughput or latency change?",
		PrimaryOperation: "executor queue offer",
		Variants: []result.Variant{
			{Side: result.Before, Name: "direct", Version: "v0.1.0 (3f2c9d1)", Settings: map[string]string{"handoff": "direct"},
				Command: []string{"contention", "broker", "--listen", "127.0.0.1:0", "--handoff", "direct"}},
			{Side: result.After, Name: "batched", Version: "v0.1.0 (3f2c9d1)", Settings: map[string]string{"handoff": "batched"},
				Command: []string{"contention", "broker", "--listen", "127.0.0.1:0", "--handoff", "batched"}},
		},
		Scenario: result.Scenario{Name: "iot-telemetry-max-rate", Connections: 500, Devices: 50000, InFlight: 100000, MessageBytes: 128, Consumers: 20, Applications: 1, WarmupMessages: 500000, MeasuredSeconds: 10},
		Host:     result.Host{Kernel: "Linux 6.18.0", Arch: "amd64", CPUs: 2, GoVersion: "go1.26.8"},
		Command:  []string{"contention", "ab", "handoff", "-o", "out"},
		Headline: result.Headline{
			Throughput:        result.Effect{Unit: "msgs/s", Before: f(90509), After: f(99923), Ratio: f(1.104), CILow: f(1.081), CIHigh: f(1.129), P: f(0.00016), N: 8, Verdict: result.More},
			PublishP50:        result.Effect{Unit: "ms", Before: f(1071.2), After: f(986.4), Ratio: f(0.921), CILow: f(0.9), CIHigh: f(0.94), P: f(0.0019), N: 8, Verdict: result.Less},
			PublishP99:        result.Effect{Unit: "ms", Before: f(1874), After: f(1790), Ratio: f(0.955), CILow: f(0.88), CIHigh: f(1.03), P: f(0.195), N: 8, Verdict: result.Undecided},
			EndToEndP50:       result.Effect{Unit: "ms", Before: f(1361.2), After: f(999.4), Ratio: f(0.734), CILow: f(0.7), CIHigh: f(0.77), P: f(0.00016), N: 8, Verdict: result.Less},
			EndToEndP99:       result.Effect{Unit: "ms", Before: f(2250), After: f(1802), Ratio: f(0.801), CILow: f(0.75), CIHigh: f(0.86), P: f(0.00031), N: 8, Verdict: result.Less},
			EndToEndOverhead:  result.Effect{Unit: "ms", Before: f(290), After: f(13), Ratio: f(0.0448), CILow: f(0.03), CIHigh: f(0.06), P: f(0.00016), N: 8, Verdict: result.Less},
			QueueDelayWakeP50: result.Effect{Unit: "ms", Before: f(11.8), After: f(0.41), Ratio: f(0.0347), CILow: f(0.02), CIHigh: f(0.05), P: f(0.00016), N: 8, Verdict: result.Less},
			BrokerCPU:         result.Effect{Unit: "ns/msg", Before: f(12840), After: f(11310), Ratio: f(0.881), CILow: f(0.86), CIHigh: f(0.9), P: f(0.00016), N: 8, Verdict: result.Less},
		},
		QueueLock: map[string]result.QueueLock{
			result.Before: {Mean: 36.4, Min: 31.2, Max: 41.9, Runs: 4},
			result.After:  {Mean: 0, Min: 0, Max: 0, Runs: 4},
		},
		Graphs: []result.Graph{
			{File: "before.svg", Caption: "Before (direct): off-CPU time per message, goroutine plane."},
			{File: "after.svg", Caption: "After (batched): off-CPU time per message, goroutine plane."},
			{File: "diff.svg", Caption: "The difference: what grew and what shrank per message, goroutine plane."},
		},
		Warnings: []string{"before: 3 of 4 profiled runs delivered 1.4 % fewer messages in the window than were acknowledged"},
	}
	r.Waits = sampleWaits()
	r.Runs = sampleRuns(8, 4)
	for _, run := range r.Runs {
		r.Delivery.Expected += run.Delivery.Expected
		r.Delivery.Received += run.Delivery.Received
	}
	r.Reconciliation = []result.Reconciliation{
		{Side: result.Before, Operation: "executor queue offer", Sampler: f(402100), Block: f(389000), Mutex: f(171000), Note: "the mutex profile charges the operation that unlocked, the others the one that waited"},
		{Side: result.Before, Operation: "executor queue take", Sampler: f(0), Block: f(0), Mutex: f(214000), Note: "the mutex profile charges the operation that unlocked, the others the one that waited"},
		{Side: result.After, Operation: "executor queue offer", Sampler: f(0), Block: f(11), Mutex: f(8), Note: "the mutex profile charges the operation that unlocked, the others the one that waited"},
	}
	r.Accounting = map[string]map[string]result.Accounting{
		result.Before: {
			"goroutines": {GoroutineSeconds: 10620, Running: 15.1, Runnable: 402.5, Blocked: 10191, Syscall: 5.2, Unknown: 0, Lost: 4.1, Residual: 2.1, Idle: 9650},
			"threads":    {GoroutineSeconds: 140, Running: 15.4, Runnable: 3.1, Blocked: 121.4, Lost: 0.05, Residual: 0.05, Idle: 118.9},
		},
		result.After: {
			"goroutines": {GoroutineSeconds: 10600, Running: 15.3, Runnable: 518.5, Blocked: 10058, Syscall: 5, Unknown: 0, Lost: 1.1, Residual: 2.1, Idle: 9998},
			"threads":    {GoroutineSeconds: 130, Running: 15.2, Runnable: 2.8, Blocked: 111.9, Lost: 0.05, Residual: 0.05, Idle: 110.2},
		},
	}
	r.Overhead = map[string]map[string]result.Overhead{
		result.Before: {
			"goroutines": {CPUShare: 0.021, Loss: map[string]int64{"racy_samples": 118, "unknown_frames": 0, "dropped_snapshots": 0}},
			"threads":    {CPUShare: 0.004, BPFShare: 0.013, ProbeHits: 48211, Loss: map[string]int64{"stack_map_full": 0, "ring_full": 0}},
		},
		result.After: {
			"goroutines": {CPUShare: 0.019, Loss: map[string]int64{"racy_samples": 64, "unknown_frames": 0, "dropped_snapshots": 0}},
			"threads":    {CPUShare: 0.004, BPFShare: 0.011, ProbeHits: 40107, Loss: map[string]int64{"stack_map_full": 0, "ring_full": 0}},
		},
	}
	return r
}

func value(nsPerMsg, share, lost float64, samples int64) result.WaitValue {
	return result.WaitValue{NsPerMsg: f(nsPerMsg), Share: f(share), ShareLow: f(share * 0.97), ShareHigh: f(share), ThreadsLost: lost, Samples: samples}
}

func sampleWaits() []result.Wait {
	wait := func(op, site, class, idle string, before, after result.WaitValue, verdict string) result.Wait {
		return result.Wait{Operation: op, Site: site, Class: class, Idle: idle, Plane: "goroutine", Source: "goroutines", Before: before, After: after, Verdict: verdict,
			Delta: result.Delta{NsPerMsg: f(*after.NsPerMsg - *before.NsPerMsg)}}
	}
	offer := wait("executor queue offer", brokerPkg+"executor.(*Queue).Offer", "lock", "no", value(402200, 0.673, 36.4, 14560), value(0, 0, 0, 0), result.Gone)
	offer.Delta.CILow, offer.Delta.CIHigh, offer.Delta.PHolm, offer.UpperBound = f(-431000), f(-374000), f(0.0021), f(1180)
	flow := wait("dispatcher flow", brokerPkg+"dispatch.(*Dispatcher).Flow", "lock", "no", value(61900, 0.104, 5.6, 2240), value(72100, 0.6104, 7.2, 2880), result.Undecided)
	flow.Delta.CILow, flow.Delta.CIHigh, flow.Delta.PHolm = f(-4100), f(24700), f(0.31)
	write := wait("network write", brokerPkg+"server.(*conn).writeLoop", "network", "no", value(44130, 0.0738, 4.01, 1604), value(39020, 0.3304, 3.9, 1560), result.Undecided)
	unknown := wait("", brokerPkg+"server.(*conn).awaitRoom", "condition/channel", "unknown", value(8200, 0.0137, 0.74, 297), value(9100, 0.077, 0.91, 364), result.Undecided)
	unknown.Before.ShareLow, unknown.After.ShareLow = f(0), f(0)
	runtimeWait := wait("garbage collection", "", "GC", "no", value(910, 0, 0.082, 33), value(880, 0, 0.088, 35), result.Undecided)
	runtimeWait.Before.Share, runtimeWait.After.Share = nil, nil
	read := wait("connection read", brokerPkg+"server.(*conn).readLoop", "network", "yes", value(4901000, 0, 443.6, 177440), value(4880000, 0, 487.6, 195040), result.Undecided)
	idle := wait("executor without work", brokerPkg+"executor.(*Queue).TakeAll", "condition/channel", "yes", value(88000, 0, 8, 3200), value(101000, 0, 10.1, 4040), result.Undecided)
	for _, w := range []*result.Wait{&read, &idle} {
		w.Before.Share, w.After.Share = nil, nil
	}
	futex := wait("Go scheduler without work", "", "scheduler", "yes", value(140000, 0, 12.1, 48100), value(120000, 0, 11.2, 40100), result.Undecided)
	epoll := wait("thread write", brokerPkg+"server.(*conn).flush", "network", "no", value(4200, 0.81, 0.38, 18210), value(4100, 0.8, 0.41, 19001), result.Undecided)
	for _, w := range []*result.Wait{&futex, &epoll} {
		w.Plane, w.Source = "thread", "threads"
		n, m := w.Before.Samples, w.After.Samples
		w.Before.Count, w.After.Count = &n, &m
	}
	return []result.Wait{offer, read, flow, write, idle, unknown, runtimeWait, epoll, futex}
}

func sampleRuns(plain, profiled int) []result.Run {
	var out []result.Run
	add := func(kind string, pairs int) {
		for i := range pairs {
			order := []string{result.Before, result.After}
			if i%2 == 1 {
				order = []string{result.After, result.Before}
			}
			for _, side := range order {
				out = append(out, sampleRun(len(out)+1, i, side, kind))
			}
		}
	}
	add(result.KindPlain, plain)
	add(result.KindProfiled, profiled)
	add(result.KindReconcile, 1)
	return out
}

func sampleRun(index, pair int, side, kind string) result.Run {
	wobble := 1 + 0.004*float64((pair*7)%5-2) // the same every time
	run := result.Run{Variant: side, Index: index, Kind: kind, Valid: true, Profiled: kind != result.KindPlain, WindowSeconds: 10.002, DrainSeconds: 1.1}
	slow := map[string]float64{result.KindPlain: 1, result.KindProfiled: 0.975, result.KindReconcile: 0.81}[kind]
	ms := func(v float64) *float64 { return f(v * wobble) }
	if side == result.Before {
		run.Throughput = 90509 * wobble * slow
		run.PublishMs = result.Latency{P50: ms(1071.2), P99: ms(1874), P999: ms(2040), Max: ms(2204)}
		run.EndToEndMs = result.Latency{P50: ms(1361.2), P99: ms(2250), P999: ms(2410), Max: ms(2611)}
		run.QueueDelayMs = delays(wobble, 12.4, 11.8, 11.2, 11.9, 905090)
		run.CPUNsPerMsg = result.CPU{Broker: f(12840 * wobble), Load: f(8010 * wobble)}
	} else {
		run.Throughput = 99923 * wobble * slow
		run.PublishMs = result.Latency{P50: ms(986.4), P99: ms(1790), P999: ms(1980), Max: ms(2101)}
		run.EndToEndMs = result.Latency{P50: ms(999.4), P99: ms(1802), P999: ms(1999), Max: ms(2140)}
		run.QueueDelayMs = delays(wobble, 1.92, 0.41, 0.52, 0.48, 4120)
		run.CPUNsPerMsg = result.CPU{Broker: f(11310 * wobble), Load: f(8080 * wobble)}
	}
	run.Published = int64(run.Throughput * run.WindowSeconds)
	run.Delivered = run.Published
	run.Delivery = result.Delivery{Expected: run.Published + 510000, Received: run.Published + 510000}
	return run
}

func delays(wobble, add, wake, read, dispatch float64, adds int64) map[string]result.Delay {
	d := func(p50 float64, n int64) result.Delay {
		return result.Delay{P50: f(p50 * wobble), P99: f(3.1 * p50 * wobble), Mean: f(1.2 * p50 * wobble), Count: n}
	}
	return map[string]result.Delay{"add": d(add, adds), "wake": d(wake, 18210), "read": d(read, 18004), "dispatch": d(dispatch, 17991)}
}

// quickSample is what `ab handoff --quick` finds: one run of each kind per side,
// which establishes nothing, and one invalid run.
func quickSample() *result.Result {
	r := sample()
	r.Quick = true
	r.DecideCommand = "contention ab handoff"
	r.Command = []string{"contention", "ab", "handoff", "--quick"}
	r.Runs = sampleRuns(1, 1)
	bad := sampleRun(len(r.Runs)+1, 1, result.After, result.KindProfiled)
	bad.Valid, bad.WhyInvalid = false, []string{"12 messages lost", "load not reached"}
	r.Runs = append(r.Runs, bad)
	r.Delivery = result.Delivery{Expected: 5_000_000, Received: 4_999_988, Lost: 12}
	for _, e := range []*result.Effect{&r.Headline.Throughput, &r.Headline.PublishP50, &r.Headline.PublishP99, &r.Headline.EndToEndP50, &r.Headline.EndToEndP99, &r.Headline.EndToEndOverhead, &r.Headline.QueueDelayWakeP50, &r.Headline.BrokerCPU} {
		e.CILow, e.CIHigh, e.P, e.N, e.Verdict = nil, nil, nil, 1, result.Undecided
	}
	for i := range r.Waits {
		w := &r.Waits[i]
		w.Delta.CILow, w.Delta.CIHigh, w.Delta.PHolm, w.UpperBound, w.Verdict = nil, nil, nil, nil, result.Undecided
	}
	r.QueueLock[result.Before] = result.QueueLock{Mean: 36.4, Min: 36.4, Max: 36.4, Runs: 1}
	r.QueueLock[result.After] = result.QueueLock{Runs: 1}
	r.Warnings = []string{"descriptive, too few runs: 1 unprofiled per side; `contention ab handoff` makes 8", "short windows (4 s): such runs have shown differences that longer ones did not"}
	return r
}
