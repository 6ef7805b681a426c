package probes

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// patience is how many seconds in a row the recorder may use more CPU than it
// should: reading a large profile takes a moment.
const patience = 3

// ownUse bounds what the recording process uses.
type ownUse struct {
	last    edge
	seconds int // seconds in a row above the bound
}

func (u *ownUse) begin(e edge) { u.last = e }

// over returns why the window must end, "" where it need not.
func (u *ownUse) over(o Options) string {
	now := edge{at: time.Now(), selfCPU: ownCPU()}
	cpus := float64(now.selfCPU-u.last.selfCPU) / float64(now.at.Sub(u.last.at))
	u.last = now
	if u.seconds++; o.MaxCPU <= 0 || cpus <= o.MaxCPU {
		u.seconds = 0
	}
	if u.seconds >= patience {
		return fmt.Sprintf("the recorder used %.2f CPUs in the last second and more than %g for %d s, its bound", cpus, o.MaxCPU, patience)
	}
	if o.MaxMemory > 0 {
		if rss := resident(); rss > o.MaxMemory {
			return fmt.Sprintf("the recorder used %d MB of memory, more than its bound of %d MB", rss>>20, o.MaxMemory>>20)
		}
	}
	return ""
}

// resident is this process's memory, in bytes; 0 where it cannot be told.
func resident() int64 {
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0
	}
	_, rest, ok := bytes.Cut(data, []byte("\nVmRSS:"))
	if !ok {
		return 0
	}
	line, _, _ := strings.Cut(string(rest), "\n")
	kb, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(line, "kB")), 10, 64) // 0 when the kernel wrote no number
	return kb << 10
}
