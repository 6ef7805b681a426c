package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/contention-toolkit/contention/experiment"
	"github.com/contention-toolkit/contention/load"
	"github.com/contention-toolkit/contention/profile"
)

type loadFlags struct {
	broker   string
	out      string
	duration time.Duration
	messages int64
	warmup   int64
	rate     float64
	inFlight int
	conns    int
	devices  int
	size     string
	events   bool
	wait     bool
	json     bool
}

func newLoad() *cobra.Command {
	f := loadFlags{}
	cmd := &cobra.Command{
		Use:   "load SCENARIO",
		Short: "Drive a broker and verify that nothing was lost, repeated or reordered",
		Long: `load drives a broker over Pulsar's binary protocol: many connections, one message
in flight per device, a Key_Shared subscription. It measures publish and
end-to-end latency and checks delivery. A run with a failed check is invalid:
exit status 4.

SCENARIO is built in (` + strings.Join(load.BuiltinScenarios(), ", ") + `) or a YAML file;
flags change what it says.`,
		Example: `  contention load iot-telemetry-max-rate --broker pulsar://127.0.0.1:6650 --duration 10s
  contention load iot-telemetry-high-rate --broker 127.0.0.1:6650 --rate 5000 -o out`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return f.run(cmd, args[0])
		},
	}
	fl := cmd.Flags()
	fl.StringVar(&f.broker, "broker", "127.0.0.1:6650", "HOST:PORT or pulsar://HOST:PORT")
	fl.StringVarP(&f.out, "out", "o", "", "directory for load.json and the latency histograms")
	fl.DurationVar(&f.duration, "duration", 0, "measured time")
	fl.Int64Var(&f.messages, "messages", 0, "messages to measure, instead of a time")
	fl.Int64Var(&f.warmup, "warmup", 0, "messages before measuring")
	fl.Float64Var(&f.rate, "rate", 0, "messages per second, 0 for as fast as it goes")
	fl.IntVar(&f.inFlight, "in-flight", 0, "unacknowledged messages over all connections")
	fl.IntVar(&f.conns, "connections", 0, "publishing connections")
	fl.IntVar(&f.devices, "devices", 0, "devices, each with one message in flight at most")
	fl.StringVar(&f.size, "message-size", "", "payload, such as 128B or 4KB")
	fl.BoolVar(&f.events, "events", false, "print each phase as one line of JSON instead of the summary")
	fl.BoolVar(&f.wait, "wait", false, "after the warm-up, wait for a line on stdin before measuring")
	fl.BoolVar(&f.json, "json", false, "print the result as JSON")
	return cmd
}

// scenario is the named scenario with the flags that were given.
func (f *loadFlags) scenario(cmd *cobra.Command, name string) (load.Scenario, error) {
	sc, err := load.LoadScenario(name)
	if err != nil {
		return sc, usageError("%w", err)
	}
	given := cmd.Flags().Changed
	set := func(flag string, apply func()) {
		if given(flag) {
			apply()
		}
	}
	set("duration", func() { sc.Duration, sc.Messages = f.duration, 0 })
	set("messages", func() { sc.Messages = f.messages })
	set("warmup", func() { sc.WarmupMessages = f.warmup })
	set("rate", func() { sc.Rate = f.rate })
	set("in-flight", func() { sc.InFlight = f.inFlight })
	set("connections", func() { sc.Connections = f.conns })
	set("devices", func() { sc.Devices = f.devices })
	if given("message-size") {
		if sc.MessageSize, err = load.ParseSize(f.size); err != nil {
			return sc, usageError("--message-size: %w", err)
		}
	}
	if err := sc.Validate(); err != nil {
		return sc, usageError("scenario %s: %w", sc.Name, err)
	}
	return sc, nil
}

