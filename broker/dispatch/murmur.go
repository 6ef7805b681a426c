package dispatch

import (
	"encoding/binary"
	"math/bits"
)

// murmur32 is MurmurHash3 for 32 bits with seed 0, the protocol's key hash. It
// is written out here because the usual package does pointer arithmetic that
// programs built with -race refuse to run.
func murmur32(b []byte) uint32 {
	const c1, c2 = 0xcc9e2d51, 0x1b873593
	scramble := func(k uint32) uint32 { return bits.RotateLeft32(k*c1, 15) * c2 }
	var h uint32
	size := uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h^scramble(binary.LittleEndian.Uint32(b)), 13)*5 + 0xe6546b64
	}
	var k uint32
	for i, v := range b {
		k |= uint32(v) << (8 * i)
	}
	h ^= scramble(k) ^ size
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return h ^ h>>16
}
