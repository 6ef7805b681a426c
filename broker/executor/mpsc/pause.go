//go:build race || pause

package mpsc

import "sync/atomic"

// onPause, when set, is called by producers at each point.
var onPause atomic.Pointer[func(point)]

func pause(p point) {
	if f := onPause.Load(); f != nil {
		(*f)(p)
	}
}
