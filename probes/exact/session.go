//go:build linux && amd64

package exact

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"

	"github.com/contention-toolkit/contention/probes/bpf"
	"github.com/contention-toolkit/contention/probes/privilege"
)

// The types that the kernel side shares with this one, under shorter names.
type (
	state     = bpf.GowaitGoState
	waitKey   = bpf.GowaitGoWaitKey
	waitValue = bpf.GowaitGoWaitValue
	wakeKey   = bpf.GowaitGoWakeKey
	wakeValue = bpf.GowaitGoWakeValue
	lockValue = bpf.GowaitGoLockValue
	stack     = bpf.GowaitGoStack
	counter   = bpf.GowaitGoCounter
)

const (
	phaseParked  = uint32(bpf.GowaitGoPhaseGO_PARKED)
	phaseReady   = uint32(bpf.GowaitGoPhaseGO_READY)
	flagNoWakeup = uint32(bpf.GowaitGoFlagGO_NO_WAKEUP)
	flagSeeded   = uint32(bpf.GowaitGoFlagGO_SEEDED)
	firstStack   = uint64(bpf.GowaitGoStackIdGO_STACK_FIRST)
	// reasonOfStack stands for the reason that the stack tells.
	reasonOfStack = uint32(bpf.GowaitGoReasonGO_REASON_STACK)
)

// session owns what is in the kernel. All of it belongs to file descriptors, so
// that it goes away with the process as well.
type session struct {
	objs  bpf.GowaitObjects
	links []link.Link
	stats io.Closer // run-time statistics of programs; nil where not allowed

	programs int64 // nanoseconds in programs, once measured
	runs     int64
	missed   int64 // hits that the kernel skipped
	memory   int64 // bytes in maps
}

// openSession loads the programs; nothing is attached yet.
func openSession(o Options, t *target, goroutines int) (*session, error) {
	if err := rlimit.RemoveMemlock(); err != nil {
		return nil, explain("raise the limit on locked memory", err)
	}
	spec, err := bpf.LoadGowait()
	if err != nil {
		return nil, fmt.Errorf("exact mode: %w", err)
	}
	// The kernel takes any version since 5.0. Without one the library looks for it
	// in this process's memory, which a binary with capabilities may not read.
	for _, p := range spec.Programs {
		p.KernelVersion = 5 << 16
	}
	spec.Maps[bpf.GowaitMapGoStacks].MaxEntries = uint32(o.MaxStacks)
	spec.Maps[bpf.GowaitMapGoWaits].MaxEntries = uint32(o.MaxWaits)
	spec.Maps[bpf.GowaitMapGoWakes].MaxEntries = uint32(2 * o.MaxWaits)
	spec.Maps[bpf.GowaitMapGoLocks].MaxEntries = uint32(o.MaxLocks)
	spec.Maps[bpf.GowaitMapGoStates].MaxEntries = uint32(2*goroutines + 1<<15)
	ns, tgid, err := namespaceOf(t.pid)
	if err != nil {
		return nil, fmt.Errorf("exact mode: %w", err)
	}
	for name, v := range map[string]any{
		bpf.GowaitVarNamespaceDev: ns.Dev, bpf.GowaitVarNamespaceIno: ns.Ino, bpf.GowaitVarTarget: tgid,
		bpf.GowaitVarGoidOffset: t.image.Offsets.Goid, bpf.GowaitVarLockReasons: t.lockReasons(), bpf.GowaitVarLocksOnly: o.Locks && !o.Waits,
	} {
		if err := spec.Variables[name].Set(v); err != nil {
			return nil, fmt.Errorf("exact mode: set %s: %w", name, err)
		}
	}
	s := &session{}
	if err := spec.LoadAndAssign(&s.objs, nil); err != nil {
		return nil, explain("load the programs", err)
	}
	return s, nil
}

