package load

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"

	"github.com/contention-toolkit/contention/broker/wire"
)

// protocolVersion is what the load tells a broker that it speaks.
const protocolVersion = 20

// link is one connection: a frame reader for its reading goroutine, and an
// outgoing buffer that anyone may append to and that one writing goroutine
// empties. A write that blocks never keeps the reader from reading, so the two
// sides cannot block each other for ever.
type link struct {
	name   string // for errors
	nc     net.Conn
	fr     *wire.FrameReader
	unhook func() bool // keeps the set-up's context from closing nc; see ready

	// Of the reading goroutine.
	frame wire.Frame
	cmd   wire.Command

	mu        sync.Mutex
	out       []byte // frames to write
	signalled bool   // the writer has been woken for what is in out
	closed    bool
	wake      chan struct{}
}

// dialer opens links to one broker.
type dialer struct {
	dial       func(ctx context.Context, network, address string) (net.Conn, error)
	address    string
	bufferSize int
}

// parseBroker returns the host:port of an address with or without pulsar://.
func parseBroker(s string) (string, error) {
	address := s
	if strings.Contains(s, "://") {
		u, err := url.Parse(s)
		if err != nil {
			return "", fmt.Errorf("broker address: %w", err)
		}
		if u.Scheme != "pulsar" {
			return "", fmt.Errorf("broker address %q: only pulsar:// is supported", s)
		}
		address = u.Host
	}
	host, port, err := net.SplitHostPort(address)
	if err != nil || host == "" || port == "" {
		return "", fmt.Errorf("broker address %q: want host:port or pulsar://host:port", s)
	}
	return address, nil
}

// open connects, introduces itself and returns the link. When ctx ends, the
// connection is closed, until ready is called.
func (d *dialer) open(ctx context.Context, name string) (*link, error) {
	nc, err := d.dial(ctx, "tcp", d.address)
	if err != nil {
		return nil, fmt.Errorf("%s: connect to broker %s: %w: check that it runs and the address", name, d.address, err)
	}
	l := &link{name: name, nc: nc, wake: make(chan struct{}, 1)}
	l.fr = wire.NewFrameReader(nc, wire.ReaderOptions{BufferSize: d.bufferSize})
	l.unhook = context.AfterFunc(ctx, func() { nc.Close() })
	hello := wire.Connect{ClientVersion: "contention-load", ProtocolVersion: protocolVersion}
	if err := l.request(hello.AppendFrame(nil), wire.TypeConnected); err != nil {
		nc.Close() // err says more
		return nil, d.expired(ctx, err)
	}
	return l, nil
}

// expired says that time ran out or the caller gave up, where err is only a
// consequence of that.
func (d *dialer) expired(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return fmt.Errorf("broker %s did not answer in time: %w: raise the timeout if it is only slow", d.address, err)
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return err
}

// request writes a frame and reads until the answer of type want, which is
// then in l.cmd. It is for the time before the link's goroutines run.
func (l *link) request(frame []byte, want wire.CommandType) error {
	if _, err := l.nc.Write(frame); err != nil {
		return l.explain(err)
	}
	for {
		if err := l.next(); err != nil {
			return err
		}
		switch l.cmd.Type {
		case want:
			return nil
		case wire.TypePing:
			if _, err := l.nc.Write((&wire.Pong{}).AppendFrame(nil)); err != nil {
				return l.explain(err)
			}
		case wire.TypeActiveConsumerChange:
		default:
			return l.unexpected(fmt.Sprintf("waiting for %v", want))
		}
	}
}

// next reads and decodes one frame into l.frame and l.cmd.
func (l *link) next() error {
	if err := l.fr.Next(&l.frame); err != nil {
		return l.explain(err)
	}
	if err := wire.Parse(l.frame.Command, &l.cmd); err != nil {
		return fmt.Errorf("%s: broker sent a command that cannot be read, in the frame at byte %d: %w", l.name, l.frame.Offset, err)
	}
	return nil
}

// unexpected is the error for a command that should not come now.
func (l *link) unexpected(when string) error {
	switch c := &l.cmd; c.Type {
	case wire.TypeError:
		return fmt.Errorf("%s, %s: broker answered ERROR %v: %q", l.name, when, c.Error.Code, c.Error.Message)
	case wire.TypeSendError:
		return fmt.Errorf("%s, %s: broker answered SEND_ERROR %v for message %d: %q: see the broker's log", l.name, when,
			c.SendError.Code, c.SendError.SequenceID, c.SendError.Message)
	default:
		return fmt.Errorf("%s, %s: broker sent an unexpected %v", l.name, when, c.Type)
	}
}

// explain names the link in an error of its connection.
func (l *link) explain(err error) error {
	return fmt.Errorf("%s: connection to broker %s broke: %w: see the broker's log", l.name, l.nc.RemoteAddr(), err)
}

// ready ends the set-up: its context does not close the connection any more.
func (l *link) ready() { l.unhook() }

// signal wakes the writer for what was appended to out; l.mu is held.
func (l *link) signal() {
	if l.signalled || l.closed {
		return
	}
	l.signalled = true
	l.wake <- struct{}{} // has room: the flag says that nothing is in it
}

// write is the writing goroutine. It ends when the link closes, after writing
// what was appended before.
func (l *link) write() error {
	var buf []byte
	for open := true; open; {
		_, open = <-l.wake
		l.mu.Lock()
		buf, l.out = l.out, buf[:0]
		l.signalled = false
		l.mu.Unlock()
		if len(buf) == 0 {
			continue
		}
		if _, err := l.nc.Write(buf); err != nil {
			return l.explain(err)
		}
	}
	return nil
}

// pong answers a PING; l.mu is held.
func (l *link) pong() {
	l.out = (&wire.Pong{}).AppendFrame(l.out)
	l.signal()
}

// stop lets the writer end. It may be called more than once.
func (l *link) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.wake)
	}
}
