package symbol

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"strconv"
	"strings"

	"github.com/contention-toolkit/contention/profile"
)

// kallsyms is where the running kernel lists its symbols.
const kallsyms = "/proc/kallsyms"

// ErrKernelSymbols says that the kernel lists its symbols without addresses.
var ErrKernelSymbols = errors.New("the kernel hides the addresses of its symbols from this user: run as root, or with CAP_SYSLOG and kernel.kptr_restrict=1 or lower (sysctl)")

// Kernel holds the symbols of the running kernel and its modules. It is safe
// for concurrent use.
type Kernel struct {
	starts []uint64 // of every symbol, ascending
	names  []string // of each; "" where it is not code, so that the code before it ends there
	hidden error
}

// OpenKernel reads the running kernel's symbols. Where the kernel hides them it
// still returns a Kernel, whose frames are addresses and whose Hidden says why.
func OpenKernel() (*Kernel, error) {
	f, err := os.Open(kallsyms)
	if err != nil {
		return nil, fmt.Errorf("kernel symbols: %w", err)
	}
	defer f.Close()
	return readKallsyms(f)
}

// Bounds on a list of symbols: the largest kernels have some 300,000.
const (
	maxKernelSymbols = 4 << 20
	maxSymbolLine    = 4096
)

// readKallsyms parses lines of an address, a type letter, a name and for
// symbols of modules and BPF programs a name in brackets. Lines that are not
// of this shape are skipped.
func readKallsyms(r io.Reader) (*Kernel, error) {
	k := &Kernel{}
	seen := false
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, maxSymbolLine), maxSymbolLine)
	for s.Scan() {
		addr, name, ok := parseKallsym(s.Bytes())
		if !ok {
			continue
		}
		seen = true
		if addr == 0 {
			continue
		}
		if len(k.starts) == maxKernelSymbols {
			return nil, fmt.Errorf("kernel symbols: more than %d", maxKernelSymbols)
		}
		k.starts = append(k.starts, addr)
		k.names = append(k.names, name)
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("kernel symbols: read %s: %w", kallsyms, err)
	}
	if len(k.starts) == 0 {
		k.hidden = ErrKernelSymbols
		if !seen {
			k.hidden = fmt.Errorf("the kernel lists no symbols in %s (CONFIG_KALLSYMS)", kallsyms)
		}
	}
	k.settle()
	return k, nil
}

// parseKallsym returns "" as the name of what is not code.
func parseKallsym(line []byte) (addr uint64, name string, ok bool) {
	hex, rest, ok := bytes.Cut(line, []byte(" "))
	if !ok || len(rest) < 3 || rest[1] != ' ' {
		return 0, "", false
	}
	addr, err := strconv.ParseUint(string(hex), 16, 64)
	if err != nil {
		return 0, "", false
	}
	switch rest[0] {
	case 't', 'T', 'w', 'W':
		n, _, _ := bytes.Cut(rest[2:], []byte("\t"))
		name = plainName(string(n))
	}
	return addr, name, true
}

// plainName takes off what compilers add to a function's name when they clone
// or split it, since that differs between builds. Ends of sections and the
// padding before functions are not code.
func plainName(s string) string {
	switch s {
	case "_etext", "_einittext", "__end_rodata":
		return ""
	}
	if strings.HasPrefix(s, "__pfx_") {
		return ""
	}
	for {
		i := strings.LastIndexByte(s, '.')
		if i <= 0 {
			return s
		}
		switch suffix := s[i+1:]; {
		case suffix == "cold", suffix == "isra", suffix == "constprop", suffix == "part", suffix == "llvm":
		case suffix != "" && strings.Trim(suffix, "0123456789") == "":
		default:
			return s
		}
		s = s[:i]
	}
}

// Hidden says why frames are mere addresses; nil when the symbols are there.
func (k *Kernel) Hidden() error { return k.hidden }

// Frames returns the one frame at an address of kernel code: its function, or
// the address in hexadecimal where no function is known. ret says that addr is
// a return address.
func (k *Kernel) Frames(addr uint64, ret bool) []profile.Frame {
	at := addr
	if ret && at > 0 {
		at--
	}
	i := sort.Search(len(k.starts), func(i int) bool { return k.starts[i] > at }) - 1
	// The last symbol has no end: nothing says that it reaches this far.
	if i < 0 || i == len(k.starts)-1 || k.names[i] == "" {
		return []profile.Frame{{Function: fmt.Sprintf("%#x", addr), Module: profile.KernelModule}}
	}
	return []profile.Frame{{Function: k.names[i], Module: profile.KernelModule}}
}

// settle sorts symbols by address and keeps one of each: the first listed that
// is code, as the kernel itself does.
func (k *Kernel) settle() {
	sort.Stable((*byStart)(k))
	n := 0
	for i := range k.starts {
		if n > 0 && k.starts[n-1] == k.starts[i] {
			continue
		}
		k.starts[n], k.names[n] = k.starts[i], k.names[i]
		n++
	}
	k.starts, k.names = k.starts[:n:n], k.names[:n:n]
}

// byStart sorts by address, code before other symbols.
type byStart Kernel

func (s *byStart) Len() int { return len(s.starts) }
func (s *byStart) Less(i, j int) bool {
	if s.starts[i] != s.starts[j] {
		return s.starts[i] < s.starts[j]
	}
	return s.names[i] != "" && s.names[j] == ""
}
func (s *byStart) Swap(i, j int) {
	s.starts[i], s.starts[j] = s.starts[j], s.starts[i]
	s.names[i], s.names[j] = s.names[j], s.names[i]
}
