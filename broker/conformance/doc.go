// Package conformance holds the tests that drive the broker with the official
// Go client, as an application would. Each TestConformance… is one feature of
// the protocol, so that
//
//	go test -v ./broker/conformance
//
// lists what works. With -record the client's bytes become the seeds of the
// broker's fuzz tests:
//
//	go test ./broker/conformance -record
package conformance
