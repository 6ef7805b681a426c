package goroutine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/contention-toolkit/contention/probes/symbol"
	"github.com/contention-toolkit/contention/profile"
)

// Sampler samples one process; see Start. Its methods are safe for concurrent use.
type Sampler struct {
	opt     Options
	symbols *symbol.Process
	own     bool // symbols is the sampler's to close
	image   *symbol.GoImage
	reasons []string
	pidfd   int

	stop chan struct{} // closed by Stop
	gone chan struct{} // closed when the target has ended
	done chan struct{} // closed when the loop has ended

	// Of the loop until done is closed.
	mem  *memory
	agg  *aggregate
	tick ticker
	cpu  time.Duration
	err  error

	unnamed map[uint64]bool   // addresses that have no symbol
	entries map[string]string // of wrappers that goroutines begin with: what they call

	once    sync.Once
	capture *profile.Capture
}

// ErrNotGo says that the target's goroutines cannot be read: it is not a Go
// program, or one whose layout is not known.
var ErrNotGo = errors.New("no goroutines to sample")

// Start begins to sample a process. The error says what is missing: the
// process, the right to read its memory, or knowledge of its layout.
func Start(ctx context.Context, o Options) (*Sampler, error) {
	s, err := prepare(o.withDefaults())
	if err != nil {
		return nil, fmt.Errorf("sample goroutines of process %d: %w", o.PID, err)
	}
	go s.loop(ctx)
	return s, nil
}

// prepare opens the target and everything that a tick needs.
func prepare(o Options) (*Sampler, error) {
	pidfd, err := unix.PidfdOpen(o.PID, 0)
	if err != nil {
		if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EINVAL) {
			return nil, fmt.Errorf("there is no such process: %w", err)
		}
		return nil, fmt.Errorf("pidfd_open: %w", err)
	}
	s := &Sampler{
		opt: o, symbols: o.Process, pidfd: pidfd, mem: newMemory(o.PID), entries: map[string]string{}, unnamed: map[uint64]bool{},
		stop: make(chan struct{}), gone: make(chan struct{}), done: make(chan struct{}),
	}
	if err := s.open(); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// open finds the runtime of the target and tries to read it.
func (s *Sampler) open() error {
	var err error
	if s.symbols == nil {
		if s.symbols, err = symbol.OpenProcess(s.opt.PID); err != nil {
			return err
		}
		s.own = true
	}
	if s.image, err = s.symbols.Go(); err != nil {
		return fmt.Errorf("%w: %w", ErrNotGo, err)
	}
	l := list{mem: s.mem, image: s.image}
	if err := s.await(&l); err != nil {
		return err
	}
	if s.reasons, err = s.readReasons(); err != nil {
		return err
	}
	var running []byte
	if s.image.Suspendable != 0 {
		running = make([]byte, s.image.NumReasons)
		if err := s.mem.one(s.image.Suspendable, running); err != nil {
			return explain(s.opt.PID, err)
		}
	}
	s.tick = ticker{
		mem: s.mem, image: s.image, kinds: newKinds(s.reasons, running), plan: newPlan(time.Duration(s.opt.Budget * float64(s.opt.period()))),
		rand: rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), list: l, pieces: pieces{mem: s.mem},
		walker: walker{maxDepth: s.opt.MaxDepth, asyncLo: s.image.AsyncPreempt, asyncHi: s.image.AsyncPreemptEnd, isFrameless: s.symbols.Frameless},
	}
	if s.image.Offsets.SyscallBP == 0 {
		s.tick.walker.frameSize = s.symbols.FrameSize
	}
	if err := s.tick.check(); err != nil {
		return err
	}
	if err := s.tick.verifyLayout(s.reasons, namesOf(s.symbols)); err != nil {
		return err
	}
	s.agg = newAggregate(time.Now())
	s.tick.agg = s.agg
	return nil
}

