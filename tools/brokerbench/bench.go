package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/contention-toolkit/contention/internal/child"
	"github.com/contention-toolkit/contention/tools/brokerbench/drive"
)

const (
	sideBroker = "broker"
	sideNATS   = "nats"
)

// bench is one comparison.
type bench struct {
	Job     drive.Job // what both sides have in common
	Sides   []string
	Pairs   int
	Storage string // memory or disk
	Profile bool

	ServerCPU, LoadCPU int

	Ours struct {
		Contention string   // executable
		Args       []string // further flags
		AckGroup   int
		Sync       string
	}
	NATS struct {
		AckGroup  int
		JetStream drive.JetStream
	}

	Dir string    // for results; "" = none are kept
	Log io.Writer // progress
}

func (b *bench) setDefaults() {
	js := &b.NATS.JetStream
	js.Storage = map[string]string{"memory": "memory", "disk": "file"}[b.Storage]
	if js.Retention == "" {
		// Measured: in memory, dropping what was acknowledged keeps the store
		// small; in files, dropping costs more than keeping.
		js.Retention = map[string]string{"memory": "interest", "disk": "limits"}[b.Storage]
	}
	if js.MaxAckPending == 0 {
		js.MaxAckPending = b.Job.Consumers * b.Job.Window
	}
}

func (b *bench) validate() error {
	if b.Storage != "memory" && b.Storage != "disk" {
		return fmt.Errorf("storage %q is not memory or disk", b.Storage)
	}
	if b.Pairs < 1 {
		return fmt.Errorf("%d pairs: use 1 or more", b.Pairs)
	}
	if len(b.Sides) < 1 || len(b.Sides) > 2 || len(b.Sides) == 2 && b.Sides[0] == b.Sides[1] {
		return fmt.Errorf("sides %v: use %s, %s or both", b.Sides, sideBroker, sideNATS)
	}
	j := b.Job
	for _, side := range b.Sides {
		switch side {
		case sideBroker:
			j.Protocol, j.AckGroup = drive.Pulsar, b.Ours.AckGroup
		case sideNATS:
			j.Protocol, j.AckGroup, j.JetStream = drive.NATS, b.NATS.AckGroup, b.NATS.JetStream
		default:
			return fmt.Errorf("side %q is not %s or %s", side, sideBroker, sideNATS)
		}
		if err := j.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// child is how a child for the given CPU runs.
func (b *bench) child(cpu int) child.Options {
	if b.LoadCPU < 0 {
		return child.Options{}
	}
	return child.Options{CPUs: []int{cpu}}
}

// one is a run's result and its place.
type one struct {
	Pair  int           `json:"pair"` // from 1
	Order int           `json:"order"`
	Side  string        `json:"side"`
	Run   *drive.Result `json:"run"`
}

// run makes all runs: A B, B A, A B, …
func (b *bench) run(ctx context.Context) (*report, error) {
	tmp, err := os.MkdirTemp("", "brokerbench")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	if b.Ours.Contention == "" && slices.Contains(b.Sides, sideBroker) {
		if b.Ours.Contention, err = buildBroker(ctx, tmp); err != nil {
			return nil, err
		}
	}
	rep := &report{Bench: b}
	for pair := range b.Pairs {
		for i := range b.Sides {
			side := b.Sides[i]
			if pair%2 == 1 {
				side = b.Sides[len(b.Sides)-1-i]
			}
			o := one{Pair: pair + 1, Order: len(rep.Runs) + 1, Side: side}
			if o.Run, err = b.single(ctx, side, o.Order, filepath.Join(tmp, fmt.Sprint(o.Order))); err != nil {
				return nil, fmt.Errorf("run %d, %s: %w", o.Order, side, err)
			}
			rep.Runs = append(rep.Runs, o)
			fmt.Fprintln(b.Log, o.line())
		}
	}
	rep.summarise()
	return rep, nil
}

// single makes one run with a server of its own.
func (b *bench) single(ctx context.Context, side string, order int, dir string) (*drive.Result, error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	s, j, err := b.start(side, dir)
	if err != nil {
		return nil, err
	}
	if b.Profile {
		j.ProfileFile = filepath.Join(b.Dir, fmt.Sprintf("%02d-%s.cpu.pb.gz", order, side))
	}
	res, err := runLoad(ctx, j, b.child(b.LoadCPU))
	if err != nil {
		err = fmt.Errorf("%w; the server's log ends: %s", err, tail(s.log))
	}
	return res, errors.Join(err, s.stop())
}
