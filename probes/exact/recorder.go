//go:build linux && amd64

package exact

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contention-toolkit/contention/probes/bpf"
	"github.com/contention-toolkit/contention/probes/symbol"
	"github.com/contention-toolkit/contention/profile"
)

// Recorder records one process; see Start. Its methods are safe for concurrent use.
type Recorder struct {
	opt     Options
	symbols *symbol.Process
	own     bool // symbols is the recorder's to close
	target  *target
	session *session
	pidfd   int
	start   uint64
	at      time.Time // start, in wall time
	trap    time.Duration
	notes   []string

	quit chan struct{}
	gone chan struct{} // closed when the target has ended
	over chan struct{} // closed when captures and err are set
	once sync.Once

	// Of the goroutine that records, until over is closed.
	end      uint64 // of the window, 0 while it is open
	stepped  string // why the probes were detached early
	seeded   int
	series   *series
	census   *census // nil where locks alone are recorded
	most     float64 // hits per second in the busiest interval
	captures []*profile.Capture
	err      error
}

// Start begins to record. The window begins when it returns. An error that is
// ErrUnavailable says that this machine, user or target cannot be recorded so.
func Start(ctx context.Context, o Options) (*Recorder, error) {
	r := &Recorder{opt: o.withDefaults(), pidfd: -1, quit: make(chan struct{}), gone: make(chan struct{}), over: make(chan struct{})}
	if err := r.open(); err != nil {
		return nil, fmt.Errorf("record every wait of process %d: %w", o.PID, errors.Join(err, r.release()))
	}
	go r.run(ctx)
	return r, nil
}

func (r *Recorder) open() error {
	switch {
	case !r.opt.Waits && !r.opt.Locks:
		return errors.New("neither waits nor locks are asked for")
	case r.opt.PID == os.Getpid():
		return errors.New("that is the recorder itself")
	}
	var err error
	if r.pidfd, err = unix.PidfdOpen(r.opt.PID, 0); err != nil {
		r.pidfd = -1
		return fmt.Errorf("there is no such process: pidfd_open: %w", err)
	}
	if r.symbols = r.opt.Process; r.symbols == nil {
		if r.symbols, err = symbol.OpenProcess(r.opt.PID); err != nil {
			return err
		}
		r.own = true
	}
	if r.target, err = openTarget(r.opt, r.symbols); err != nil {
		return err
	}
	all, err := r.target.listGoroutines()
	if err != nil {
		return err
	}
	if r.session, err = openSession(r.opt, r.target, len(all)); err != nil {
		return err
	}
	if r.trap, err = trapOnce(r.session.objs.GoNothing); err != nil {
		r.notes = append(r.notes, fmt.Sprintf("what a hit of a probe costs could not be measured: %v", err))
	}
	if err := r.session.attach(r.target, fmt.Sprintf("/proc/%d/exe", r.opt.PID)); err != nil {
		return err
	}
	if err := r.seed(); err != nil {
		return err
	}
	if r.ended() {
		return fmt.Errorf("it has ended: %w", unix.ESRCH)
	}
	r.start, err = r.session.begin()
	r.at = time.Now()
	r.series = newSeries()
	if r.opt.Waits {
		r.census = &census{t: r.target, last: r.start}
	}
	return err
}

