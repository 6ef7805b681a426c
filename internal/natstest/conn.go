package natstest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// subject is where messages go: one subject per connection below it.
const subject = "load"

// conn is a client's connection, as much of the NATS protocol as publishing
// with acknowledgements needs. One goroutine may send while another receives.
type conn struct {
	net.Conn
	r      *bufio.Reader
	mu     sync.Mutex // guards w
	w      *bufio.Writer
	closed chan struct{} // closed when receive returns
	end    func() bool   // stops watching the context
}

// dial connects and waits until the server takes commands. The connection
// closes when ctx ends.
func dial(ctx context.Context, addr string) (*conn, error) {
	d := net.Dialer{Timeout: 10 * time.Second}
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: nc, r: bufio.NewReaderSize(nc, 16<<10), w: bufio.NewWriterSize(nc, 16<<10), closed: make(chan struct{})}
	c.end = context.AfterFunc(ctx, func() { nc.Close() })
	if err := c.handshake(); err != nil {
		c.Close()
		return nil, fmt.Errorf("connect to %s: %w", addr, err)
	}
	return c, nil
}

func (c *conn) handshake() error {
	line, err := c.line()
	if err != nil {
		return err
	}
	if !bytes.HasPrefix(line, []byte("INFO ")) {
		return fmt.Errorf("the server begins with %.60q, not INFO", line)
	}
	c.printf("CONNECT {\"verbose\":false,\"pedantic\":false,\"protocol\":1,\"lang\":\"go\",\"name\":\"load\"}\r\nPING\r\n")
	if err := c.flush(); err != nil {
		return err
	}
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		switch {
		case bytes.Equal(line, []byte("PONG")):
			return nil
		case bytes.HasPrefix(line, []byte("-ERR")):
			return errors.New(string(line))
		}
	}
}

// Close ends the connection; receive then returns.
func (c *conn) Close() error {
	c.end()
	return c.Conn.Close()
}

func (c *conn) line() ([]byte, error) {
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	return bytes.TrimRight(line, "\r\n"), nil
}

func (c *conn) printf(format string, a ...any) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := fmt.Fprintf(c.w, format, a...)
	return err
}

func (c *conn) writeString(s string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, err := c.w.WriteString(s)
	return err
}

func (c *conn) flush() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.w.Flush()
}

// receive calls message for every message until the connection ends, and
// answers the server's pings. The payload is valid until message returns.
func (c *conn) receive(message func(payload []byte)) error {
	defer close(c.closed)
	var payload []byte
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		switch {
		case bytes.HasPrefix(line, []byte("MSG ")):
			size, err := strconv.Atoi(string(line[bytes.LastIndexByte(line, ' ')+1:]))
			if err != nil || size < 0 || size > 1<<20 {
				return fmt.Errorf("the server sends %.80q", line)
			}
			if cap(payload) < size+2 {
				payload = make([]byte, size+2)
			}
			payload = payload[:size+2]
			if _, err := io.ReadFull(c.r, payload); err != nil {
				return err
			}
			message(payload[:size])
		case bytes.Equal(line, []byte("PING")):
			c.printf("PONG\r\n")
			if err := c.flush(); err != nil {
				return err
			}
		case bytes.HasPrefix(line, []byte("-ERR")):
			return errors.New(string(line))
		}
	}
}

// createStream makes the stream that stores the messages. It is bounded, and
// drops its oldest messages.
func createStream(ctx context.Context, addr, storage string) error {
	c, err := dial(ctx, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	request, err := json.Marshal(map[string]any{
		"name": strings.ToUpper(subject), "subjects": []string{subject + ".*"}, "storage": storage,
		"retention": "limits", "discard": "old", "max_bytes": 256 << 20, "max_msgs": -1, "max_consumers": -1, "num_replicas": 1,
	})
	if err != nil {
		return err
	}
	c.printf("SUB _INBOX.api 1\r\nPUB $JS.API.STREAM.CREATE.%s _INBOX.api %d\r\n%s\r\n", strings.ToUpper(subject), len(request), request)
	if err := c.flush(); err != nil {
		return err
	}
	var answer error
	answered := false
	err = c.receive(func(payload []byte) {
		answer, answered = ackError(payload), true
		c.Close()
	})
	if !answered {
		return err
	}
	return answer
}

// ackError is the error that an answer of JetStream holds, nil for none.
func ackError(payload []byte) error {
	if !bytes.Contains(payload, []byte(`"error"`)) {
		return nil // the common case, without parsing
	}
	var a struct {
		Error *struct {
			Code        int
			Description string
		}
	}
	if err := json.Unmarshal(payload, &a); err != nil || a.Error == nil {
		return fmt.Errorf("the server answers %.200q", payload)
	}
	return fmt.Errorf("the server answers %d: %s", a.Error.Code, a.Error.Description)
}
