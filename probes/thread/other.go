//go:build !(linux && (amd64 || arm64))

package thread

import (
	"context"
	"fmt"
	"runtime"

	"github.com/contention-toolkit/contention/profile"
)

// Recorder records the threads of processes; see Start.
type Recorder struct{}

// Start fails: there is no eBPF here.
func Start(context.Context, Options) (*Recorder, error) { return nil, Available() }

// Done returns nil.
func (*Recorder) Done() <-chan struct{} { return nil }

// Stop fails as Start does.
func (*Recorder) Stop() ([]*profile.Capture, error) { return nil, Available() }

// Available says that this system has no eBPF.
func Available() error {
	return fmt.Errorf("%w: not supported on %s/%s; record on linux/amd64 or linux/arm64", ErrUnavailable, runtime.GOOS, runtime.GOARCH)
}