// seed reads the goroutines that are parked already.
func (r *Recorder) seed() error {
	all, err := r.target.listGoroutines()
	if err != nil {
		return err
	}
	add := func(list []seed) error { r.seeded += len(list); return r.session.plant(list) }
	drop := func(list []seed) error { r.seeded -= len(list); return r.session.uproot(list) }
	for len(all) > 0 {
		n := min(len(all), seedGroup)
		if err := r.target.seeds(all[:n], add, drop); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// release gives back everything that Start took.
func (r *Recorder) release() error {
	var err error
	if r.session != nil {
		err = r.session.close()
	}
	if r.own {
		r.symbols.Close()
	}
	if r.pidfd >= 0 {
		err = errors.Join(err, unix.Close(r.pidfd))
		r.pidfd = -1
	}
	return err
}

// ended says whether the target has exited.
func (r *Recorder) ended() bool {
	fds := []unix.PollFd{{Fd: int32(r.pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

// Done is closed when the target has ended; Stop then returns what was recorded
// until it did.
func (r *Recorder) Done() <-chan struct{} { return r.gone }

// Stop ends the window, detaches everything and returns the captures: of
// goroutines-exact and wakers, and of locks, as asked for. Later calls return
// the same.
func (r *Recorder) Stop() ([]*profile.Capture, error) {
	r.once.Do(func() { close(r.quit) })
	<-r.over
	return r.captures, r.err
}

const (
	// interval is how often the hits are counted.
	interval = 250 * time.Millisecond
	// perSlice is how many of them lie between two readings of what there is.
	perSlice = int(profile.SliceWidth / interval)
)

// run watches the hits until the window ends. It stays on its thread, so that it
// can tell what recording cost.
func (r *Recorder) run(ctx context.Context) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(r.over)
	cpu := threadCPU()
	why, err := r.follow(ctx)
	captures, err2 := r.finish(why)
	if err := errors.Join(err, err2, r.release()); err != nil {
		r.err = fmt.Errorf("record every wait of process %d: %w", r.opt.PID, err)
		return
	}
	if len(captures) > 0 {
		captures[0].Cost.CPUNs = threadCPU() - cpu
	}
	r.captures = captures
}

// follow returns why the window ended early, "" when Stop ended it.
func (r *Recorder) follow(ctx context.Context) (string, error) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	count := time.NewTicker(censusInterval)
	defer count.Stop()
	var rate meter
	rate.add(r.start, 0)
	for ticks := 1; ; {
		select {
		case <-count.C:
			r.takeCensus(monotonic())
			continue
		case <-r.quit:
			return "", nil
		case <-ctx.Done():
			return fmt.Sprintf("recording was called off: %v", context.Cause(ctx)), nil
		case <-tick.C:
		}
		if r.ended() {
			close(r.gone)
			return "the target ended", nil
		}
		if r.end != 0 {
			continue // the probes are out; the others go on
		}
		if ticks++; ticks%perSlice == 1 {
			at, totals, err := r.session.readTotals(r.start)
			if err != nil {
				return err.Error(), err
			}
			r.series.observe(time.Duration(at-r.start), totals)
		}
		hits, err := r.session.count(bpf.GowaitGoCounterGO_HITS)
		if err != nil {
			return err.Error(), err
		}
		perSecond := rate.add(monotonic(), hits)
		r.most = max(r.most, perSecond)
		if perSecond <= float64(r.opt.Budget) {
			continue
		}
		if r.end, err = r.endWindow(); err != nil {
			return err.Error(), err
		}
		r.stepped = fmt.Sprintf("probes were hit %.0f times per second, more than the budget of %d: they were detached after %.2f s, and what is here covers that time only; the sampler goes on, raise the budget or lower the load for more",
			perSecond, r.opt.Budget, time.Duration(r.end-r.start).Seconds())
		if r.opt.Notify != nil {
			r.opt.Notify(r.stepped)
		}
	}
}

// takeCensus counts goroutines where it is time to. A target that cannot be read
// any more has ended, or is about to.
func (r *Recorder) takeCensus(now uint64) {
	if r.census == nil || r.end != 0 || now < r.census.next {
		return
	}
	if err := r.census.take(now); err != nil {
		r.census.failed++
	}
}

// endWindow ends the window, and counts goroutines a last time.
func (r *Recorder) endWindow() (uint64, error) {
	end, err := r.session.end()
	if r.census != nil && r.census.take(end) != nil {
		r.census.failed++
	}
	return end, err
}

// meter tells a rate over the last second, or since the start where that is less.
type meter struct {
	at   [5]uint64
	hits [5]int64
	n    int
}

func (m *meter) add(at uint64, hits int64) float64 {
	oldest := m.n % len(m.at)
	if m.n < len(m.at) {
		oldest = 0
	}
	before, was, first := m.at[oldest], m.hits[oldest], m.n == 0
	m.at[m.n%len(m.at)], m.hits[m.n%len(m.at)] = at, hits
	m.n++
	if first || at <= before {
		return 0
	}
	return float64(hits-was) / time.Duration(at-before).Seconds()
}

// finish detaches, then reads what is there.
func (r *Recorder) finish(why string) ([]*profile.Capture, error) {
	if r.end == 0 {
		var err error
		if r.end, err = r.endWindow(); err != nil {
			return nil, err
		}
	}
	snap, err := r.session.read(r.start, r.end)
	if err != nil {
		return nil, err
	}
	totals := snap.totalsOf()
	r.series.observe(time.Duration(r.end-r.start), totals)
	r.series.settle(totals)
	return r.build(snap, why), nil
}

// threadCPU is the CPU time of the calling thread in nanoseconds.
func threadCPU() int64 {
	var t unix.Timespec
	// It cannot fail for the own thread.
	_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t)
	return t.Nano()
}
