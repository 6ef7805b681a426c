package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The system calls that are tried in a child, so that a filter that kills does
// not kill the doctor.
const (
	callReadVM = "process_vm_readv"
	callBPF    = "bpf"
	callPerf   = "perf_event_open"
)

// trialCalls is their order.
var trialCalls = []string{callReadVM, callBPF, callPerf}

// trial is a child that has tried the system calls and waits, so that its
// memory can be read.
type trial struct {
	cmd     *exec.Cmd
	stdin   io.WriteCloser
	calls   map[string]Outcome
	address uint64 // of a page that begins with trialMark
}

// trialMark is what the child's page begins with.
const trialMark = "contention doctor: a page that may be read\n"

// trialPatience bounds how long the child may take.
const trialPatience = 10 * time.Second

// startTrial runs the child and reads what it found. The child ends when end is
// called, or with this process, whose end closes its standard input.
func startTrial(ctx context.Context, cmd *exec.Cmd) (*trial, error) {
	ctx, cancel := context.WithTimeout(ctx, trialPatience)
	defer cancel()
	t := &trial{cmd: cmd}
	var err error
	if t.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, fmt.Errorf("try system calls in a child: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("try system calls in a child: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("try system calls in a child: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() }) // it may have ended
	t.calls, t.address, err = parseTrial(out)
	if !stop() {
		err = errors.Join(ctx.Err(), err)
	}
	if t.address == 0 || err != nil {
		waitErr := t.end()
		if err == nil {
			err = t.fate(waitErr)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("try system calls in a child: %w", err)
	}
	return t, nil
}

// fate explains a child that ended early: by the call that it was about to make
// when a filter killed it.
func (t *trial) fate(waitErr error) error {
	var exit *exec.ExitError
	if errors.As(waitErr, &exit) {
		if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() && ws.Signal() == syscall.SIGSYS {
			for _, c := range trialCalls {
				if o, ok := t.calls[c]; ok && !o.Tried {
					o.Killed = true
					t.calls[c] = o
					return nil
				}
			}
		}
	}
	return fmt.Errorf("it ended early: %w", waitErr)
}

// end lets the child go and waits for it.
func (t *trial) end() error {
	_ = t.stdin.Close() // it may be closed already
	return t.cmd.Wait()
}

// parseTrial reads the child's lines: "try CALL", "CALL ERRNO" and at last
// "page ADDRESS". It returns at the page or when the child has ended.
func parseTrial(r io.Reader) (map[string]Outcome, uint64, error) {
	calls := map[string]Outcome{}
	sc := bufio.NewScanner(io.LimitReader(r, 1<<16))
	for sc.Scan() {
		key, v, ok := strings.Cut(sc.Text(), " ")
		if !ok {
			return calls, 0, fmt.Errorf("it said %q", sc.Text())
		}
		switch key {
		case "try":
			calls[v] = Outcome{}
		case "page":
			addr, err := strconv.ParseUint(v, 0, 64)
			if err != nil {
				return calls, 0, fmt.Errorf("it said %q: %w", sc.Text(), err)
			}
			return calls, addr, nil
		default:
			n, err := strconv.Atoi(v)
			if err != nil {
				return calls, 0, fmt.Errorf("it said %q: %w", sc.Text(), err)
			}
			calls[key] = Outcome{Errno: syscall.Errno(n), Tried: true}
		}
	}
	return calls, 0, sc.Err()
}
