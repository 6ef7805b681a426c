// Command target is read by the tests of package symbol. It answers requests on
// its standard input, one a line:
//
//	frames PC…   for each program counter, the frames that its own runtime sees
//	addr         the addresses of some of its functions
package main

import (
	"bufio"
	"fmt"
	"os"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
)

type queue struct {
	mu    sync.Mutex
	items []int
}

// offer is small enough to be inlined into its callers.
func (q *queue) offer(i int) { q.add(i) }

//go:noinline
func (q *queue) add(i int) {
	q.mu.Lock()
	q.items = append(q.items, i)
	q.mu.Unlock()
}

//go:noinline
func producer(q *queue) { q.offer(1) }

//go:noinline
func generic[T any](v T) []T { return append([]T(nil), v, v) }

func main() {
	q := &queue{}
	producer(q)
	generic(1)
	generic("one")
	out := bufio.NewWriter(os.Stdout)
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	fmt.Fprintln(out, "ready")
	out.Flush()
	for in.Scan() {
		f := strings.Fields(in.Text())
		switch f[0] {
		case "addr":
			fmt.Fprintln(out, reflect.ValueOf(producer).Pointer(), reflect.ValueOf(generic[int]).Pointer())
		case "frames":
			for _, s := range f[1:] {
				pc, err := strconv.ParseUint(s, 10, 64)
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				answer(out, uintptr(pc))
			}
		}
		out.Flush()
	}
}

// answer writes the frames of one program counter on a line. The second counter
// makes the runtime expand the first whole; it is an inlined call of no other.
func answer(out *bufio.Writer, pc uintptr) {
	end := reflect.ValueOf(main).Pointer()
	frames := runtime.CallersFrames([]uintptr{pc + 1, end + 1})
	for {
		f, more := frames.Next()
		if !more {
			break
		}
		fmt.Fprintf(out, "%s\t%s\t%d\t", f.Function, f.File, f.Line)
	}
	fmt.Fprintln(out)
}
