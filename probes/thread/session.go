//go:build linux && (amd64 || arm64)

package thread

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/contention-toolkit/contention/probes/bpf"
)

// session owns what is in the kernel: programs, maps and links. All of it
// belongs to file descriptors, so that it goes away with the process as well.
type session struct {
	objs   bpf.OffcpuObjects
	links  []link.Link
	clock  clock
	wakers bool
	stats  io.Closer // run-time statistics of programs; nil where not allowed
	// Of the programs, read before they are closed.
	ran      bool
	runtime  int64 // nanoseconds in programs
	runs     int64
	recursed int64 // runs that the kernel skipped
	memory   int64 // bytes in maps
}

// openSession loads the programs; nothing is attached yet.
func openSession(o Options) (*session, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, explain("raise the limit on locked memory", err)
	}
	kernel, err := btf.LoadKernelSpec()
	if err != nil {
		return nil, explainBTF(err)
	}
	spec, err := bpf.LoadOffcpu()
	if err != nil {
		return nil, fmt.Errorf("thread plane: %w", err)
	}
	spec.Maps[bpf.OffcpuMapStacks].MaxEntries = uint32(o.MaxStacks)
	spec.Maps[bpf.OffcpuMapWaits].MaxEntries = uint32(o.MaxWaits)
	spec.Maps[bpf.OffcpuMapTasks].MaxEntries = uint32(o.MaxThreads)
	spec.Maps[bpf.OffcpuMapEnded].MaxEntries = uint32(o.MaxThreads)
	if o.Wakers {
		spec.Maps[bpf.OffcpuMapWakes].MaxEntries = uint32(o.MaxWaits)
	}
	if o.OnCPU > 0 {
		spec.Maps[bpf.OffcpuMapSamples].MaxEntries = uint32(o.MaxWaits)
	}
	filter, err := openFilter(o, kernel)
	if err != nil {
		return nil, err
	}
	ns, err := pidNamespace()
	if err != nil {
		return nil, fmt.Errorf("thread plane: %w", err)
	}
	for name, v := range map[string]any{
		bpf.OffcpuVarMinBlockedNs: uint64(o.MinBlocked),
		bpf.OffcpuVarPidNamespace: ns,
		bpf.OffcpuVarHasPrevState: hasPrevState(kernel),
		bpf.OffcpuVarAdmitAllNs:   uint64(o.AdmitAll),
		bpf.OffcpuVarWithWakers:   o.Wakers,
		bpf.OffcpuVarRecorder:     uint32(os.Getpid()),
		bpf.OffcpuVarCgroupId:     filter.id,
		bpf.OffcpuVarCgroupSubsys: filter.subsys,
		bpf.OffcpuVarAllOfCgroup:  filter.all,
		bpf.OffcpuVarSomeThreads:  filter.some,
	} {
		if err := spec.Variables[name].Set(v); err != nil {
			return nil, fmt.Errorf("thread plane: set %s: %w", name, err)
		}
	}
	s := &session{wakers: o.Wakers}
	if err := spec.LoadAndAssign(&s.objs, &ebpf.CollectionOptions{Programs: ebpf.ProgramOptions{KernelTypes: kernel}}); err != nil {
		return nil, explain("load the programs", err)
	}
	if err := s.choose(o); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// hasPrevState says whether the tracepoint sched_switch carries the state of
// the thread that leaves, as it does since 5.18.
func hasPrevState(kernel *btf.Spec) bool {
	var t *btf.Typedef
	if err := kernel.TypeByName("btf_trace_sched_switch", &t); err != nil {
		return false
	}
	ptr, ok := btf.UnderlyingType(t.Type).(*btf.Pointer)
	if !ok {
		return false
	}
	proto, ok := ptr.Target.(*btf.FuncProto)
	// The first parameter belongs to the tracepoint itself.
	return ok && len(proto.Params) >= 5
}

// pidNamespace is the inode of the namespace that the recorder's PIDs are of.
func pidNamespace() (uint32, error) {
	var st unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &st); err != nil {
		return 0, fmt.Errorf("read the PID namespace in /proc/self/ns/pid: %w", err)
	}
	return uint32(st.Ino), nil
}

