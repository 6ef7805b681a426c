package natstest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
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
}

// Server is a running nats-server. The test's cleanup stops it.
type Server struct {
	PID      int
	Addr     string // of clients: host:port
	PprofURL string // base of its net/http/pprof
	VarzURL  string // its general counters; /jsz is beside it
	Exe      string // its executable
	Log      string // the path of its log

	cmd      *exec.Cmd
	exited   chan struct{} // closed when the process is gone
	exit     error         // why, once exited is closed
	stopOnce sync.Once
}

// Start builds the server, runs it and waits until it serves all its ports.
func Start(t testing.TB, o Options) *Server {
	t.Helper()
	exe := Build(t)
	dir := t.TempDir()
	conf := filepath.Join(dir, "server.conf")
	text := fmt.Sprintf("listen: \"127.0.0.1:-1\"\nhttp: \"127.0.0.1:-1\"\nprof_port: -1\nprof_block_rate: %d\nports_file_dir: %q\nlog_file: %q\njetstream { store_dir: %q }\n",
		o.BlockRate, dir, filepath.Join(dir, "server.log"), filepath.Join(dir, "store"))
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &Server{Exe: exe, Log: filepath.Join(dir, "server.log"), exited: make(chan struct{})}
	s.cmd = exec.Command(exe, "-c", conf)
	s.cmd.Env = append(os.Environ(), o.Env...)
	s.cmd.SysProcAttr = dieWithParent()
	if err := s.run(); err != nil {
		t.Fatalf("start nats-server: %v", err)
	}
	t.Cleanup(func() {
		s.Stop(t)
		if t.Failed() {
			log, _ := os.ReadFile(s.Log)
			t.Logf("nats-server's log ends:\n%s", log[max(0, len(log)-2000):])
		}
	})
	if o.Ready <= 0 {
		o.Ready = 30 * time.Second
	}
	s.awaitPorts(t, filepath.Join(dir, fmt.Sprintf("%s_%d.ports", filepath.Base(exe), s.PID)), time.Now().Add(o.Ready))
	return s
}

// run starts the process from a thread that lives as long as it does: a death
// signal is sent when the thread that forked is gone, not the process.
func (s *Server) run() error {
	started := make(chan error)
	go func() {
		lockThread()
		err := s.cmd.Start()
		if err == nil {
			s.PID = s.cmd.Process.Pid
		}
		started <- err
		if err == nil {
			s.exit = s.cmd.Wait()
		}
		close(s.exited)
	}()
	return <-started
}

// awaitPorts waits for the file in which the server tells its ports, which it
// writes when it listens on all of them, and then for an answer.
func (s *Server) awaitPorts(t testing.TB, file string, deadline time.Time) {
	t.Helper()
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
				return
			}
		}
		select {
		case <-s.exited:
			t.Fatalf("nats-server ended while starting: %v", s.exit)
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("nats-server is not ready in time: %s: %v", file, err)
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
func (s *Server) Exited() <-chan struct{} { return s.exited }

// Stop ends the server: gently, and after five seconds by force. Further calls
// do nothing.
func (s *Server) Stop(t testing.TB) {
	s.stopOnce.Do(func() {
		// An error means that it is gone already.
		_ = s.cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-s.exited:
		case <-time.After(5 * time.Second):
			t.Errorf("nats-server (PID %d) did not end within 5s of SIGTERM; killed", s.PID)
			_ = s.cmd.Process.Kill()
			<-s.exited
		}
	})
}
