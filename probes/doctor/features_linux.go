//go:build linux && (amd64 || arm64)

package doctor

import (
	"debug/elf"
	"errors"
	"fmt"
	"os"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
	"github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"golang.org/x/sys/unix"
)

// tryFeatures loads a minimal program, or makes a map, for each feature, and
// lets go of it.
func tryFeatures() map[Feature]error {
	// Kernels before 5.11 count maps against the limit on locked memory; where
	// it cannot be raised the attempts below say so.
	_ = rlimit.RemoveMemlock()
	return map[Feature]error{
		FeatureTracepoints: tryTracing(ebpf.AttachTraceRawTp, "sched_switch", false),
		FeatureFentry:      tryFentry(),
		FeatureIterators:   tryIterator(),
		FeatureRingBuffer:  features.HaveMapType(ebpf.RingBuf),
		FeatureUprobes:     tryUprobe(false),
		FeatureUprobeMulti: tryUprobe(true),
		FeatureClock:       tryClock(),
		FeatureStatistics:  tryStatistics(),
	}
}

// returnZero is a program that does nothing.
func returnZero() asm.Instructions {
	return asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()}
}

func minimal(t ebpf.ProgramType, a ebpf.AttachType, to string) (*ebpf.Program, error) {
	return ebpf.NewProgramWithOptions(&ebpf.ProgramSpec{
		Name: "doctor", Type: t, AttachType: a, AttachTo: to, Instructions: returnZero(), License: "Dual BSD/GPL",
	}, ebpf.ProgramOptions{LogDisabled: true})
}

func tryTracing(a ebpf.AttachType, to string, attach bool) error {
	p, err := minimal(ebpf.Tracing, a, to)
	if err != nil {
		return err
	}
	defer p.Close()
	if !attach {
		return nil
	}
	l, err := link.AttachTracing(link.TracingOptions{Program: p})
	if err != nil {
		return err
	}
	return l.Close()
}

// tryFentry attaches for a moment to a function that only runs when a program
// or map is made: on some architectures loading alone tells nothing.
func tryFentry() error {
	var err error
	for _, function := range []string{"bpf_map_new_fd", "bpf_prog_new_fd"} {
		if err = tryTracing(ebpf.AttachTraceFEntry, function, true); err == nil || !errors.Is(err, btf.ErrNotFound) {
			return err
		}
	}
	return err
}

func tryIterator() error {
	p, err := minimal(ebpf.Tracing, ebpf.AttachTraceIter, "task")
	if err != nil {
		return err
	}
	defer p.Close()
	l, err := link.AttachIter(link.IterOptions{Program: p})
	if err != nil {
		return err
	}
	return l.Close()
}

// tryUprobe attaches to where this process began, which does not run again, and
// to this process only. It does so by a perf event, or with multi by a link of
// BPF's own.
func tryUprobe(multi bool) error {
	const self = "/proc/self/exe"
	offset, err := entryOffset(self)
	if err != nil {
		return fmt.Errorf("%s: %w", self, err)
	}
	kind := ebpf.AttachNone
	if multi {
		kind = ebpf.AttachTraceUprobeMulti
	}
	p, err := minimal(ebpf.Kprobe, kind, "")
	if err != nil {
		return err
	}
	defer p.Close()
	exe, err := link.OpenExecutable(self)
	if err != nil {
		return err
	}
	var l link.Link
	if multi {
		l, err = exe.UprobeMulti(nil, p, &link.UprobeMultiOptions{Addresses: []uint64{offset}, PID: uint32(os.Getpid())})
	} else {
		l, err = exe.Uprobe("entry", p, &link.UprobeOptions{Address: offset, PID: os.Getpid()})
	}
	if err != nil {
		return err
	}
	return l.Close()
}

// entryOffset is where an executable's entry point lies in its file.
func entryOffset(path string) (uint64, error) {
	f, err := elf.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && f.Entry >= p.Vaddr && f.Entry < p.Vaddr+p.Filesz {
			return f.Entry - p.Vaddr + p.Off, nil
		}
	}
	return 0, errors.New("its entry point is in no segment")
}

// tryClock opens the software clock event that on-CPU samples come from, kernel
// included, on this process, disabled.
func tryClock() error {
	attr := unix.PerfEventAttr{
		Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_CPU_CLOCK, Sample: 1e7, Bits: unix.PerfBitDisabled,
	}
	attr.Size = unix.PERF_ATTR_SIZE_VER0
	fd, err := unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func tryStatistics() error {
	c, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		return err
	}
	return c.Close()
}

// readBTF says in which way the kernel's type information can be had.
func readBTF() (BTFState, error) {
	const path = "/sys/kernel/btf/vmlinux"
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		// Some distributions install it beside the kernel instead.
		if _, err := btf.LoadKernelSpec(); err == nil {
			return BTFGood, nil
		}
		return BTFAbsent, err
	}
	_, err := btf.LoadKernelSpec()
	switch {
	case err == nil:
		return BTFGood, nil
	case errors.Is(err, os.ErrPermission):
		return BTFUnreadable, err
	}
	return BTFUnknown, err
}
