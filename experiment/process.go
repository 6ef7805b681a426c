package experiment

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// process is a child that the experiment started and holds by its handle.
type process struct {
	name   string
	cmd    *exec.Cmd
	stdout io.ReadCloser
	stdin  io.WriteCloser
	log    *os.File
	done   chan struct{} // closed when it has been reaped
	err    error         // what Wait said, valid after done
	stop   sync.Once
}

// processSpec says what to start.
type processSpec struct {
	name    string // in errors and of the log file
	argv    []string
	logPath string
	cpus    []int // CPU set, nil is all
}

// startProcess starts a child whose stdout the caller reads and whose stderr
// goes to the log. The child dies with this process: it is forked from a
// thread that lives as long as the child does, because the kernel sends the
// parent-death signal when the forking thread ends.
func startProcess(s processSpec) (*process, error) {
	log, err := os.Create(s.logPath)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", s.name, err)
	}
	p := &process{name: s.name, log: log, done: make(chan struct{})}
	p.cmd = exec.Command(s.argv[0], s.argv[1:]...)
	p.cmd.Stderr = log
	p.cmd.SysProcAttr = childAttributes()
	if p.stdout, err = p.cmd.StdoutPipe(); err == nil {
		p.stdin, err = p.cmd.StdinPipe()
	}
	if err != nil {
		log.Close()
		return nil, fmt.Errorf("start %s: %w", s.name, err)
	}
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, after the child
		err := onCPUs(s.cpus, p.cmd.Start)
		started <- err
		if err != nil {
			return
		}
		// Wait closes the pipes, so the reader of stdout ends too; it may
		// lose the last lines unless it has read to the end: see wait.
		state, err := p.cmd.Process.Wait()
		if err == nil && !state.Success() {
			err = &exec.ExitError{ProcessState: state}
		}
		p.err = err
		close(p.done)
	}()
	if err := <-started; err != nil {
		log.Close()
		return nil, fmt.Errorf("start %s: %s: %w", s.name, s.argv[0], err)
	}
	return p, nil
}

func (p *process) pid() int { return p.cmd.Process.Pid }

// alive says whether the child has not ended yet.
func (p *process) alive() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// wait waits for the child to end by itself, up to the context's end.
func (p *process) wait(ctx context.Context) error {
	select {
	case <-p.done:
		return p.failure()
	case <-ctx.Done():
		return fmt.Errorf("%s (pid %d) did not end: %w; see %s", p.name, p.pid(), ctx.Err(), p.log.Name())
	}
}

// failure is the error that the child ended with, with the end of its log.
func (p *process) failure() error {
	if p.err == nil {
		return nil
	}
	var exit *exec.ExitError
	if errors.As(p.err, &exit) {
		return &processError{p.name, exit.ProcessState.ExitCode(), exit.ProcessState.String(), p.log.Name(), lastLine(p.log.Name())}
	}
	return fmt.Errorf("%s: %w", p.name, p.err)
}

// processError is a child that ended with a failure.
type processError struct {
	name  string
	code  int
	state string
	log   string
	last  string // line of its log
}

func (e *processError) Error() string {
	s := fmt.Sprintf("%s ended with %s", e.name, e.state)
	if e.last != "" {
		s += ": " + e.last
	}
	return s + "; see " + e.log
}

// end asks the child to stop, kills it after grace, and frees what it held. It
// returns once the child is gone.
func (p *process) end(grace time.Duration) {
	p.stop.Do(func() {
		p.stdin.Close()
		if p.alive() {
			_ = p.cmd.Process.Signal(interruptSignal) // it may have ended meanwhile
			t := time.NewTimer(grace)
			select {
			case <-p.done:
			case <-t.C:
				_ = p.cmd.Process.Kill()
				<-p.done
			}
			t.Stop()
		}
		p.stdout.Close()
		p.log.Close()
	})
}

// lastLine returns the last line of a log that is not empty, shortened.
func lastLine(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	last := lines[len(lines)-1]
	if len(last) > 300 {
		last = last[:300] + "…"
	}
	return last
}
