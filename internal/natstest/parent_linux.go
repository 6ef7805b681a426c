package natstest

import (
	"runtime"
	"syscall"
)

// dieWithParent ends the server when the test process dies without cleaning up.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

func lockThread() { runtime.LockOSThread() }
