package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
)

// Entry is one entry of a ledger.
type Entry struct {
	ID   int64
	Data []byte
	// Messages is the number of messages in the entry.
	Messages int32
	// Index is the number in the topic of the entry's last message, from 0.
	Index int64
	// Timestamp is when the broker took the entry, in ms since 1970.
	Timestamp int64
}

// MaxBlockBytes is the most that one Append can store.
const MaxBlockBytes = 64 << 20

const (
	blockMagic   = "CBLK"
	blockVersion = 1
	headerBytes  = 48
	// An entry takes at least its three numbers.
	minEntryBytes = 3
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var errBlock = errors.New("not a whole block")

// header is what a block says about itself.
type header struct {
	body  uint32
	crc   uint32
	first int64 // entry
	index int64 // of the first message
	time  int64
	count uint32
}

// appendBlock appends the block of entries, which must not be empty and whose
// numbers must follow each other, to b.
func appendBlock(b []byte, entries []Entry) []byte {
	start := len(b)
	e := &entries[0]
	b = append(b, blockMagic...)
	b = append(b, blockVersion, 0, 0, 0)
	b = append(b, 0, 0, 0, 0, 0, 0, 0, 0) // bytes and checksum, below
	b = binary.LittleEndian.AppendUint64(b, uint64(e.ID))
	b = binary.LittleEndian.AppendUint64(b, uint64(e.Index-int64(e.Messages)+1))
	b = binary.LittleEndian.AppendUint64(b, uint64(e.Timestamp))
	b = binary.LittleEndian.AppendUint32(b, uint32(len(entries)))
	b = append(b, 0, 0, 0, 0)
	at := e.Timestamp
	for i := range entries {
		e := &entries[i]
		b = binary.AppendUvarint(b, uint64(len(e.Data)))
		b = binary.AppendUvarint(b, uint64(e.Messages))
		b = binary.AppendVarint(b, e.Timestamp-at)
		b = append(b, e.Data...)
		at = e.Timestamp
	}
	binary.LittleEndian.PutUint32(b[start+8:], uint32(len(b)-start-headerBytes))
	binary.LittleEndian.PutUint32(b[start+12:], blockChecksum(b[start:]))
	return b
}

// blockBytes is at least the bytes of the block of entries.
func blockBytes(entries []Entry) int64 {
	n := int64(headerBytes)
	for i := range entries {
		n += int64(len(entries[i].Data)) + 3*binary.MaxVarintLen64
	}
	return n
}

func blockChecksum(b []byte) uint32 {
	return crc32.Update(crc32.Update(0, castagnoli, b[:12]), castagnoli, b[16:])
}

// parseHeader reads the header of a block; it does not look at what follows.
func parseHeader(b []byte) (header, error) {
	if len(b) < headerBytes || string(b[:4]) != blockMagic {
		return header{}, errBlock
	}
	if b[4] != blockVersion {
		return header{}, fmt.Errorf("%w: version %d, this program reads %d", errBlock, b[4], blockVersion)
	}
	h := header{
		body:  binary.LittleEndian.Uint32(b[8:]),
		crc:   binary.LittleEndian.Uint32(b[12:]),
		first: int64(binary.LittleEndian.Uint64(b[16:])),
		index: int64(binary.LittleEndian.Uint64(b[24:])),
		time:  int64(binary.LittleEndian.Uint64(b[32:])),
		count: binary.LittleEndian.Uint32(b[40:]),
	}
	if h.first < 0 || h.index < 0 || h.count == 0 || h.body > MaxBlockBytes || uint64(h.count)*minEntryBytes > uint64(h.body) ||
		h.first > math.MaxInt64-int64(h.count) {
		return header{}, fmt.Errorf("%w: its header is impossible", errBlock)
	}
	return h, nil
}

// decodeBlock appends the entries of the block b, which must be all of it, to
// into. Their data are parts of b.
func decodeBlock(b []byte, into []Entry) ([]Entry, error) {
	h, err := parseHeader(b)
	if err != nil {
		return into, err
	}
	if uint64(len(b)) != headerBytes+uint64(h.body) {
		return into, fmt.Errorf("%w: %d bytes instead of %d", errBlock, len(b), headerBytes+uint64(h.body))
	}
	if blockChecksum(b) != h.crc {
		return into, fmt.Errorf("%w: its checksum is wrong", errBlock)
	}
	p := b[headerBytes:]
	index, at := h.index-1, h.time
	for i := range h.count {
		size, n := binary.Uvarint(p)
		messages, m := binary.Uvarint(p[max(n, 0):])
		delta, k := binary.Varint(p[max(n, 0)+max(m, 0):])
		if n <= 0 || m <= 0 || k <= 0 || messages > math.MaxInt32 || size > uint64(len(p)-n-m-k) || index > math.MaxInt64-int64(messages) {
			return into, fmt.Errorf("%w: its entry %d is impossible", errBlock, i)
		}
		p = p[n+m+k:]
		index += int64(messages)
		at += delta
		into = append(into, Entry{ID: h.first + int64(i), Data: p[:size:size], Messages: int32(messages), Index: index, Timestamp: at})
		p = p[size:]
	}
	if len(p) != 0 {
		return into, fmt.Errorf("%w: %d bytes too many", errBlock, len(p))
	}
	return into, nil
}

// endIndex is the index of the message after the block: it needs the whole block.
func endIndex(b []byte) (int64, error) {
	h, err := parseHeader(b)
	if err != nil {
		return 0, err
	}
	p, index := b[headerBytes:], h.index
	for range h.count {
		size, n := binary.Uvarint(p)
		messages, m := binary.Uvarint(p[max(n, 0):])
		_, k := binary.Varint(p[max(n, 0)+max(m, 0):])
		if n <= 0 || m <= 0 || k <= 0 || size > uint64(len(p)-n-m-k) {
			return 0, errBlock
		}
		index += int64(messages)
		p = p[n+m+k+int(size):]
	}
	return index, nil
}
