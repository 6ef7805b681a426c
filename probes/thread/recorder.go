//go:build linux && (amd64 || arm64)

package thread

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contention-toolkit/contention/probes/bpf"
	"github.com/contention-toolkit/contention/profile"
)

// Recorder records the threads of processes from Start to Stop. Its methods are
// safe for concurrent use.
type Recorder struct {
	opt     Options
	session *session
	exits   *exits
	groups  map[uint32]int // thread group in the first PID namespace → PID
	symbols *symbols
	walked  map[uint64][]uint64 // user stacks of threads seeded, by their number
	start   uint64
	at      time.Time // start, in wall time
	quit    chan struct{}
	once    sync.Once
	over    chan struct{} // closed when capture and err are set
	result  []*profile.Capture
	err     error

	// Of the goroutine that records.
	series *series
	ended  life // of threads that are no longer in the kernel's map
	busy   []profile.Busy
	late   int64 // readings that came more than half a slice late
	lost   int64 // nanoseconds of threads that found no room in the kernel's map
}

// Start begins to record the threads of o.PIDs or of o.Cgroup. The window begins when it
// returns; it ends by Stop, by the end of ctx, or when the last target has ended.
// An error that is ErrUnavailable says that this machine or user cannot.
func Start(ctx context.Context, o Options) (*Recorder, error) {
	o = o.withDefaults()
	o.PIDs = slices.Compact(slices.Sorted(slices.Values(o.PIDs)))
	if err := o.Check(); err != nil {
		return nil, err
	}
	if err := checkPIDs(o); err != nil {
		return nil, err
	}
	exits, err := openExits(o.PIDs)
	if err != nil {
		return nil, err
	}
	s, err := openSession(o)
	if err != nil {
		exits.close()
		return nil, err
	}
	r := &Recorder{opt: o, session: s, exits: exits, quit: make(chan struct{}), over: make(chan struct{}), series: newSeries()}
	if err := r.begin(); err != nil {
		r.release()
		return nil, err
	}
	go r.run(ctx)
	return r, nil
}

func checkPIDs(o Options) error {
	pids := o.PIDs
	if len(pids) == 0 && o.Cgroup == "" {
		return errors.New("record threads: no process was named")
	}
	if len(pids) > maxTargets {
		return fmt.Errorf("record threads: %d processes are more than %d", len(pids), maxTargets)
	}
	for _, pid := range pids {
		if pid <= 0 {
			return fmt.Errorf("record the threads of process %d: not a process id", pid)
		}
		if pid == os.Getpid() {
			return fmt.Errorf("record the threads of process %d: that is the recorder itself", pid)
		}
	}
	return nil
}

var errEnded = errors.New("record threads: a process ended before the window began")

// maxTargets is the size of the maps of targets.
const maxTargets = 1024

// begin opens symbols while the targets live, then the window.
func (r *Recorder) begin() error {
	var err error
	if r.groups, err = r.session.find(r.opt.PIDs); err != nil {
		if r.exits.alive() < len(r.opt.PIDs) {
			return errEnded
		}
		return err
	}
	r.symbols = openSymbols(r.opt, slices.Sorted(maps.Values(r.groups)))
	if r.exits.alive() < len(r.opt.PIDs) {
		return errEnded
	}
	if err := r.exits.watch(); err != nil {
		return err
	}
	if r.start, err = r.session.begin(r.opt); err != nil {
		return err
	}
	r.at = time.Now().Add(-r.since(monotonic()))
	r.walked = r.walkSeeded()
	return nil
}

// release gives back everything that Start took.
func (r *Recorder) release() error {
	err := r.session.close()
	r.exits.close()
	if r.symbols != nil {
		r.symbols.close()
	}
	return err
}

// Done is closed when the last target has ended; Stop then returns what was
// recorded until it did.
func (r *Recorder) Done() <-chan struct{} { return r.exits.all }

// Stop ends the window, detaches everything and returns the captures: first
// that of the waits, then those of wakers and of samples on CPU that were asked
// for. Later calls return the same ones.
func (r *Recorder) Stop() ([]*profile.Capture, error) {
	r.once.Do(func() { close(r.quit) })
	<-r.over
	return r.result, r.err
}

// run reads the kernel's sums once a slice until the window ends. It stays on
// its thread, so that it can tell what recording cost.
func (r *Recorder) run(ctx context.Context) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(r.over)
	cpu := threadCPU()
	why := r.follow(ctx)
	cs, err := r.finish(why)
	if err = errors.Join(err, r.release()); err != nil {
		r.err = err
		return
	}
	cs[0].Cost.CPUNs = threadCPU() - cpu // one session's, not one for each file
	r.result = cs
}

