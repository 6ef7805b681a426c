package broker

import (
	"bytes"
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/felixge/fgprof"
)

// adminServer serves metrics, profiles and settings over HTTP.
type adminServer struct {
	url      string
	listener net.Listener
	http     http.Server
	done     chan struct{}
}

func (s *Server) startAdmin(ctx context.Context, addr string) (*adminServer, error) {
	guard := guard{}
	var err error
	if s.cfg.AdminTokenFile != "" {
		if guard.token, err = readToken(s.cfg.AdminTokenFile); err != nil {
			return nil, fmt.Errorf("broker: admin server: %w", err)
		}
	}
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("broker: listening for the admin server: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", newCollector(s))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.Handle("GET /debug/fgprof", fgprof.Handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /admin/profiling", showProfiling)
	mux.HandleFunc("PUT /admin/profiling", changeProfiling)
	s.handleSettings(mux)
	s.handleTopics(mux)
	guard.next = mux
	return &adminServer{
		url: "http://" + ln.Addr().String(), listener: ln, done: make(chan struct{}),
		// No write timeout: a CPU profile or a trace takes as long as asked for.
		http: http.Server{
			Handler: guard, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, IdleTimeout: time.Minute,
			MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
		},
	}, nil
}

// A token has so many bytes.
const leastToken, mostToken = 16, 4 << 10

func readToken(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("token file: %w", err)
	}
	defer f.Close()
	token, err := io.ReadAll(io.LimitReader(f, mostToken+1))
	if err != nil {
		return nil, fmt.Errorf("token file: %w", err)
	}
	if len(token) > mostToken {
		return nil, fmt.Errorf("token file %s holds more than %d bytes: is it the right file?", path, mostToken)
	}
	if token = bytes.TrimSpace(token); len(token) < leastToken {
		return nil, fmt.Errorf("token file %s holds %d bytes: use a random token of %d or more", path, len(token), leastToken)
	}
	if i := bytes.IndexFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }); i >= 0 {
		return nil, fmt.Errorf("token file %s: byte %d of the token cannot stand in an HTTP header: use letters and digits", path, i)
	}
	return token, nil
}

// guard lets requests through that show the token. Without one only those that
// name a loopback host are let through: a web page that a browser on this
// machine shows can reach loopback under a name of its own.
type guard struct {
	token []byte
	next  http.Handler
}

func (g guard) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if g.token == nil {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		if !loopbackHost(strings.Trim(host, "[]")) {
			http.Error(w, "the Host of the request is not loopback: use 127.0.0.1, or start the broker with an admin token file", http.StatusForbidden)
			return
		}
	} else if given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); !ok || subtle.ConstantTimeCompare([]byte(given), g.token) != 1 {
		w.Header().Set("WWW-Authenticate", "Bearer")
		http.Error(w, "show the admin token: Authorization: Bearer TOKEN", http.StatusUnauthorized)
		return
	}
	g.next.ServeHTTP(w, r)
}

func (a *adminServer) serve() {
	go func() {
		defer close(a.done)
		_ = a.http.Serve(a.listener) // always returns an error; close tells why
	}()
}

func (a *adminServer) close(ctx context.Context) error {
	err := a.http.Shutdown(ctx)
	if err != nil {
		err = errors.Join(fmt.Errorf("admin server: %w", err), a.http.Close())
	}
	<-a.done
	return err
}

func setProfiling(mutexFraction, blockRate int) {
	runtime.SetMutexProfileFraction(mutexFraction)
	blockProfileRate.Store(int64(blockRate))
	runtime.SetBlockProfileRate(blockRate)
}

func showProfiling(w http.ResponseWriter, _ *http.Request) {
	fmt.Fprintf(w, "mutex=%d block=%d\n", runtime.SetMutexProfileFraction(-1), blockProfileRate.Load())
}

// changeProfiling sets what the query names: mutex=N, the fraction 1/N of
// contention events sampled, and block=N, one sample per N ns blocked; 0 = off.
func changeProfiling(w http.ResponseWriter, r *http.Request) {
	mutex, block := runtime.SetMutexProfileFraction(-1), int(blockProfileRate.Load())
	for name, v := range map[string]*int{"mutex": &mutex, "block": &block} {
		text := r.URL.Query().Get(name)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 {
			http.Error(w, fmt.Sprintf("%s=%q: use a whole number, 0 for off", name, text), http.StatusBadRequest)
			return
		}
		*v = n
	}
	setProfiling(mutex, block)
	showProfiling(w, r)
}
