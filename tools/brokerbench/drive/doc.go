// Package drive runs one scenario against brokers of different protocols with
// the same client: many publishing connections with a bounded window of
// unacknowledged messages each, and one group of consumers that acknowledges
// every message.
//
// # One client for all
//
// Everything but the encoding is shared. A connection is one goroutine that
// handles whatever a read returned and answers it with one write. The encodings
// are written for speed and do not allocate per message, so that the client is
// not what is compared.
//
// # A bounded whole job
//
// At most Job.Backlog messages are sent and not delivered at any time: where a
// broker stores faster than it delivers, publishers are held back until it has
// delivered. So in the window every broker does the whole job, from publish to
// the consumer's acknowledgement, and cannot put off a part of it.
//
// # Checks
//
// A message carries its connection and a counter. Every message is looked up in
// a bitmap, so that each is known to have been delivered once: at the end, all
// that were acknowledged to publishers must have come, none twice, none that was
// not sent, with keys in order where the protocol promises that, and the broker
// itself must say that nothing is left unacknowledged.
package drive
