// Package load drives a broker over Pulsar's binary protocol, as fast as it
// goes or at a fixed rate, and verifies that nothing was lost, repeated or
// reordered.
//
// # Workload
//
// A device has at most one message in flight. A message carries its device as
// the key and a per-device counter, so that order per key is defined over any
// number of connections: a device's next message may leave through another
// connection, but only after the previous one was acknowledged. Messages are
// not batched.
//
// # Phases
//
//	connect → warm-up → ready, wait for start → measure → drain → result
//
// The warm-up ends when every application has uniquely received every message
// sent so far. Warm-up messages count in the delivery checks and not in rates
// and latencies. Measuring stops after a time or a number of messages; then
// everything sent must arrive. [Options.Events] reports each change of phase,
// and [Options.Start] holds the measurement back until the caller is ready.
//
// # Latency
//
// Publish latency runs from handing a message to its connection's writer to
// reading the receipt; end-to-end latency from the same start to a consumer
// reading the message. Both are read from one clock, in microseconds with
// three significant digits. With a rate they are counted from the intended
// send time, so that a stalled broker is charged for the messages it kept from
// being sent, and reported from the real send time beside it. The schedule
// has a step of one millisecond: messages that fall due within a step are
// intended for its end. Latencies cover every message sent in the window, also
// those that arrive after it; rates count what arrived inside it.
//
// # Cost
//
// A connection costs a reader and a writer goroutine. Whatever one read
// returns is handled under one lock, and answered with one write.
package load
