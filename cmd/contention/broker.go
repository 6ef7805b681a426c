package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/contention-toolkit/contention/broker"
	"github.com/contention-toolkit/contention/broker/dispatch"
	"github.com/contention-toolkit/contention/broker/ledger"
	"github.com/contention-toolkit/contention/experiment"
	"github.com/contention-toolkit/contention/load"
)

type brokerFlags struct {
	config                                      broker.Config
	handoff, flow                               string
	batchBytes, readBytes, maxMessage, highMark load.Size
	readyJSON                                   bool
}

func newBroker() *cobra.Command {
	f := brokerFlags{config: broker.DefaultConfig()}
	c := &f.config
	cmd := &cobra.Command{
		Use:   "broker",
		Short: "Run the reference broker: Pulsar's hot paths with a switch for each design",
		Long: `broker runs the reference broker until it is interrupted: a managed ledger in
memory behind a ledger executor, Key_Shared dispatch, Pulsar's binary protocol.
It is a profiling target and a teaching model, not a product to store data in.

--handoff direct hands over one executor task per add; batched queues adds and
hands over one task per batch (Apache Pulsar PR 26717).`,
		Example: `  contention broker --listen 127.0.0.1:6650 --handoff direct
  contention broker --mutex-profile-fraction 1 --block-profile-rate 1`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.handoff, f.flow = string(c.Handover), string(c.Flow)
	f.batchBytes, f.readBytes = load.Size(c.HandoverMaxBatchBytes), load.Size(c.MaxReadSizeBytes)
	f.maxMessage, f.highMark = load.Size(c.MaxMessageSize), load.Size(c.WriteHighWater)
	fl := cmd.Flags()
	fl.StringVar(&c.Listen, "listen", c.Listen, "address for clients; port 0 picks one")
	fl.StringVar(&c.AdminListen, "admin", c.AdminListen, "loopback address for metrics, pprof and settings; empty for none")
	fl.StringVar(&c.AdvertisedURL, "advertised-url", "", "what lookups answer (default: the address listened on)")
	fl.StringVar(&f.handoff, "handoff", f.handoff, "direct or batched: how adds reach the ledger executor")
	fl.IntVar(&c.HandoverMaxBatchItems, "handoff-max-batch-items", c.HandoverMaxBatchItems, "adds of a batch, 0 or 1 turns batching off")
	fl.Var(&f.batchBytes, "handoff-max-batch-bytes", "bytes that end a batch, such as 5MB; 0B for no limit")
	fl.IntVar(&c.HandoverQueueChunk, "handoff-queue-chunk", c.HandoverQueueChunk, "adds per chunk of the hand-over queue")
	fl.StringVar(&f.flow, "flow", f.flow, "monitor or atomic: how consumers' permits reach the dispatcher")
	fl.IntVar(&c.MaxReadBatchSize, "max-read-batch-size", c.MaxReadBatchSize, "entries of one read")
	fl.Var(&f.readBytes, "max-read-size-bytes", "bytes of one read, at least one entry")
	fl.DurationVar(&c.NewEntriesCheckDelay, "new-entries-check-delay", c.NewEntriesCheckDelay, "how long a read at the tail waits before it registers to be woken")
	fl.Int64Var(&c.MaxUnackedPerConsumer, "max-unacked-per-consumer", c.MaxUnackedPerConsumer, "messages, negative for no limit")
	fl.Int64Var(&c.MaxUnackedPerSubscription, "max-unacked-per-subscription", c.MaxUnackedPerSubscription, "messages, negative for no limit")
	fl.IntVar(&c.Executors, "executors", c.Executors, "ledger executors")
	fl.IntVar(&c.ExecutorQueueLimit, "executor-queue-limit", c.ExecutorQueueLimit, "tasks of one executor's queue, 0 for no limit")
	fl.Var(&f.maxMessage, "max-message-size", "largest message with its headers")
	fl.IntVar(&c.MaxConnections, "max-connections", c.MaxConnections, "0 for no limit")
	fl.IntVar(&c.MaxPendingPublishes, "max-pending-publishes", c.MaxPendingPublishes, "sends of one connection without a receipt, beyond which it is not read")
	fl.Var(&f.highMark, "write-high-water", "bytes queued for one connection above which its consumers get no more")
	fl.DurationVar(&c.KeepAlive, "keep-alive", c.KeepAlive, "silence after which a connection is pinged, 0 for never")
	fl.IntVar(&c.MutexProfileFraction, "mutex-profile-fraction", 0, "runtime.SetMutexProfileFraction, 0 is off")
	fl.IntVar(&c.BlockProfileRate, "block-profile-rate", 0, "runtime.SetBlockProfileRate in nanoseconds, 0 is off")
	fl.BoolVar(&f.readyJSON, "ready-json", false, "print where it serves as one line of JSON on stdout")
	return cmd
}

// drainTimeout is how long a broker that was told to stop serves on.
const drainTimeout = 5 * time.Second

func (f *brokerFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	c := f.config
	c.Handover, c.Flow = ledger.Handover(f.handoff), dispatch.FlowMode(f.flow)
	c.HandoverMaxBatchBytes, c.MaxReadSizeBytes = int64(f.batchBytes), int64(f.readBytes)
	c.MaxMessageSize, c.WriteHighWater = int(f.maxMessage), int64(f.highMark)
	c.Logger = slog.New(slog.NewTextHandler(stderr, nil))
	if err := c.Validate(); err != nil {
		return usageError("%w", err)
	}
	s, err := broker.Start(ctx, c)
	if err != nil {
		return err
	}
	where := experiment.Ready{Broker: "pulsar://" + s.Addr().String(), Admin: s.AdminURL(), PID: os.Getpid()}
	if f.readyJSON {
		if err := json.NewEncoder(stdout).Encode(where); err != nil {
			return fmt.Errorf("print where the broker serves: %w", err)
		}
	} else {
		fmt.Fprintf(stdout, "broker at %s, metrics and pprof at %s, pid %d\n", where.Broker, where.Admin, where.PID)
	}
	<-ctx.Done()
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTimeout)
	defer cancel()
	return s.Shutdown(stop)
}
