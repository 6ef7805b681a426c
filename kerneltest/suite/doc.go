// Package suite holds tests that every kernel has to pass: the probes load and
// attach, and their totals are those of a program whose waits are known. It runs
// in the machines of kerneltest/run, and like any other test on this one.
package suite
