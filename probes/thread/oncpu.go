//go:build linux && (amd64 || arm64)

package thread

import (
	"errors"
	"fmt"
	"strconv"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/contention-toolkit/contention/probes/bpf"
	"github.com/contention-toolkit/contention/profile"
)

// clock is the CPU clock's events, one for each CPU.
type clock []int

// openClock lets a program run hz times a second on each CPU. The kernel's
// software clock needs no counter of the hardware.
func openClock(hz int, p *ebpf.Program) (clock, error) {
	n, err := ebpf.PossibleCPU()
	if err != nil {
		return nil, fmt.Errorf("thread plane: sample on CPU: %w", err)
	}
	var c clock
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Sample: uint64(samplePeriod(hz)), Bits: unix.PerfBitDisabled}
	attr.Size = uint32(unsafe.Sizeof(attr))
	for cpu := range n {
		fd, err := unix.PerfEventOpen(&attr, -1, cpu, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if errors.Is(err, unix.ENODEV) {
			continue // not there, or off
		}
		if err != nil {
			return nil, errors.Join(explain(fmt.Sprintf("open the clock of CPU %d", cpu), err), c.close())
		}
		c = append(c, fd)
		err = unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_SET_BPF, p.FD())
		if err == nil {
			err = unix.IoctlSetInt(fd, unix.PERF_EVENT_IOC_ENABLE, 0)
		}
		if err != nil {
			return nil, errors.Join(explain(fmt.Sprintf("attach to the clock of CPU %d", cpu), err), c.close())
		}
	}
	return c, nil
}

func (c clock) close() error {
	var errs []error
	for _, fd := range c {
		errs = append(errs, unix.Close(fd))
	}
	return errors.Join(errs...)
}

func samplePeriod(hz int) time.Duration { return time.Second / time.Duration(hz) }

// buildOnCPU makes the capture of where the threads ran. A sample stands for the
// period.
func (r *Recorder) buildOnCPU(snap *snapshot) (*profile.Capture, error) {
	counts := map[bpf.OffcpuSampleKey]uint64{}
	if err := readMap(r.session.objs.Samples, counts); err != nil {
		return nil, err
	}
	period := int64(samplePeriod(r.opt.OnCPU))
	p := profile.New(profile.OnCPU, profile.Samples)
	p.Default = profile.OnCPU.Type
	p.PeriodType, p.Period = profile.OnCPU, period
	c := r.beside(profile.SourceOnCPU, p, snap)
	stacks := map[uint64][]uint64{}
	for k, n := range counts {
		out, pseudo := r.addresses(k.KernelStack, stacks, FrameKernelFailed)
		frames := pseudo
		if out != nil {
			frames = r.symbols.frames(r.symbols.kernel, out)
		}
		user, pseudo := r.addresses(k.UserStack, stacks, FrameUserFailed)
		if user != nil {
			frames = append(frames, r.symbols.frames(r.symbols.of(r.groups[k.Tgid]), user)...)
		} else {
			frames = append(frames, pseudo...)
		}
		p.Add(p.InternFrames(frames), p.InternLabels(profile.Label{Key: profile.LabelThread, Value: comm(k.Comm)}), int64(n)*period, int64(n))
	}
	full := snap.counter(bpf.OffcpuCounterCOUNT_SAMPLES_FULL)
	c.Settings = map[string]string{"clock": "PERF_COUNT_SW_CPU_CLOCK", "hz": strconv.Itoa(r.opt.OnCPU), "samples": strconv.FormatInt(snap.counter(bpf.OffcpuCounterCOUNT_SAMPLES), 10)}
	c.Loss = map[string]int64{"agg_map_full": full, "agg_map_full_ns": full * period}
	if full > 0 {
		c.Warnings = append(c.Warnings, fmt.Sprintf("the map of samples was full %d times: raise MaxWaits above %d", full, r.opt.MaxWaits))
	}
	return c, nil
}

// beside makes an empty capture over the window.
func (r *Recorder) beside(s profile.Source, p *profile.Profile, snap *snapshot) *profile.Capture {
	p.Start, p.Duration = r.at, r.since(snap.at)
	return &profile.Capture{Source: s, Profile: p, Start: r.at, End: r.at.Add(p.Duration)}
}
