//go:build linux && amd64

package exact

import (
	"fmt"

	"golang.org/x/arch/x86/x86asm"

	"github.com/contention-toolkit/contention/probes/symbol"
)

// The calls that only contended semaphores come to, as caller and callee.
var (
	callQueue = call{funcAcquire, "runtime.(*semaRoot).queue"}
	callDone  = call{funcAcquire, "runtime.releaseSudog"}
	callHand  = call{funcRelease, "runtime.readyWithTime"}
)

type call struct{ caller, callee string }

func (c call) name() string { return c.caller + ": call of " + c.callee }

// maxCode bounds how much of a function is decoded.
const maxCode = 16 << 10

// callOp is a call to a relative address. The kernel emulates it; any other
// form of a call it would step through.
const callOp = 0xe8

// findCalls finds the one call of each kind, by name. A profile-guided build may
// have inlined a callee: then there is none.
func findCalls(p *symbol.Process, calls ...call) (map[string]point, error) {
	out := map[string]point{}
	for _, c := range calls {
		f, err := p.Function(c.caller)
		if err != nil {
			return nil, err
		}
		callee, err := p.Function(c.callee)
		if err != nil {
			return nil, err
		}
		code, err := p.Code(f, maxCode)
		if err != nil {
			return nil, fmt.Errorf("%s: read its code: %w", c.caller, err)
		}
		at, err := findCall(code, callee.Addr-f.Addr)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", c.name(), err)
		}
		out[c.name()] = point{f, at}
	}
	return out, nil
}

// findCall returns where code calls what lies target bytes after its start.
func findCall(code []byte, target uint64) (uint64, error) {
	found, n := uint64(0), 0
	for at := 0; at < len(code); {
		i, err := x86asm.Decode(code[at:], 64)
		if err != nil {
			return 0, fmt.Errorf("code at +%d is not understood: %w", at, err)
		}
		to, relative := i.Args[0].(x86asm.Rel)
		if code[at] == callOp && relative && uint64(at+i.Len)+uint64(int64(to)) == target {
			found, n = uint64(at), n+1
		}
		at += i.Len
	}
	if n != 1 {
		return 0, fmt.Errorf("%d such calls are in it, want 1", n)
	}
	return found, nil
}