// choose tells the kernel side what to record.
func (s *session) choose(o Options) error {
	for _, pid := range o.PIDs {
		if err := s.objs.Wanted.Put(uint32(pid), uint32(1)); err != nil {
			return fmt.Errorf("thread plane: choose process %d: %w", pid, err)
		}
	}
	for _, tid := range o.TIDs {
		if err := s.objs.WantedThreads.Put(uint32(tid), uint32(1)); err != nil {
			return fmt.Errorf("thread plane: choose thread %d: %w", tid, err)
		}
	}
	for _, name := range o.Names {
		var c bpf.OffcpuComm
		copy(c.Text[:], name)
		if err := s.objs.WantedNames.Put(c, uint32(1)); err != nil {
			return fmt.Errorf("thread plane: choose threads named %q: %w", name, err)
		}
	}
	return nil
}

// find lets the kernel side look for the processes to follow, and returns them by
// their thread group in the first PID namespace.
func (s *session) find(pids []int) (map[uint32]int, error) {
	if err := iterate(s.objs.OffcpuTargets); err != nil {
		return nil, err
	}
	groups := map[uint32]int{}
	seen := map[int]bool{}
	var group uint32
	var t bpf.OffcpuTarget
	it := s.objs.Targets.Iterate()
	for it.Next(&group, &t) {
		groups[group] = int(t.Pid)
		seen[int(t.Pid)] = true
	}
	if err := it.Err(); err != nil {
		return nil, fmt.Errorf("thread plane: read the targets: %w", err)
	}
	for _, pid := range pids {
		if !seen[pid] {
			return nil, fmt.Errorf("record the threads of process %d: the kernel finds no such process in this PID namespace", pid)
		}
	}
	return groups, nil
}

// iterate runs a program over all tasks of the PID namespace.
func iterate(p *ebpf.Program) error {
	it, err := link.AttachIter(link.IterOptions{Program: p})
	if err != nil {
		return explain("attach the iterator over tasks", err)
	}
	defer it.Close()
	r, err := it.Open()
	if err != nil {
		return explain("open the iterator over tasks", err)
	}
	defer r.Close()
	if _, err := io.Copy(io.Discard, r); err != nil {
		return fmt.Errorf("thread plane: iterate over tasks: %w", err)
	}
	return nil
}

// begin attaches, opens the window and seeds the threads that are there. It
// returns the window's start.
func (s *session) begin(o Options) (uint64, error) {
	// Statistics are for the whole machine and need more than tracing does.
	if c, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME); err == nil {
		s.stats = c
	}
	for _, p := range []*ebpf.Program{s.objs.OffcpuSwitch, s.objs.OffcpuWaking, s.objs.OffcpuExit} {
		l, err := link.AttachTracing(link.TracingOptions{Program: p})
		if err != nil {
			return 0, explain("attach "+p.String(), err)
		}
		s.links = append(s.links, l)
	}
	if o.OnCPU > 0 {
		var err error
		if s.clock, err = openClock(o.OnCPU, s.objs.OncpuSample); err != nil {
			return 0, err
		}
	}
	start := monotonic() + uint64(edgeMargin)
	if err := s.objs.WindowStart.Set(start); err != nil {
		return 0, fmt.Errorf("thread plane: open the window: %w", err)
	}
	sleepUntil(start)
	if err := iterate(s.objs.OffcpuSeed); err != nil {
		return 0, err
	}
	if err := s.objs.Seeded.Set(true); err != nil {
		return 0, fmt.Errorf("thread plane: open the window: %w", err)
	}
	return start, nil
}

// edgeMargin is how far ahead an edge of the window is set. The kernel side
// then cuts at exactly that moment.
const edgeMargin = 2 * time.Millisecond

// end closes the window and detaches. It returns the window's end, after which
// the maps do not change any more.
func (s *session) end() (uint64, error) {
	var at uint64
	var err error
	// A recorder that got no CPU in time has set an end that had passed, and
	// what happened since is in: the end is then a later one.
	for margin := edgeMargin; margin < time.Second; margin *= 2 {
		at = monotonic() + uint64(margin)
		if err = s.objs.WindowEnd.Set(at); err != nil || monotonic() < at {
			break
		}
	}
	sleepUntil(at)
	err = errors.Join(err, s.clock.close())
	s.clock = nil
	for _, l := range s.links {
		err = errors.Join(err, l.Close())
	}
	s.links = nil
	// Programs may still be running on other CPUs: they do in a read-side
	// section of RCU, which this waits for. Where it is not available they
	// have long ended when the maps are read.
	_, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0)
	if err != nil {
		return at, fmt.Errorf("thread plane: detach: %w", err)
	}
	return at, nil
}

