package dispatch

import "github.com/contention-toolkit/contention/broker/wire"

// sharedHash is the hash of everything that a Shared consumer may get out of
// turn; other hashes are those of messages in chunks.
const sharedHash = 1

// chunkHash returns sharedHash, or a hash of the chunked message that an entry
// is part of. Two messages of one hash only go to the same consumer.
func chunkHash(headersAndPayload []byte, md *wire.Metadata) uint16 {
	raw, _, err := wire.SplitPayload(headersAndPayload)
	if err != nil || wire.ParseMetadata(raw, md) != nil || md.NumChunks < 2 || len(md.UUID) == 0 {
		return sharedHash
	}
	return max(keyHash(md.UUID), sharedHash+1)
}

// chunkOwners remembers, for Shared, which consumer gets the chunks of the
// messages of a hash. It has one entry per hash at most, however many messages
// never see their last chunk.
type chunkOwners struct {
	byHash map[uint16]*chunkOwner
}

type chunkOwner struct {
	consumer *Consumer
	open     int // messages begun and not ended
}

// of returns the consumer of h, or nil while it is anybody's.
func (o *chunkOwners) of(h uint16) *Consumer {
	if a := o.byHash[h]; a != nil {
		return a.consumer
	}
	return nil
}

// sent notes that c got the chunk md of a message of h.
func (o *chunkOwners) sent(h uint16, c *Consumer, md *wire.Metadata) {
	a := o.byHash[h]
	if a == nil {
		if o.byHash == nil {
			o.byHash = make(map[uint16]*chunkOwner)
		}
		a = &chunkOwner{consumer: c, open: 1}
		o.byHash[h] = a
	} else if md.ChunkID == 0 {
		a.open++
	}
	if md.ChunkID == md.NumChunks-1 {
		if a.open--; a.open <= 0 {
			delete(o.byHash, h)
		}
	}
}

// leave forgets what c had: it is sent again, from the first chunk not
// acknowledged, to whoever's turn it is.
func (o *chunkOwners) leave(c *Consumer) {
	for h, a := range o.byHash {
		if a.consumer == c {
			delete(o.byHash, h)
		}
	}
}
