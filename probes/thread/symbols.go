//go:build linux && (amd64 || arm64)

package thread

import (
	"fmt"
	"io"
	"strings"

	"github.com/contention-toolkit/contention/probes/symbol"
	"github.com/contention-toolkit/contention/profile"
)

// symbols resolves addresses of the targets and of the kernel.
type symbols struct {
	process map[int]Resolver // by PID
	kernel  Resolver
	owned   []io.Closer
	notes   []string // what could not be had
	unknown map[string]bool
}

func openSymbols(o Options) (*symbols, error) {
	s := &symbols{process: map[int]Resolver{}, unknown: map[string]bool{}}
	for _, pid := range o.PIDs {
		if o.Symbols != nil {
			if r := o.Symbols(pid); r != nil {
				s.process[pid] = r
				continue
			}
		}
		s.process[pid] = addresses{}
	}
	k, err := symbol.OpenKernel()
	switch {
	case err != nil:
		s.kernel = addresses{module: profile.KernelModule}
		s.notes = append(s.notes, fmt.Sprintf("kernel frames are addresses: %v", err))
	default:
		s.kernel = k
		if k.Hidden() != nil {
			s.notes = append(s.notes, fmt.Sprintf("kernel frames are addresses: %v", k.Hidden()))
		}
	}
	return s, nil
}

func (s *symbols) close() {
	for _, c := range s.owned {
		_ = c.Close() // only read from
	}
}

// frames resolves a stack of addresses, innermost first. The first address is
// where the thread was, the others are return addresses.
func (s *symbols) frames(r Resolver, ips []uint64) []profile.Frame {
	var out []profile.Frame
	for i, ip := range ips {
		fs := r.Frames(ip, i > 0)
		for _, f := range fs {
			if strings.HasPrefix(f.Function, "0x") {
				s.unknown[f.Module+" "+f.Function] = true
			}
		}
		out = append(out, fs...)
	}
	return out
}

// kernelFrames resolves a kernel stack without the frames of the probe itself,
// which lie between the scheduler and the stack's top.
func (s *symbols) kernelFrames(ips []uint64) []profile.Frame {
	fs := s.frames(s.kernel, ips)
	for i, f := range fs {
		if f.Function == "__schedule" || f.Function == "preempt_schedule_common" {
			return fs[i:]
		}
		if i > 12 {
			break
		}
	}
	return fs
}

// addresses resolves nothing.
type addresses struct{ module string }

func (a addresses) Frames(addr uint64, _ bool) []profile.Frame {
	return []profile.Frame{{Function: fmt.Sprintf("%#x", addr), Module: a.module}}
}

// of returns the symbols of a process.
func (s *symbols) of(pid int) Resolver {
	if r := s.process[pid]; r != nil {
		return r
	}
	return addresses{}
}
