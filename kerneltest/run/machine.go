package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/contention-toolkit/contention/kerneltest/guest"
)

// machine is how kernels are booted.
type machine struct {
	archive string // of the first root file system
	cpus    int
	virtual bool // time follows the instructions
	timeout time.Duration
}

// result is what came of one boot.
type result struct {
	err    error
	took   time.Duration
	output string
	passed int               // tests
	facts  map[string]string // see parse
}

// command is of qemu. One emulation thread for all CPUs: with one for each,
// kernels die where they patch their own code, as they do when probes attach.
func (m machine) command(image string) []string {
	args := []string{
		"-M", "pc", "-cpu", "max", "-m", "512M", "-nodefaults", "-no-user-config", "-display", "none",
		"-no-reboot", "-serial", "stdio", "-accel", "tcg,thread=single", "-kernel", image, "-initrd", m.archive,
		"-append", "console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off nokaslr",
	}
	cpus := m.cpus
	if m.virtual {
		// Older kernels hang in virtual time on several CPUs.
		cpus = 1
		args = append(args, "-icount", "shift=0,sleep=off")
	}
	return append(args, "-smp", strconv.Itoa(cpus))
}

func (m machine) run(ctx context.Context, image string) result {
	ctx, cancel := context.WithTimeout(ctx, m.timeout)
	defer cancel()
	began := time.Now()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", m.command(image)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	if ctx.Err() != nil {
		err = fmt.Errorf("nothing ended it within %v: %w", m.timeout, ctx.Err())
	}
	r := parse(strings.ReplaceAll(out.String(), "\r", ""), err)
	r.took = time.Since(began)
	return r
}

// factLine begins a line of the tests' output that says what the kernel gives:
// a name, a colon and a value.
const factLine = "gives "

// parse reads what a machine said; err is how its emulator ended.
func parse(output string, err error) result {
	r := result{output: output, facts: map[string]string{}}
	code, ended := 0, false
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "--- PASS: ") {
			r.passed++
		}
		if _, fact, ok := strings.Cut(line, factLine); ok {
			if name, value, ok := strings.Cut(fact, ": "); ok {
				r.facts[name] = value
			}
		}
		if s, ok := strings.CutPrefix(line, guest.LastLine); ok {
			if n, err := strconv.Atoi(s); err == nil {
				code, ended = n, true
			}
		}
	}
	switch {
	case err != nil:
		r.err = err
	case !ended:
		r.err = errors.New("it died: it did not say how the tests ended")
	case code != 0:
		r.err = fmt.Errorf("the tests ended with status %d", code)
	case r.passed == 0:
		r.err = errors.New("no test ran")
	}
	return r
}

// writeRoot writes the archive of a machine's first root file system.
func writeRoot(path, first, test string, c guest.Config) error {
	config, err := json.Marshal(c)
	if err != nil {
		return err
	}
	files := []guest.File{{Name: "config.json", Mode: 0o644, Data: config}}
	for name, from := range map[string]string{"init": first, "work/test": test} {
		data, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		files = append(files, guest.File{Name: name, Mode: 0o755, Data: data})
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(guest.WriteArchive(f, []string{"work", "bin", "proc", "sys", "dev", "tmp"}, files), f.Close())
}
