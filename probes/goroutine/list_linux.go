package goroutine

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/contention-toolkit/contention/probes/symbol"
)

// list is the target's goroutines. The runtime never frees a g and only appends
// to its list, so what was read once stays true.
type list struct {
	mem   *memory
	image *symbol.GoImage
	all   []known // by address
	count int     // that the target had
	array uint64  // where the target keeps them
	head  [16]byte
	raw   []byte
}

type known struct {
	addr   uint64
	key    uint64 // of the wait whose stack was read last; see g.key
	goid   uint64 // that team belongs to
	entry  int32  // number of that stack in the aggregate
	team   int32  // number of the goroutine's team there
	extent uint32 // bytes of stack that its last walk needed
	hot    uint8  // see hot
}

var errReplaced = errors.New("its list of goroutines was replaced: another program runs in the process now")

// refresh brings the list up to date. Its length is read before its address:
// the array only grows, so the length then fits the array.
func (l *list) refresh() error {
	l.mem.reset()
	l.mem.add(l.image.AllgLen, l.head[:8])
	l.mem.add(l.image.AllgPtr, l.head[8:])
	if err := l.mem.read(); err != nil {
		return fmt.Errorf("read runtime.allglen: %w", explain(l.mem.pid, err))
	}
	if l.mem.failed[0] || l.mem.failed[1] {
		return fmt.Errorf("read runtime.allglen at %#x: %w: %w", l.image.AllgLen, errReplaced, unix.EFAULT)
	}
	n, array := binary.LittleEndian.Uint64(l.head[:]), binary.LittleEndian.Uint64(l.head[8:])
	switch {
	case n > maxGoroutines:
		return fmt.Errorf("the target claims %d goroutines, more than %d are not read", n, maxGoroutines)
	case int(n) < l.count || int(n) == l.count && array != l.array && l.array != 0:
		return errReplaced
	case int(n) == l.count:
		return nil
	}
	need := 8 * (int(n) - l.count)
	if cap(l.raw) < need {
		l.raw = make([]byte, need)
	}
	raw := l.raw[:need]
	if err := l.mem.one(array+uint64(8*l.count), raw); err != nil {
		return fmt.Errorf("read the list of goroutines: %w", explain(l.mem.pid, err))
	}
	for i := 0; i < len(raw); i += 8 {
		l.all = append(l.all, known{addr: binary.LittleEndian.Uint64(raw[i:]), extent: firstStack})
	}
	l.count, l.array = int(n), array
	// Neighbours in memory are read in one piece.
	slices.SortFunc(l.all, func(a, b known) int { return cmp.Compare(a.addr, b.addr) })
	return nil
}

// maxGap is the hole between two goroutines that is read along.
const maxGap = 512

// pieces reads goroutines in as few pieces of memory as they lie in.
type pieces struct {
	mem  *memory
	size int // bytes of a g
	buf  []byte
	at   []int // per goroutine: where it is in buf
	of   []int // and the piece that it is in
	ends []int // per piece: end in buf
	base []uint64
}

// plan lays the pieces out for goroutines in the order of their addresses.
func (p *pieces) plan(addrs []uint64) {
	p.at, p.of, p.ends, p.base = p.at[:0], p.of[:0], p.ends[:0], p.base[:0]
	size := uint64(p.size)
	n := 0
	var last uint64
	for i, a := range addrs {
		// The difference wraps where an address is below the last one's end,
		// as in a damaged list.
		if gap := a - last; i == 0 || gap > maxGap {
			p.base = append(p.base, a)
			p.ends = append(p.ends, n)
		} else {
			n += int(gap)
		}
		p.at, p.of = append(p.at, n), append(p.of, len(p.base)-1)
		n += p.size
		p.ends[len(p.ends)-1] = n
		last = a + size
	}
	if cap(p.buf) < n {
		p.buf = make([]byte, n)
	}
	p.buf = p.buf[:n]
}

// read reads what was planned.
func (p *pieces) read() error {
	p.mem.reset()
	start := 0
	for i, base := range p.base {
		p.mem.add(base, p.buf[start:p.ends[i]])
		start = p.ends[i]
	}
	if err := p.mem.read(); err != nil {
		return explain(p.mem.pid, err)
	}
	return nil
}

// g returns the bytes of a goroutine; false when they could not be read.
func (p *pieces) g(i int) ([]byte, bool) {
	return p.buf[p.at[i]:][:p.size], !p.mem.failed[p.of[i]]
}
