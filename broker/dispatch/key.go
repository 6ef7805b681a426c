package dispatch

import (
	"encoding/base64"

	"github.com/contention-toolkit/contention/broker/wire"
)

// hashRange is the number of key hashes; hash 0 is reserved.
const hashRange = 1 << 16

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
