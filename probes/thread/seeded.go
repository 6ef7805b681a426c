//go:build linux && (amd64 || arm64)

package thread

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/contention-toolkit/contention/probes/bpf"
)

// maxWalk bounds the frames of a stack that is walked from outside.
const maxWalk = 127

// walkSeeded reads the user stacks of the threads that were off-CPU as the
// window began, since the kernel side could not. What is not allowed or changed
// meanwhile is left out.
func (r *Recorder) walkSeeded() map[uint64][]uint64 {
	out := map[uint64][]uint64{}
	tasks := map[uint64]taskState{}
	if err := readMap(r.session.objs.Tasks, tasks); err != nil {
		return out // the frames then say that they were not seen
	}
	for k, t := range tasks {
		if t.Phase != phaseOff || t.Flags&flagSeeded == 0 || t.UserStack < uint64(bpf.OffcpuStackIdSTACK_FIRST) {
			continue
		}
		ips := walk(t.RegsIp, t.RegsSp, t.RegsBp, remote(r.groups[t.Tgid]))
		var now taskState
		if err := r.session.objs.Tasks.Lookup(k, &now); err == nil && now.Phase == phaseOff && now.Since == t.Since {
			out[t.UserStack] = ips
		}
	}
	return out
}

// walk follows frame pointers from a thread's registers. read fills its
// argument from an address of the thread's memory, or says that it cannot.
func walk(ip, sp, bp uint64, read func(addr uint64, into []byte) bool) []uint64 {
	ips := []uint64{ip}
	var frame [16]byte // the caller's frame pointer, then the return address
	for len(ips) < maxWalk && bp >= sp && bp%8 == 0 && bp != 0 {
		if !read(bp, frame[:]) {
			break
		}
		next := binary.LittleEndian.Uint64(frame[:8])
		ret := binary.LittleEndian.Uint64(frame[8:])
		if ret == 0 {
			break
		}
		ips = append(ips, ret)
		if next <= bp { // stacks grow down: a caller's frame is above
			break
		}
		sp, bp = bp, next
	}
	return ips
}

// remote reads the memory of a process.
func remote(pid int) func(uint64, []byte) bool {
	return func(addr uint64, into []byte) bool {
		n, err := unix.ProcessVMReadv(pid,
			[]unix.Iovec{{Base: unsafe.SliceData(into), Len: uint64(len(into))}},
			[]unix.RemoteIovec{{Base: uintptr(addr), Len: len(into)}}, 0)
		return err == nil && n == len(into)
	}
}
