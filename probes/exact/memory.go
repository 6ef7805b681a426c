//go:build linux && amd64

package exact

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/contention-toolkit/contention/probes/privilege"
)

// piece is a part of the target's memory to read.
type piece struct {
	addr uint64
	buf  []byte
	ok   bool // it was read
}

// read reads pieces of a process's memory, at most 1024 (IOV_MAX). An error means
// that it cannot be read at all.
func read(pid int, ps []piece) error {
	local, remote := make([]unix.Iovec, len(ps)), make([]unix.RemoteIovec, len(ps))
	for i := range ps {
		ps[i].ok = false
		local[i] = unix.Iovec{Base: unsafe.SliceData(ps[i].buf), Len: uint64(len(ps[i].buf))}
		remote[i] = unix.RemoteIovec{Base: uintptr(ps[i].addr), Len: len(ps[i].buf)}
	}
	for from := 0; from < len(ps); {
		n, err := unix.ProcessVMReadv(pid, local[from:], remote[from:], 0)
		if err != nil && !errors.Is(err, unix.EFAULT) {
			return fmt.Errorf("read the memory of process %d: %s: %w", pid, privilege.ExplainAccess(pid, err), err)
		}
		// The kernel stops at the first piece that it cannot read whole.
		for left := max(n, 0); from < len(ps) && left >= len(ps[from].buf); from++ {
			left -= len(ps[from].buf)
			ps[from].ok = true
		}
		from++
	}
	return nil
}

func readOne(pid int, addr uint64, buf []byte) error {
	ps := []piece{{addr: addr, buf: buf}}
	if err := read(pid, ps); err != nil {
		return err
	}
	if !ps[0].ok {
		return fmt.Errorf("read the memory of process %d at %#x: %w", pid, addr, unix.EFAULT)
	}
	return nil
}

func readWord(pid int, addr uint64) (uint64, error) {
	var b [8]byte
	err := readOne(pid, addr, b[:])
	return binary.LittleEndian.Uint64(b[:]), err
}
