// Command target waits for known things for known times. It reads commands from
// its standard input, one a line, and answers each with one line:
//
//	mutex N D    N waits of about D for a lock that another goroutine holds
//	channel N D  the same for a value from a channel
//	cond N D     the same for a condition
//	sleep N D    the same by sleeping
//	rwmutex N D  N waits to read, then N to write, each about D
//	group N D    N waits for a WaitGroup of two, each about D
//	select N D   N waits in a select of two channels, each about D
//	timer N D    N waits for a timer's channel, each D
//	network N D  N reads from a socket, each about D before there is something
//	queue N      N goroutines wait for one lock at once, then get it in turn
//	park N       N goroutines wait from now on, and nobody ever wakes them
//	global N D   N waits for a lock within a variable of the package, each about D
//	two N D      N waits for each of two locks in one function
//	block FILE   writes the runtime's block profile, of everything so far
//	trace FILE   writes an execution trace from now on
//	untrace      until now
//	storm D      channel ping-pong for D: more parks than anybody can afford
//	load N       N messages through a queue with a lock, each checked
//	flow         messages through such a queue from now on
//	ebb          until now: the answer is how many, or -1 where one was lost
//
// It is written for Go 1.21, the oldest release that is recorded so. The answer is the number of waits and the nanoseconds that they took, as the
// waiting goroutine measured them.
package main

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	runtime.SetBlockProfileRate(1)
	fmt.Println("ready", os.Getpid())
	in := bufio.NewScanner(os.Stdin)
	var under *flow
	for in.Scan() {
		f := append(strings.Fields(in.Text()), "0", "0")
		n, _ := strconv.Atoi(f[1])
		d, _ := time.ParseDuration(f[2])
		waits, took := 0, time.Duration(0)
		switch f[0] {
		case "mutex":
			waits, took = handOver(n, d)
		case "channel":
			waits, took = receive(n, d)
		case "cond":
			waits, took = await(n, d)
		case "sleep":
			waits, took = doze(n, d)
		case "rwmutex":
			waits, took = readAndWrite(n, d)
		case "group":
			waits, took = gather(n, d)
		case "select":
			waits, took = choose(n, d)
		case "timer":
			waits, took = expire(n, d)
		case "network":
			waits, took = readSocket(n, d)
		case "global":
			l := &registry.shelves[2].mu
			waits, took = turns(n, d, l.Lock, func() { lockAndUnlock(l) }, func() { unlock(l) })
		case "two":
			waits, took = bothLocks(n, d)
		case "queue":
			waits = queueUp(n)
		case "park":
			for i := 0; i < n; i++ {
				go parkForever()
			}
			waits = n
		case "block":
			if err := writeBlocks(f[1]); err != nil {
				waits = -1
			}
		case "trace":
			if err := startTrace(f[1]); err != nil {
				waits = -1
			}
		case "untrace":
			trace.Stop()
		case "storm":
			d, _ = time.ParseDuration(f[1])
			waits = storm(d)
		case "load":
			waits = load(n)
		case "flow":
			under = newFlow()
		case "ebb":
			waits = under.ebb()
		}
		fmt.Println("done", waits, took.Nanoseconds())
	}
}

func writeBlocks(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	if err := pprof.Lookup("block").WriteTo(f, 0); err != nil {
		return err
	}
	return f.Close()
}

func startTrace(path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return trace.Start(f)
}

// turns makes two goroutines take turns: one waits n times in wait, each time
// after the other has readied itself with prepare, and is let go by release.
func turns(n int, d time.Duration, prepare, wait, release func()) (int, time.Duration) {
	var took time.Duration
	prepared, waited := make(chan struct{}), make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; i < n; i++ {
			prepare()
			prepared <- struct{}{}
			time.Sleep(d)
			release()
			<-waited
		}
	}()
	for i := 0; i < n; i++ {
		<-prepared
		began := time.Now()
		wait()
		took += time.Since(began)
		waited <- struct{}{}
	}
	<-done
	return n, took
}

