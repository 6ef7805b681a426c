//go:build linux && amd64

package exact

import (
	"bufio"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
)

// probed is the function of this process on which the cost of a hit is measured.
// It calls something, so that the compiler gives it a frame.
//
//go:noinline
func probed(f func()) { f() }

// trap is what trapCost found once: it is the machine's.
var trap struct {
	sync.Once
	cost time.Duration
	err  error
}

// trapOnce is trapCost, measured once.
func trapOnce(nothing *ebpf.Program) (time.Duration, error) {
	trap.Do(func() { trap.cost, trap.err = trapCost(nothing) })
	return trap.cost, trap.err
}

// trapCost measures on this process what a hit costs beside the program's own
// time: the way into the kernel and back, with a program that does nothing.
func trapCost(nothing *ebpf.Program) (time.Duration, error) {
	entry := reflect.ValueOf(probed).Pointer()
	// The code of this process is mapped as long as it runs.
	push, err := findPush(unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&entry))), mostPrologue))
	if err != nil {
		return 0, err
	}
	off, err := ownOffset(uint64(entry))
	if err != nil {
		return 0, err
	}
	ex, err := link.OpenExecutable("/proc/self/exe")
	if err != nil {
		return 0, err
	}
	plain := callCost()
	l, err := ex.Uprobe("probed", nothing, &link.UprobeOptions{Address: off + uint64(push), PID: os.Getpid()})
	if err != nil {
		return 0, err
	}
	cost := callCost() - plain
	return max(cost, 0), l.Close()
}

// callCost is the least time of a call to probed, over some batches.
func callCost() time.Duration {
	const batches, calls = 10, 100
	least := time.Duration(1<<63 - 1)
	for range batches {
		began := time.Now()
		for range calls {
			probed(func() {})
		}
		least = min(least, time.Since(began)/calls)
	}
	return least
}

// ownOffset is where an address of this process's code is in its executable.
func ownOffset(addr uint64) (uint64, error) {
	f, err := os.Open("/proc/self/maps")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	sc := bufio.NewScanner(f)
	for sc.Scan() {
		fields := strings.Fields(sc.Text())
		if len(fields) < 3 {
			continue
		}
		low, high, _ := strings.Cut(fields[0], "-")
		from, err1 := strconv.ParseUint(low, 16, 64)
		to, err2 := strconv.ParseUint(high, 16, 64)
		off, err3 := strconv.ParseUint(fields[2], 16, 64)
		if err1 == nil && err2 == nil && err3 == nil && addr >= from && addr < to {
			return addr - from + off, nil
		}
	}
	return 0, fmt.Errorf("address %#x is not in /proc/self/maps", addr)
}
