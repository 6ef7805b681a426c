package discover

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/pprof"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// accept serves every connection to a new loopback port and returns its address
// and what clients sent, one string per connection.
func accept(t *testing.T, serve func(net.Conn)) (string, func() []string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var sent []string
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer c.Close()
				serve(c)
				b, _ := io.ReadAll(c) // an error is as good as an end
				mu.Lock()
				defer mu.Unlock()
				sent = append(sent, string(b))
			})
		}
	})
	t.Cleanup(func() { l.Close(); wg.Wait() })
	return l.Addr().String(), func() []string {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(sent)
	}
}

func TestFindInOwnProcess(t *testing.T) {
	all := http.NewServeMux()
	all.HandleFunc("/debug/pprof/", pprof.Index)
	all.Handle("/metrics", promhttp.Handler())
	one := httptest.NewServer(all)
	defer one.Close()
	varz := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/varz" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprint(w, `{"in_msgs":1,"out_msgs":2}`)
	}))
	defer varz.Close()
	catchAll := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "<html>hello, goroutine profile</html>")
	}))
	defer catchAll.Close()
	hang := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer hang.Close()
	_, greeted := accept(t, func(c net.Conn) { fmt.Fprint(c, "INFO {}\r\n") })
	_, binary := accept(t, func(c net.Conn) {
		c.SetReadDeadline(time.Now().Add(5 * time.Second))
		io.ReadFull(c, make([]byte, 4)) // a length that makes no sense
		fmt.Fprint(c, "\x00\x00\x00\x01!")
		c.(*net.TCPConn).CloseWrite()
	})

	before := descriptors(t)
	found, err := Find(t.Context(), os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if len(found.Pprof) != 1 || found.Pprof[0] != one.URL+"/debug/pprof" {
		t.Errorf("pprof %v, want %s/debug/pprof", found.Pprof, one.URL)
	}
	if len(found.Metrics) != 1 || found.Metrics[0] != one.URL+"/metrics" {
		t.Errorf("metrics %v, want %s/metrics", found.Metrics, one.URL)
	}
	if len(found.Varz) != 1 || found.Varz[0] != varz.URL+"/varz" {
		t.Errorf("varz %v, want %s/varz", found.Varz, varz.URL)
	}
	waitUntil(t, "both message ports saw their connection end", func() bool { return len(greeted()) > 0 && len(binary()) > 0 })
	if g := greeted(); len(g) != 1 || g[0] != "" {
		t.Errorf("a server that speaks first was sent %q, want one connection and no word", g)
	}
	if b := binary(); len(b) != 1 || strings.Count(b[0], " HTTP/1.1") != 1 {
		t.Errorf("a binary server was sent %q after the first 4 bytes, want one request on one connection", b)
	}
	waitUntil(t, "no descriptor is left", func() bool { return descriptors(t) <= before })
}

// descriptors counts the descriptors of this process except for connections
// that servers of the test still hold.
func descriptors(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}

func TestListenersAreOnlyItsOwn(t *testing.T) {
	s := httptest.NewServer(http.NotFoundHandler())
	defer s.Close()
	has := func(pid int) bool {
		ls, err := Listeners(pid)
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(ls, func(l Listener) bool { return "http://"+l.Addr.String() == s.URL })
	}
	if !has(os.Getpid()) {
		t.Error("own listener is not found")
	}
	child := exec.Command("cat")
	in, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Skip("no cat: ", err)
	}
	defer child.Wait()
	defer in.Close()
	if has(child.Process.Pid) {
		t.Error("the child is said to listen on its parent's port")
	}
}

func TestFindOnAllAddresses(t *testing.T) {
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	s := &httptest.Server{Listener: l, Config: &http.Server{Handler: http.HandlerFunc(pprof.Index)}}
	s.Start()
	defer s.Close()
	found, err := Find(t.Context(), os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if want := "http://127.0.0.1:" + port + "/debug/pprof"; !slices.Equal(found.Pprof, []string{want}) {
		t.Errorf("pprof %v, want %s", found.Pprof, want)
	}
}

func TestFindWrongPID(t *testing.T) {
	if _, err := Find(t.Context(), 1<<30); err == nil || !strings.Contains(err.Error(), "no such process") {
		t.Errorf("error %v", err)
	}
}

const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 11 1 0000000000000000 100 0 0 10 0
   1: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1 0000000000000000 100 0 0 10 0
   2: 0500A8C0:0051 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 13 1 0000000000000000 100 0 0 10 0
   3: 0100007F:0052 0100007F:1F90 01 00000000:00000000 00:00000000 00000000     0        0 14 1 0000000000000000 20 4 30 10 -1
   4: 00000000:0053 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 15 1 0000000000000000 100 0 0 10 0
   5: 0100007F:0053 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 99 1 0000000000000000 100 0 0 10 0
   6: 0500A8C0:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 98 1 0000000000000000 100 0 0 10 0
`

const table6 = `  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000001000000:0054 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 16 1 0000000000000000 100 0 0 10 0
   1: 00000000000000000000000000000000:0055 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 17 1 0000000000000000 100 0 0 10 0
   2: 0000000000000000FFFF00000100007F:0056 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 18 1 0000000000000000 100 0 0 10 0
`

func TestOwnedListeners(t *testing.T) {
	var all []socket
	for _, text := range []string{table, table6} {
		s, err := parseTable(strings.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s...)
	}
	mine := map[uint64]bool{}
	for i := uint64(11); i <= 18; i++ {
		mine[i] = true
	}
	got := ""
	for _, l := range owned(all, mine) {
		got += fmt.Sprintf("%s either=%v tried=%v\n", l.Addr, l.either, l.Note == "")
	}
	want := `127.0.0.1:80 either=false tried=true
127.0.0.1:83 either=false tried=false
[::1]:84 either=false tried=true
127.0.0.1:85 either=true tried=true
127.0.0.1:86 either=false tried=true
127.0.0.1:8080 either=false tried=true
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
}

func TestTooManyPorts(t *testing.T) {
	var table []socket
	mine := map[uint64]bool{}
	for i := range maxPorts + 3 {
		table = append(table, socket{netip.AddrPortFrom(loopback4, uint16(1000+i)), uint64(i)})
		mine[uint64(i)] = true
	}
	left := 0
	for _, l := range owned(table, mine) {
		if l.Note != "" {
			left++
		}
	}
	if left != 3 {
		t.Errorf("%d ports are left out, want 3", left)
	}
}

func TestBrokenTable(t *testing.T) {
	for line, want := range map[string]string{
		"0: 0100007F:1F90 0:0 0A":                     "4 fields",
		"0: XX:1F90 0:0 0A 0:0 0:0 0 0 0 11 1":        "address",
		"0: 0100007F:1F900 0:0 0A 0:0 0:0 0 0 0 11 1": "address",
		"0: 0100007F:1F90 0:0 0A 0:0 0:0 0 0 0 -1 1":  "inode",
	} {
		if _, err := parseTable(strings.NewReader("heading\n" + line)); err == nil || !strings.Contains(err.Error(), "line 2") || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want line 2 and %q", line, err, want)
		}
	}
}

func FuzzTable(f *testing.F) {
	f.Add(table)
	f.Add(table6)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseTable(strings.NewReader(text))
		if err != nil {
			return
		}
		for _, l := range owned(s, map[uint64]bool{11: true}) {
			if !l.Addr.Addr().IsLoopback() {
				t.Fatalf("%s is not a loopback address", l.Addr)
			}
		}
	})
}

func waitUntil(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within 10s: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}