func (f *loadFlags) run(cmd *cobra.Command, name string) error {
	sc, err := f.scenario(cmd, name)
	if err != nil {
		return err
	}
	opt := load.Options{Broker: f.broker, Scenario: sc}
	stdout, stderr := cmd.OutOrStdout(), cmd.ErrOrStderr()
	ctx, cancel := context.WithCancel(cmd.Context())
	defer cancel()
	if f.events {
		enc := json.NewEncoder(stdout)
		opt.Events = func(e load.Event) {
			if enc.Encode(e) != nil {
				cancel() // nobody reads: the parent is gone
			}
		}
	} else {
		opt.Events = func(e load.Event) { fmt.Fprintf(stderr, "%s: %s sent\n", e.Phase, grouped(e.Sent)) }
	}
	if f.wait {
		start := make(chan struct{})
		opt.Start = start
		go func() {
			if _, err := bufio.NewReader(cmd.InOrStdin()).ReadString('\n'); err != nil {
				cancel()
				return
			}
			close(start)
		}()
	}
	res, err := load.Run(ctx, opt)
	if res == nil {
		return err
	}
	if werr := f.keep(res); werr != nil {
		return werr
	}
	if f.json {
		e := json.NewEncoder(stdout)
		e.SetIndent("", "  ")
		if err := e.Encode(res); err != nil {
			return err
		}
	} else if !f.events {
		writeLoad(stdout, res)
	}
	if !res.Valid {
		return invalidError("load %s against %s: invalid run: %s", sc.Name, f.broker, strings.Join(res.WhyInvalid, "; "))
	}
	return err
}

// keep writes the result and histograms to --out.
func (f *loadFlags) keep(res *load.Result) error {
	if f.out == "" {
		return nil
	}
	if err := os.MkdirAll(f.out, 0o755); err != nil {
		return fmt.Errorf("write load result: %w", err)
	}
	data, err := json.MarshalIndent(res, "", "  ")
	if err != nil {
		return fmt.Errorf("write load result: %w", err)
	}
	if err := profile.WriteFile(filepath.Join(f.out, experiment.LoadResultFile), append(data, '\n')); err != nil {
		return err
	}
	return res.WriteHistograms(f.out)
}

// writeLoad prints what a run measured.
func writeLoad(w io.Writer, r *load.Result) {
	s := r.Settings
	fmt.Fprintf(w, "scenario %s: %d connections, %s devices, %s messages in flight, %d bytes, %d applications × %d consumers\n",
		s.Name, s.Connections, grouped(int64(s.Devices)), grouped(int64(s.InFlight)), s.MessageBytes, s.Applications, s.Consumers)
	fmt.Fprintf(w, "published %s in %.2f s: %.0f msg/s; delivered %.0f msg/s; drained in %.2f s\n", grouped(r.Published), r.WindowSeconds, r.Throughput, r.DeliveredThroughput, r.DrainSeconds)
	line := func(name string, l load.Latency) {
		fmt.Fprintf(w, "%-28s p50 %.2f  p99 %.2f  p99.9 %.2f  max %.2f ms\n", name, l.P50, l.P99, l.P999, l.Max)
	}
	line("publish", r.PublishMs)
	line("end to end", r.EndToEndMs)
	if u := r.PublishUncorrectedMs; u != nil {
		line("publish, from real send", *u)
	}
	if u := r.EndToEndUncorrectedMs; u != nil {
		line("end to end, from real send", *u)
	}
	if r.CPU.Known {
		fmt.Fprintf(w, "the load used %.2f CPUs, %.0f %% of the host's %d\n", r.CPU.Cores, 100*r.CPU.Share, r.CPU.HostCPUs)
	}
	d := r.Delivery
	fmt.Fprintf(w, "delivery: %s expected, %s received, %d lost, %d duplicates, %d out of order, %d invalid\n", grouped(d.Expected), grouped(d.Received), d.Lost, d.Duplicates, d.Disorder, d.Invalid)
	for _, x := range r.Warnings {
		fmt.Fprintln(w, "warning: "+oneLine(x))
	}
}
