//go:build linux && (amd64 || arm64)

package thread

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/contention-toolkit/contention/probes/privilege"
)

// Available says whether this machine and this user can record threads: nil, or
// an error of one line with the reason and the remedy. It loads the programs
// and lets go of them; it attaches nothing.
func Available() error {
	s, err := openSession(Options{MaxStacks: 1, MaxWaits: 1, MaxThreads: 1})
	if err != nil {
		return err
	}
	return s.close()
}

// explainBTF tells apart why the kernel's type information cannot be had.
func explainBTF(err error) error {
	const path = "/sys/kernel/btf/vmlinux"
	switch _, statErr := os.Stat(path); {
	case errors.Is(statErr, fs.ErrNotExist):
		return fmt.Errorf("%w: the kernel carries no type information (BTF): %s is absent; use a kernel built with CONFIG_DEBUG_INFO_BTF=y", ErrUnavailable, path)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: the kernel's type information (BTF) in %s cannot be read by this user: %w", ErrUnavailable, path, err)
	}
	return fmt.Errorf("%w: the kernel's type information (BTF) in %s is not understood, perhaps because the kernel is newer than this tool: %w", ErrUnavailable, path, err)
}

// explain names what a refused operation lacks. Other errors are wrapped as
// they are.
func explain(what string, err error) error {
	var rejected *ebpf.VerifierError
	if errors.As(err, &rejected) && len(rejected.Log) > 0 {
		return fmt.Errorf("%w: %s: this kernel's verifier rejects them, please report it with the kernel's version: %w", ErrUnavailable, what, err)
	}
	if !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EACCES) {
		if errors.Is(err, ebpf.ErrNotSupported) || errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EINVAL) {
			return fmt.Errorf("%w: %s: Linux 5.10 or newer with CONFIG_BPF_SYSCALL and CONFIG_BPF_EVENTS is needed: %w", ErrUnavailable, what, err)
		}
		if errors.Is(err, unix.ENOMEM) {
			return fmt.Errorf("%w: %s: no memory for its maps; lower the number of stacks, or raise the memory limit: %w", ErrUnavailable, what, err)
		}
		return fmt.Errorf("thread plane: %s: %w", what, err)
	}
	return fmt.Errorf("%w: %s: %s: %w", ErrUnavailable, what, missingPrivilege(), err)
}

// missingPrivilege says what stands in the way of BPF programs.
func missingPrivilege() string {
	status, err := privilege.ReadStatus("", "self")
	if err != nil {
		return "what this user lacks is not known: " + err.Error()
	}
	return privilege.WhyNoBPF(status, privilege.Lockdown(""))
}
