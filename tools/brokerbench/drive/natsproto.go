package drive

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
)

// natsLink is a client's connection over the NATS protocol.
type natsLink struct {
	nc         net.Conn
	buf        []byte
	start, end int // unread bytes are buf[start:end]
}

// natsMsg is what the server sent; its slices alias the link's buffer.
type natsMsg struct {
	op      byte // 'M' message, 'P' ping, 'O' pong; others are skipped
	reply   []byte
	header  []byte
	payload []byte
}

const natsLargest = 1 << 20 // bytes of one message

// openNATS introduces the client and waits until the server takes commands.
func openNATS(nc net.Conn, bufferSize int) (*natsLink, error) {
	l := &natsLink{nc: nc, buf: make([]byte, bufferSize)}
	_, err := io.WriteString(nc, "CONNECT {\"verbose\":false,\"pedantic\":false,\"protocol\":1,\"headers\":true,\"no_responders\":true,\"lang\":\"go\",\"version\":\"1\",\"name\":\"brokerbench\"}\r\nPING\r\n")
	if err != nil {
		return nil, err
	}
	for {
		var m natsMsg
		ok, err := l.next(&m)
		if err == nil && !ok {
			err = l.fill()
		}
		switch {
		case err != nil:
			return nil, err
		case ok && m.op == 'O':
			return l, nil
		}
	}
}

// fill reads once, into a buffer with room.
func (l *natsLink) fill() error {
	if l.start > 0 {
		copy(l.buf, l.buf[l.start:l.end])
		l.start, l.end = 0, l.end-l.start
	}
	if l.end == len(l.buf) {
		if l.end >= 2*natsLargest {
			return errors.New("the server's message does not end")
		}
		l.buf = append(l.buf, make([]byte, len(l.buf))...)
	}
	n, err := l.nc.Read(l.buf[l.end:])
	l.end += n
	if n > 0 {
		return nil
	}
	return err
}

// next takes one whole message out of the buffer; false = there is none.
func (l *natsLink) next(m *natsMsg) (bool, error) {
	for {
		b := l.buf[l.start:l.end]
		i := bytes.IndexByte(b, '\n')
		if i < 1 {
			return false, nil
		}
		line := b[:i-1] // ends in \r
		if len(line) == 0 {
			return false, errors.New("the server sends an empty line")
		}
		switch line[0] {
		case 'M', 'H':
			header, size, err := m.parse(line)
			if err != nil {
				return false, err
			}
			if len(b) < i+1+size+2 {
				return false, nil
			}
			body := b[i+1 : i+1+size]
			m.header, m.payload = body[:header], body[header:]
			l.start += i + 1 + size + 2
			return true, nil
		case '-':
			return false, fmt.Errorf("the server says %s", line)
		case 'P':
			l.start += i + 1
			*m = natsMsg{op: 'P'}
			if len(line) > 1 && line[1] == 'O' {
				m.op = 'O'
			}
			return true, nil
		case '+', 'I':
			l.start += i + 1
		default:
			return false, fmt.Errorf("the server sends %.80q", line)
		}
	}
}

var errNATSLine = errors.New("the server sends a message's line that cannot be read")

// parse reads "MSG subject sid [reply] size" or "HMSG subject sid [reply]
// header-size size", where size includes the header.
func (m *natsMsg) parse(line []byte) (header, size int, err error) {
	rest, size, ok := lastNumber(line)
	if ok && line[0] == 'H' {
		rest, header, ok = lastNumber(rest)
	}
	if !ok || header > size || size > natsLargest {
		return 0, 0, errNATSLine
	}
	*m = natsMsg{op: 'M'}
	for field := 0; field < 3; field++ {
		i := bytes.IndexByte(rest, ' ')
		if i < 0 {
			if field < 2 {
				return 0, 0, errNATSLine
			}
			return header, size, nil // without a reply
		}
		rest = rest[i+1:]
	}
	m.reply = rest
	return header, size, nil
}

// lastNumber splits off a decimal number behind the last space.
func lastNumber(line []byte) (rest []byte, n int, ok bool) {
	i := len(line) - 1
	for scale := 1; i >= 0 && line[i] >= '0' && line[i] <= '9' && scale <= natsLargest*10; i, scale = i-1, scale*10 {
		n += int(line[i]-'0') * scale
	}
	if i < 0 || line[i] != ' ' || i == len(line)-1 {
		return nil, 0, false
	}
	return line[:i], n, true
}
