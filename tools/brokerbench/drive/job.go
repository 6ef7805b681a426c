package drive

import (
	"errors"
	"fmt"
	"time"
)

// Protocol names what a broker speaks.
type Protocol string

const (
	Pulsar Protocol = "pulsar"
	NATS   Protocol = "nats"
)

// Job is one run. All counts are of messages unless they say otherwise.
type Job struct {
	Protocol Protocol
	Addr     string // host:port

	Connections int // that publish
	InFlight    int // without a receipt, of one connection
	Size        int // payload bytes, at least MinSize
	Consumers   int // in the one group, each on its own connection
	Window      int // of one consumer: permits, or the batch of a pull
	Backlog     int // sent and not delivered, over all; at least all that may be in flight
	AckGroup    int // acknowledgements that a consumer writes at once; 1 = those of every read
	// Messages ends the run after so many, window or not; 0 = no such end.
	Messages int64

	Warm    time.Duration // before the window; longer until publishes and deliveries are as many
	Measure time.Duration // the window
	// Apart is how far apart the publishes, deliveries and acknowledgements of
	// the window may be, as a share of the least, for it to be a steady state.
	Apart float64
	// Timeout is how long the broker may take to connect everything, and to
	// make no progress.
	Timeout time.Duration

	// ServerPID is the process whose CPU time is measured.
	ServerPID int
	// HeapURL is its net/http/pprof heap profile, from which allocations are
	// counted; "" = they are not.
	HeapURL string
	// StateURL is where the broker says what is left unacknowledged.
	StateURL string
	// ProfileURL is its CPU profile, taken inside the window into ProfileFile;
	// "" = none.
	ProfileURL  string
	ProfileFile string

	JetStream JetStream
}

// JetStream arranges the stream and its consumer; for NATS only.
type JetStream struct {
	Storage string // memory or file
	// Retention is limits (keep the newest messages), interest or workqueue
	// (drop what was acknowledged).
	Retention string
	// Pull consumers ask for batches; otherwise the server pushes to a queue
	// group.
	Pull bool
	// MaxAckPending is what the group may have unacknowledged.
	MaxAckPending int
	// KeepMessages bounds a stream with retention limits; it must hold the
	// backlog.
	KeepMessages int
	// OneSubject publishes everything to one subject, otherwise every
	// connection has its own.
	OneSubject bool
}

// ackEvery is how long an acknowledgement may wait for its group.
const ackEvery = 100 * time.Millisecond

// Validate returns why the job cannot run, or nil.
func (j *Job) Validate() error {
	var errs []error
	refuse := func(bad bool, format string, a ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, a...))
		}
	}
	refuse(j.Protocol != Pulsar && j.Protocol != NATS, "protocol %q is not %s or %s", j.Protocol, Pulsar, NATS)
	refuse(j.Connections < 1 || j.Connections > 20_000, "%d connections: use 1 to 20,000", j.Connections)
	refuse(j.InFlight < 1 || j.InFlight > 1<<16, "%d in flight per connection: use 1 to 65,536", j.InFlight)
	refuse(j.Size < MinSize || j.Size > 1<<20, "messages of %d bytes: use %d to 1,048,576", j.Size, MinSize)
	refuse(j.Consumers < 1 || j.Consumers > 1000, "%d consumers: use 1 to 1,000", j.Consumers)
	refuse(j.Window < 2 || j.Window > 1<<20, "a window of %d per consumer: use 2 to 1,048,576", j.Window)
	refuse(j.Backlog < j.Connections*j.InFlight, "a backlog of %d is less than the %d that may be in flight", j.Backlog, j.Connections*j.InFlight)
	refuse(j.AckGroup < 1 || j.AckGroup > 1000, "%d acknowledgements in a group: use 1 to 1,000", j.AckGroup)
	refuse(j.Measure <= 0 || j.Warm < 0 || j.Timeout <= 0, "times %v, %v and %v: the window and the timeout must be positive", j.Warm, j.Measure, j.Timeout)
	refuse(!(j.Apart > 0), "deliveries may be %v apart from publishes: use a share above 0, such as 0.05", j.Apart)
	refuse(j.Messages < 0, "%d messages: use 0 for no bound", j.Messages)
	if j.Protocol == NATS {
		s := &j.JetStream
		refuse(s.Storage != "memory" && s.Storage != "file", "stream storage %q is not memory or file", s.Storage)
		refuse(s.Retention != "limits" && s.Retention != "interest" && s.Retention != "workqueue", "stream retention %q is not limits, interest or workqueue", s.Retention)
		refuse(s.Retention == "limits" && s.KeepMessages < j.Backlog, "a stream that keeps %d messages loses some of a backlog of %d", s.KeepMessages, j.Backlog)
		refuse(s.MaxAckPending < 1, "max ack pending is %d: use 1 or more", s.MaxAckPending)
	}
	return errors.Join(errs...)
}
