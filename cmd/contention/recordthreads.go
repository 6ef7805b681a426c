package main

import (
	"strconv"
	"time"

	"github.com/spf13/pflag"

	"github.com/contention-toolkit/contention/probes/thread"
)

// threadFlags are the flags of record for the thread plane.
type threadFlags struct {
	minBlocked, admitAll time.Duration
	cgroup               string
	threads              []string
	wakers               bool
	onCPU                int
}

func (f *threadFlags) register(fl *pflag.FlagSet) {
	fl.DurationVar(&f.minBlocked, "min-blocked", 0, "leave out of threads the waits that blocked for less; their time is counted")
	fl.DurationVar(&f.admitAll, "admit-all", 0, "keep all waits of threads of at least so long, and of shorter ones some, in proportion to their length and weighted; up to 1s (default: all waits)")
	fl.StringVar(&f.cgroup, "cgroup", "", "record the target's threads in this control group only: a directory below /sys/fs/cgroup")
	fl.StringArrayVar(&f.threads, "thread", nil, "record threads with this id or name only, repeatable")
	fl.BoolVar(&f.wakers, "thread-wakers", false, "record who woke each thread")
	fl.IntVar(&f.onCPU, "oncpu-hz", 99, "samples per second and CPU of where the threads run, beside threads; 0 for none")
}

func (f *threadFlags) options() (thread.Options, error) {
	o := thread.Options{MinBlocked: f.minBlocked, AdmitAll: f.admitAll, Cgroup: f.cgroup, Wakers: f.wakers, OnCPU: f.onCPU}
	if f.minBlocked < 0 || f.admitAll < 0 {
		return o, usageError("--min-blocked %v, --admit-all %v: want 0 or more", f.minBlocked, f.admitAll)
	}
	for _, t := range f.threads {
		if id, err := strconv.Atoi(t); err == nil {
			o.TIDs = append(o.TIDs, id)
		} else {
			o.Names = append(o.Names, t)
		}
	}
	if err := o.Check(); err != nil {
		return o, usageError("%w", err)
	}
	return o, nil
}
