package goroutine

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/contention-toolkit/contention/probes/privilege"
)

// maxIovecs is IOV_MAX, what one call may carry.
const maxIovecs = 1024

// memory reads another process's memory in batches. It is not safe for
// concurrent use.
type memory struct {
	pid    int
	local  []unix.Iovec
	remote []unix.RemoteIovec
	failed []bool // of the batch, by request
	calls  int64
}

func newMemory(pid int) *memory {
	return &memory{pid: pid, local: make([]unix.Iovec, 0, maxIovecs), remote: make([]unix.RemoteIovec, 0, maxIovecs), failed: make([]bool, 0, maxIovecs)}
}

// reset begins a batch.
func (m *memory) reset() {
	m.local, m.remote, m.failed = m.local[:0], m.remote[:0], m.failed[:0]
}

// add asks for len(dst) bytes at addr, and returns the request's number; the
// batch is full after maxIovecs.
func (m *memory) add(addr uint64, dst []byte) int {
	m.local = append(m.local, unix.Iovec{Base: unsafe.SliceData(dst), Len: uint64(len(dst))})
	m.remote = append(m.remote, unix.RemoteIovec{Base: uintptr(addr), Len: len(dst)})
	m.failed = append(m.failed, false)
	return len(m.local) - 1
}

// read fills every request of the batch that can be read and marks the others
// as failed. An error means that the target cannot be read at all.
func (m *memory) read() error {
	for from := 0; from < len(m.local); {
		m.calls++
		n, err := unix.ProcessVMReadv(m.pid, m.local[from:], m.remote[from:], 0)
		if err != nil && !errors.Is(err, unix.EFAULT) {
			return err
		}
		// The kernel stops at the first request that it cannot read whole.
		left := max(n, 0)
		for from < len(m.local) && left >= m.remote[from].Len {
			left -= m.remote[from].Len
			from++
		}
		if from < len(m.local) {
			m.failed[from] = true
			from++
		}
	}
	return nil
}

// one reads a single piece of memory.
func (m *memory) one(addr uint64, dst []byte) error {
	m.reset()
	m.add(addr, dst)
	if err := m.read(); err != nil {
		return err
	}
	if m.failed[0] {
		return fmt.Errorf("address %#x: %w", addr, unix.EFAULT)
	}
	return nil
}

// explain says what is missing when a target's memory cannot be read.
func explain(pid int, err error) error {
	switch {
	case errors.Is(err, unix.ESRCH):
		return fmt.Errorf("there is no process %d: %w", pid, err)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("its memory may not be read: %s: %w", privilege.ExplainAccess(pid, err), err)
	}
	return err
}