// await lets a target that has just been started make its first goroutine.
func (s *Sampler) await(l *list) error {
	const patience, pause = 2 * time.Second, time.Millisecond
	for deadline := time.Now().Add(patience); ; time.Sleep(pause) {
		if err := l.refresh(); err != nil || l.count > 0 {
			return err
		}
		switch {
		case s.ended():
			return fmt.Errorf("it has ended: %w", unix.ESRCH)
		case time.Now().After(deadline):
			return fmt.Errorf("%w: its runtime has started no goroutine within %v", ErrNotGo, patience)
		}
	}
}

func (s *Sampler) close() {
	unix.Close(s.pidfd)
	if s.own && s.symbols != nil {
		s.symbols.Close()
	}
}

// readReasons reads the runtime's names of wait reasons out of the target.
func (s *Sampler) readReasons() ([]string, error) {
	head := make([]byte, 16*s.image.NumReasons)
	if len(head) == 0 {
		return nil, fmt.Errorf("%w: the executable has no wait reasons", ErrNotGo)
	}
	if err := s.mem.one(s.image.WaitReasons, head); err != nil {
		return nil, explain(s.opt.PID, err)
	}
	out := make([]string, s.image.NumReasons)
	for i := range out {
		ptr, n := binary.LittleEndian.Uint64(head[16*i:]), binary.LittleEndian.Uint64(head[16*i+8:])
		if n == 0 {
			continue
		}
		if n > 100 {
			return nil, fmt.Errorf("%w: wait reason %d of %s claims %d bytes: its layout is not as expected", ErrNotGo, i, s.image.Version, n)
		}
		b := make([]byte, n)
		if err := s.mem.one(ptr, b); err != nil {
			return nil, explain(s.opt.PID, err)
		}
		out[i] = string(b)
	}
	return out, nil
}

// Done is closed when the target has ended, or can no longer be read.
func (s *Sampler) Done() <-chan struct{} { return s.gone }

// maxDebt is how many ticks' budget may be overdrawn before ticks are put off:
// single ticks may be dear, the average must not.
const maxDebt = 10

// loop ticks until it is stopped or the target is gone. It keeps its thread, so
// that its CPU time can be told from the rest of the process.
func (s *Sampler) loop(ctx context.Context) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer close(s.done)
	began := threadCPU()
	period := s.opt.period()
	next, debt := period, time.Duration(0)
	timer := time.NewTimer(next)
	defer timer.Stop()
	for last := false; !last; {
		select {
		case <-s.stop:
			last = true // up to the window's very end
		case <-ctx.Done():
			last = true
		case <-timer.C:
		}
		before := threadCPU()
		err := s.tick.run(time.Now(), next)
		cost := threadCPU() - before
		if err != nil || s.ended() {
			s.err = err
			s.cpu = threadCPU() - began
			close(s.gone)
			return
		}
		debt = max(0, debt+cost-time.Duration(s.opt.Budget*float64(s.agg.dt)))
		// Jitter keeps the sampler from walking in step with the target.
		next = period + time.Duration((s.tick.rand.Float64()-0.5)*0.2*float64(period))
		if debt > s.tick.plan.perTick*maxDebt {
			next += time.Duration(float64(debt) / s.opt.Budget)
			s.agg.throttled++
		}
		timer.Reset(max(next-time.Since(s.agg.last), 0))
	}
	s.cpu = threadCPU() - began
}

// ended says whether the target has exited; its pid may mean another process then.
func (s *Sampler) ended() bool {
	fds := []unix.PollFd{{Fd: int32(s.pidfd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds, 0)
	return err == nil && n > 0
}

func threadCPU() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		return 0 // cannot fail for the own thread
	}
	return time.Duration(t.Nano())
}

// Stop ends the window and returns what was sampled; later calls return the
// same. Of a target that ended early, what was sampled until then is returned,
// marked incomplete.
func (s *Sampler) Stop() (*profile.Capture, error) {
	s.once.Do(func() {
		close(s.stop)
		<-s.done
		s.capture = s.build()
		s.close()
	})
	return s.capture, nil
}