// namespaceOf is the PID namespace that a process lives in, and the process's
// number there: what the kernel side can tell of whoever runs.
func namespaceOf(pid int) (ns unix.Stat_t, tgid uint32, err error) {
	path := fmt.Sprintf("/proc/%d/ns/pid", pid)
	if err := unix.Stat(path, &ns); err != nil {
		return ns, 0, fmt.Errorf("read the PID namespace in %s: %w", path, err)
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return ns, 0, fmt.Errorf("number of process %d in its PID namespace: %w", pid, err)
	}
	for line := range strings.Lines(string(data)) {
		v, ok := strings.CutPrefix(line, "NStgid:")
		if !ok {
			continue
		}
		// From the recorder's namespace down to the process's own.
		f := strings.Fields(v)
		if len(f) == 0 {
			break
		}
		n, err := strconv.ParseUint(f[len(f)-1], 10, 32)
		if err != nil {
			return ns, 0, fmt.Errorf("number of process %d in its PID namespace: %w", pid, err)
		}
		return ns, uint32(n), nil
	}
	return ns, 0, fmt.Errorf("number of process %d in its PID namespace: its status has no NStgid", pid)
}

// explain names what a refused operation lacks.
func explain(what string, err error) error {
	switch {
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.EACCES):
		return fmt.Errorf("%w: %s: %s: %w", ErrUnavailable, what, missingPrivilege(), err)
	case errors.Is(err, ebpf.ErrNotSupported), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		return fmt.Errorf("%w: %s: Linux 5.10 or newer with CONFIG_UPROBE_EVENTS and CONFIG_BPF_EVENTS is needed: %w", ErrUnavailable, what, err)
	case errors.Is(err, unix.ENOMEM):
		return fmt.Errorf("%w: %s: no memory for its maps; lower the number of stacks, or raise the memory limit: %w", ErrUnavailable, what, err)
	}
	return fmt.Errorf("exact mode: %s: %w", what, err)
}

// missingPrivilege says what stands in the way of BPF programs and uprobes.
func missingPrivilege() string {
	status, err := privilege.ReadStatus("", "self")
	if err != nil {
		return err.Error()
	}
	if len(privilege.MissingBPF(status.Effective)) == 0 && !status.Effective.Has(privilege.SysAdmin) {
		return "this kernel lets CAP_SYS_ADMIN alone attach uprobes through perf events; run as root, or add cap_sys_admin to the capabilities"
	}
	return privilege.WhyNoBPF(status, privilege.Lockdown(""))
}

// attach puts the probes in. Those that end a wait come first: a wait that was
// seen to begin is then seen to end.
func (s *session) attach(t *target, exe string) error {
	// Statistics are for the whole machine and need more than tracing does.
	if c, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME); err == nil {
		s.stats = c
	}
	ex, err := link.OpenExecutable(exe)
	if err != nil {
		return fmt.Errorf("exact mode: open the target's executable: %w", err)
	}
	for _, p := range []struct {
		name    string
		program *ebpf.Program
	}{{funcExecute, s.objs.GoExecute}, {funcReady, s.objs.GoReady}, {funcRelease, s.objs.GoRelease}, {funcAcquire, s.objs.GoAcquire}, {funcPark, s.objs.GoPark},
		{callDone.name(), s.objs.GoDone}, {callHand.name(), s.objs.GoHand}, {callQueue.name(), s.objs.GoQueue}} {
		at, ok := t.points[p.name]
		if !ok {
			continue
		}
		l, err := ex.Uprobe(p.name, p.program, &link.UprobeOptions{Address: at.fileOffset(), PID: t.pid})
		if err != nil {
			return explain("attach a uprobe to "+p.name, err)
		}
		s.links = append(s.links, l)
	}
	return nil
}

// plant adds goroutines that are parked already, where nothing newer is known.
func (s *session) plant(list []seed) error {
	for _, d := range list {
		st := state{Goid: d.goid, Stack: s.keep(d.stack), Phase: phaseParked, Reason: d.why, Flags: flagSeeded}
		if err := s.objs.GoStates.Update(d.g, st, ebpf.UpdateNoExist); err != nil && !errors.Is(err, ebpf.ErrKeyExist) {
			return fmt.Errorf("exact mode: seed goroutine %d: %w", d.goid, err)
		}
	}
	return nil
}

// uproot removes seeds that were not parked any more, unless the kernel side
// has seen them since.
func (s *session) uproot(list []seed) error {
	for _, d := range list {
		var st state
		if err := s.objs.GoStates.Lookup(d.g, &st); err != nil || st.Flags&flagSeeded == 0 {
			continue
		}
		if err := s.objs.GoStates.Delete(d.g); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return fmt.Errorf("exact mode: remove the seed of goroutine %d: %w", d.goid, err)
		}
	}
	return nil
}

