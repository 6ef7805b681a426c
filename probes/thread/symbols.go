//go:build linux && (amd64 || arm64)

package thread

import (
	"fmt"
	"strings"

	"github.com/contention-toolkit/contention/probes/symbol"
	"github.com/contention-toolkit/contention/profile"
)

// symbols resolves addresses of the targets and of the kernel.
type symbols struct {
	process map[int]Resolver // by PID
	kernel  Resolver
	open    func(pid int) (Resolver, error)
	owned   []*symbol.Process
	notes   []string // what could not be had
	unknown map[string]bool
}

func openSymbols(o Options, pids []int) *symbols {
	s := &symbols{process: map[int]Resolver{}, unknown: map[string]bool{}, open: o.Symbols}
	if s.open == nil {
		s.open = s.own
	}
	for _, pid := range pids {
		s.add(pid)
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
	return s
}

// add opens the symbols of a process.
func (s *symbols) add(pid int) {
	r, err := s.open(pid)
	if err != nil {
		s.note(fmt.Sprintf("frames of process %d are addresses: %v", pid, err))
		return
	}
	s.process[pid] = r
}

func (s *symbols) note(text string) { s.notes = append(s.notes, text) }

func (s *symbols) own(pid int) (Resolver, error) {
	p, err := symbol.OpenProcess(pid)
	if err != nil {
		return nil, err
	}
	s.owned = append(s.owned, p)
	return p, nil
}

func (s *symbols) close() {
	for _, p := range s.owned {
		p.Close()
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
