package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"google.golang.org/protobuf/encoding/protowire"
)

const (
	// DefaultMaxMessageSize is the protocol's limit on headers-and-payload,
	// where CONNECTED names no other, in bytes.
	DefaultMaxMessageSize = 5 << 20
	// FramePadding is what a frame may be longer than its message, in bytes.
	FramePadding = 10 << 10

	magicChecksum    = 0x0e01
	magicBrokerEntry = 0x0e02
	// checksumHeader is the magic and the CRC; the CRC covers what follows.
	checksumHeader = 2 + 4
)

var (
	// ErrChecksum means that a payload does not match its CRC32C.
	ErrChecksum = errors.New("checksum does not match")
	errNoMagic  = errors.New("headers and payload do not start with 0x0e01")

	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// frameMark remembers where a frame under construction and its command body
// start.
type frameMark struct{ frame, body int }

// openFrame reserves the two lengths, writes the command's type and opens its
// body.
func openFrame(dst []byte, t CommandType) ([]byte, frameMark) {
	f := frameMark{frame: len(dst)}
	b := append(dst, 0, 0, 0, 0, 0, 0, 0, 0)
	b = putUint(b, 1, uint64(t))
	b, f.body = openMessage(b, protowire.Number(t))
	return b, f
}

// closeCommand ends the command; what is appended next is headers and payload.
func closeCommand(b []byte, f frameMark) []byte {
	b = closeMessage(b, f.body)
	binary.BigEndian.PutUint32(b[f.frame+4:], uint32(len(b)-f.frame-8))
	return b
}

func closeTotal(b []byte, f frameMark) []byte {
	binary.BigEndian.PutUint32(b[f.frame:], uint32(len(b)-f.frame-4))
	return b
}

func closeFrame(b []byte, f frameMark) []byte { return closeTotal(closeCommand(b, f), f) }

// AppendHeadersAndPayload appends 0x0e01, checksum, metadata and payload: the
// part of a SEND that a broker stores.
func AppendHeadersAndPayload(dst []byte, md *Metadata, payload []byte) []byte {
	start := len(dst)
	b := append(dst, magicChecksum>>8, magicChecksum&0xff, 0, 0, 0, 0, 0, 0, 0, 0)
	b = md.Append(b)
	binary.BigEndian.PutUint32(b[start+checksumHeader:], uint32(len(b)-start-checksumHeader-4))
	b = append(b, payload...)
	binary.BigEndian.PutUint32(b[start+2:], crc32.Checksum(b[start+checksumHeader:], castagnoli))
	return b
}

// AppendBrokerEntry appends 0x0e02 and e; headers-and-payload follow it.
func AppendBrokerEntry(dst []byte, e *BrokerEntry) []byte {
	start := len(dst)
	b := append(dst, magicBrokerEntry>>8, magicBrokerEntry&0xff, 0, 0, 0, 0)
	b = putUint(putUint(b, 1, e.Timestamp), 2, e.Index)
	binary.BigEndian.PutUint32(b[start+2:], uint32(len(b)-start-6))
	return b
}

// VerifyChecksum checks the CRC32C of headers-and-payload that start with
// 0x0e01.
func VerifyChecksum(headersAndPayload []byte) error {
	if len(headersAndPayload) < checksumHeader || binary.BigEndian.Uint16(headersAndPayload) != magicChecksum {
		return errNoMagic
	}
	want := binary.BigEndian.Uint32(headersAndPayload[2:])
	if got := crc32.Checksum(headersAndPayload[checksumHeader:], castagnoli); got != want {
		return fmt.Errorf("%w: %d bytes of headers and payload have CRC32C %08x, frame says %08x", ErrChecksum,
			len(headersAndPayload)-checksumHeader, got, want)
	}
	return nil
}

// SplitPayload cuts headers-and-payload that start with 0x0e01 into the bytes
// of the metadata (see [ParseMetadata]) and the payload. It does not verify
// the checksum.
func SplitPayload(headersAndPayload []byte) (metadata, payload []byte, err error) {
	if len(headersAndPayload) < checksumHeader+4 || binary.BigEndian.Uint16(headersAndPayload) != magicChecksum {
		return nil, nil, errNoMagic
	}
	rest := headersAndPayload[checksumHeader+4:]
	n := binary.BigEndian.Uint32(headersAndPayload[checksumHeader:])
	if uint64(n) > uint64(len(rest)) {
		return nil, nil, fmt.Errorf("metadata of %d bytes does not fit in the %d bytes that follow its length", n, len(rest))
	}
	return rest[:n], rest[n:], nil
}

// splitBrokerEntry cuts optional broker entry metadata off the front.
func splitBrokerEntry(b []byte) (entry, headersAndPayload []byte, err error) {
	if len(b) < 2 || binary.BigEndian.Uint16(b) != magicBrokerEntry {
		return nil, b, nil
	}
	if len(b) < 6 {
		return nil, nil, fmt.Errorf("broker entry metadata: %w", errTruncated)
	}
	n := binary.BigEndian.Uint32(b[2:])
	if uint64(n) > uint64(len(b)-6) {
		return nil, nil, fmt.Errorf("broker entry metadata of %d bytes does not fit in the %d bytes that follow its length", n, len(b)-6)
	}
	return b[6 : 6+n : 6+n], b[6+n:], nil
}
