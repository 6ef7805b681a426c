// Package discover finds what a process serves over HTTP on this machine: its
// net/http/pprof, its Prometheus metrics and nats-server's /varz.
//
//	/proc/PID/fd + /proc/PID/net/tcp{,6} → Listeners → one HTTP conversation per port → Endpoints
//
// Only ports that the process itself listens on, and that loopback reaches, are
// tried. Which of them speaks HTTP is not known before, and a message port must
// come to no harm: a server that speaks first (NATS, MySQL, SSH …) is left after
// its first bytes without a word said to it; any other gets one connection with
// one `GET /debug/pprof/`, and nothing more unless it answers in HTTP. A binary
// protocol sees one malformed frame on a connection that is closed at once, and
// may log a line. A caller that wants not even that uses Listeners alone.
package discover

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/contention-toolkit/contention/probes/internal/httpget"
)

// Endpoints is what was found; each list is sorted by port.
type Endpoints struct {
	Pprof   []string // base URLs, such as http://127.0.0.1:6060/debug/pprof
	Metrics []string // pages of Prometheus text
	Varz    []string // nats-server's general counters
	Notes   []string // ports that were not tried, and why
}

// Listener is a TCP port that the process listens on and loopback reaches.
type Listener struct {
	Addr netip.AddrPort // where to connect: a loopback address
	Note string         // why it should not be tried, "" when it may be

	either bool // refused at Addr, it may still answer at the IPv6 loopback address
}

const (
	speakFirst = 40 * time.Millisecond  // how long a server may take to speak first
	perGet     = 300 * time.Millisecond // for one answer
	perPort    = time.Second            // for all of them
	atOnce     = 4                      // ports tried at the same time
	maxPorts   = 64                     // of one process
)

// Find looks at every listening port of the process. It takes at most about a
// second per four ports. The error says that the sockets of the process cannot
// be read; a port that answers nothing useful is no error.
func Find(ctx context.Context, pid int) (*Endpoints, error) {
	listeners, err := Listeners(pid)
	if err != nil {
		return nil, err
	}
	found := make([]Endpoints, len(listeners))
	slots := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	for i, l := range listeners {
		if l.Note != "" {
			found[i].Notes = []string{l.Addr.String() + ": " + l.Note}
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			if refused := probe(ctx, l.Addr.String(), &found[i]); refused && l.either {
				probe(ctx, netip.AddrPortFrom(loopback6, l.Addr.Port()).String(), &found[i])
			}
		})
	}
	wg.Wait()
	var all Endpoints
	for _, f := range found {
		all.Pprof = append(all.Pprof, f.Pprof...)
		all.Metrics = append(all.Metrics, f.Metrics...)
		all.Varz = append(all.Varz, f.Varz...)
		all.Notes = append(all.Notes, f.Notes...)
	}
	return &all, ctx.Err()
}

// errSpokeFirst means that the server is of another protocol.
var errSpokeFirst = errors.New("the server spoke first: it is not HTTP")

// probe holds one conversation with one port, and says whether it was refused.
func probe(ctx context.Context, addr string, out *Endpoints) (refused bool) {
	ctx, cancel := context.WithTimeout(ctx, perPort)
	defer cancel()
	client := newClient()
	defer client.CloseIdleConnections()
	for _, e := range []struct {
		path  string
		is    func(*httpget.Answer) bool
		found *[]string
	}{
		{"/debug/pprof/", isPprof, &out.Pprof},
		{"/metrics", isMetrics, &out.Metrics},
		{"/varz", isVarz, &out.Varz},
	} {
		u := "http://" + addr + e.path
		a, err := httpget.Get(ctx, client, httpget.Request{URL: u, Timeout: perGet, Limit: 256 << 10, Head: true})
		if err != nil && httpget.KindOf(err) != httpget.Status {
			return errors.Is(err, syscall.ECONNREFUSED)
		}
		if err == nil && e.is(a) {
			*e.found = append(*e.found, strings.TrimSuffix(u, "/"))
		}
	}
	return false
}

// newClient connects to a port once and talks only when the server does not.
func newClient() *http.Client {
	c := httpget.NewClient()
	t := c.Transport.(*http.Transport)
	t.MaxConnsPerHost = 1
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		d := net.Dialer{Timeout: perGet}
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		if err := silent(conn); err != nil {
			conn.Close()
			return nil, err
		}
		return conn, nil
	}
	return c
}

// silent returns nil when the server waits for the client to speak.
func silent(conn net.Conn) error {
	if err := conn.SetReadDeadline(time.Now().Add(speakFirst)); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	if err == nil {
		return errSpokeFirst
	}
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		return err
	}
	return conn.SetReadDeadline(time.Time{})
}

// isPprof knows the index page of net/http/pprof.
func isPprof(a *httpget.Answer) bool {
	return bytes.Contains(a.Body, []byte("/debug/pprof/")) && bytes.Contains(a.Body, []byte("goroutine")) && bytes.Contains(a.Body, []byte("profile"))
}

// isMetrics knows Prometheus text, of which only the start may be there.
func isMetrics(a *httpget.Answer) bool {
	if strings.HasPrefix(a.ContentType, "text/html") {
		return false
	}
	for line := range bytes.Lines(a.Body) {
		if bytes.HasPrefix(line, []byte("# TYPE ")) || bytes.HasPrefix(line, []byte("# HELP ")) {
			return true
		}
	}
	return false
}

// isVarz knows nats-server's page.
func isVarz(a *httpget.Answer) bool {
	var page map[string]json.RawMessage
	if json.Unmarshal(a.Body, &page) != nil {
		return false
	}
	_, in := page["in_msgs"]
	_, out := page["out_msgs"]
	return in && out
}

// sortListeners orders by port, then address.
func sortListeners(ls []Listener) {
	slices.SortFunc(ls, func(a, b Listener) int {
		if a.Addr.Port() != b.Addr.Port() {
			return int(a.Addr.Port()) - int(b.Addr.Port())
		}
		return a.Addr.Addr().Compare(b.Addr.Addr())
	})
}