// keep numbers a stack as the kernel side does.
func (s *session) keep(ips []uint64) uint64 {
	if len(ips) == 0 {
		return uint64(bpf.GowaitGoStackIdGO_STACK_FAILED)
	}
	st := stack{Depth: uint32(copy((&stack{}).Ip[:], ips))}
	copy(st.Ip[:], ips)
	id := hash(st.Ip[:st.Depth])
	var old stack
	switch err := s.objs.GoStacks.Lookup(id, &old); {
	case err == nil && old.Depth == st.Depth && old.Ip == st.Ip:
		return id
	case err == nil:
		return uint64(bpf.GowaitGoStackIdGO_STACK_COLLISION)
	}
	if err := s.objs.GoStacks.Update(id, st, ebpf.UpdateNoExist); err != nil {
		return uint64(bpf.GowaitGoStackIdGO_STACK_FULL)
	}
	return id
}

// hash is the kernel side's.
func hash(ips []uint64) uint64 {
	id := uint64(0x8f1bbcdcbfa53e0b)
	for _, ip := range ips {
		id = (id ^ ip) * 0x9e3779b97f4a7c15
		id ^= id >> 29
	}
	if id < firstStack {
		id += firstStack
	}
	return id
}

func (s *session) begin() (uint64, error) {
	start := monotonic()
	if err := s.objs.GoWindowStart.Set(start); err != nil {
		return 0, fmt.Errorf("exact mode: open the window: %w", err)
	}
	return start, nil
}

// edgeMargin is how far ahead the window's end is set, so that the kernel side
// cuts at exactly that moment.
const edgeMargin = 2 * time.Millisecond

// end closes the window and detaches. It returns the window's end, after which
// the maps do not change any more.
func (s *session) end() (uint64, error) {
	at := monotonic() + uint64(edgeMargin)
	err := s.objs.GoWindowEnd.Set(at)
	for now := monotonic(); now <= at; now = monotonic() {
		time.Sleep(time.Duration(at - now + 1))
	}
	if err = errors.Join(err, s.detach()); err != nil {
		return at, fmt.Errorf("exact mode: detach: %w", err)
	}
	// Programs may still be running on other CPUs: they do in a read-side
	// section of RCU, which this waits for.
	_, _, _ = unix.Syscall(unix.SYS_MEMBARRIER, membarrierGlobal, 0, 0)
	s.measure()
	return at, nil
}

// membarrierGlobal is MEMBARRIER_CMD_GLOBAL.
const membarrierGlobal = 1

// detach closes all links at once: each waits until no CPU is in its probe.
func (s *session) detach() error {
	errs := make([]error, len(s.links))
	var wg sync.WaitGroup
	for i, l := range s.links {
		wg.Go(func() { errs[i] = l.Close() })
	}
	wg.Wait()
	s.links = nil
	return errors.Join(errs...)
}

// measure keeps what the programs cost.
func (s *session) measure() {
	for _, p := range []*ebpf.Program{s.objs.GoPark, s.objs.GoReady, s.objs.GoExecute, s.objs.GoAcquire, s.objs.GoRelease, s.objs.GoQueue, s.objs.GoHand, s.objs.GoDone} {
		st, err := p.Stats()
		if err != nil {
			continue
		}
		s.programs += int64(st.Runtime)
		s.runs += int64(st.RunCount)
		s.missed += int64(st.RecursionMisses)
	}
	for _, m := range []*ebpf.Map{s.objs.GoStates, s.objs.GoWaits, s.objs.GoWakes, s.objs.GoLocks, s.objs.GoStacks} {
		if info, err := m.Info(); err == nil {
			n, _ := info.Memlock()
			s.memory += int64(n)
		}
	}
}

func (s *session) close() error {
	err := s.detach()
	if s.stats != nil {
		err = errors.Join(err, s.stats.Close())
		s.stats = nil
	}
	return errors.Join(err, s.objs.Close())
}

// count reads one of the kernel side's counters.
func (s *session) count(c counter) (int64, error) {
	var perCPU []uint64
	if err := s.objs.GoCounters.Lookup(uint32(c), &perCPU); err != nil {
		return 0, fmt.Errorf("exact mode: read counter %d: %w", c, err)
	}
	var sum uint64
	for _, n := range perCPU {
		sum += n
	}
	return int64(sum), nil
}

func monotonic() uint64 {
	var t unix.Timespec
	// It cannot fail: the arguments are valid.
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return uint64(t.Nano())
}
