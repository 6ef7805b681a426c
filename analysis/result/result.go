// Package result holds the types that experiments produce, comparisons fill in
// and reports print: the content of result.json.
//
// Every object is always present. A number that is not known is null; one that
// is known to be nothing is 0. Side keys are "before" and "after".
package result

// Schema is the version of result.json that this package describes.
const Schema = 1

// Sides of a two-variant experiment.
const (
	Before = "before"
	After  = "after"
)

// Verdicts on one wait or one effect.
const (
	Gone      = "gone"      // established less, and under 2 % of before
	Less      = "less"      // established less
	Same      = "same"      // a difference of the stated size is ruled out
	More      = "more"      // established more
	New       = "new"       // not there before, established after
	Moved     = "moved"     // the same lock or operation under another stack
	Undecided = "undecided" // the runs do not establish anything
)

// Result is one experiment: all its runs and what they say together.
type Result struct {
	Schema           int                              `json:"schema"`
	Experiment       string                           `json:"experiment"`
	Title            string                           `json:"title"`
	Question         string                           `json:"question"` // what the experiment asks, one sentence
	Quick            bool                             `json:"quick"`
	Variants         []Variant                        `json:"variants"`
	PrimaryOperation string                           `json:"primary_operation"`
	Scenario         Scenario                         `json:"scenario"`
	Host             Host                             `json:"host"`
	Command          []string                         `json:"command"`        // what was run
	DecideCommand    string                           `json:"decide_command"` // what would establish more; "" when nothing would
	Runs             []Run                            `json:"runs"`
	Delivery         Delivery                         `json:"delivery"` // summed over all runs
	Headline         Headline                         `json:"headline"`
	Waits            []Wait                           `json:"waits"` // largest first, primary operation included even when absent
	QueueLock        map[string]QueueLock             `json:"queue_lock"`
	Reconciliation   []Reconciliation                 `json:"reconciliation"`
	Accounting       map[string]map[string]Accounting `json:"accounting"` // side, source
	Overhead         map[string]map[string]Overhead   `json:"overhead"`   // side, source
	Graphs           []Graph                          `json:"graphs"`
	Warnings         []string                         `json:"warnings"`
}

// Variant is one build or setting under test.
type Variant struct {
	Side     string            `json:"side"`
	Name     string            `json:"name"`
	Command  []string          `json:"command"`
	Settings map[string]string `json:"settings"` // what differs from the other variants
	Version  string            `json:"version"`  // tool version and VCS revision of the binary
}

// Scenario is the load that every run carried.
type Scenario struct {
	Name            string  `json:"name"`
	Connections     int     `json:"connections"`
	Devices         int     `json:"devices"`
	InFlight        int     `json:"in_flight"` // messages, over all connections
	MessageBytes    int     `json:"message_bytes"`
	RateMsgsPerS    float64 `json:"rate_msgs_per_s"` // 0 is unpaced
	Consumers       int     `json:"consumers"`
	Applications    int     `json:"applications"`
	WarmupMessages  int64   `json:"warmup_messages"`
	MeasuredSeconds float64 `json:"measured_seconds"` // asked for, per run
}

// Host is the machine of the experiment.
type Host struct {
	Kernel     string `json:"kernel"`
	Arch       string `json:"arch"`
	CPUs       int    `json:"cpus"`
	GoVersion  string `json:"go_version"`
	BrokerCPUs string `json:"broker_cpus"` // CPU set, "" is all
	LoadCPUs   string `json:"load_cpus"`
	RecordCPUs string `json:"record_cpus"`
}

// Kinds of run.
const (
	KindPlain     = "unprofiled"     // throughput and latency come from these
	KindProfiled  = "profiled"       // sampler and thread plane: attribution
	KindReconcile = "reconciliation" // block and mutex profiles at full rate beside the sampler
)

// Run is one measurement of one variant.
type Run struct {
	Variant       string           `json:"variant"` // side
	Index         int              `json:"index"`   // order in which it ran, from 1
	Kind          string           `json:"kind"`
	Valid         bool             `json:"valid"`
	WhyInvalid    []string         `json:"why_invalid"`
	Profiled      bool             `json:"profiled"`
	Dir           string           `json:"dir"` // relative to the result
	WindowSeconds float64          `json:"window_seconds"`
	Published     int64            `json:"published"` // acknowledged in the window
	Delivered     int64            `json:"delivered"` // received in the window
	Throughput    float64          `json:"throughput_msgs_per_s"`
	DrainSeconds  float64          `json:"drain_seconds"`
	PublishMs     Latency          `json:"publish_ms"`
	EndToEndMs    Latency          `json:"end_to_end_ms"`
	QueueDelayMs  map[string]Delay `json:"queue_delay_ms"` // add, wake, read, dispatch
	CPUNsPerMsg   CPU              `json:"cpu_ns_per_msg"`
	Delivery      Delivery         `json:"delivery"`
}

// Latency is quantiles in milliseconds.
type Latency struct {
	P50  *float64 `json:"p50"`
	P99  *float64 `json:"p99"`
	P999 *float64 `json:"p999"`
	Max  *float64 `json:"max"`
}

// Delay is the time that tasks of one kind spent in the executor's queue, in
// milliseconds; null when no task of the kind ran.
type Delay struct {
	P50   *float64 `json:"p50"`
	P99   *float64 `json:"p99"`
	Mean  *float64 `json:"mean"`
	Count int64    `json:"count"`
}

// CPU is nanoseconds of CPU time per message.
type CPU struct {
	Broker *float64 `json:"broker"`
	Load   *float64 `json:"load"`
}

