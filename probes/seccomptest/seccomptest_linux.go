// Package seccomptest puts test processes behind seccomp filters, as containers
// and systemd units do.
package seccomptest

import (
	"fmt"
	"runtime"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

var calls = map[string]uint32{
	"bpf": unix.SYS_BPF, "perf_event_open": unix.SYS_PERF_EVENT_OPEN, "process_vm_readv": unix.SYS_PROCESS_VM_READV,
}

var actions = map[string]uint32{
	"EPERM":  unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM),
	"ENOSYS": unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS),
	"kill":   unix.SECCOMP_RET_KILL_PROCESS,
}

// Install puts this process, with all of its threads and what it will start,
// behind a filter. What to deny is given in pairs such as
// "bpf=EPERM,perf_event_open=kill"; "" installs nothing.
func Install(deny string) error {
	if deny == "" {
		return nil
	}
	// Load the number, compare it with each call, allow the rest.
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}}
	for pair := range strings.SplitSeq(deny, ",") {
		name, action, _ := strings.Cut(pair, "=")
		nr, ok1 := calls[name]
		ret, ok2 := actions[action]
		if !ok1 || !ok2 {
			return fmt.Errorf("seccomp filter %q: %q is not known", deny, pair)
		}
		filter = append(filter,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: nr},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: ret})
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	return install(filter)
}

func install(filter []unix.SockFilter) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("no_new_privs: %w", err)
	}
	prog := unix.SockFprog{Len: uint16(len(filter)), Filter: unsafe.SliceData(filter)}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}
