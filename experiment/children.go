package experiment

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"time"

	"github.com/contention-toolkit/contention/load"
)

// Ready is the line of JSON that `contention broker --ready-json` prints on
// stdout when it serves.
type Ready struct {
	Broker string `json:"broker"` // pulsar://HOST:PORT
	Admin  string `json:"admin"`  // http://HOST:PORT
	PID    int    `json:"pid"`
}

const (
	startTimeout = 15 * time.Second
	stopGrace    = 10 * time.Second
)

// brokerChild is the broker under test, a process of its own.
type brokerChild struct {
	*process
	ready Ready
}

// startBroker starts the broker and waits until it serves.
func startBroker(ctx context.Context, argv []string, dir string, cpus []int) (*brokerChild, error) {
	p, err := startProcess(processSpec{name: "broker", argv: argv, logPath: filepath.Join(dir, "broker.log"), cpus: cpus})
	if err != nil {
		return nil, err
	}
	b := &brokerChild{process: p}
	lines := make(chan []byte, 1)
	go func() {
		line, _ := bufio.NewReader(p.stdout).ReadBytes('\n') // an error leaves no line, which is seen below
		lines <- line
		_, _ = io.Copy(io.Discard, p.stdout)
	}()
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case line := <-lines:
		if err = json.Unmarshal(line, &b.ready); err == nil && b.ready.Broker != "" {
			return b, nil
		}
		// It ended instead of serving: say why.
		if werr := p.wait(ctx); werr != nil {
			err = werr
		} else {
			err = fmt.Errorf("start broker: it printed %q instead of where it serves", line)
		}
	case <-ctx.Done():
		err = fmt.Errorf("start broker: it does not serve: %w; see %s", ctx.Err(), p.log.Name())
	}
	p.end(stopGrace)
	return nil, err
}

// loadChild is the load, a process of its own.
type loadChild struct {
	*process
	events chan load.Event // closed when the child's stdout ends
	dir    string
}

// startLoad starts the load, which stops after the warm-up until begin.
func startLoad(argv []string, dir string, cpus []int) (*loadChild, error) {
	p, err := startProcess(processSpec{name: "load", argv: argv, logPath: filepath.Join(dir, "load.log"), cpus: cpus})
	if err != nil {
		return nil, err
	}
	l := &loadChild{process: p, events: make(chan load.Event, 16), dir: dir}
	go func() {
		defer close(l.events)
		sc := bufio.NewScanner(p.stdout)
		for sc.Scan() {
			var e load.Event
			if json.Unmarshal(sc.Bytes(), &e) == nil && e.Phase != "" {
				l.events <- e
			}
		}
	}()
	return l, nil
}

// begin lets the load go from its warm-up to measuring.
func (l *loadChild) begin() error {
	if _, err := io.WriteString(l.stdin, "start\n"); err != nil {
		return fmt.Errorf("start measuring: load: %w", err)
	}
	return nil
}

// await returns the event of a phase; earlier events are passed over.
func (l *loadChild) await(ctx context.Context, phase load.Phase) (load.Event, error) {
	for {
		select {
		case e, ok := <-l.events:
			if !ok {
				return load.Event{}, fmt.Errorf("load ended before it was %s: %w", phase, errors.Join(l.wait(ctx)))
			}
			if e.Phase == phase {
				return e, nil
			}
		case <-ctx.Done():
			return load.Event{}, fmt.Errorf("load was not %s in time: %w; see %s", phase, ctx.Err(), l.log.Name())
		}
	}
}

// LoadResultFile is where `contention load -o DIR` leaves its result.
const LoadResultFile = "load.json"

// result reads what the load wrote. It is there also when delivery checks failed.
func (l *loadChild) result() (*load.Result, error) {
	path := filepath.Join(l.dir, LoadResultFile)
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("load left no result: %w", err)
	}
	var r load.Result
	if err := json.Unmarshal(data, &r); err != nil {
		return nil, fmt.Errorf("load result %s: %w", path, err)
	}
	return &r, nil
}

// brokerArgs is the command line of a side's broker.
func (r *runner) brokerArgs(p Planned, reconcile bool) []string {
	args := []string{r.o.Self, "broker", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--ready-json"}
	if reconcile {
		args = append(args, "--mutex-profile-fraction", "1", "--block-profile-rate", "1")
	}
	flags := r.o.Spec.side(p.Side).Broker
	names := make([]string, 0, len(flags))
	for n := range flags {
		names = append(names, n)
	}
	sort.Strings(names)
	for _, n := range names {
		args = append(args, "--"+n, flags[n])
	}
	return args
}

// loadArgs is the command line of the load.
func (r *runner) loadArgs(broker, dir string) []string {
	return []string{
		r.o.Self, "load", r.o.Spec.Scenario, "--broker", broker, "--events", "--wait", "-o", dir,
		"--duration", r.runs.Duration.String(), "--warmup", strconv.FormatInt(r.runs.Warmup, 10),
	}
}
