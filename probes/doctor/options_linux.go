package doctor

import (
	"context"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/contention-toolkit/contention/probes/discover"
	"github.com/contention-toolkit/contention/probes/goroutine"
	"github.com/contention-toolkit/contention/probes/symbol"
	"github.com/contention-toolkit/contention/probes/thread"
)

func (s System) withDefaults() System {
	if s.Memlock == nil {
		s.Memlock = memlock
	}
	if s.KernelSymbols == nil {
		s.KernelSymbols = kernelSymbols
	}
	if s.ReadMemory == nil {
		s.ReadMemory = readMemory
	}
	if s.Signal == nil {
		s.Signal = func(pid int) error { return unix.Kill(pid, 0) }
	}
	if s.BTF == nil {
		s.BTF = readBTF
	}
	if s.Features == nil {
		s.Features = tryFeatures
	}
	if s.Threads == nil {
		s.Threads = thread.Available
	}
	if s.Sampler == nil {
		s.Sampler = trySampler
	}
	if s.Listeners == nil {
		s.Listeners = func(pid int) error { _, err := discover.Listeners(pid); return err }
	}
	return s
}

// trySampler starts the sampler and stops it at once.
func trySampler(pid int) error {
	s, err := goroutine.Start(context.Background(), goroutine.Options{PID: pid})
	if err != nil {
		return err
	}
	_, err = s.Stop()
	return err
}

func memlock() uint64 {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil {
		return 0 // cannot fail
	}
	return l.Cur
}

func kernelSymbols() error {
	k, err := symbol.OpenKernel()
	if err != nil {
		return err
	}
	return k.Hidden()
}

// readMemory fills dst from another process.
func readMemory(pid int, addr uint64, dst []byte) error {
	local := []unix.Iovec{{Base: unsafe.SliceData(dst), Len: uint64(len(dst))}}
	remote := []unix.RemoteIovec{{Base: uintptr(addr), Len: len(dst)}}
	n, err := unix.ProcessVMReadv(pid, local, remote, 0)
	if err == nil && n != len(dst) {
		return fmt.Errorf("%d of %d bytes could be read: %w", n, len(dst), unix.EFAULT)
	}
	return err
}

// writable says whether this user may make entries in a directory.
func writable(dir string) bool {
	return unix.Faccessat(unix.AT_FDCWD, dir, unix.W_OK, unix.AT_EACCESS) == nil
}
