//go:build !linux

package goroutine

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/contention-toolkit/contention/profile"
)

// ErrNotGo says that the target's goroutines cannot be read.
var ErrNotGo = errors.New("no goroutines to sample")

// Sampler samples one process; see Start.
type Sampler struct{}

// Start fails: other processes' memory is read on Linux only.
func Start(context.Context, Options) (*Sampler, error) { return nil, unsupported() }

// Done returns nil.
func (*Sampler) Done() <-chan struct{} { return nil }

// Stop fails as Start does.
func (*Sampler) Stop() (*profile.Capture, error) { return nil, unsupported() }

func unsupported() error {
	return fmt.Errorf("sampling goroutines is not supported on %s; record on Linux", runtime.GOOS)
}
