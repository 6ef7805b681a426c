//go:build linux && (amd64 || arm64)

package thread

import (
	"errors"
	"fmt"
	"os"
	"sync"

	"golang.org/x/sys/unix"
)

// exits watches processes for their end, by descriptors that cannot come to
// mean another process.
type exits struct {
	files []*os.File
	all   chan struct{} // closed when every process has ended
	left  sync.WaitGroup
}

// openExits begins to watch; it fails when one of pids is no live process.
func openExits(pids []int) (*exits, error) {
	e := &exits{all: make(chan struct{})}
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, unix.PIDFD_NONBLOCK)
		if err != nil {
			e.close()
			return nil, pidError(pid, err)
		}
		e.files = append(e.files, os.NewFile(uintptr(fd), fmt.Sprintf("pidfd:%d", pid)))
	}
	return e, nil
}

func pidError(pid int, err error) error {
	switch {
	case errors.Is(err, unix.ESRCH):
		return fmt.Errorf("record the threads of process %d: there is no such process", pid)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.ENOENT):
		return fmt.Errorf("record the threads of process %d: it is no process, but perhaps a thread of one", pid)
	case errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("%w: watch process %d: Linux 5.10 or newer is needed: %w", ErrUnavailable, pid, err)
	}
	return fmt.Errorf("record the threads of process %d: watch it: %w", pid, err)
}

// ended says whether a process has ended, seen through its descriptor.
func ended(fd uintptr) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := unix.Poll(p, 0)
	return err == nil && n == 1
}

// alive counts the processes that have not ended.
func (e *exits) alive() int {
	n := 0
	for _, f := range e.files {
		c, err := f.SyscallConn()
		if err != nil {
			continue
		}
		_ = c.Control(func(fd uintptr) {
			if !ended(fd) {
				n++
			}
		})
	}
	return n
}

// watch closes all when every process has ended.
func (e *exits) watch() error {
	conns := make([]func(), len(e.files))
	var mu sync.Mutex
	n := len(e.files)
	for i, f := range e.files {
		c, err := f.SyscallConn()
		if err != nil {
			return fmt.Errorf("thread plane: watch the targets: %w", err)
		}
		conns[i] = func() {
			defer e.left.Done()
			// Closing the file ends this with an error.
			if c.Read(ended) != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			if n--; n == 0 {
				close(e.all)
			}
		}
	}
	e.left.Add(len(conns))
	for _, wait := range conns {
		go wait()
	}
	return nil
}

// close ends the watch and waits for its goroutines.
func (e *exits) close() {
	for _, f := range e.files {
		_ = f.Close() // nothing is written through it
	}
	e.left.Wait()
}
