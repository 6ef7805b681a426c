package goroutine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/contention-toolkit/contention/probes/symbol"
)

// Every program has goroutines that the runtime itself starts. What they do is
// known, so reading them shows whether the layout is that of the target.

// own is one of them, by the function that it begins with.
type own struct {
	goid    uint64   // 0 where it differs
	parent  uint64   // goid of its creator
	creator []string // how the name of the creating function may begin
	reasons []string // what it may wait for; none for anything
}

var owns = map[string]own{
	"runtime.main":          {goid: 1, creator: []string{"runtime.newproc", "runtime.rt0_go"}},
	"runtime.forcegchelper": {parent: 1, creator: []string{"runtime.init"}, reasons: []string{"force gc (idle)"}},
	"runtime.bgsweep":       {parent: 1, creator: []string{"runtime.gcenable"}, reasons: []string{"GC sweep wait"}},
	"runtime.bgscavenge":    {parent: 1, creator: []string{"runtime.gcenable"}, reasons: []string{"GC scavenge wait", "sleep"}},
}

// names gives the name of the function at an address.
type names func(addr uint64, ret bool) string

// namesOf takes them from the symbols of a process, without inlined calls.
func namesOf(p *symbol.Process) names {
	return func(addr uint64, ret bool) string {
		f := p.Frames(addr, ret)
		return f[len(f)-1].Function
	}
}

// misfit says what of a goroutine is not as the layout says, "" when it may be
// right. known says whether it is one of the runtime's own.
func misfit(x *g, parent uint64, hasParent bool, reasons []string, name names) (what string, known bool) {
	if x.status >= numStatus {
		return fmt.Sprintf("a status is %d", x.status), false
	}
	if !x.live() {
		return "", false
	}
	start := name(x.startpc, false)
	k, known := owns[start]
	if !known {
		return "", false
	}
	creator := name(x.gopc, true)
	switch {
	case k.goid != 0 && x.goid != k.goid:
		return fmt.Sprintf("%s has goid %d, not %d", start, x.goid, k.goid), true
	case hasParent && parent != k.parent:
		return fmt.Sprintf("%s has parentGoid %d, not %d", start, parent, k.parent), true
	case !slices.ContainsFunc(k.creator, func(p string) bool { return strings.HasPrefix(creator, p) }):
		return fmt.Sprintf("%s has gopc in %s, not in %s", start, creator, k.creator[0]), true
	case x.stackLo == 0 || x.stackHi <= x.stackLo || (x.stackHi-x.stackLo)&(x.stackHi-x.stackLo-1) != 0:
		return fmt.Sprintf("%s has a stack from %#x to %#x", start, x.stackLo, x.stackHi), true
	case x.status != statusWaiting:
		return "", true
	case x.sp < x.stackLo || x.sp >= x.stackHi:
		return fmt.Sprintf("%s has sched.sp %#x outside of its stack", start, x.sp), true
	case x.bp != 0 && (x.bp < x.sp || x.bp >= x.stackHi):
		return fmt.Sprintf("%s has sched.bp %#x outside of its stack", start, x.bp), true
	case name(x.pc, true) != "runtime.gopark":
		return fmt.Sprintf("%s waits with sched.pc in %s, not in runtime.gopark", start, name(x.pc, true)), true
	case int(x.reason) >= len(reasons):
		return fmt.Sprintf("%s has waitreason %d of %d", start, x.reason, len(reasons)), true
	}
	if len(k.reasons) > 0 && !slices.Contains(k.reasons, reasons[x.reason]) {
		return fmt.Sprintf("%s waits for %q, not for %q", start, reasons[x.reason], k.reasons[0]), true
	}
	return "", true
}
