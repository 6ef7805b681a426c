//go:build linux && !amd64 && !arm64

package doctor

import (
	"errors"
	"runtime"
)

func tryFeatures() map[Feature]error { return nil }

func readBTF() (BTFState, error) {
	return BTFAbsent, errors.New("not used on " + runtime.GOARCH)
}
