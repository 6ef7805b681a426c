package doctor

import (
	"context"
	"os/exec"
)

// Options says what to look at; the zero value looks at this machine, without a
// target and without a child.
type Options struct {
	PID  int    // target, 0 for none
	Root string // file-system root that /proc and /sys are read under, "" means /
	// Child makes the command of a child process that calls RunTrial with its
	// standard input and output. Without one, system calls are not tried.
	Child  func() *exec.Cmd
	System System
}

// System is everything that is done rather than read; nil fields mean the
// machine's own.
type System struct {
	Memlock       func() uint64 // limit on locked memory in bytes
	KernelSymbols func() error
	ReadMemory    func(pid int, addr uint64, dst []byte) error
	Signal        func(pid int) error // whether a process is there
	BTF           func() (BTFState, error)
	Features      func() map[Feature]error
	Threads       func() error
	Sampler       func(pid int) error
	Listeners     func(pid int) error
}

// Run gathers the facts and judges them.
func Run(ctx context.Context, o Options) (*Report, error) {
	f, err := Gather(ctx, o)
	if err != nil {
		return nil, err
	}
	return Judge(f), nil
}
