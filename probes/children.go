package probes

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// children keeps track of the processes that a target has started.
type children struct {
	known   map[string]bool // by id and start
	skipped map[string]int  // started within the window and not recorded, by name
}

func (s stat) key() string { return fmt.Sprint(s.pid, " ", s.started) }

// begin takes note of the children that are there.
func (c *children) begin(pid int) {
	c.known, c.skipped = map[string]bool{}, map[string]int{}
	all, _ := processes() // without /proc there is nothing to follow
	for _, s := range all {
		if s.parent == pid {
			c.known[s.key()] = true
		}
	}
}

// found returns the children that were not there before.
func (c *children) found(pid int, all []stat) []stat {
	var out []stat
	for _, s := range all {
		if s.parent == pid && !c.known[s.key()] && !s.ended() {
			c.known[s.key()] = true
			out = append(out, s)
		}
	}
	return out
}

func (c *children) skip(s stat) { c.skipped[s.name]++ }

// warning says what was not recorded, "" when nothing was seen.
func (c *children) warning(pid int) string {
	if len(c.skipped) == 0 {
		return ""
	}
	n, names := 0, slices.Sorted(maps.Keys(c.skipped))
	for _, k := range c.skipped {
		n += k
	}
	if len(names) > 5 {
		names = append(names[:5], "…")
	}
	return fmt.Sprintf("process %d started at least %d processes in the window that are not recorded (%s); record them with --follow", pid, n, strings.Join(names, ", "))
}
