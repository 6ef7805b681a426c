package drive

import (
	"bytes"
	"io"
	"net"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// TestCheck: whatever is delivered, lost, repeated and made up is told.
func TestCheck(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const conns = 3
		window := rapid.IntRange(1, 5).Draw(t, "window")
		c := newCheck(7, conns, window)
		acked, sent := make([]uint32, conns), make([]uint32, conns)
		var lost, duplicates, unknown int64
		want := 0
		var stamps []stamp
		for conn := range conns {
			acked[conn] = uint32(rapid.IntRange(0, 200).Draw(t, "acked"))
			sent[conn] = acked[conn] + uint32(rapid.IntRange(0, window).Draw(t, "unacked"))
			for n := range sent[conn] + 3 {
				times := rapid.SampledFrom([]int{1, 1, 1, 1, 0, 2}).Draw(t, "times")
				switch {
				case n >= sent[conn] && times > 0:
					unknown++
					want++
				case n < acked[conn] && times == 0:
					lost++
				case times > 0:
					want++
				}
				duplicates += int64(max(0, times-1))
				for range times {
					stamps = append(stamps, stamp{run: 7, conn: uint32(conn), counter: n})
				}
			}
		}
		fresh := 0
		for chunk := range slices.Chunk(rapid.Permutation(stamps).Draw(t, "order"), 7) {
			fresh += c.observe(chunk)
		}
		if fresh != want || c.duplicates != duplicates {
			t.Fatalf("%d fresh and %d twice, want %d and %d", fresh, c.duplicates, want, duplicates)
		}
		gotLost, gotUnknown := c.finish(acked, sent)
		if gotLost != lost || gotUnknown != unknown || c.invalid != 0 {
			t.Fatalf("%d lost, %d unknown, %d invalid, want %d, %d, 0", gotLost, gotUnknown, c.invalid, lost, unknown)
		}
	})
}

func TestCheckOrderAndInvalid(t *testing.T) {
	c := newCheck(7, 1, 2)
	// Keys are counters modulo 2: 3 before 1 is out of order, 2 before 1 is not.
	c.observe([]stamp{{run: 7, counter: 0}, {run: 7, counter: 2}, {run: 7, counter: 3}, {run: 7, counter: 1}})
	if c.disorder != 1 {
		t.Errorf("%d out of order, want 1", c.disorder)
	}
	if n := c.observe([]stamp{{run: 8}, {run: 7, conn: 1}, {run: 7, counter: 1<<32 - 1}}); n != 0 || c.invalid != 3 {
		t.Errorf("%d fresh and %d invalid, want 0 and 3", n, c.invalid)
	}
}

// TestBudget: never more out than the budget, nobody waits for ever, and all
// that is asked for is got.
func TestBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const window = 10
		size := rapid.IntRange(3*window, 5*window).Draw(t, "size")
		b := newBudget(size, 0)
		ps := []*publisher{{}, {}, {}, {}, {}, {}, {}, {}}
		flight := make([]int, len(ps)) // sent, without a receipt
		out, asked, got := 0, 0, 0
		send := func(i, n int) {
			flight[i] += n
			out += n
			got += n
			if out > size {
				t.Fatalf("%d are out of a budget of %d", out, size)
			}
		}
		take := func(i, n int) {
			asked += n
			send(i, b.take(ps[i], n))
		}
		give := func(n int) {
			out -= n
			b.give(n)
			for _, g := range b.granted() {
				send(slices.Index(ps, g.p), g.n)
			}
		}
		for i := range ps {
			take(i, window)
		}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "receipt") {
				i := rapid.IntRange(0, len(ps)-1).Draw(t, "publisher")
				n := rapid.IntRange(0, flight[i]).Draw(t, "n")
				flight[i] -= n
				take(i, n)
			} else if out > 0 {
				give(rapid.IntRange(1, out).Draw(t, "delivered"))
			}
		}
		for out > 0 && got < asked {
			give(out)
		}
		if got != asked {
			t.Fatalf("%d of %d asked for were got", got, asked)
		}
	})
}

func TestBudgetLimitAndStop(t *testing.T) {
	b := newBudget(10, 12)
	p := &publisher{}
	if n := b.take(p, 8); n != 8 || b.drained() {
		t.Fatalf("got %d, drained %v", n, b.drained())
	}
	if n := b.take(p, 8); n != 2 || p.held != 2 {
		t.Fatalf("got %d and %d wait: want the 2 left of the budget, and 2 of the limit to wait", n, p.held)
	}
	b.give(5)
	if g := b.granted(); len(g) != 1 || g[0].n != 2 || !b.drained() {
		t.Errorf("granted %v, drained %v", g, b.drained())
	}
	b.stop()
	if n := b.take(p, 1); n != 0 {
		t.Errorf("got %d of a stopped budget", n)
	}
}

// pieces is a connection that returns what was written in pieces.
type pieces struct {
	net.Conn
	left []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.left) == 0 {
		return 0, io.EOF
	}
	n := copy(b, p.left[:min(p.size, len(p.left))])
	p.left = p.left[n:]
	return n, nil
}

const natsStreamed = "INFO {}\r\nPING\r\nMSG b 1 5\r\nhe\r\no\r\nMSG d.x 12 $JS.ACK.B.C.1.2.3.4.5 0\r\n\r\n+OK\r\n" +
	"HMSG _INBOX.1 1 12 15\r\nNATS/1.0 503abc\r\nPONG\r\nHMSG b 1 r 2 2\r\nhh\r\n"

// TestNATSLink: the same messages come out, however the bytes arrive.
func TestNATSLink(t *testing.T) {
	type msg struct{ op, reply, header, payload string }
	want := []msg{{"P", "", "", ""}, {"M", "", "", "he\r\no"}, {"M", "$JS.ACK.B.C.1.2.3.4.5", "", ""}, {"M", "", "NATS/1.0 503", "abc"}, {"O", "", "", ""}, {"M", "r", "hh", ""}}
	for size := 1; size <= len(natsStreamed); size++ {
		l := &natsLink{nc: &pieces{left: []byte(natsStreamed), size: size}, buf: make([]byte, 8)}
		var got []msg
		for {
			var m natsMsg
			ok, err := l.next(&m)
			if err != nil {
				t.Fatal(err)
			}
			if ok {
				got = append(got, msg{string(m.op), string(m.reply), string(m.header), string(m.payload)})
				continue
			}
			if err := l.fill(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(got, want) {
			t.Fatalf("in pieces of %d: %q, want %q", size, got, want)
		}
	}
}

func FuzzNATSLink(f *testing.F) {
	f.Add([]byte(natsStreamed))
	f.Add([]byte("-ERR 'x'\r\n"))
	f.Add([]byte("HMSG a b 99999999999999999999 1\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		l := &natsLink{nc: &pieces{left: bytes.Clone(data), size: 1 + len(data)/3}, buf: make([]byte, 8)}
		for {
			var m natsMsg
			ok, err := l.next(&m)
			if err != nil {
				return
			}
			if ok {
				if len(m.payload)+len(m.header)+len(m.reply) > len(data) {
					t.Fatalf("a message of more than the %d bytes that came: %q", len(data), m)
				}
				continue
			}
			if l.fill() != nil {
				return
			}
		}
	})
}
