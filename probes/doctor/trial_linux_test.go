package doctor

import (
	"os"
	"strings"
	"syscall"
	"testing"
)

// Behind no filter and behind filters of every kind, what a call does is told
// from what a filter does.
func TestTrial(t *testing.T) {
	none := syscall.Errno(0)
	for _, c := range []struct {
		filter string
		want   map[string]Outcome
		alive  bool
	}{
		{"", map[string]Outcome{callReadVM: {Tried: true, Errno: none}, callPerf: {Tried: true, Errno: syscall.EINVAL}}, true},
		{"bpf=EPERM", map[string]Outcome{callReadVM: {Tried: true}, callBPF: {Tried: true, Errno: syscall.EPERM}}, true},
		{"bpf=ENOSYS,perf_event_open=EPERM", map[string]Outcome{callBPF: {Tried: true, Errno: syscall.ENOSYS}, callPerf: {Tried: true, Errno: syscall.EPERM}}, true},
		{"process_vm_readv=kill", map[string]Outcome{callReadVM: {Killed: true}}, false},
		{"perf_event_open=kill", map[string]Outcome{callReadVM: {Tried: true}, callPerf: {Killed: true}}, false},
	} {
		t.Run(c.filter, func(t *testing.T) {
			tr, err := startTrial(t.Context(), childOf("trial", c.filter)())
			if err != nil {
				t.Fatal(err)
			}
			for call, want := range c.want {
				if got := tr.calls[call]; got != want {
					t.Errorf("%s: %+v, want %+v", call, got, want)
				}
			}
			if alive := tr.address != 0; alive != c.alive {
				t.Fatalf("the child lives: %v", alive)
			}
			if c.alive {
				page := make([]byte, os.Getpagesize())
				if err := readMemory(tr.cmd.Process.Pid, tr.address, page); err != nil || !strings.HasPrefix(string(page), trialMark) {
					t.Errorf("its page: %v, %q", err, page[:20])
				}
				if err := tr.end(); err != nil {
					t.Errorf("the child ended with %v", err)
				}
			}
		})
	}
}

// A child that says something else, or nothing, is an error and no verdict.
func TestTrialFails(t *testing.T) {
	for mode, want := range map[string]string{"garbage": `"hello"`, "silent": "ended early"} {
		if tr, err := startTrial(t.Context(), childOf(mode, "")()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %+v, %v; want %s", mode, tr, err, want)
		}
	}
	f := Facts{}
	if f.tryCalls(t.Context(), Options{}, System{}) || f.CallsErr == nil {
		t.Error("without a child nothing can be tried, and that must be said")
	}
}

func FuzzParseTrial(f *testing.F) {
	f.Add("try bpf\nbpf 22\npage 0x1000\n")
	f.Add("try \npage \n")
	f.Fuzz(func(t *testing.T, text string) {
		calls, addr, err := parseTrial(strings.NewReader(text))
		if err != nil && addr != 0 {
			t.Errorf("%q: address %#x beside %v", text, addr, err)
		}
		for c, o := range calls {
			if o.Killed {
				t.Errorf("%q: %s was killed while its output was read", text, c)
			}
		}
	})
}
