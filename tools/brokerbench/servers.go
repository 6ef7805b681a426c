package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/contention-toolkit/contention/internal/child"
	"github.com/contention-toolkit/contention/internal/natstest"
	"github.com/contention-toolkit/contention/tools/brokerbench/drive"
)

// server is a running broker.
type server struct {
	addr       string
	pid        int
	heapURL    string
	profileURL string
	stateURL   string
	log        string // file
	stop       func() error
}

// oneCPU is what a Go program on one CPU sets by itself; it is set for both so
// that nothing depends on it.
var oneCPU = []string{"GOMAXPROCS=1"}

// buildBroker builds the reference broker of this checkout.
func buildBroker(ctx context.Context, dir string) (string, error) {
	path := filepath.Join(dir, "contention")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "github.com/contention-toolkit/contention/cmd/contention")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the broker: %w: %s", err, out)
	}
	return path, nil
}

// startBroker runs the reference broker, with its data in dir.
func (b *bench) startBroker(dir string) (*server, error) {
	args := []string{"broker", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--ready-json"}
	if b.Storage == "disk" {
		args = append(args, "--storage", "disk", "--data-dir", filepath.Join(dir, "data"), "--sync", b.Ours.Sync)
	}
	cmd := exec.Command(b.Ours.Contention, append(args, b.Ours.Args...)...)
	s := &server{log: filepath.Join(dir, "broker.log")}
	log, err := os.Create(s.log)
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has it
	cmd.Stderr = log
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	cmd.Stdout = w
	if b.LoadCPU >= 0 {
		cmd.Env = append(os.Environ(), oneCPU...)
	}
	p, err := child.Start(cmd, b.child(b.ServerCPU))
	w.Close() // the child has it
	if err != nil {
		r.Close()
		return nil, err
	}
	s.pid = p.PID
	s.stop = func() error {
		defer r.Close()
		return p.Stop(20 * time.Second)
	}
	var ready struct{ Broker, Admin string }
	_ = r.SetReadDeadline(time.Now().Add(30 * time.Second)) // pipes have deadlines
	line, err := bufio.NewReader(r).ReadBytes('\n')
	if err == nil {
		err = json.Unmarshal(line, &ready)
	}
	if err != nil {
		_ = s.stop() // err says more
		return nil, fmt.Errorf("the broker does not say where it serves: %w: %s", err, tail(s.log))
	}
	s.addr = strings.TrimPrefix(ready.Broker, "pulsar://")
	s.heapURL, s.profileURL, s.stateURL = ready.Admin+"/debug/pprof/heap", ready.Admin+"/debug/pprof/profile", ready.Admin+"/metrics"
	return s, nil
}

// startNATS runs nats-server with JetStream, with its data in dir.
func (b *bench) startNATS(dir string) (*server, error) {
	exe, err := natstest.Executable()
	if err != nil {
		return nil, err
	}
	o := natstest.Options{CPUs: b.child(b.ServerCPU).CPUs, MaxBuffered: max(b.Job.Connections*b.Job.InFlight*2, 100_000)}
	if b.LoadCPU >= 0 {
		o.Env = oneCPU
	}
	s, err := natstest.Launch(exe, dir, o)
	if err != nil {
		return nil, err
	}
	return &server{
		addr: s.Addr, pid: s.PID, heapURL: s.PprofURL + "/heap", profileURL: s.PprofURL + "/profile", log: s.Log, stop: s.Close,
	}, nil
}

// start runs a side's server and returns the job for its load.
func (b *bench) start(side, dir string) (*server, drive.Job, error) {
	j := b.Job
	var s *server
	var err error
	if side == sideNATS {
		j.Protocol, j.AckGroup, j.JetStream = drive.NATS, b.NATS.AckGroup, b.NATS.JetStream
		s, err = b.startNATS(dir)
	} else {
		j.Protocol, j.AckGroup = drive.Pulsar, b.Ours.AckGroup
		s, err = b.startBroker(dir)
	}
	if err != nil {
		return nil, j, err
	}
	j.Addr, j.ServerPID, j.HeapURL, j.StateURL = s.addr, s.pid, s.heapURL, s.stateURL
	if b.Profile {
		j.ProfileURL = s.profileURL
	}
	return s, j, nil
}

func tail(file string) string {
	text, _ := os.ReadFile(file)
	return strings.TrimSpace(string(text[max(0, len(text)-2000):]))
}