// follow returns why the window ended early, "" when Stop ended it.
func (r *Recorder) follow(ctx context.Context) string {
	tick := time.NewTimer(profile.SliceWidth)
	defer tick.Stop()
	next := r.start + uint64(profile.SliceWidth)
	for {
		select {
		case <-r.quit:
			return ""
		case <-ctx.Done():
			return fmt.Sprintf("recording was called off: %v", context.Cause(ctx))
		case <-r.exits.all:
			return "the target ended"
		case <-tick.C:
		}
		if err := r.observe(); err != nil {
			return err.Error()
		}
		now := monotonic()
		if now > next+uint64(profile.SliceWidth)/2 {
			r.late++
		}
		for next <= now {
			next += uint64(profile.SliceWidth)
		}
		tick.Reset(time.Duration(next - now))
	}
}

// observe reads the kernel's sums into the series, and forgets threads that
// have ended.
func (r *Recorder) observe() error {
	snap, err := r.session.read()
	if err != nil {
		return err
	}
	r.take(snap)
	r.meet(snap)
	return r.session.drop(r.bury(snap))
}

// meet opens the symbols of processes that have come to the cgroup.
func (r *Recorder) meet(snap *snapshot) {
	if len(r.opt.PIDs) > 0 {
		return
	}
	news := false
	for _, t := range snap.tasks {
		if _, ok := r.groups[t.Tgid]; !ok {
			news = true
		}
	}
	if !news {
		return
	}
	groups, err := r.session.find(nil)
	if err != nil {
		r.symbols.note(fmt.Sprintf("processes that came to the cgroup have no symbols: %v", err))
		return
	}
	for group, pid := range groups {
		if _, ok := r.groups[group]; !ok {
			r.groups[group] = pid
			r.symbols.add(pid)
		}
	}
}

// take adds a reading to the series.
func (r *Recorder) take(snap *snapshot) {
	if snap.counter(bpf.OffcpuCounterCOUNT_TASKS_FULL) > 0 {
		r.lost += int64(r.untracked(snap)) * int64(r.since(snap.at)-r.series.last)
	}
	r.series.observe(r.since(snap.at), snap.totals(uint64(r.opt.MinBlocked)))
}

// untracked counts the living threads of the targets that the kernel side does
// not follow.
func (r *Recorder) untracked(snap *snapshot) int {
	n := 0
	for _, pid := range r.groups {
		tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
		if err != nil { // the process may have ended
			continue
		}
		for _, task := range tasks {
			if r.opt.wants(pid, task.Name()) {
				n++
			}
		}
	}
	return max(0, n-len(snap.tasks))
}

// bury adds the threads that have ended to the accounting, and returns them.
func (r *Recorder) bury(snap *snapshot) []taskKey {
	var dead []taskKey
	for k, t := range snap.ended {
		l := lifeEnded(&t)
		r.ended.add(l)
		r.busy = append(r.busy, profile.Busy{Name: comm(t.Comm), ID: int64(t.Pid), RunningNs: int64(l.running)})
		dead = append(dead, k)
	}
	r.busy = busiest(r.busy)
	return dead
}

func (r *Recorder) since(at uint64) time.Duration { return time.Duration(elapsed(r.start, at)) }

// finish detaches, then reads what is there. What stands in the way of the
// capture does not keep it from detaching.
func (r *Recorder) finish(why string) ([]*profile.Capture, error) {
	end, err := r.session.end()
	if err != nil {
		return nil, err
	}
	r.session.measure()
	snap, err := r.session.read()
	if err != nil {
		return nil, err
	}
	snap.at = end
	r.take(snap)
	r.series.settle()
	r.bury(snap)
	cs := []*profile.Capture{r.build(snap, why)}
	for _, extra := range []struct {
		wanted bool
		build  func(*snapshot) (*profile.Capture, error)
	}{{r.opt.Wakers, r.buildWakers}, {r.opt.OnCPU > 0, r.buildOnCPU}} {
		if !extra.wanted {
			continue
		}
		c, err := extra.build(snap)
		if err != nil {
			return nil, err
		}
		c.Incomplete = cs[0].Incomplete
		cs = append(cs, c)
	}
	return cs, nil
}

// threadCPU is the CPU time of the calling thread in nanoseconds.
func threadCPU() int64 {
	var u unix.Rusage
	// It cannot fail: the argument is valid.
	_ = unix.Getrusage(unix.RUSAGE_THREAD, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}

// counter is one of the kernel side's.
func (s *snapshot) counter(c bpf.OffcpuCounter) int64 { return int64(s.counters[c]) }
