package load

import (
	"math"
	"sync/atomic"
)

// window is the measured interval, in ns since the epoch. It is read by every
// connection while the run sets its edges.
type window struct{ start, end atomic.Int64 }

func newWindow() *window {
	w := &window{}
	w.start.Store(math.MaxInt64)
	w.end.Store(math.MaxInt64)
	return w
}

// has reports whether t lies inside.
func (w *window) has(t int64) bool { return t >= w.start.Load() && t < w.end.Load() }

// since reports whether t is not before the window.
func (w *window) since(t int64) bool { return t >= w.start.Load() }
