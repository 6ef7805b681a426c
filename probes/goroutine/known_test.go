package goroutine

import (
	"strings"
	"testing"
)

// Each field of a layout that does not fit is named.
func TestMisfit(t *testing.T) {
	reasons := []string{"", "force gc (idle)", "select"}
	name := func(addr uint64, ret bool) string {
		return map[uint64]string{1: "runtime.forcegchelper", 2: "runtime.init.7", 3: "runtime.gopark", 4: "main.main", 5: "runtime.main", 6: "runtime.newproc"}[addr]
	}
	good := g{status: statusWaiting, reason: 1, goid: 2, startpc: 1, gopc: 2, pc: 3, stackLo: 0x10000, stackHi: 0x10800, sp: 0x107a0, bp: 0x107b0}
	if what, known := misfit(&good, 1, true, reasons, name); what != "" || !known {
		t.Fatalf("a good one: %q, %v", what, known)
	}
	for _, c := range []struct {
		name string
		edit func(x *g, parent *uint64)
		want string
	}{
		{"status", func(x *g, _ *uint64) { x.status = 77 }, "status"},
		{"parent", func(_ *g, p *uint64) { *p = 9 }, "parentGoid"},
		{"creator", func(x *g, _ *uint64) { x.gopc = 4 }, "gopc"},
		{"stack", func(x *g, _ *uint64) { x.stackLo -= 8 }, "stack"},
		{"stack upside down", func(x *g, _ *uint64) { x.stackLo, x.stackHi = x.stackHi, x.stackLo }, "stack"},
		{"sp", func(x *g, _ *uint64) { x.sp = 8 }, "sched.sp"},
		{"bp", func(x *g, _ *uint64) { x.bp = x.stackHi }, "sched.bp"},
		{"pc", func(x *g, _ *uint64) { x.pc = 4 }, "sched.pc"},
		{"reason number", func(x *g, _ *uint64) { x.reason = 200 }, "waitreason"},
		{"reason", func(x *g, _ *uint64) { x.reason = 2 }, `"select"`},
		{"goid", func(x *g, p *uint64) { x.startpc, x.gopc, *p, x.goid = 5, 6, 0, 17 }, "goid"},
	} {
		x, parent := good, uint64(1)
		c.edit(&x, &parent)
		if what, _ := misfit(&x, parent, true, reasons, name); !strings.Contains(what, c.want) {
			t.Errorf("%s: %q; want %q", c.name, what, c.want)
		}
	}
	// Goroutines of the program itself say nothing.
	x := good
	x.startpc = 4
	if what, known := misfit(&x, 0, true, reasons, name); what != "" || known {
		t.Errorf("another goroutine: %q, %v", what, known)
	}
}