// Delivery is what the delivery checks counted.
type Delivery struct {
	Expected   int64 `json:"expected"`
	Received   int64 `json:"received"`
	Lost       int64 `json:"lost"`
	Duplicates int64 `json:"duplicates"`
	Disorder   int64 `json:"disorder"`
	Invalid    int64 `json:"invalid"`
}

// Headline holds the effects that a reviewer reads first. Each comes from
// unprofiled runs.
type Headline struct {
	Throughput        Effect `json:"throughput"`           // messages per second
	Delivered         Effect `json:"delivered"`            // messages per second received inside the window
	PublishP50        Effect `json:"publish_p50"`          // milliseconds
	PublishP99        Effect `json:"publish_p99"`          // milliseconds
	EndToEndP50       Effect `json:"end_to_end_p50"`       // milliseconds
	EndToEndP99       Effect `json:"end_to_end_p99"`       // milliseconds
	EndToEndOverhead  Effect `json:"end_to_end_overhead"`  // end-to-end p50 minus publish p50, milliseconds
	QueueDelayWakeP50 Effect `json:"queue_delay_wake_p50"` // milliseconds in the executor's queue
	BrokerCPU         Effect `json:"broker_cpu"`           // nanoseconds per message
}

// Effect compares one figure between the sides.
type Effect struct {
	Unit    string   `json:"unit"`
	Before  *float64 `json:"before"` // median of the valid runs
	After   *float64 `json:"after"`
	Ratio   *float64 `json:"ratio"`  // after / before
	CILow   *float64 `json:"ci_low"` // 95 % interval of the ratio
	CIHigh  *float64 `json:"ci_high"`
	P       *float64 `json:"p"`
	N       int      `json:"n"` // runs per side, the smaller number
	Verdict string   `json:"verdict"`
}

// Wait is one row: an operation at a wait site with its class, seen by one source.
type Wait struct {
	Operation  string    `json:"operation"` // "" when no rule names it
	Site       string    `json:"site"`      // "" when the stack has no application frame
	Class      string    `json:"class"`
	Idle       string    `json:"idle"`
	Plane      string    `json:"plane"`
	Source     string    `json:"source"`
	Before     WaitValue `json:"before"`
	After      WaitValue `json:"after"`
	Delta      Delta     `json:"delta"`
	Verdict    string    `json:"verdict"`
	UpperBound *float64  `json:"upper_bound_ns_per_msg"`
}

// WaitValue is one side of a wait, a mean over the side's profiled runs.
type WaitValue struct {
	NsPerMsg     *float64 `json:"ns_per_msg"` // off-CPU; null where the work is not known
	Share        *float64 `json:"share"`      // of off-CPU time with an application frame that is not idle
	ShareLow     *float64 `json:"share_low"`  // with unknown idleness counted as contention
	ShareHigh    *float64 `json:"share_high"` // with unknown idleness counted as idle
	BlockedShare *float64 `json:"blocked_share"`
	ThreadsLost  float64  `json:"threads_lost"` // off-CPU seconds per second
	Samples      int64    `json:"samples"`      // summed over runs
	Count        *int64   `json:"count"`        // waits, where the source counts them
}

// Delta is after minus before.
type Delta struct {
	NsPerMsg *float64 `json:"ns_per_msg"`
	CILow    *float64 `json:"ci_low"` // 95 % interval of NsPerMsg
	CIHigh   *float64 `json:"ci_high"`
	PHolm    *float64 `json:"p_holm"`
}

// QueueLock is how many goroutines waited at any time, on average over a run,
// for the primary operation's lock, over the side's profiled runs.
type QueueLock struct {
	Mean float64 `json:"mean"`
	Min  float64 `json:"min"` // of the runs
	Max  float64 `json:"max"`
	Runs int     `json:"runs"`
}

// Reconciliation sets sources that should agree beside each other, for one
// operation in one run of one side, in nanoseconds per message.
type Reconciliation struct {
	Side      string   `json:"side"`
	Operation string   `json:"operation"`
	Sampler   *float64 `json:"sampler_ns_per_msg"` // blocked only, as a block profile sees it
	Block     *float64 `json:"block_ns_per_msg"`   // Go's block profile: the waiter
	Mutex     *float64 `json:"mutex_ns_per_msg"`   // Go's mutex profile: the unlocker
	Note      string   `json:"note"`
}

// Accounting is where the time of all goroutines or threads went, in seconds
// (unit × window), a mean over the side's runs.
type Accounting struct {
	GoroutineSeconds float64 `json:"goroutine_seconds"` // threads' seconds on the thread plane
	Running          float64 `json:"running"`
	Runnable         float64 `json:"runnable"`
	Blocked          float64 `json:"blocked"`
	Syscall          float64 `json:"syscall"`
	Unknown          float64 `json:"unknown"`
	Lost             float64 `json:"lost"`
	Residual         float64 `json:"residual"`
	Idle             float64 `json:"idle"` // of blocked
}

// Overhead is what one source cost on one side, a mean over its runs.
type Overhead struct {
	CPUShare  float64          `json:"cpu_share"` // of one CPU, recorder's own threads
	BPFShare  float64          `json:"bpf_share"` // of one CPU, inside BPF programs
	ProbeHits float64          `json:"probe_hits_per_s"`
	Loss      map[string]int64 `json:"loss"` // summed
}

// Graph is a flame graph that was written beside the result.
type Graph struct {
	File    string `json:"file"`
	Caption string `json:"caption"`
}

// Side returns the variant of a side, nil when there is none.
func (r *Result) Side(side string) *Variant {
	for i := range r.Variants {
		if r.Variants[i].Side == side {
			return &r.Variants[i]
		}
	}
	return nil
}

// Float returns a pointer to v, for the fields that may be null.
func Float(v float64) *float64 { return &v }
