package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"strconv"
	"time"

	"github.com/felixge/fgprof"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// adminServer serves metrics, profiles and settings over HTTP on loopback.
type adminServer struct {
	url      string
	listener net.Listener
	http     http.Server
	done     chan struct{}
}

func (s *Server) startAdmin(ctx context.Context, addr string) (*adminServer, error) {
	var lc net.ListenConfig
	ln, err := lc.Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("broker: listening for the admin server: %w", err)
	}
	reg := prometheus.NewRegistry()
	reg.MustRegister(collector{s})
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{}))
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.Handle("GET /debug/fgprof", fgprof.Handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /admin/profiling", showProfiling)
	mux.HandleFunc("PUT /admin/profiling", changeProfiling)
	return &adminServer{
		url: "http://" + ln.Addr().String(), listener: ln, done: make(chan struct{}),
		// No write timeout: a CPU profile or a trace takes as long as asked for.
		http: http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute},
	}, nil
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
