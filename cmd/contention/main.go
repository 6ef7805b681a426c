// Command contention finds out where a live broker's time goes while it is not
// running, names the operations that wait, and shows before and after whether a
// change made it better.
//
// Errors go to stderr, one line. Exit status: 0 done, 1 failed, 2 usage, 3 gate
// failed, 4 the run is invalid, 5 the gate cannot tell.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
)

// Exit statuses of the binary.
const (
	exitFailed  = 1
	exitUsage   = 2
	exitGate    = 3
	exitInvalid = 4
)

// exitError carries the exit status that an error asks for.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func usageError(format string, args ...any) error {
	return &exitError{exitUsage, fmt.Errorf(format, args...)}
}

func invalidError(format string, args ...any) error {
	return &exitError{exitInvalid, fmt.Errorf(format, args...)}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run runs one command and returns the exit status.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, "contention: "+oneLine(err.Error()))
	var e *exitError
	if errors.As(err, &e) {
		return e.code
	}
	return exitFailed
}

// oneLine keeps an error on one line and control characters out of a terminal.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0:
			return '·'
		}
		return r
	}, strings.TrimSpace(s))
}
