package main

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/analysis/result"
	"github.com/contention-toolkit/contention/internal/testutil"
	"github.com/contention-toolkit/contention/probes/thread"
	"github.com/contention-toolkit/contention/profile"
)

// contention runs a command in process.
func contention(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(""), &out, &err)
	return code, out.String(), err.String()
}

const offer = "github.com/contention-toolkit/contention/broker/executor.(*Queue).Offer"

// recording writes a recording of the reference broker in which messages took
// lockNs each on the queue's lock.
func recording(t *testing.T, lockNs int64) string {
	t.Helper()
	const messages = 1000
	start := time.Unix(1700000000, 0)
	p := profile.New(profile.Blocked, profile.Runnable, profile.Samples)
	p.Start, p.Duration = start, 2*time.Second
	b := profile.NewSliceBuilder(profile.SliceWidth)
	add := func(reason string, ns, samples int64, functions ...string) {
		var frames []profile.Frame
		for _, f := range functions {
			frames = append(frames, profile.Frame{Function: f, File: "x.go", Line: 7, Module: "/bin/contention"})
		}
		i := p.Add(p.InternFrames(frames), p.InternLabels(profile.Label{Key: profile.LabelReason, Value: reason}), ns, 0, samples)
		b.Add(time.Second, i, ns, 0, samples) // all in the second slice
	}
	add("sync.Mutex.Lock", lockNs*messages, 500, "sync.(*Mutex).Lock", offer, "main.main")
	add("IO wait", int64(time.Second), 100, "internal/poll.(*FD).Read", "github.com/contention-toolkit/contention/broker.(*conn).readLoop")
	dir := filepath.Join(t.TempDir(), "rec")
	w, err := profile.Create(dir, profile.Meta{
		Targets: []profile.Target{{PID: 1, Module: "github.com/contention-toolkit/contention", Arguments: []string{"contention", "broker", "\x1b[31mred"}}},
		Work:    []profile.WorkCounter{{Role: profile.WorkPublished, End: messages, StartTime: start, EndTime: start.Add(2 * time.Second)}},
	})
	if err == nil {
		err = w.Capture(&profile.Capture{
			Source: profile.SourceGoroutines, Profile: p, Slices: b.Slices(), Start: start, End: start.Add(2 * time.Second),
			Loss: map[string]int64{"racy": 3}, Accounting: &profile.Accounting{TotalNs: 10, BlockedNs: 10},
		})
	}
	if err == nil {
		err = w.Finish(func(*profile.Meta) {})
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestTop(t *testing.T) {
	dir := recording(t, 250)
	for format, wants := range map[string][]string{
		"text":     {"executor queue offer", "executor.(*Queue).Offer:7", "250 ns", "100.0 %", "idle left out", "racy 3", "blocked 100.00 %"},
		"markdown": {"| executor queue offer |"},
		"csv":      {"goroutines,executor queue offer," + offer},
		"json":     {`"ns_per_msg": 250`},
	} {
		code, out, stderr := contention(t, "top", dir, "--format", format)
		if code != 0 {
			t.Fatalf("%s ends with %d: %s", format, code, stderr)
		}
		for _, want := range wants {
			if !strings.Contains(out, want) {
				t.Errorf("--format %s prints no %q:\n%s", format, want, out)
			}
		}
		if strings.Contains(out, "readLoop") {
			t.Errorf("--format %s shows an idle wait:\n%s", format, out)
		}
		if strings.Contains(out, "\x1b[31m") {
			t.Errorf("--format %s lets a target's argument reach the terminal", format)
		}
	}
	if _, out, _ := contention(t, "top", dir, "--idle"); !strings.Contains(out, "readLoop") {
		t.Error("--idle shows no idle wait")
	}
	// Everything was recorded in the second slice.
	if _, out, _ := contention(t, "top", dir, "--to", "1s"); strings.Contains(out, "executor queue offer") {
		t.Errorf("--to 1s shows what came later:\n%s", out)
	}
	if _, out, _ := contention(t, "top", dir, "--from", "1s"); !strings.Contains(out, "500 ns") {
		t.Errorf("--from 1s: half the messages and all of the time make 500 ns:\n%s", out)
	}
}

func TestFlame(t *testing.T) {
	before, after := recording(t, 250), recording(t, 50)
	dir := t.TempDir()
	svg := func(args ...string) string {
		t.Helper()
		path := filepath.Join(dir, "x.svg")
		code, _, stderr := contention(t, append(append([]string{"flame"}, args...), "-o", path)...)
		if code != 0 {
			t.Fatalf("flame %v ends with %d: %s", args, code, stderr)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for d := xml.NewDecoder(bytes.NewReader(data)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("flame %v: %v", args, err)
			}
		}
		return string(data)
	}
	one := svg(before)
	for _, want := range []string{"250 ns", "message", "idle left out: 1.00 ms"} {
		if !strings.Contains(one, want) {
			t.Errorf("the picture of one recording does not say %q", want)
		}
	}
	if two := svg(before, after); !strings.Contains(two, "50.0 ns") || !strings.Contains(two, "−80") {
		t.Error("the differential picture does not say 250 to 50 ns, −80 %")
	}
	if all := svg(before, "--idle"); !strings.Contains(all, "readLoop") {
		t.Error("--idle draws no idle wait")
	}
	svg(before, "--unit", "share")
	folded := filepath.Join(dir, "x.folded")
	if code, _, stderr := contention(t, "flame", before, "-o", folded); code != 0 {
		t.Fatalf("folded ends with %d: %s", code, stderr)
	}
	if data, _ := os.ReadFile(folded); string(data) != "main.main;"+offer+";sync.(*Mutex).Lock 250000\n" {
		t.Errorf("folded is %q", data)
	}
	pb := filepath.Join(dir, "x.pb.gz")
	if code, _, stderr := contention(t, "flame", before, "-o", pb); code != 0 {
		t.Fatalf("pprof ends with %d: %s", code, stderr)
	}
	f, err := os.Open(pb)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if p, err := profile.Read(f); err != nil || len(p.Samples) != 1 {
		t.Errorf("pprof output: %v, %d samples, want the lock wait only", err, len(p.Samples))
	}
}

func TestExitStatus(t *testing.T) {
	rec := recording(t, 1)
	empty := t.TempDir()
	for _, tc := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"top"}, exitUsage, "accepts 1 arg"},
		{[]string{"top", rec, "--nonsense"}, exitUsage, "nonsense"},
		{[]string{"top", rec, "--format", "xml"}, exitUsage, "xml"},
		{[]string{"top", empty}, exitFailed, "meta.json"},
		{[]string{"top", rec, "--source", "threads"}, exitFailed, "threads"},
		{[]string{"top", rec, "--from", "9s"}, exitUsage, "outside"},
		{[]string{"flame", rec, rec, "-o", filepath.Join(empty, "x.folded")}, exitUsage, "one side"},
		{[]string{"flame", rec, "-o", filepath.Join(empty, "x.png")}, exitUsage, "ending"},
		{[]string{"flame", rec, "--unit", "furlongs"}, exitUsage, "furlongs"},
		{[]string{"flame", rec, "--plane", "thread"}, exitFailed, "has goroutines"},
		{[]string{"record"}, exitUsage, "name one target"},
		{[]string{"record", "--pid", "1", "--name", "x"}, exitUsage, "2 are given"},
		{[]string{"record", "--pid", "999999999", "-o", filepath.Join(empty, "r")}, exitFailed, "no such process"},
		{[]string{"record", "--pid", "1", "--source", "stars"}, exitUsage, "stars"},
		{[]string{"record", "--pid", "1", "--work", "nonsense"}, exitUsage, "nonsense"},
		{[]string{"broker", "--handoff", "magic"}, exitUsage, "magic"},
		{[]string{"broker", "--handoff-max-batch-items", "-1"}, exitUsage, "-1"},
		{[]string{"load", "no-such-scenario"}, exitUsage, "iot-telemetry-max-rate"},
		{[]string{"ab", "no-such-experiment"}, exitUsage, "handoff"},
		{[]string{"ab", "handoff", "--broker-cpus", "x"}, exitUsage, "not a CPU number"},
		{[]string{"nonsense"}, exitUsage, "nonsense"},
	} {
		code, _, stderr := contention(t, tc.args...)
		if code != tc.code || !strings.Contains(stderr, tc.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%v: status %d, stderr %q; want %d and one line with %q", tc.args, code, stderr, tc.code, tc.want)
		}
	}
}

