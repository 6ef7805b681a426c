package load

import (
	"encoding/binary"
	"errors"

	"github.com/contention-toolkit/contention/broker/wire"
)

const (
	payloadMagic  = 0x434c4f44 // "CLOD"
	payloadHeader = 32
	keyLen        = 9 // 'd' and eight digits: Devices is below 10^8
)

// stamp is what a message says about itself. Times are nanoseconds since the
// run's epoch.
type stamp struct {
	run      uint32
	device   int32
	counter  uint32
	sent     int64
	intended int64
}

// put writes the header at the start of b; what follows it is padding.
func (s *stamp) put(b []byte) {
	binary.BigEndian.PutUint32(b, payloadMagic)
	binary.BigEndian.PutUint32(b[4:], s.run)
	binary.BigEndian.PutUint32(b[8:], uint32(s.device))
	binary.BigEndian.PutUint32(b[12:], s.counter)
	binary.BigEndian.PutUint64(b[16:], uint64(s.sent))
	binary.BigEndian.PutUint64(b[24:], uint64(s.intended))
}

var (
	errPayloadSize  = errors.New("payload has another size than was sent")
	errPayloadMagic = errors.New("payload was not written by this load")
	errDevice       = errors.New("device does not exist")
	errKey          = errors.New("partition key is not the device's")
	errBatched      = errors.New("message arrived as a batch")
)

// parse reads a message of the given payload size and checks that it is whole:
// checksum, size, device and key. It does not check run and counter.
func (s *stamp) parse(headersAndPayload []byte, md *wire.Metadata, size, devices int) error {
	if err := wire.VerifyChecksum(headersAndPayload); err != nil {
		return err
	}
	raw, b, err := wire.SplitPayload(headersAndPayload)
	if err != nil {
		return err
	}
	if err := wire.ParseMetadata(raw, md); err != nil {
		return err
	}
	switch {
	case md.Batched:
		return errBatched
	case len(b) < payloadHeader || binary.BigEndian.Uint32(b) != payloadMagic:
		return errPayloadMagic
	}
	s.run = binary.BigEndian.Uint32(b[4:])
	s.device = int32(binary.BigEndian.Uint32(b[8:]))
	s.counter = binary.BigEndian.Uint32(b[12:])
	s.sent = int64(binary.BigEndian.Uint64(b[16:]))
	s.intended = int64(binary.BigEndian.Uint64(b[24:]))
	var key [keyLen]byte
	switch {
	case len(b) != size:
		return errPayloadSize
	case s.device < 0 || int(s.device) >= devices:
		return errDevice
	case string(md.PartitionKey) != string(appendKey(key[:0], s.device)):
		return errKey
	}
	return nil
}

// appendKey appends the device's key, always keyLen bytes.
func appendKey(b []byte, device int32) []byte {
	var digits [keyLen - 1]byte
	for i := len(digits) - 1; i >= 0; i-- {
		digits[i] = byte('0' + device%10)
		device /= 10
	}
	return append(append(b, 'd'), digits[:]...)
}
