package drive

import (
	"encoding/binary"
	"errors"
	"sync"
)

// MinSize is the payload that a stamp takes, in bytes.
const MinSize = 24

const magic = 0x62626e63

// stamp is what a payload says about itself.
type stamp struct {
	run     uint32
	conn    uint32
	counter uint32
	sent    int64 // ns since the run's epoch
}

func (s *stamp) put(b []byte) {
	binary.BigEndian.PutUint32(b, magic)
	binary.BigEndian.PutUint32(b[4:], s.run)
	binary.BigEndian.PutUint32(b[8:], s.conn)
	binary.BigEndian.PutUint32(b[12:], s.counter)
	binary.BigEndian.PutUint64(b[16:], uint64(s.sent))
}

var errPayload = errors.New("payload was not written by this run")

func (s *stamp) parse(b []byte, size int) error {
	if len(b) != size || binary.BigEndian.Uint32(b) != magic {
		return errPayload
	}
	s.run, s.conn, s.counter = binary.BigEndian.Uint32(b[4:]), binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])
	s.sent = int64(binary.BigEndian.Uint64(b[16:]))
	return nil
}

// check knows every message that came. A key is a connection and the counter
// modulo the window, so at most one message of a key is in flight.
type check struct {
	run      uint32
	inFlight uint32

	mu         sync.Mutex
	conns      []seen
	duplicates int64
	invalid    int64
	disorder   int64
}

// seen is what came from one connection.
type seen struct {
	bits []uint64 // by counter
	last []uint32 // by key, the counter after the last one that came
}

func newCheck(run uint32, connections, inFlight int) *check {
	c := &check{run: run, inFlight: uint32(inFlight), conns: make([]seen, connections)}
	for i := range c.conns {
		c.conns[i].last = make([]uint32, inFlight)
	}
	return c
}

// maxGap bounds the memory that a wrong counter can take.
const maxGap = 1 << 24

// observe returns how many of the messages came for the first time.
func (c *check) observe(stamps []stamp) (fresh int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range stamps {
		if c.see(&stamps[i]) {
			fresh++
		}
	}
	return fresh
}

func (c *check) see(s *stamp) bool {
	if s.run != c.run || int64(s.conn) >= int64(len(c.conns)) {
		c.invalid++
		return false
	}
	k := &c.conns[s.conn]
	word, bit := int(s.counter/64), uint64(1)<<(s.counter%64)
	if word >= len(k.bits) {
		if int(s.counter) > 64*len(k.bits)+maxGap {
			c.invalid++
			return false
		}
		k.bits = append(k.bits, make([]uint64, max(word+1, 2*len(k.bits))-len(k.bits))...)
	}
	if k.bits[word]&bit != 0 {
		c.duplicates++
		return false
	}
	k.bits[word] |= bit
	last := &k.last[s.counter%c.inFlight]
	if s.counter < *last {
		c.disorder++
	} else {
		*last = s.counter + 1
	}
	return true
}

func (c *check) refuse() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.invalid++
}

// finish returns how many of the first acked[i] messages of a connection did
// not come, and how many came that were not among the first sent[i].
func (c *check) finish(acked, sent []uint32) (lost, unknown int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	has := func(k *seen, n uint32) bool { return int(n/64) < len(k.bits) && k.bits[n/64]&(1<<(n%64)) != 0 }
	for i := range c.conns {
		k := &c.conns[i]
		for n := range acked[i] {
			if !has(k, n) {
				lost++
			}
		}
		for n := sent[i]; int(n/64) < len(k.bits); n++ {
			if has(k, n) {
				unknown++
			}
		}
	}
	return lost, unknown
}
