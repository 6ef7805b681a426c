package experiment

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

const childEnv = "CONTENTION_TEST_CHILD"

// TestMain lets the test binary play the children that the experiment starts.
func TestMain(m *testing.M) {
	switch os.Getenv(childEnv) {
	case "":
		goleak.VerifyTestMain(m)
	case "serve":
		fmt.Println(`{"broker":"pulsar://127.0.0.1:1","admin":"http://127.0.0.1:2","pid":3}`)
		wait(os.Interrupt, syscall.SIGTERM)
	case "fail":
		fmt.Fprintln(os.Stderr, "listen: address already in use")
		os.Exit(1)
	case "silent":
		wait(syscall.SIGTERM)
	case "stubborn":
		signal.Ignore(syscall.SIGTERM)
		fmt.Println(`{"broker":"x"}`)
		wait(os.Interrupt)
	case "parent":
		parent()
	case "load":
		fmt.Println(`{"phase":"warm"}`)
		fmt.Println(`not json`)
		line, _ := bufio.NewReader(os.Stdin).ReadString('\n')
		if line == "start\n" {
			fmt.Println(`{"phase":"measuring","unix_ns":7}`)
		}
	}
}

func wait(signals ...os.Signal) {
	c := make(chan os.Signal, 1)
	signal.Notify(c, signals...)
	<-c
}

// parent starts a child, says who it is, and waits to be killed.
func parent() {
	os.Setenv(childEnv, "silent")
	p, err := startProcess(processSpec{name: "child", argv: []string{os.Args[0]}, logPath: filepath.Join(os.TempDir(), fmt.Sprintf("contention-test-%d.log", os.Getpid()))})
	if err != nil {
		fmt.Println(err)
		return
	}
	os.Remove(p.log.Name())
	fmt.Println(p.pid())
	select {}
}

func child(t *testing.T, kind string) []string {
	t.Helper()
	t.Setenv(childEnv, kind)
	return []string{os.Args[0]}
}

func TestStartBroker(t *testing.T) {
	b, err := startBroker(t.Context(), child(t, "serve"), t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if b.ready != (Ready{"pulsar://127.0.0.1:1", "http://127.0.0.1:2", 3}) || !b.alive() {
		t.Errorf("ready is %+v, alive %v", b.ready, b.alive())
	}
	b.end(10 * time.Second)
	if b.alive() {
		t.Error("it lives on after end")
	}
	b.end(0) // again is harmless
}

func TestStartBrokerSaysWhy(t *testing.T) {
	_, err := startBroker(t.Context(), child(t, "fail"), t.TempDir(), nil)
	if err == nil || !strings.Contains(err.Error(), "address already in use") || !strings.Contains(err.Error(), "broker.log") {
		t.Errorf("error is %v, want the log's last line and its name", err)
	}
	if _, err := startBroker(t.Context(), []string{"/no/such/file"}, t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "/no/such/file") {
		t.Errorf("a missing executable: %v", err)
	}
}

func TestStartBrokerGivesUp(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := startBroker(ctx, child(t, "silent"), t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "does not serve") {
		t.Errorf("error is %v", err)
	}
}

func TestEndKillsTheStubborn(t *testing.T) {
	b, err := startBroker(t.Context(), child(t, "stubborn"), t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	b.end(50 * time.Millisecond)
	if b.alive() {
		t.Error("it lives on")
	}
}

func TestLoadEvents(t *testing.T) {
	l, err := startLoad(child(t, "load"), t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer l.end(time.Second)
	if _, err := l.await(t.Context(), "warm"); err != nil {
		t.Fatal(err)
	}
	if err := l.begin(); err != nil {
		t.Fatal(err)
	}
	if e, err := l.await(t.Context(), "measuring"); err != nil || e.UnixNs != 7 {
		t.Errorf("event %+v, error %v", e, err)
	}
	if _, err := l.await(t.Context(), "measured"); err == nil || !strings.Contains(err.Error(), "ended before it was measured") {
		t.Errorf("a load that ended early: %v", err)
	}
	if _, err := l.result(); err == nil {
		t.Error("a load without a result has one")
	}
}

// Children die with the process that started them, even when it is killed.
func TestChildrenDieWithTheirParent(t *testing.T) {
	p, err := startProcess(processSpec{name: "parent", argv: child(t, "parent"), logPath: filepath.Join(t.TempDir(), "log")})
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(p.stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatalf("the parent says %q", line)
	}
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	p.end(time.Second)
	deadline := time.Now().Add(10 * time.Second)
	for !gone(pid) {
		if time.Now().After(deadline) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			t.Fatalf("process %d outlives its killed parent", pid)
		}
		time.Sleep(5 * time.Millisecond) // polling: nobody can wait for another's child
	}
}

// gone says whether a process has ended, reaped or not.
func gone(pid int) bool {
	f, err := os.Open(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	defer f.Close()
	data, err := io.ReadAll(f)
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(data), ") ")
	return strings.HasPrefix(rest, "Z") || strings.HasPrefix(rest, "X")
}
