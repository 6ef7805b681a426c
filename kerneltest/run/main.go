// Command run boots Debian's kernels one after another in an emulated machine
// and runs the tests of kerneltest/suite on each:
//
//	go run ./kerneltest/run                     # those that every change is tried on
//	go run ./kerneltest/run -series all         # every series that is served
//	go run ./kerneltest/run -stress -smp 4      # attach and detach 100 times, too
//	go run ./kerneltest/run -icount             # in virtual time: exact figures whatever the load
//	go run ./kerneltest/run -table docs/kernels.md
//
// It needs qemu-system-x86 and apt, and no privileges. It fails where a test
// fails, a machine dies, a series of -need is not served, or none ran.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/contention-toolkit/contention/kerneltest/guest"
)

type options struct {
	series, need string
	parallel     int
	stress       bool
	table        string
	pattern      string
	verbose      bool
	machine      machine
}

func main() {
	var o options
	flag.StringVar(&o.series, "series", "5.10,6.1,6.12,6.18,7", "kernels to boot, by series; 7 is the newest of its line; all: every series that is served")
	flag.StringVar(&o.need, "need", "6.1,6.12", "series without which the run fails; the others are skipped where they are not served")
	flag.IntVar(&o.parallel, "parallel", 2, "machines at a time")
	flag.BoolVar(&o.stress, "stress", false, "attach and detach 100 times, too")
	flag.StringVar(&o.table, "table", "", "file whose table of kernels is written anew")
	flag.StringVar(&o.pattern, "run", "", "tests to run, as of go test")
	flag.BoolVar(&o.verbose, "v", false, "print what each machine says")
	flag.IntVar(&o.machine.cpus, "smp", 2, "CPUs of a machine")
	flag.BoolVar(&o.machine.virtual, "icount", false, "run in virtual time, on one CPU")
	flag.DurationVar(&o.machine.timeout, "timeout", 2*time.Minute, "time after which a machine counts as dead")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "kerneltest:", err)
		os.Exit(1)
	}
}

// kernel is a series with the image that stands for it; none where the image is "".
type kernel struct{ series, name, image string }

func run(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "kerneltest")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	kernels, err := fetch(ctx, o.series)
	if err != nil {
		return err
	}
	if o.machine.archive, err = pack(ctx, dir, o); err != nil {
		return err
	}
	results := boot(ctx, o, kernels)
	var errs []error
	ran := 0
	for i, k := range kernels {
		switch r := results[i]; {
		case k.image == "" && slices.Contains(strings.Split(o.need, ","), k.series):
			errs = append(errs, fmt.Errorf("kernel %s is needed and not served by the mirror", k.series))
		case k.image == "":
			fmt.Printf("SKIP %-5s no suite serves it\n", k.series)
		case r.err != nil:
			errs = append(errs, fmt.Errorf("kernel %s (%s): %w", k.series, k.name, r.err))
			fmt.Printf("FAIL %-5s %s (%.1f s)\n%s", k.series, k.name, r.took.Seconds(), r.output)
		default:
			ran++
			fmt.Printf("ok   %-5s %s %d tests (%.1f s)\n", k.series, r.facts["kernel"], r.passed, r.took.Seconds())
			if o.verbose {
				fmt.Print(r.output)
			}
		}
	}
	if ran == 0 && len(errs) == 0 {
		errs = append(errs, errors.New("not one kernel ran"))
	}
	if len(errs) > 0 || o.table == "" {
		return errors.Join(errs...)
	}
	return writeTable(o.table, kernels, results)
}

// fetch finds the images of the series.
func fetch(ctx context.Context, series string) ([]kernel, error) {
	args := strings.Split(series, ",")
	if series == "all" {
		args = nil
	}
	cmd := exec.CommandContext(ctx, "kerneltest/fetch", args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("kerneltest/fetch (run this from the top of the repository): %w", err)
	}
	var kernels []kernel
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(line)
		if len(f) != 3 {
			return nil, fmt.Errorf("kerneltest/fetch says %q", line)
		}
		k := kernel{f[0], f[1], f[2]}
		if k.image == "-" {
			k.image = ""
		}
		kernels = append(kernels, k)
	}
	return kernels, nil
}

// pack builds what runs in the machines into one archive.
func pack(ctx context.Context, dir string, o options) (string, error) {
	build := func(args ...string) error {
		cmd := exec.CommandContext(ctx, "go", args...)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
		}
		return nil
	}
	test, first := filepath.Join(dir, "test"), filepath.Join(dir, "init")
	// -o keeps the symbols, without which nothing could be probed.
	if err := errors.Join(build("test", "-c", "-o", test, "./kerneltest/suite"), build("build", "-o", first, "./kerneltest/init")); err != nil {
		return "", err
	}
	args := []string{"/work/test", "-test.v", "-test.count=1", "-test.timeout=" + o.machine.timeout.String()}
	if o.pattern != "" {
		args = append(args, "-test.run="+o.pattern)
	}
	c := guest.Config{Args: args, Env: []string{"PATH=/bin", "HOME=/", "TMPDIR=/tmp", "CONTENTION_REQUIRE_BPF=1", "CONTENTION_KERNELTEST=guest"}}
	if o.stress {
		c.Env = append(c.Env, "CONTENTION_STRESS=1")
	}
	path := filepath.Join(dir, "root.cpio")
	return path, writeRoot(path, first, test, c)
}

// boot runs the kernels that are there, some at a time.
func boot(ctx context.Context, o options, kernels []kernel) []result {
	results := make([]result, len(kernels))
	slots := make(chan struct{}, max(1, o.parallel))
	var all sync.WaitGroup
	for i, k := range kernels {
		if k.image == "" {
			continue
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			results[i] = o.machine.run(ctx, k.image)
		})
	}
	all.Wait()
	return results
}