//go:noinline
func handOver(n int, d time.Duration) (int, time.Duration) {
	var mu sync.Mutex
	return turns(n, d, mu.Lock, func() { lockAndUnlock(&mu) }, func() { unlock(&mu) })
}

//go:noinline
func lockAndUnlock(mu *sync.Mutex) {
	mu.Lock()
	mu.Unlock()
}

//go:noinline
func unlock(mu *sync.Mutex) { mu.Unlock() }

//go:noinline
func receive(n int, d time.Duration) (int, time.Duration) {
	c := make(chan int)
	return turns(n, d, func() {}, func() { takeFrom(c) }, func() { c <- 1 })
}

//go:noinline
func takeFrom(c chan int) { <-c }

//go:noinline
func await(n int, d time.Duration) (int, time.Duration) {
	c := sync.NewCond(&sync.Mutex{})
	var waiting atomic.Bool
	return turns(n, d, func() {}, func() { waitFor(c, &waiting) }, func() {
		// A signal that comes before the wait is lost, and the wait forever.
		for !waiting.Load() {
			time.Sleep(100 * time.Microsecond)
		}
		c.L.Lock()
		waiting.Store(false)
		c.L.Unlock()
		c.Signal()
	})
}

//go:noinline
func waitFor(c *sync.Cond, waiting *atomic.Bool) {
	c.L.Lock()
	waiting.Store(true)
	c.Wait()
	c.L.Unlock()
}

//go:noinline
func doze(n int, d time.Duration) (int, time.Duration) {
	began := time.Now()
	for i := 0; i < n; i++ {
		time.Sleep(d)
	}
	return n, time.Since(began)
}

//go:noinline
func gather(n int, d time.Duration) (int, time.Duration) {
	var g *sync.WaitGroup
	return turns(n, d, func() { g = &sync.WaitGroup{}; g.Add(2); g.Done() }, func() { waitForGroup(g) }, func() { g.Done() })
}

//go:noinline
func waitForGroup(g *sync.WaitGroup) { g.Wait() }

//go:noinline
func choose(n int, d time.Duration) (int, time.Duration) {
	a, b := make(chan int), make(chan int)
	return turns(n, d, func() {}, func() { takeEither(a, b) }, func() { b <- 1 })
}

//go:noinline
func takeEither(a, b chan int) {
	select {
	case <-a:
	case <-b:
	}
}

//go:noinline
func expire(n int, d time.Duration) (int, time.Duration) {
	began := time.Now()
	for i := 0; i < n; i++ {
		<-time.NewTimer(d).C
	}
	return n, time.Since(began)
}

//go:noinline
func readSocket(n int, d time.Duration) (int, time.Duration) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return -1, 0
	}
	defer l.Close()
	out, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		return -1, 0
	}
	defer out.Close()
	in, err := l.Accept()
	if err != nil {
		return -1, 0
	}
	defer in.Close()
	b := make([]byte, 1)
	return turns(n, d, func() {}, func() { readByte(in, b) }, func() { out.Write(b) })
}

//go:noinline
func readByte(c net.Conn, b []byte) { c.Read(b) }

var registry struct {
	names   int
	shelves [3]struct {
		n  int
		mu sync.Mutex
	}
}

type table struct{ mu sync.RWMutex }

//go:noinline
func (t *table) read() { t.mu.RLock(); t.mu.RUnlock() }

//go:noinline
func (t *table) write() { t.mu.Lock(); t.mu.Unlock() }

//go:noinline
func readAndWrite(n int, d time.Duration) (int, time.Duration) {
	var t table
	n1, took1 := turns(n, d, t.mu.Lock, t.read, t.mu.Unlock)
	n2, took2 := turns(n, d, t.mu.RLock, t.write, t.mu.RUnlock)
	return n1 + n2, took1 + took2
}

