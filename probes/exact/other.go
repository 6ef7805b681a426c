//go:build !linux || !amd64

package exact

import (
	"context"
	"fmt"
	"runtime"

	"github.com/contention-toolkit/contention/profile"
)

// Recorder records nothing on this system.
type Recorder struct{}

// Start says that this system is not supported.
func Start(context.Context, Options) (*Recorder, error) {
	return nil, fmt.Errorf("%w: not supported on %s/%s; linux/amd64 is", ErrUnavailable, runtime.GOOS, runtime.GOARCH)
}

// Done is never closed.
func (*Recorder) Done() <-chan struct{} { return nil }

// Stop returns nothing.
func (*Recorder) Stop() ([]*profile.Capture, error) { return nil, nil }
