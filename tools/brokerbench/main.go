// Command brokerbench compares the reference broker with nats-server: the same
// scenario through both, one CPU for the server and one for the load, and counts
// messages per second of the server's CPU.
//
//	go run ./tools/brokerbench -pairs 6 -o DIR
//	go run ./tools/brokerbench -storage disk -pairs 6
//	go run ./tools/brokerbench -pairs 1 -profile -o DIR
//
// A message counts when the whole job was done for it: published, acknowledged
// to its publisher, delivered to one member of a group of consumers, and
// acknowledged by it. Runs alternate, A B B A A B …, each with a server of its
// own; the ratio comes from the pairs, with a t interval on its logarithm. Every
// run is checked: nothing lost, nothing twice, and the server says that nothing
// is left over. One that fails its checks makes the command fail.
//
// The broker's group is a Key_Shared subscription, whose keys stay in order; a
// queue group of nats-server promises no order. Everything else is the same, see
// package drive. -o keeps result.json, result.md and, with -profile, the
// servers' CPU profiles.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if len(os.Args) > 1 && os.Args[1] == loadCommand {
		if err := serveLoad(ctx, os.Stdin, os.Stdout); err != nil {
			fmt.Fprintf(os.Stderr, "brokerbench load: %v\n", err)
			os.Exit(1)
		}
		return
	}
	err := command(ctx, os.Args[1:])
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintf(os.Stderr, "brokerbench: %v\n", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	bench
	out string
}

func parse(args []string) (*options, error) {
	o := options{}
	b := &o.bench
	fs := flag.NewFlagSet("brokerbench", flag.ContinueOnError)
	sides, brokerArgs := "", ""
	fs.StringVar(&sides, "sides", "broker,nats", "what to run, alternating; one side alone gives no ratio")
	fs.IntVar(&b.Pairs, "pairs", 6, "runs of each side; an interval needs 2, a good one 6")
	fs.StringVar(&b.Storage, "storage", "memory", "memory or disk, of both")
	fs.DurationVar(&b.Job.Measure, "duration", 10*time.Second, "the measured window of a run")
	fs.DurationVar(&b.Job.Warm, "warmup", 6*time.Second, "time under load before the window")
	fs.Float64Var(&b.Job.Apart, "apart", 0.05, "how far apart publishes and deliveries of a window may be, as a share")
	fs.DurationVar(&b.Job.Timeout, "timeout", 30*time.Second, "how long a server may take to connect all, and to make no progress")
	fs.IntVar(&b.Job.Connections, "connections", 500, "publishing connections")
	fs.IntVar(&b.Job.InFlight, "in-flight", 200, "messages of one connection without a receipt")
	fs.IntVar(&b.Job.Size, "size", 128, "payload in bytes")
	fs.IntVar(&b.Job.Consumers, "consumers", 20, "members of the group")
	fs.IntVar(&b.Job.Window, "window", 1000, "permits of a member, or twice the batch of a pull")
	fs.IntVar(&b.Job.Backlog, "backlog", 200_000, "messages sent and not delivered, at most")
	fs.IntVar(&b.Ours.AckGroup, "ack-group", 1000, "acknowledgements that a member of the broker's group collects, for 100 ms at most; clients of Pulsar do 1000")
	fs.StringVar(&b.Ours.Contention, "contention", "", "executable of the reference broker (default: built from this checkout)")
	fs.StringVar(&brokerArgs, "broker-args", "", "further flags of the broker, separated by spaces")
	fs.StringVar(&b.Ours.Sync, "sync", "interval", "when the broker's disk storage syncs; nats-server syncs every two minutes")
	fs.IntVar(&b.NATS.AckGroup, "nats-ack-group", 1, "acknowledgements that a member of nats-server's group collects; 1 writes those of a read together")
	fs.BoolVar(&b.NATS.JetStream.Pull, "nats-pull", true, "members pull; otherwise the server pushes to a queue group")
	fs.StringVar(&b.NATS.JetStream.Retention, "nats-retention", "", "limits, interest or workqueue (default: the fastest: interest in memory, limits on disk)")
	fs.IntVar(&b.NATS.JetStream.KeepMessages, "nats-keep", 10_000_000, "messages that a stream with retention limits keeps")
	fs.IntVar(&b.NATS.JetStream.MaxAckPending, "nats-max-ack-pending", 0, "0 = the windows of all members together")
	fs.BoolVar(&b.NATS.JetStream.OneSubject, "nats-one-subject", true, "all connections publish to one subject")
	fs.IntVar(&b.ServerCPU, "server-cpu", 0, "CPU of the server")
	fs.IntVar(&b.LoadCPU, "load-cpu", 1, "CPU of the load; a negative one pins neither")
	fs.BoolVar(&b.Profile, "profile", false, "take the server's CPU profile in the window; such runs are not for the headline")
	fs.StringVar(&o.out, "o", "", "directory for the results")
	if err := fs.Parse(args); err != nil {
		return nil, err
	}
	if fs.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	b.Ours.Args = strings.Fields(brokerArgs)
	b.Sides = strings.Split(sides, ",")
	if b.Profile && o.out == "" {
		return nil, errors.New("-profile needs -o DIR to put the profiles in")
	}
	b.setDefaults()
	return &o, b.validate()
}

func command(ctx context.Context, args []string) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	if o.out != "" {
		if err := os.MkdirAll(o.out, 0o755); err != nil {
			return err
		}
		if o.bench.Dir, err = filepath.Abs(o.out); err != nil {
			return err
		}
	}
	o.bench.Log = os.Stderr
	rep, err := o.bench.run(ctx)
	if err != nil {
		return err
	}
	if err := rep.write(os.Stdout, o.bench.Dir); err != nil {
		return err
	}
	return rep.invalid()
}
