package doctor

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// RunTrial is the child's side: it tries each system call with arguments that
// the kernel refuses in a known way, prints how that went, and waits until its
// standard input is closed. A command that runs the doctor runs this in the
// child that Options.Child starts.
func RunTrial(stdin io.Reader, stdout io.Writer) error {
	for _, call := range trialCalls {
		// Written before the call: a filter may kill the process for it.
		if _, err := fmt.Fprintf(stdout, "try %s\n", call); err != nil {
			return err
		}
		if _, err := fmt.Fprintf(stdout, "%s %d\n", call, int(try(call))); err != nil {
			return err
		}
	}
	page, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return fmt.Errorf("make a page: %w", err)
	}
	copy(page, trialMark)
	if _, err := fmt.Fprintf(stdout, "page %d\n", uintptr(unsafe.Pointer(unsafe.SliceData(page)))); err != nil {
		return err
	}
	_, err = io.Copy(io.Discard, stdin)
	runtime.KeepAlive(page)
	return err
}

// try makes one call that cannot do anything. Unfiltered, process_vm_readv of
// nothing succeeds and the others give EINVAL, bpf also EPERM to users who may
// not use it at all.
func try(call string) unix.Errno {
	var err unix.Errno
	switch call {
	case callReadVM:
		_, _, err = unix.Syscall6(unix.SYS_PROCESS_VM_READV, uintptr(os.Getpid()), 0, 0, 0, 0, 0)
	case callBPF:
		const noCommand = 1 << 20
		_, _, err = unix.Syscall(unix.SYS_BPF, noCommand, 0, 0)
	case callPerf:
		const noFlags = ^uintptr(0)
		_, _, err = unix.Syscall6(unix.SYS_PERF_EVENT_OPEN, 0, 0, noFlags, noFlags, noFlags, 0)
	}
	return err
}
