//go:build linux && amd64

package exact

import (
	"errors"
	"fmt"
	"go/version"
	"strings"

	"golang.org/x/arch/x86/x86asm"

	"github.com/contention-toolkit/contention/probes/symbol"
)

// Releases whose probed functions take the arguments that the kernel side reads,
// in those registers, and begin with pushing the frame pointer: before 1.21 they
// moved the stack pointer first.
const firstRelease, lastRelease = "go1.21", "go1.27"

// point is where a probe goes.
type point struct {
	function symbol.Function
	at       uint64 // offset of the instruction within the function
}

func (p point) fileOffset() uint64 { return p.function.Offset + p.at }

func checkRelease(v string) error {
	v, _, _ = strings.Cut(v, " ") // experiments follow a space
	lang := version.Lang(v)
	if lang == "" || version.Compare(lang, firstRelease) < 0 || version.Compare(lang, lastRelease) > 0 {
		return fmt.Errorf("%w: the runtime's functions of %s are not known to take the arguments that are read; %s to %s are", ErrUnavailable, v, firstRelease, lastRelease)
	}
	return nil
}

// findPoints looks all functions up, and says of each that cannot be probed why.
func findPoints(p *symbol.Process, names []string) (map[string]point, error) {
	out := map[string]point{}
	var errs []error
	for _, name := range names {
		at, err := findPoint(p, name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out[name] = at
	}
	if len(errs) > 0 {
		return nil, fmt.Errorf("%w: %w; goroutines can be sampled instead", ErrUnavailable, errors.Join(errs...))
	}
	return out, nil
}

// mostPrologue is more than any prologue takes up to its push.
const mostPrologue = 48

func findPoint(p *symbol.Process, name string) (point, error) {
	f, err := p.Function(name)
	if err != nil {
		return point{}, fmt.Errorf("probe %s: %w", name, err)
	}
	code, err := p.Code(f, mostPrologue)
	if err != nil {
		return point{}, fmt.Errorf("probe %s: read its code: %w", name, err)
	}
	push, err := findPush(code)
	if err != nil {
		return point{}, fmt.Errorf("probe %s: %w", name, err)
	}
	return point{f, uint64(push)}, nil
}

// findPush returns where a function pushes its caller's frame pointer. Before it
// there may only be the check of the stack's size, which changes nothing that is
// read: at any other place arguments may be gone, and the kernel would single-step.
func findPush(code []byte) (int, error) {
	const pushBP = 0x55
	for at := 0; at < len(code); {
		if code[at] == pushBP {
			return at, nil
		}
		i, err := x86asm.Decode(code[at:], 64)
		if err != nil {
			return 0, fmt.Errorf("its code at +%d is not understood: %w", at, err)
		}
		if !stackCheck(i) {
			return 0, fmt.Errorf("it does not begin as Go's compiler begins functions: %v at +%d comes before the frame pointer is pushed", i, at)
		}
		at += i.Len
	}
	return 0, fmt.Errorf("it pushes no frame pointer within %d bytes", len(code))
}

// stackCheck says whether an instruction is part of the check of the stack's size.
func stackCheck(i x86asm.Inst) bool {
	switch i.Op {
	case x86asm.CMP, x86asm.JBE, x86asm.NOP:
		return true
	case x86asm.LEA, x86asm.MOV, x86asm.SUB: // of a large frame
		return i.Args[0] == x86asm.R12
	case x86asm.JB:
		return true
	}
	return false
}