// sleepUntil sleeps until a moment has passed.
func sleepUntil(at uint64) {
	for now := monotonic(); now <= at; now = monotonic() {
		time.Sleep(time.Duration(at - now + 1))
	}
}

// membarrierGlobal is MEMBARRIER_CMD_GLOBAL.
const membarrierGlobal = 1

// measure keeps what the programs cost.
func (s *session) measure() {
	for _, p := range []*ebpf.Program{s.objs.OffcpuSwitch, s.objs.OffcpuWaking, s.objs.OffcpuExit, s.objs.OncpuSample} {
		st, err := p.Stats()
		if err != nil {
			return
		}
		s.runtime += int64(st.Runtime)
		s.runs += int64(st.RunCount)
		s.recursed += int64(st.RecursionMisses)
	}
	s.ran = s.stats != nil
	for _, m := range []*ebpf.Map{s.objs.Stacks, s.objs.Waits, s.objs.Tasks, s.objs.Ended, s.objs.Wakes, s.objs.Samples, s.objs.Scratch, s.objs.Counters} {
		if info, err := m.Info(); err == nil {
			n, _ := info.Memlock()
			s.memory += int64(n)
		}
	}
}

func (s *session) close() error {
	err := s.clock.close()
	s.clock = nil
	for _, l := range s.links {
		err = errors.Join(err, l.Close())
	}
	s.links = nil
	if s.stats != nil {
		err = errors.Join(err, s.stats.Close())
		s.stats = nil
	}
	return errors.Join(err, s.objs.Close())
}

// read takes a snapshot. Waits are read before the threads: one that ends in
// between is then missing until the next reading, rather than counted twice.
func (s *session) read() (*snapshot, error) {
	snap := &snapshot{waits: map[waitKey]waitValue{}, tasks: map[uint64]taskState{}, ended: map[taskKey]taskLife{}}
	if err := readMap(s.objs.Waits, snap.waits); err != nil {
		return nil, err
	}
	snap.at = monotonic()
	if err := readMap(s.objs.Tasks, snap.tasks); err != nil {
		return nil, err
	}
	if err := readMap(s.objs.Ended, snap.ended); err != nil {
		return nil, err
	}
	var perCPU []uint64
	for i := range snap.counters {
		if err := s.objs.Counters.Lookup(uint32(i), &perCPU); err != nil {
			return nil, fmt.Errorf("thread plane: read counter %d: %w", i, err)
		}
		for _, v := range perCPU {
			snap.counters[i] += v
		}
	}
	return snap, nil
}

// drop forgets threads that have ended.
func (s *session) drop(keys []taskKey) error {
	for _, k := range keys {
		if err := s.objs.Ended.Delete(k); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("thread plane: forget a thread that ended: %w", err)
		}
	}
	return nil
}

// stack returns a stack of the kernel's map.
func (s *session) stack(id uint64) ([]uint64, error) {
	var st stack
	if err := s.objs.Stacks.Lookup(id, &st); err != nil {
		return nil, err
	}
	return append([]uint64(nil), st.Ip[:min(int(st.Depth), len(st.Ip))]...), nil
}

// readMap reads a hash map in batches.
func readMap[K comparable, V any](m *ebpf.Map, out map[K]V) error {
	size := min(int(m.MaxEntries()), 1024)
	var cursor ebpf.MapBatchCursor
	keys, values := make([]K, size), make([]V, size)
	for {
		n, err := m.BatchLookup(&cursor, keys, values, nil)
		for i := range n {
			out[keys[i]] = values[i]
		}
		switch {
		case errors.Is(err, ebpf.ErrKeyNotExist):
			return nil
		case errors.Is(err, unix.ENOSPC) && size < int(m.MaxEntries()):
			// One bucket holds more than there was room for.
			size = min(2*size, int(m.MaxEntries()))
			keys, values = make([]K, size), make([]V, size)
		case err != nil:
			return fmt.Errorf("thread plane: read %v: %w", m, err)
		}
	}
}

// monotonic is the clock of the kernel side.
func monotonic() uint64 {
	var ts unix.Timespec
	// It cannot fail: the clock exists and the pointer is good.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return uint64(ts.Nano())
}
