package conformance

import (
	"flag"
	"testing"

	"github.com/contention-toolkit/contention/broker"
)

var record = flag.Bool("record", false, "write the client's bytes as fuzz seeds of the broker")

// recordedListen prepares cfg so that clients reach the broker through a
// recorder, if there is to be one; what it returns gives the URL for clients.
func recordedListen(_ *testing.T, _ *broker.Config) func(*broker.Server) string {
	return func(s *broker.Server) string { return s.URL() }
}
