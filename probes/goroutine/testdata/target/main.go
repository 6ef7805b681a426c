// Command target is sampled by the tests of package goroutine. Its argument says
// what it does until its standard input ends:
//
//	waits     one goroutine in each kind of wait
//	idle N M  N goroutines that wait for a channel, and M, or ten, for a lock
//	deep N    a goroutine that waits below N calls
//	busy N    N goroutines that compute, on one processor
//	churn N   N goroutines that lock, start others and grow their stacks
//	exit N    as waits, and ends with status N after a line on its input
//	exec N    as idle, and starts itself anew in the same process after a line
package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

func main() {
	mode, n := "waits", 0
	if len(os.Args) > 1 {
		mode = os.Args[1]
	}
	if len(os.Args) > 2 {
		var err error
		if n, err = strconv.Atoi(os.Args[2]); err != nil {
			fail(err)
		}
	}
	switch mode {
	case "waits", "exit":
		waits()
	case "idle", "exec":
		idle(n)
	case "deep":
		go deep(n)
	case "busy":
		busy(n)
	case "churn":
		churn(n)
	default:
		fail(fmt.Errorf("mode %q", mode))
	}
	fmt.Println("ready")
	in := bufio.NewReader(os.Stdin)
	if _, err := in.ReadString('\n'); err != nil && err != io.EOF {
		fail(err)
	}
	switch mode {
	case "exit":
		os.Exit(n)
	case "exec":
		fail(syscall.Exec("/proc/self/exe", []string{os.Args[0], "idle", os.Args[2]}, nil))
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// queue is the model case's: a lock and a condition.
type queue struct {
	mu    sync.Mutex
	some  *sync.Cond
	items []int
}

func newQueue() *queue {
	q := &queue{}
	q.some = sync.NewCond(&q.mu)
	return q
}

//go:noinline
func (q *queue) add(i int) {
	q.mu.Lock()
	q.items = append(q.items, i)
	q.mu.Unlock()
}

// offer is inlined into its callers, and must not vanish from their stacks.
func (q *queue) offer(i int) { q.add(i) }

//go:noinline
func producer(q *queue) { q.offer(1) }

//go:noinline
func consumer(q *queue) {
	q.mu.Lock()
	for len(q.items) == 0 {
		q.some.Wait()
	}
	q.mu.Unlock()
}

var forever = make(chan int)

// waits starts one goroutine for each kind of wait.
func waits() {
	held := newQueue()
	held.mu.Lock()
	go producer(held)
	go consumer(newQueue())

	var rw sync.RWMutex
	rw.Lock()
	go func() { rw.RLock() }()
	var wg sync.WaitGroup
	wg.Add(1)
	go wg.Wait() // the compiler makes a function of its own for this

	go receiver()
	go func() { forever2 <- 1 }()
	go func() {
		select {
		case <-forever:
		case forever2 <- 1:
		}
	}()
	go func() { time.Sleep(time.Hour) }()
	go reader()
	go caller()
}

var forever2 = make(chan int)

//go:noinline
func receiver() { <-forever }

// reader waits for a network peer that sends nothing.
func reader() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fail(err)
	}
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		fail(err)
	}
	io.ReadFull(c, make([]byte, 1))
}

// caller stays in a system call.
func caller() {
	var p [2]int
	if err := syscall.Pipe(p[:]); err != nil {
		fail(err)
	}
	syscall.Read(p[0], make([]byte, 1))
}

func idle(n int) {
	held := newQueue()
	held.mu.Lock()
	waiters := 10
	if len(os.Args) > 3 {
		var err error
		if waiters, err = strconv.Atoi(os.Args[3]); err != nil {
			fail(err)
		}
	}
	for i := 0; i < waiters; i++ {
		go producer(held)
	}
	for i := 0; i < n; i++ {
		go receiver()
	}
}

//go:noinline
func deep(n int) int {
	if n == 0 {
		<-forever
		return 0
	}
	return deep(n-1) + 1
}

var sink atomic.Int64

//go:noinline
func spin() {
	for {
		step()
	}
}

// step has no frame of its own.
//
//go:noinline
func step() {
	for i := 0; i < 1000000; i++ {
		word += i
	}
}

var word int

func busy(n int) {
	runtime.GOMAXPROCS(1)
	for i := 0; i < n; i++ {
		go spin()
	}
}

// churn keeps goroutines changing in every way that a reader may meet.
func churn(n int) {
	q := newQueue()
	for i := 0; i < n; i++ {
		i := i
		go func() {
			for {
				q.offer(i)
				done := make(chan int)
				go func() { done <- grow(i % 200) }()
				sink.Add(int64(<-done))
				q.mu.Lock()
				q.items = q.items[:0]
				q.mu.Unlock()
			}
		}()
	}
	go func() {
		for {
			runtime.GC()
		}
	}()
}

//go:noinline
func grow(n int) int {
	var pad [128]byte
	pad[n%len(pad)] = byte(n)
	if n == 0 {
		return 1
	}
	return grow(n-1) + int(pad[n%len(pad)])
}
