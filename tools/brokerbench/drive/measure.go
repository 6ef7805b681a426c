package drive

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"time"
)

// plainHTTP keeps no connections: nothing of it runs inside the window.
var plainHTTP = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// edge is the state at one end of the window.
type edge struct {
	at                              time.Time
	published, delivered, confirmed int64
	server                          processTimes
	load                            time.Duration
}

func (r *run) edge() (e edge, err error) {
	e.server, err = readProcess(r.job.ServerPID)
	e.at, e.load = time.Now(), ownCPU()
	e.published, e.delivered, e.confirmed = r.published.Load(), r.delivered.Load(), r.confirmed.Load()
	return e, err
}

// inside is what the server tells about itself, up to a moment.
type inside struct {
	at            time.Time
	allocs, bytes int64
	completed     int64
	busy          float64
}

// measure warms up, measures, and returns with the load running.
func (r *run) measure(ctx context.Context, res *Result) error {
	if err := r.pass(ctx, "warming up", r.job.Warm); err != nil {
		return err
	}
	if err := r.settleIn(ctx); err != nil {
		return err
	}
	before, err := r.inside(ctx)
	if err != nil {
		return err
	}
	from, err := r.edge()
	if err != nil {
		return err
	}
	profiled := r.profile(ctx)
	r.inWindow.Store(true)
	if err := r.pass(ctx, "measuring", r.job.Measure); err != nil {
		return err
	}
	r.inWindow.Store(false)
	to, err := r.edge()
	if err != nil {
		return err
	}
	if err := <-profiled; err != nil {
		return fmt.Errorf("take a CPU profile: %w", err)
	}
	after, err := r.inside(ctx)
	if err != nil {
		return err
	}
	res.fill(from, to)
	res.PublishMs, res.EndToEndMs = r.publish.latency(), r.endToEnd.latency()
	if n := float64(after.completed - before.completed); n > 0 {
		res.AllocsPerMsg, res.AllocBytesPerMsg = float64(after.allocs-before.allocs)/n, float64(after.bytes-before.bytes)/n
	}
	res.SerialBusy = (after.busy - before.busy) / after.at.Sub(before.at).Seconds()
	return nil
}

const (
	settleSlice = time.Second
	settleMost  = 30 // slices
)

// settleIn waits until as much is delivered as is published: a broker that
// stores faster than it delivers must first have filled the backlog. One that
// does not come to that is measured as it is, and its run is invalid.
func (r *run) settleIn(ctx context.Context) error {
	if r.job.Messages > 0 {
		return nil
	}
	for range settleMost {
		published, delivered := r.published.Load(), r.delivered.Load()
		if err := r.pass(ctx, "warming up", min(settleSlice, r.job.Measure)); err != nil {
			return err
		}
		published, delivered = r.published.Load()-published, r.delivered.Load()-delivered
		if apart := max(published, delivered) - min(published, delivered); float64(apart) <= r.job.Apart*float64(delivered) {
			return nil
		}
	}
	return nil
}

// pass lets the time pass, and ends early when a limit of messages is used up.
func (r *run) pass(ctx context.Context, what string, d time.Duration) error {
	end := time.Now().Add(d)
	return r.await(ctx, what, func() bool { return !time.Now().Before(end) || r.job.Messages > 0 && r.budget.drained() })
}

func (res *Result) fill(from, to edge) {
	seconds := to.at.Sub(from.at).Seconds()
	user, system := to.server.user-from.server.user, to.server.system-from.server.system
	server, load := (user + system).Seconds(), (to.load - from.load).Seconds()
	res.WindowSeconds = seconds
	res.Published, res.Delivered, res.Acked = to.published-from.published, to.delivered-from.delivered, to.confirmed-from.confirmed
	res.Complete = min(res.Published, res.Delivered, res.Acked)
	res.ServerCPUSeconds, res.LoadCPUSeconds, res.ServerRSSBytes = server, load, to.server.peakRSS
	if server > 0 {
		res.ServerUserShare = user.Seconds() / server
		res.PerServerCPUSecond = float64(res.Complete) / server
	}
	res.ServerWaited = (to.server.waited - from.server.waited).Seconds() / seconds
	res.Throughput, res.ServerCores, res.LoadCores = float64(res.Complete)/seconds, server/seconds, load/seconds
}

var memStats = regexp.MustCompile(`(?m)^# (TotalAlloc|Mallocs) = ([0-9]+)$`)

// inside asks the server. It costs the server some time, outside the window.
func (r *run) inside(ctx context.Context) (h inside, err error) {
	if r.job.StateURL != "" {
		if h.busy, err = r.protocol.busy(ctx); err != nil {
			return h, err
		}
	}
	h.at = time.Now()
	if r.job.HeapURL == "" {
		return h, nil
	}
	text, err := get(ctx, r.job.HeapURL+"?debug=1")
	if err != nil {
		return h, fmt.Errorf("read the server's allocations: %w", err)
	}
	h.completed = r.confirmed.Load()
	found := memStats.FindAllSubmatch(text, -1)
	for _, m := range found {
		n, err := strconv.ParseInt(string(m[2]), 10, 64)
		if err != nil {
			return h, err
		}
		if string(m[1]) == "Mallocs" {
			h.allocs = n
		} else {
			h.bytes = n
		}
	}
	if len(found) != 2 {
		return h, fmt.Errorf("%s does not tell TotalAlloc and Mallocs", r.job.HeapURL)
	}
	return h, nil
}

func get(ctx context.Context, url string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := plainHTTP.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s", url, resp.Status)
	}
	return io.ReadAll(io.LimitReader(resp.Body, 256<<20))
}

// profile takes the server's CPU profile over the window, if asked for.
func (r *run) profile(ctx context.Context) <-chan error {
	done := make(chan error, 1)
	if r.job.ProfileURL == "" {
		done <- nil
		return done
	}
	r.work.Go(func() {
		url := fmt.Sprintf("%s?seconds=%d", r.job.ProfileURL, max(1, int(r.job.Measure.Seconds())))
		data, err := get(ctx, url)
		if err == nil {
			err = os.WriteFile(r.job.ProfileFile, data, 0o644)
		}
		done <- err
	})
	return done
}
