package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/contention-toolkit/contention/probes/privilege"
)

// The inode of the first PID namespace, fixed in the kernel.
const initialPIDNS = "pid:[4026531836]"

// Gather finds the facts. It fails only where /proc cannot be read at all, or
// ctx ends.
func Gather(ctx context.Context, o Options) (Facts, error) {
	f := Facts{Arch: runtime.GOARCH}
	var err error
	if f.Self, err = privilege.ReadStatus(o.Root, "self"); err != nil {
		return f, fmt.Errorf("doctor: %w; mount /proc (mount -t proc proc /proc)", err)
	}
	s := o.System.withDefaults()
	f.readFiles(o.Root)
	f.MemlockCur = s.Memlock()
	f.KernelSymbols = s.KernelSymbols()
	denied := f.tryCalls(ctx, o, s)
	if o.PID != 0 {
		f.Target = f.lookAt(o, s, denied)
	}
	if f.Calls[callBPF].Killed || f.Calls[callPerf].Killed {
		f.FeaturesSkipped = "a seccomp filter kills the process that tries"
		f.Threads = errors.New(f.FeaturesSkipped)
		return f, ctx.Err()
	}
	f.BTF, f.BTFErr = s.BTF()
	f.Features = s.Features()
	f.Threads = s.Threads()
	return f, ctx.Err()
}

// tryCalls runs the child, reads its memory and says whether process_vm_readv
// is refused in general.
func (f *Facts) tryCalls(ctx context.Context, o Options, s System) bool {
	if o.Child == nil {
		f.CallsErr = errors.New("no child to try them in was given")
		return false
	}
	t, err := startTrial(ctx, o.Child())
	if err != nil {
		f.CallsErr = err
		return false
	}
	f.Calls = t.calls
	denied := f.Calls[callReadVM].Denied()
	if t.address == 0 {
		return denied // it has ended
	}
	if !f.Calls[callReadVM].Killed {
		page := make([]byte, os.Getpagesize())
		f.ChildMemoryTried = true
		f.ChildMemory = s.ReadMemory(t.cmd.Process.Pid, t.address, page)
		if f.ChildMemory == nil && !strings.HasPrefix(string(page), trialMark) {
			f.ChildMemory = errors.New("what was read is not what the child wrote")
		}
	}
	if err := t.end(); err != nil {
		f.CallsErr = err
	}
	return denied
}

// readFiles reads what /proc and /sys say.
func (f *Facts) readFiles(root string) {
	at := func(path string) string { return filepath.Join("/", root, path) }
	number := func(path string) *int {
		if n, ok := privilege.Number(root, path); ok {
			return &n
		}
		return nil
	}
	release, _ := os.ReadFile(at("proc/sys/kernel/osrelease")) // "" reads as unknown
	f.Kernel = strings.TrimSpace(string(release))
	f.InitialUserNS = privilege.InitialUserNS(root, "self")
	pidNS, _ := os.Readlink(at("proc/self/ns/pid")) // "" is not the first
	f.InitialPIDNS = pidNS == initialPIDNS
	f.Lockdown = privilege.Lockdown(root)
	f.Paranoid = number("proc/sys/kernel/perf_event_paranoid")
	f.UnprivilegedBPF = number("proc/sys/kernel/unprivileged_bpf_disabled")
	f.Yama = number("proc/sys/kernel/yama/ptrace_scope")
	mounts, _ := os.ReadFile(at("proc/self/mounts")) // "" hides nothing
	f.HidePID = hidePID(string(mounts))
	f.Cgroup = readCgroup(root, "self")
}

// hidePID is the option of that name of the mount of /proc; later mounts cover
// earlier ones.
func hidePID(mounts string) string {
	v := ""
	for line := range strings.Lines(mounts) {
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[1] != "/proc" || fields[2] != "proc" {
			continue
		}
		v = ""
		for opt := range strings.SplitSeq(fields[3], ",") {
			if x, ok := strings.CutPrefix(opt, "hidepid="); ok {
				v = x
			}
		}
	}
	return v
}

// lookAt finds out about the target.
func (f *Facts) lookAt(o Options, s System, denied bool) *TargetFacts {
	t := &TargetFacts{PID: o.PID, Kind: KindUnknown}
	if t.Access, t.Err = privilege.ReadAccess(o.Root, o.PID); t.Err != nil {
		t.Hidden = f.HidePID != "" && f.HidePID != "0" && f.HidePID != "off" && errors.Is(s.Signal(o.PID), unix.EPERM)
		return t
	}
	t.Access.Denied = denied
	t.NSPIDs = t.Access.Target.NSPIDs
	inspect(o.Root, t)
	if f.Calls[callReadVM].Killed {
		t.Memory = unix.EPERM
	} else {
		t.Memory = readPage(o, s)
	}
	if t.Kind == KindGo && t.Memory == nil {
		t.Sampler = s.Sampler(o.PID)
	}
	t.Listing = s.Listeners(o.PID)
	f.Cgroup.Target = readCgroup(o.Root, strconv.Itoa(o.PID)).Self
	return t
}

// readPage reads one page of a target's memory. Where its mappings may not be
// seen any address will do: the kernel checks the right before the address.
func readPage(o Options, s System) error {
	page := make([]byte, os.Getpagesize())
	maps, err := os.ReadFile(filepath.Join("/", o.Root, "proc", strconv.Itoa(o.PID), "maps"))
	if err != nil || len(maps) == 0 {
		err := s.ReadMemory(o.PID, 1<<16, page)
		if errors.Is(err, unix.EFAULT) {
			return nil
		}
		return err
	}
	var last error = errors.New("it has no readable memory")
	for line := range strings.Lines(string(maps)) {
		low, rest, _ := strings.Cut(line, "-")
		if _, perm, _ := strings.Cut(rest, " "); !strings.HasPrefix(perm, "r") {
			continue
		}
		addr, err := strconv.ParseUint(low, 16, 64)
		if err != nil {
			return fmt.Errorf("its mappings: %q: %w", strings.TrimSpace(line), err)
		}
		if last = s.ReadMemory(o.PID, addr, page); last == nil || !errors.Is(last, unix.EFAULT) {
			return last
		}
	}
	return last
}
