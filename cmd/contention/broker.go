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
	"github.com/contention-toolkit/contention/experiment"
)

// brokerFlags are the broker's configuration and what the command itself needs.
type brokerFlags struct {
	config       broker.Config
	logLevel     slog.Level
	logFormat    string
	drainTimeout time.Duration

	file        string
	printConfig bool
	readyJSON   bool
}

func newBroker() *cobra.Command {
	f := &brokerFlags{config: broker.DefaultConfig(), logFormat: logText, drainTimeout: 10 * time.Second}
	cmd := &cobra.Command{
		Use:   "broker",
		Short: "Run the reference broker: Pulsar's hot paths with a switch for each design",
		Long: `broker runs the reference broker until it is told to stop (SIGTERM, SIGINT):
managed ledgers behind ledger executors, dispatch for every subscription type,
Pulsar's binary protocol. It is a profiling target and a teaching model, not a
product to store data in.

--handoff direct hands over one executor task per add, through a lock; parking
does so through a lock that blocks the thread, channel through a Go channel;
batched hands over one task per batch (Apache Pulsar PR 26717).

Every flag can stand in the file of --config (YAML, the flag's name without
dashes: its value); flags on the command line win. --print-config writes such a
file. What the flags mean in Pulsar's terms, and which can be changed while the
broker runs, is in docs/broker.md.`,
		Example: `  contention broker --listen 127.0.0.1:6650 --handoff direct
  contention broker --storage disk --data-dir data --sync always
  contention broker --mutex-profile-fraction 1 --block-profile-rate 1
  contention broker --flow monitor --max-read-batch-size 100 --print-config`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.file != "" {
				if err := readConfigFile(cmd.Flags(), f.file); err != nil {
					return err
				}
			}
			if err := f.config.Validate(); err != nil {
				return usageError("%w", err)
			}
			if f.drainTimeout < 0 {
				return usageError("drain timeout is %v: use 0s to cut connections at once, or more", f.drainTimeout)
			}
			if f.printConfig {
				return writeConfigFile(cmd.Flags(), cmd.OutOrStdout())
			}
			return f.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	fl := cmd.Flags()
	fl.SortFlags = false
	f.addServerFlags(fl)
	f.addPathFlags(fl)
	f.addStorageFlags(fl)
	f.addLimitFlags(fl)
	fl.Var(choice[string]{&f.logFormat, []string{logText, logJSON}}, "log-format", "text or json, on stderr")
	fl.TextVar(&f.logLevel, "log-level", f.logLevel, "debug, info, warn or error")
	fl.DurationVar(&f.drainTimeout, "drain-timeout", f.drainTimeout, "how long stopping may take before connections are cut")
	fl.StringVar(&f.file, "config", "", "YAML `file` of flags; those of the command line win")
	fl.BoolVar(&f.printConfig, "print-config", false, "print the configuration as a file for --config, and end")
	fl.BoolVar(&f.readyJSON, "ready-json", false, "print where it serves as one line of JSON on stdout")
	return cmd
}

// The values of --log-format.
const (
	logText = "text"
	logJSON = "json"
)

func (f *brokerFlags) logger(w io.Writer) *slog.Logger {
	o := &slog.HandlerOptions{Level: f.logLevel}
	if f.logFormat == logJSON {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}

// run serves until ctx ends, and then drains.
func (f *brokerFlags) run(ctx context.Context, stdout, stderr io.Writer) error {
	f.config.Logger = f.logger(stderr)
	s, err := broker.Start(ctx, f.config)
	if err != nil {
		return err
	}
	stop := func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.drainTimeout)
		defer cancel()
		return s.Shutdown(ctx)
	}
	where := experiment.Ready{Broker: "pulsar://" + s.Addr().String(), Admin: s.AdminURL(), PID: os.Getpid()}
	if f.readyJSON {
		err = json.NewEncoder(stdout).Encode(where)
	} else {
		_, err = fmt.Fprintf(stdout, "broker at %s, metrics and pprof at %s, pid %d\n", where.Broker, where.Admin, where.PID)
	}
	if err != nil {
		_ = stop() // the cause is more to the point
		return fmt.Errorf("print where the broker serves: %w", err)
	}
	<-ctx.Done()
	f.config.Logger.Info("stopping", "drain_timeout", f.drainTimeout)
	return stop()
}