func TestParseCPUs(t *testing.T) {
	for text, want := range map[string]string{"": "[]", "0": "[0]", "0,2-4": "[0 2 3 4]", "3-3": "[3]"} {
		if got, err := parseCPUs(text); err != nil || fmt.Sprint(got) != want {
			t.Errorf("%q is %v, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"x", "4-2", "0,", "-1", "99999999"} {
		if got, err := parseCPUs(text); err == nil {
			t.Errorf("%q was accepted as %v", text, got)
		}
	}
}

// Every command has an example, and its flags and arguments are such as the
// command takes.
func TestExamplesAreTrue(t *testing.T) {
	root := newRoot()
	for _, cmd := range append(root.Commands(), root) {
		if cmd.Hidden || cmd.Name() == "help" || cmd.Name() == "completion" {
			continue
		}
		if cmd.Example == "" {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		for _, line := range strings.Split(cmd.Example, "\n") {
			args := strings.Fields(line)
			if len(args) < 2 || args[0] != "contention" {
				t.Errorf("%s: example %q is no command", cmd.CommandPath(), line)
				continue
			}
			c, rest, err := newRoot().Find(args[1:])
			if err == nil {
				err = c.ParseFlags(rest)
			}
			if err == nil && c.Args != nil {
				err = c.Args(c, c.Flags().Args())
			}
			if err != nil {
				t.Errorf("%s: example %q: %v", cmd.CommandPath(), line, err)
			}
		}
	}
}

// A small experiment, whole: both sides, profiled and not, with its report.
func TestAB(t *testing.T) {
	testutil.RequireBPF(t, thread.Available())
	dir := t.TempDir()
	spec := filepath.Join(dir, "small.yaml")
	if err := os.WriteFile(spec, []byte(`
name: small
title: A small one
question: Does the whole path work?
primary-operation: executor queue offer
scenario: iot-telemetry-max-rate
before: {name: direct, broker: {handoff: direct}}
after: {name: batched, broker: {handoff: batched}}
runs: {unprofiled: 1, profiled: 1, reconciliation: 1, warmup-messages: 20000, duration: 3s}
quick: {unprofiled: 1, profiled: 1, duration: 1s}
timeout: 1m
`), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	code, stdout, stderr := contention(t, "ab", spec, "-o", out)
	if code != 0 {
		t.Fatalf("ab ends with %d:\n%s\n%s", code, stderr, stdout)
	}
	for _, name := range []string{"report.html", "report.md", "result.json", "bench.txt", "before.svg", "after.svg", "diff.svg", "runs/01-before/load.json", "runs/03-before/recording/meta.json"} {
		if info, err := os.Stat(filepath.Join(out, name)); err != nil || info.Size() == 0 {
			t.Errorf("%s: %v", name, err)
		}
	}
	data, err := os.ReadFile(filepath.Join(out, "result.json"))
	if err != nil {
		t.Fatal(err)
	}
	var r result.Result
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatal(err)
	}
	if len(r.Runs) != 6 || r.Delivery.Lost+r.Delivery.Duplicates+r.Delivery.Disorder+r.Delivery.Invalid != 0 || r.Delivery.Received == 0 {
		t.Errorf("%d runs, delivery %+v", len(r.Runs), r.Delivery)
	}
	if len(r.Waits) == 0 || r.Waits[0].Operation != "executor queue offer" || r.Waits[0].After.ThreadsLost > 0.5 {
		t.Errorf("the first wait is %+v", r.Waits)
	}
	for _, side := range []string{result.Before, result.After} {
		for _, source := range []string{"goroutines", "threads"} {
			a := r.Accounting[side][source]
			if a.GoroutineSeconds <= 0 || a.Residual < -0.05*a.GoroutineSeconds || a.Residual > 0.05*a.GoroutineSeconds {
				t.Errorf("accounting of %s, %s: %+v", side, source, a)
			}
		}
	}
	if len(r.Reconciliation) < 2 || r.Reconciliation[0].Block == nil || r.Reconciliation[0].Sampler == nil {
		t.Errorf("reconciliation: %+v", r.Reconciliation)
	}
	if code, _, stderr := contention(t, "ab", spec, "-o", out); code != exitFailed || !strings.Contains(stderr, "holds runs already") {
		t.Errorf("a second experiment into the same directory: %d, %s", code, stderr)
	}
}

// A side whose broker does not start makes the experiment invalid, and the
// report says why.
func TestABInvalid(t *testing.T) {
	dir := t.TempDir()
	spec := filepath.Join(dir, "bad.yaml")
	if err := os.WriteFile(spec, []byte(`
name: bad
scenario: iot-telemetry-max-rate
before: {name: none, broker: {handoff: none-such}}
after: {name: nothing, broker: {handoff: nothing-such}}
runs: {unprofiled: 1, duration: 1s}
quick: {unprofiled: 1, duration: 1s}
timeout: 20s
`), 0o600); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	code, _, stderr := contention(t, "ab", spec, "-o", out)
	if code != exitInvalid || !strings.Contains(stderr, "none-such") {
		t.Errorf("status %d, stderr %s", code, stderr)
	}
	data, err := os.ReadFile(filepath.Join(out, "report.md"))
	if err != nil || !strings.Contains(string(data), "none-such") {
		t.Errorf("the report does not say why: %v", err)
	}
}

// A target that ends early leaves a recording, and a status that says so.
func TestRecordTargetEnds(t *testing.T) {
	exe, remove, err := selfWithSymbols(t.Context(), t.Output())
	if err != nil {
		t.Fatal(err)
	}
	defer remove()
	dir := filepath.Join(t.TempDir(), "rec")
	code, _, stderr := contention(t, "record", "--duration", "30s", "-o", dir, "--source", "goroutines", "--",
		exe, "load", "iot-telemetry-max-rate", "--broker", silent(t))
	if code != exitInvalid || !strings.Contains(stderr, "the target ended") {
		t.Fatalf("status %d, stderr %s", code, stderr)
	}
	rec, err := profile.Open(dir)
	if err != nil || !rec.Meta.Incomplete || rec.Profiles[profile.SourceGoroutines] == nil {
		t.Errorf("what was recorded: %v, %+v", err, rec)
	}
}

// silent is an address that accepts connections, says nothing, and closes them
// after a while: a load that dials it fails then.
func silent(t *testing.T) string {
	t.Helper()
	l := listen(t)
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		time.Sleep(time.Second) // the time that the recording has, not a synchronisation
		c.Close()
		l.Close()
	}()
	return fmt.Sprint(l.Addr())
}
