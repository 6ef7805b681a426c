// Package child runs a process that does not outlive its parent, on the CPUs
// that it is given.
package child

import (
	"fmt"
	"os/exec"
	"sync"
	"syscall"
	"time"
)

// Options says how a child runs. The zero value inherits the parent's CPUs.
type Options struct {
	// CPUs pins the child and all its threads; nil leaves them as the parent's.
	// Linux only: elsewhere Start fails.
	CPUs []int
}

// Child is a started process.
type Child struct {
	PID int

	cmd    *exec.Cmd
	exited chan struct{} // closed when the process is gone
	err    error         // of Wait, once exited is closed
	stop   sync.Once
	late   error // of Stop
}

// Start runs cmd. On Linux the process is killed when the parent dies without
// stopping it.
func Start(cmd *exec.Cmd, o Options) (*Child, error) {
	c := &Child{cmd: cmd, exited: make(chan struct{})}
	cmd.SysProcAttr = dieWithParent()
	started := make(chan error)
	// A death signal is sent when the thread that forked is gone, not the
	// process, so the thread lives as long as the child. It is never unlocked
	// and ends with its goroutine: what it changes need not be restored.
	go func() {
		err := prepareThread(o)
		if err == nil {
			err = cmd.Start()
		}
		if err == nil {
			c.PID = cmd.Process.Pid
		}
		started <- err
		if err == nil {
			c.err = cmd.Wait()
		}
		close(c.exited)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return c, nil
}

// Exited is closed when the process is gone.
func (c *Child) Exited() <-chan struct{} { return c.exited }

// Err is how the process ended, nil for status 0; it waits for the end.
func (c *Child) Err() error {
	<-c.exited
	return c.err
}

// Kill ends the process by force.
func (c *Child) Kill() error { return c.cmd.Process.Kill() }

// Stop asks the process to end and kills it after grace, which is an error.
// Further calls return the same.
func (c *Child) Stop(grace time.Duration) error {
	c.stop.Do(func() {
		// An error means that it is gone already.
		_ = c.cmd.Process.Signal(syscall.SIGTERM)
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-c.exited:
		case <-timer.C:
			c.late = fmt.Errorf("%s (PID %d) did not end within %v of SIGTERM and was killed", c.cmd.Path, c.PID, grace)
			_ = c.Kill()
			<-c.exited
		}
	})
	return c.late
}
