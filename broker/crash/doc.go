// Package crash holds tests only: a broker that stores on disk is killed at
// random moments under the official client's load, started again on its data,
// and must have every message that it acknowledged, once, in each key's order.
//
//	go test ./broker/crash                          # a few kills per sync mode
//	go test ./broker/crash -timeout 60m -kills 100  # the long proof
package crash
