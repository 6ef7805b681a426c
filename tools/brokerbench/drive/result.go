package drive

import (
	"sync"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is what one run measured.
type Result struct {
	WindowSeconds float64 `json:"window_seconds"`
	// Inside the window: messages acknowledged to publishers, delivered for the
	// first time, and acknowledged by consumers.
	Published int64 `json:"published"`
	Delivered int64 `json:"delivered"`
	Acked     int64 `json:"acked"`
	// Complete is the least of the three: messages that the whole job was done
	// for.
	Complete int64 `json:"complete"`

	ServerCPUSeconds float64 `json:"server_cpu_seconds"` // user and system
	ServerUserShare  float64 `json:"server_user_share"`  // of it, 0 to 1
	LoadCPUSeconds   float64 `json:"load_cpu_seconds"`
	ServerRSSBytes   int64   `json:"server_peak_rss_bytes"`

	PerServerCPUSecond float64 `json:"messages_per_server_cpu_second"` // complete
	Throughput         float64 `json:"complete_msgs_per_s"`
	ServerCores        float64 `json:"server_cores"` // CPU seconds per second
	LoadCores          float64 `json:"load_cores"`
	// ServerWaited is the seconds per second that threads of the server were
	// runnable and had no CPU: what else ran on it.
	ServerWaited float64 `json:"server_waited_for_cpu"`

	PublishMs  Latency `json:"publish_ms"`    // from the write to the receipt
	EndToEndMs Latency `json:"end_to_end_ms"` // from the same to the consumer's read

	// Over a span around the window; 0 when not asked for. SerialBusy is the
	// share of time that the ledger executors ran tasks, 0 where there are none.
	SerialBusy       float64 `json:"serial_stage_busy_share"`
	AllocsPerMsg     float64 `json:"allocs_per_msg"`
	AllocBytesPerMsg float64 `json:"alloc_bytes_per_msg"`

	Sent       int64 `json:"sent"` // in the whole run
	Lost       int64 `json:"lost"` // acknowledged to a publisher and not delivered
	Duplicates int64 `json:"duplicates"`
	Invalid    int64 `json:"invalid"`
	Disorder   int64 `json:"disorder"` // of a key; -1 where the protocol promises none
	LeftOver   int64 `json:"left_over"`
	HeldBack   int64 `json:"held_back"` // times that a publisher waited for the backlog

	Invalidity []string `json:"why_invalid"` // never null; the run counts if empty
}

// Latency is in milliseconds.
type Latency struct {
	P50   float64 `json:"p50"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
	Count int64   `json:"count"`
}

// recorder is a histogram of microseconds up to ten minutes, and its lock.
type recorder struct {
	mu sync.Mutex
	h  *hdrhistogram.Histogram
}

const longest = 600_000_000

func newRecorder() *recorder { return &recorder{h: hdrhistogram.New(1, longest, 3)} }

// record takes nanoseconds; r.mu is held.
func (r *recorder) record(ns int64) {
	_ = r.h.RecordValue(min(max(ns/1000, 1), longest)) // cannot be out of range
}

func (r *recorder) latency() Latency {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.h.TotalCount() == 0 {
		return Latency{}
	}
	ms := func(us int64) float64 { return float64(us) / 1000 }
	return Latency{P50: ms(r.h.ValueAtPercentile(50)), P99: ms(r.h.ValueAtPercentile(99)), Max: ms(r.h.Max()), Count: r.h.TotalCount()}
}
