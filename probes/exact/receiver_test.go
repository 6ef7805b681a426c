//go:build linux && amd64

package exact

import (
	"slices"
	"testing"
)

var (
	leaAX28    = []byte{0x48, 0x8d, 0x40, 0x28}       // LEA 0x28(RAX), RAX
	movAXtoCX  = []byte{0x48, 0x89, 0xc1}             // MOV RAX, RCX
	movCXtoAX  = []byte{0x48, 0x89, 0xc8}             // MOV RCX, RAX
	loadField  = []byte{0x48, 0x8b, 0x40, 0x08}       // MOV 8(RAX), RAX
	spill      = []byte{0x48, 0x89, 0x44, 0x24, 0x10} // MOV RAX, 16(RSP)
	spillOther = []byte{0x48, 0x89, 0x4c, 0x24, 0x10} // MOV RCX, 16(RSP)
	reload     = []byte{0x48, 0x8b, 0x44, 0x24, 0x10} // MOV 16(RSP), RAX
	add8       = []byte{0x48, 0x83, 0xc0, 0x08}       // ADD 8, RAX
	clearEAX   = []byte{0x31, 0xc0}                   // XOR EAX, EAX
	callNext   = []byte{0xe8, 0, 0, 0, 0}
	prologue   = []byte{0x55, 0x48, 0x89, 0xe5} // PUSH RBP; MOV RSP, RBP
	jumpOver   = []byte{0x74, 0x05}             // JE over the next five bytes
	jumpAway   = []byte{0xeb, 0x05}             // JMP over the next five bytes
)

func TestReceiverOffset(t *testing.T) {
	for _, c := range []struct {
		name string
		code [][]byte
		want int64 // -1: not told
	}{
		{"the receiver itself", [][]byte{prologue}, 0},
		{"a field", [][]byte{prologue, leaAX28}, 0x28},
		{"moved and back", [][]byte{movAXtoCX, clearEAX, movCXtoAX, add8}, 8},
		{"kept over a call", [][]byte{prologue, spill, callNext, reload, leaAX28}, 0x28},
		{"what another field points at", [][]byte{loadField, leaAX28}, -1},
		{"a call's result", [][]byte{callNext, leaAX28}, -1},
		{"kept twice", [][]byte{spill, spillOther, callNext, reload}, -1},
		{"another register's", [][]byte{movCXtoAX}, -1},
		{"cleared in part", [][]byte{clearEAX}, -1},
		{"two ways lead here", [][]byte{jumpOver, callNext, leaAX28}, -1},
		{"reached by a jump alone", [][]byte{jumpAway, {0x90, 0x90, 0x90, 0x90, 0xc3}, leaAX28}, 0x28},
		{"not understood", [][]byte{{0x06}}, -1},
	} {
		code := slices.Concat(append(c.code, callNext)...)
		got, ok := receiverOffset(code, len(code))
		if ok != (c.want >= 0) || ok && got != c.want {
			t.Errorf("%s: %#x, %v; want %#x", c.name, got, ok, c.want)
		}
	}
	if _, ok := receiverOffset(prologue, len(prologue)); ok {
		t.Error("code without a call has an argument")
	}
	if _, ok := receiverOffset(nil, 0); ok {
		t.Error("no code has an argument")
	}
}

// Whatever the code is, following a value through it ends.
func FuzzReceiverOffset(f *testing.F) {
	f.Add(slices.Concat(prologue, spill, callNext, reload, leaAX28, callNext))
	f.Add([]byte{0xeb, 0xfe, 0xe8, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, code []byte) { receiverOffset(code, len(code)) })
}

func TestReceiverType(t *testing.T) {
	for function, want := range map[string]string{
		"example.com/x/executor.(*Queue).Offer":      "example.com/x/executor.Queue",
		"main.(*table).read":                         "main.table",
		"main.(*table).read.func1":                   "",
		"main.(*table).read-fm":                      "",
		"example.com/x/executor.(*Queue[...]).Offer": "",
		"main.table.read":                            "",
		"main.main":                                  "",
		"":                                           "",
	} {
		if got := receiverType(function); got != want {
			t.Errorf("%s: %q, want %q", function, got, want)
		}
	}
}
