//go:build linux && (amd64 || arm64)

package thread

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// What a machine or user cannot is told from what failed, and says what to do.
func TestExplain(t *testing.T) {
	for _, c := range []struct {
		name        string
		err         error
		unavailable bool
		want        string
	}{
		{"rejected", &ebpf.VerifierError{Cause: unix.EACCES, Log: []string{"invalid access"}}, true, "verifier rejects"},
		{"not supported", fmt.Errorf("attach: %w", ebpf.ErrNotSupported), true, "5.10 or newer"},
		{"no memory", fmt.Errorf("map create: %w", unix.ENOMEM), true, "memory limit"},
		{"other", unix.EIO, false, "input/output"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := explain("load", c.err)
			if errors.Is(err, ErrUnavailable) != c.unavailable || !errors.Is(err, c.err) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("explain = %q (unavailable %v), want %q", err, errors.Is(err, ErrUnavailable), c.want)
			}
		})
	}
}
