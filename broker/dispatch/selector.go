package dispatch

import (
	"encoding/base64"
	"fmt"
	"sort"
	"strconv"

	"github.com/contention-toolkit/contention/broker/wire"
)

const (
	// hashRange is the number of key hashes; hash 0 is reserved.
	hashRange = 1 << 16
	// pointsPerConsumer is how often a consumer stands on the ring.
	pointsPerConsumer = 100
)

// noKey stands for the key of messages that have none, so that they all go to
// one consumer, in order.
var noKey = []byte("NONE_KEY")

// keyHash maps a sticky key to 1…65535.
func keyHash(key []byte) uint16 {
	h := (murmur32(key) & 0x7fffffff) % hashRange
	if h == 0 {
		h = 1
	}
	return uint16(h)
}

// stickyKey returns the key that decides a message's consumer. buf is scratch
// for base64 and is returned for reuse.
func stickyKey(md *wire.Metadata, buf []byte) (key, scratch []byte) {
	switch {
	case md.OrderingKey != nil:
		return md.OrderingKey, buf
	case md.PartitionKey == nil:
		return noKey, buf
	case !md.PartitionKeyB64:
		return md.PartitionKey, buf
	}
	n := base64.StdEncoding.DecodedLen(len(md.PartitionKey))
	if cap(buf) < n {
		buf = make([]byte, n)
	}
	n, err := base64.StdEncoding.Decode(buf[:n], md.PartitionKey)
	if err != nil { // flagged wrongly: the text itself is a key as good as any
		return md.PartitionKey, buf
	}
	return buf[:n], buf
}

// entryHash returns the key hash of an entry. Entries whose metadata cannot be
// read share the hash of those without a key.
func entryHash(headersAndPayload []byte, md *wire.Metadata, buf []byte) (uint16, []byte) {
	raw, _, err := wire.SplitPayload(headersAndPayload)
	if err == nil {
		err = wire.ParseMetadata(raw, md)
	}
	if err != nil {
		return keyHash(noKey), buf
	}
	key, buf := stickyKey(md, buf)
	return keyHash(key), buf
}

// ring assigns every hash to a consumer by consistent hashing: each consumer
// stands at 100 points given by its name, and a hash belongs to the next point
// at or after it, around the end. The assignment depends on the set of names
// only, and a consumer that joins or leaves moves only its own share.
type ring struct {
	owners []*Consumer
	table  []uint16 // hash → index in owners
}

type point struct {
	hash  uint16
	owner int
}

func newRing(consumers []*Consumer) *ring {
	if len(consumers) == 0 {
		return nil
	}
	r := &ring{owners: append([]*Consumer(nil), consumers...), table: make([]uint16, hashRange)}
	// Where points coincide, the smaller name wins, whoever came first.
	sort.SliceStable(r.owners, func(i, j int) bool { return r.owners[i].sortKey() < r.owners[j].sortKey() })
	points := make([]point, 0, len(consumers)*pointsPerConsumer)
	for i, c := range r.owners {
		for n := range pointsPerConsumer {
			points = append(points, point{keyHash([]byte(c.Name + strconv.Itoa(n))), i})
		}
	}
	sort.SliceStable(points, func(i, j int) bool { return points[i].hash < points[j].hash })
	p := 0
	for h := range hashRange {
		for p < len(points) && int(points[p].hash) < h {
			p++
		}
		owner := points[0].owner
		if p < len(points) {
			owner = points[p].owner
		}
		r.table[h] = uint16(owner)
	}
	return r
}

func (r *ring) owner(h uint16) *Consumer { return r.owners[r.table[h]] }

// sortKey orders consumers of one name, which differ by number only.
func (c *Consumer) sortKey() string { return fmt.Sprintf("%s\x00%020d", c.Name, c.number) }
