package natstest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/internal/child"
)

// Options says how the server runs. The zero value is a server with JetStream
// whose block profile is off.
type Options struct {
	// BlockRate is the server's prof_block_rate: the block profile samples one
	// event per so many nanoseconds of blocking; 1 counts all, 0 is off. The
	// server never turns its mutex profile on.
	BlockRate int
	// Env is added to the server's environment, such as GOMAXPROCS=2.
	Env []string
	// Ready bounds the start; 0 means 30 s.
	Ready time.Duration
	// CPUs pins the server; nil leaves it everywhere. Linux only.
	CPUs []int
	// MaxBuffered is how many messages of one stream may wait in the server to
	// be stored; 0 means the server's default.
	MaxBuffered int
}

// Server is a running nats-server.
type Server struct {
	PID      int
	Addr     string // of clients: host:port
	PprofURL string // base of its net/http/pprof
	VarzURL  string // its general counters; /jsz is beside it
	Exe      string // its executable
	Log      string // the path of its log

	process *child.Child
}

// Start builds the server, runs it and waits until it serves all its ports.
// The test's cleanup stops it.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := Launch(Build(t), t.TempDir(), o)
	if err != nil {
		t.Fatalf("start nats-server: %v", err)
	}
	t.Cleanup(func() {
		s.Stop(t)
		if t.Failed() {
			log, _ := os.ReadFile(s.Log)
			t.Logf("nats-server's log ends:\n%s", log[max(0, len(log)-2000):])
		}
	})
	return s
}

// Launch runs the executable that [Executable] returned and waits until it
// serves all its ports. It keeps its configuration, log and streams in dir.
// The caller ends it with [Server.Close].
func Launch(exe, dir string, o Options) (*Server, error) {
	conf := filepath.Join(dir, "server.conf")
	buffered := ""
	if o.MaxBuffered > 0 {
		buffered = fmt.Sprintf(", max_buffered_msgs: %d", o.MaxBuffered)
	}
	text := fmt.Sprintf("listen: \"127.0.0.1:-1\"\nhttp: \"127.0.0.1:-1\"\nprof_port: -1\nprof_block_rate: %d\nports_file_dir: %q\nlog_file: %q\njetstream { store_dir: %q%s }\n",
		o.BlockRate, dir, filepath.Join(dir, "server.log"), filepath.Join(dir, "store"), buffered)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, "-c", conf)
	cmd.Env = append(os.Environ(), o.Env...)
	p, err := child.Start(cmd, child.Options{CPUs: o.CPUs})
	if err != nil {
		return nil, err
	}
	s := &Server{PID: p.PID, Exe: exe, Log: filepath.Join(dir, "server.log"), process: p}
	if o.Ready <= 0 {
		o.Ready = 30 * time.Second
	}
	file := filepath.Join(dir, fmt.Sprintf("%s_%d.ports", filepath.Base(exe), s.PID))
	if err := s.awaitPorts(file, time.Now().Add(o.Ready)); err != nil {
		_ = s.Close() // err says more
		return nil, err
	}
	return s, nil
}

// awaitPorts waits for the file in which the server tells its ports, which it
// writes when it listens on all of them, and then for an answer.
func (s *Server) awaitPorts(file string, deadline time.Time) error {
	var ports struct{ Nats, Monitoring, Profile []string }
	var err error
	for {
		var text []byte
		if text, err = os.ReadFile(file); err == nil {
			err = json.Unmarshal(text, &ports)
		}
		if err == nil && len(ports.Nats) == 1 && len(ports.Monitoring) == 1 && len(ports.Profile) == 1 {
			s.Addr = strings.TrimPrefix(ports.Nats[0], "nats://")
			s.PprofURL, s.VarzURL = ports.Profile[0]+"/debug/pprof", ports.Monitoring[0]+"/varz"
			if err = answers(s.VarzURL); err == nil {
				return nil
			}
		}
		select {
		case <-s.Exited():
			return fmt.Errorf("nats-server ended while starting: %w", s.process.Err())
		default:
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("nats-server is not ready in time: %s: %w", file, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func answers(url string) error {
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 5 * time.Second}
	resp, err := c.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	return nil
}

// Exited is closed when the process is gone.
func (s *Server) Exited() <-chan struct{} { return s.process.Exited() }

// Close ends the server: gently, and after five seconds by force, which is an
// error. Further calls return the same.
func (s *Server) Close() error { return s.process.Stop(5 * time.Second) }

// Stop is Close for a test.
func (s *Server) Stop(t testing.TB) {
	if err := s.Close(); err != nil {
		t.Errorf("stop nats-server: %v", err)
	}
}
