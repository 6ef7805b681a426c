package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"

	"github.com/contention-toolkit/contention/internal/child"
	"github.com/contention-toolkit/contention/tools/brokerbench/drive"
)

// loadCommand is the first argument with which this executable is the load: a
// process of its own, for its CPU.
const loadCommand = "load"

// serveLoad reads a job and writes its result.
func serveLoad(ctx context.Context, in io.Reader, out io.Writer) error {
	var j drive.Job
	if err := json.NewDecoder(in).Decode(&j); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	res, err := drive.Run(ctx, j)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(res)
}

// runLoad runs a job in a child.
func runLoad(ctx context.Context, j drive.Job, o child.Options) (*drive.Result, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	job, err := json.Marshal(j)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, loadCommand)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	// The pipe is our own: Wait, which runs beside, would close cmd's.
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd.Stdout = w
	p, err := child.Start(cmd, o)
	w.Close() // the child has it
	if err != nil {
		in.Close()
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = p.Kill() })
	defer stop()
	_, err = in.Write(append(job, '\n'))
	in.Close()
	var res drive.Result
	if err == nil {
		err = json.NewDecoder(r).Decode(&res)
	}
	if died := p.Err(); died != nil {
		return nil, fmt.Errorf("the load failed: %w", died) // it says why on stderr
	}
	if err != nil {
		return nil, fmt.Errorf("the load's result: %w", err)
	}
	return &res, nil
}