//go:noinline
func bothLocks(n int, d time.Duration) (int, time.Duration) {
	var a, b sync.Mutex
	lock := func() { a.Lock(); b.Lock() }
	return turns(n, d, lock, func() { one(&a, &b) }, func() {
		a.Unlock()
		time.Sleep(d)
		b.Unlock()
	})
}

//go:noinline
func one(a, b *sync.Mutex) {
	a.Lock()
	b.Lock()
	b.Unlock()
	a.Unlock()
}

// queueUp lets go of the lock once all wait for it, as the runtime says itself.
func queueUp(n int) int {
	var mu sync.Mutex
	var got sync.WaitGroup
	mu.Lock()
	got.Add(n)
	for i := 0; i < n; i++ {
		go func() {
			defer got.Done()
			inTurn(&mu)
		}()
	}
	stacks := make([]byte, 1<<20)
	for {
		all := stacks[:runtime.Stack(stacks, true)]
		if bytes.Count(all, []byte("[sync.Mutex.Lock")) == n {
			break
		}
		time.Sleep(time.Millisecond)
	}
	mu.Unlock()
	got.Wait()
	return n
}

//go:noinline
func inTurn(mu *sync.Mutex) {
	mu.Lock()
	mu.Unlock()
}

//go:noinline
func parkForever() { select {} }

func storm(d time.Duration) int {
	a, b := make(chan int), make(chan int)
	go func() {
		for v := range a {
			b <- v
		}
		close(b)
	}()
	n := 0
	for end := time.Now().Add(d); time.Now().Before(end); n++ {
		a <- n
		<-b
	}
	close(a)
	return n
}

// queue hands numbers over under a lock.
type queue struct {
	mu    sync.Mutex
	items []int
	added sync.Cond
}

func (q *queue) offer(v int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.items = append(q.items, v)
	q.added.Signal()
}

func (q *queue) takeAll() []int {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) == 0 {
		q.added.Wait()
	}
	out := q.items
	q.items = nil
	return out
}

// load returns how many of n messages arrived, each once.
func load(n int) int {
	q := &queue{}
	q.added.L = &q.mu
	const many = 16
	for p := 0; p < many; p++ {
		p := p
		go func() {
			for i := p; i < n; i += many {
				q.offer(i)
			}
		}()
	}
	seen := make([]bool, n)
	got := 0
	for got < n {
		for _, v := range q.takeAll() {
			if seen[v] {
				return -1
			}
			seen[v] = true
			got++
		}
	}
	return got
}

// flow is a load that goes on until it is told to stop.
type flow struct {
	q       *queue
	quit    chan struct{}
	offered sync.WaitGroup
	sent    [producers]int
	got     chan int // how many arrived in order, -1 where one was missing
}

const producers = 8

func newFlow() *flow {
	f := &flow{q: &queue{}, quit: make(chan struct{}), got: make(chan int, 1)}
	f.q.added.L = &f.q.mu
	f.offered.Add(producers)
	for p := 0; p < producers; p++ {
		go func(p int) {
			defer f.offered.Done()
			f.produce(p)
		}(p)
	}
	go func() { f.got <- f.consume() }()
	return f
}

// produce offers the producer's numbers in their order, some a millisecond.
func (f *flow) produce(p int) {
	for {
		for i := 0; i < 10; i++ {
			f.q.offer(f.sent[p]*producers + p)
			f.sent[p]++
		}
		select {
		case <-f.quit:
			return
		case <-time.After(time.Millisecond):
		}
	}
}

func (f *flow) consume() int {
	var next [producers]int
	n := 0
	for {
		for _, v := range f.q.takeAll() {
			if v < 0 {
				return n
			}
			if p := v % producers; v/producers != next[p] {
				return -1
			} else {
				next[p]++
			}
			n++
		}
	}
}

func (f *flow) ebb() int {
	close(f.quit)
	f.offered.Wait()
	f.q.offer(-1)
	sent, got := 0, <-f.got
	for _, n := range f.sent {
		sent += n
	}
	if sent != got {
		return -1
	}
	return got
}
