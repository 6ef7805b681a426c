//go:build !race && !pause

package mpsc

// pause is where tests stop a producer. Only builds for the race detector or
// with the tag "pause" have it; here it compiles to nothing.
func pause(point) {}
