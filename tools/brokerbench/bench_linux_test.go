package main

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// TestMain lets the test's executable be the load, as the command's is.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == loadCommand {
		if err := serveLoad(context.Background(), os.Stdin, os.Stdout); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// TestSmoke: one short pair, with every check, in every storage; pulled and
// pushed.
func TestSmoke(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	exe, err := buildBroker(ctx, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, more := range [][]string{
		{"-storage", "memory"},
		{"-storage", "disk", "-nats-pull=false"},
	} {
		t.Run(strings.Join(more, " "), func(t *testing.T) {
			dir := t.TempDir()
			args := append([]string{
				"-contention", exe, "-pairs", "1", "-connections", "20", "-in-flight", "20", "-consumers", "4", "-window", "100",
				"-backlog", "2000", "-warmup", "300ms", "-duration", "500ms", "-o", dir,
				"-apart", "10", // so short a window on a busy machine need not be steady
			}, more...)
			if runtime.NumCPU() < 2 {
				args = append(args, "-load-cpu", "-1")
			}
			if err := command(ctx, args); err != nil {
				t.Fatal(err)
			}
			data, err := os.ReadFile(filepath.Join(dir, "result.json"))
			if err != nil {
				t.Fatal(err)
			}
			var got report
			if err := json.Unmarshal(data, &got); err != nil {
				t.Fatal(err)
			}
			if len(got.Runs) != 2 || got.Ratios["messages_per_server_cpu_second"] == nil {
				t.Fatalf("%d runs with ratios %v, want two and one of messages per CPU-second", len(got.Runs), got.Ratios)
			}
			for _, o := range got.Runs {
				r := o.Run
				if r.Complete == 0 || r.ServerCPUSeconds == 0 || r.AllocsPerMsg == 0 || r.PublishMs.Count == 0 || r.EndToEndMs.Count == 0 {
					t.Errorf("%s: a figure is missing: %+v", o.Side, *r)
				}
			}
			if md, err := os.ReadFile(filepath.Join(dir, "result.md")); err != nil || !strings.Contains(string(md), "broker / nats") {
				t.Errorf("the table: %q, %v", md, err)
			}
		})
	}
}

func TestRefusals(t *testing.T) {
	for args, want := range map[string]string{
		"-storage tape":                       "tape",
		"-sides broker,broker":                "broker",
		"-sides broker,other":                 "other",
		"-pairs 0":                            "0 pairs",
		"-backlog 10":                         "backlog",
		"-size 1":                             "bytes",
		"-profile":                            "-o",
		"-nats-retention limits -nats-keep 1": "keeps 1",
		"-apart 0":                            "apart",
		"surplus":                             "surplus",
	} {
		if _, err := parse(strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", args, err, want)
		}
	}
}
