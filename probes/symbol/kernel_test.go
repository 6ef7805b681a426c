package symbol

import (
	"errors"
	"github.com/contention-toolkit/contention/internal/testutil"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/contention-toolkit/contention/profile"
)

const kallsymsSample = `ffffffff81000000 T _stext
ffffffff81000000 T _text
ffffffff81001000 T __pfx_schedule
ffffffff81001010 T schedule
ffffffff81001200 t finish_task_switch.isra.0
ffffffff81001300 t finish_task_switch.isra.0.cold
ffffffff81001400 t weird.name
ffffffff81001500 T _etext
ffffffff81002000 D a_variable
ffffffffc0201000 t module_function	[some_module]
ffffffffc0202000 t last	[some_module]
`

func TestKernelFrames(t *testing.T) {
	k, err := readKallsyms(strings.NewReader(kallsymsSample))
	if err != nil {
		t.Fatal(err)
	}
	if k.Hidden() != nil {
		t.Errorf("Hidden() = %v", k.Hidden())
	}
	for _, c := range []struct {
		addr uint64
		ret  bool
		want string
	}{
		{0xffffffff81000800, false, "_stext"},
		{0xffffffff81001010, false, "schedule"},
		{0xffffffff81001010, true, "0xffffffff81001010"}, // a call that ends the padding: no function
		{0xffffffff81001200, true, "schedule"},           // a call that is the last instruction
		{0xffffffff81001200, false, "finish_task_switch"},
		{0xffffffff81001301, false, "finish_task_switch"},
		{0xffffffff81001401, false, "weird.name"},
		{0xffffffff81001600, false, "0xffffffff81001600"}, // after the text
		{0xffffffff81002001, false, "0xffffffff81002001"}, // data
		{0xffffffffc0201010, false, "module_function"},
		{0xffffffffc0202010, false, "0xffffffffc0202010"}, // of no known size
		{0x1000, false, "0x1000"},
		{0, true, "0x0"},
	} {
		got := k.Frames(c.addr, c.ret)
		want := profile.Frame{Function: c.want, Module: profile.KernelModule}
		if len(got) != 1 || got[0] != want {
			t.Errorf("Frames(%#x, %v) = %v, want %v", c.addr, c.ret, got, want)
		}
	}
}

func TestKernelHidden(t *testing.T) {
	k, err := readKallsyms(strings.NewReader("0000000000000000 T _stext\n0000000000000000 T schedule\n"))
	if err != nil {
		t.Fatal(err)
	}
	if !errors.Is(k.Hidden(), ErrKernelSymbols) {
		t.Errorf("Hidden() = %v, want ErrKernelSymbols", k.Hidden())
	}
	if got := k.Frames(0xffffffff81000010, true)[0].Function; got != "0xffffffff81000010" {
		t.Errorf("frame %q, want the address", got)
	}
	k, err = readKallsyms(strings.NewReader(""))
	if err != nil {
		t.Fatal(err)
	}
	if k.Hidden() == nil || errors.Is(k.Hidden(), ErrKernelSymbols) {
		t.Errorf("Hidden() of an empty list = %v, want that there are no symbols", k.Hidden())
	}
}

func TestOpenKernel(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no " + kallsyms)
	}
	k, err := OpenKernel()
	if errors.Is(err, os.ErrNotExist) {
		testutil.RequireBPF(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	testutil.RequireBPF(t, k.Hidden())
	for i, n := range k.names {
		if n == "schedule" {
			if f := k.Frames(k.starts[i]+1, false)[0]; f.Function != "schedule" || !f.Kernel() {
				t.Errorf("frame in schedule is %v", f)
			}
			return
		}
	}
	t.Errorf("no symbol schedule among %d", len(k.names))
}

func FuzzKallsyms(f *testing.F) {
	f.Add(kallsymsSample, uint64(0xffffffff81001010), true)
	f.Add("ffffffffffffffff t x\n1 T \n T\n2 t .\n3 W .0.0\n", uint64(1), false)
	f.Fuzz(func(t *testing.T, list string, addr uint64, ret bool) {
		k, err := readKallsyms(strings.NewReader(list))
		if err != nil {
			return
		}
		got := k.Frames(addr, ret)
		if len(got) != 1 || got[0].Function == "" || !got[0].Kernel() {
			t.Errorf("Frames(%#x, %v) = %v", addr, ret, got)
		}
		for i := 1; i < len(k.starts); i++ {
			if k.starts[i-1] >= k.starts[i] {
				t.Fatalf("symbols %d and %d are not in order", i-1, i)
			}
		}
	})
}
