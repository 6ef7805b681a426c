package wire

import (
	"errors"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Wire types, to spell cases as "number<<3 | type".
const (
	varint  = uint64(protowire.VarintType)
	bytesT  = uint64(protowire.BytesType)
	fixed64 = uint64(protowire.Fixed64Type)
	fixed32 = uint64(protowire.Fixed32Type)
)

var (
	errTruncated = errors.New("field runs past the end")
	errTag       = errors.New("invalid field tag")
	errTooMany   = errors.New("too many repeated values")
)

// scanner walks the fields of one message. After next, tag is the field's
// number and wire type; val holds a varint or fixed value and data the bytes
// of a length-delimited one.
type scanner struct {
	full []byte // the message, for offsets in errors
	rest []byte
	tag  uint64
	val  uint64
	data []byte
	seen uint64 // bit n: field number n came with the expected type
	err  error
}

func scan(b []byte) scanner { return scanner{full: b, rest: b} }

func (s *scanner) offset() int { return len(s.full) - len(s.rest) }

func (s *scanner) next() bool {
	if len(s.rest) == 0 || s.err != nil {
		return false
	}
	tag, n := consumeVarint(s.rest)
	if n < 0 {
		return s.fail(errTag)
	}
	num := tag >> 3
	if num == 0 || num > uint64(protowire.MaxValidNumber) {
		return s.fail(errTag)
	}
	s.tag = tag
	body := s.rest[n:]
	switch tag & 7 {
	case varint:
		s.val, n = consumeVarint(body)
	case bytesT:
		s.data, n = consumeBytes(body)
	case fixed64:
		s.val, n = protowire.ConsumeFixed64(body)
	case fixed32:
		var v uint32
		v, n = protowire.ConsumeFixed32(body)
		s.val = uint64(v)
	default: // groups, which the protocol does not use but may be skipped
		n = protowire.ConsumeFieldValue(protowire.Number(num), protowire.Type(tag&7), body)
	}
	if n < 0 {
		return s.fail(errTruncated)
	}
	s.rest = body[n:]
	if num < 64 {
		s.seen |= 1 << num
	}
	return true
}

// consumeVarint has protowire's result; nearly all varints here are one byte.
func consumeVarint(b []byte) (uint64, int) {
	if len(b) > 0 && b[0] < 0x80 {
		return uint64(b[0]), 1
	}
	return protowire.ConsumeVarint(b)
}

func consumeBytes(b []byte) ([]byte, int) {
	if len(b) > 0 && b[0] < 0x80 && len(b) > int(b[0]) {
		n := int(b[0]) + 1
		return b[1:n:n], n
	}
	return protowire.ConsumeBytes(b)
}

// skip marks the field just read as unknown: its number, or its wire type.
func (s *scanner) skip() {
	if num := s.tag >> 3; num < 64 {
		s.seen &^= 1 << num
	}
}

// has reports whether field num was read.
func (s *scanner) has(num int) bool { return s.seen&(1<<num) != 0 }

// fail records err with its place and ends the scan.
func (s *scanner) fail(err error) bool {
	if s.err == nil {
		s.err = fmt.Errorf("at byte %d of %d: %w", s.offset(), len(s.full), err)
	}
	return false
}

// inner adopts the error of a nested message.
func (s *scanner) inner(err error) {
	if err != nil {
		s.fail(fmt.Errorf("field %d: %w", s.tag>>3, err))
	}
}

func (s *scanner) int32() int32 { return int32(s.val) }
func (s *scanner) bool() bool   { return s.val != 0 }
func (s *scanner) str() string  { return string(s.data) }

// bytes returns the field's bytes, aliasing the input, never nil.
func (s *scanner) bytes() []byte {
	if s.data == nil {
		return []byte{}
	}
	return s.data
}

// ints appends a repeated int64 field in either of its encodings.
func (s *scanner) ints(dst []int64) []int64 {
	if s.tag&7 == varint {
		return append(dst, int64(s.val))
	}
	for rest := s.data; len(rest) > 0; {
		v, n := protowire.ConsumeVarint(rest)
		if n < 0 {
			s.fail(errTruncated)
			return dst
		}
		dst, rest = append(dst, int64(v)), rest[n:]
	}
	return dst
}

// Append helpers; num is a field number.

func putUint(b []byte, num protowire.Number, v uint64) []byte {
	if num < 16 {
		b = append(b, byte(num<<3))
		for ; v >= 0x80; v >>= 7 {
			b = append(b, byte(v)|0x80)
		}
		return append(b, byte(v))
	}
	return protowire.AppendVarint(protowire.AppendTag(b, num, protowire.VarintType), v)
}

// putInt writes a signed value as protobuf's int32 and int64 do: sign-extended
// to 64 bits.
func putInt(b []byte, num protowire.Number, v int64) []byte { return putUint(b, num, uint64(v)) }

func putBool(b []byte, num protowire.Number, v bool) []byte {
	return putUint(b, num, protowire.EncodeBool(v))
}

func putString(b []byte, num protowire.Number, v string) []byte {
	return protowire.AppendString(protowire.AppendTag(b, num, protowire.BytesType), v)
}

func putBytes(b []byte, num protowire.Number, v []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(b, num, protowire.BytesType), v)
}

// Optional fields: written only when they differ from the protocol's default.

func optUint(b []byte, num protowire.Number, v uint64) []byte {
	if v == 0 {
		return b
	}
	return putUint(b, num, v)
}

func optInt(b []byte, num protowire.Number, v int64) []byte {
	if v == 0 {
		return b
	}
	return putInt(b, num, v)
}

func optBool(b []byte, num protowire.Number, v bool) []byte {
	if !v {
		return b
	}
	return putBool(b, num, v)
}

func optString(b []byte, num protowire.Number, v string) []byte {
	if v == "" {
		return b
	}
	return putString(b, num, v)
}

// optBytes writes v unless it is nil: an empty value is a value.
func optBytes(b []byte, num protowire.Number, v []byte) []byte {
	if v == nil {
		return b
	}
	return putBytes(b, num, v)
}

// openMessage starts a nested message in field num; closeMessage fills in its
// length. One byte is reserved for the length, which fits all but ids by the
// dozen and long strings; longer messages are moved up.
func openMessage(b []byte, num protowire.Number) ([]byte, int) {
	b = protowire.AppendTag(b, num, protowire.BytesType)
	return append(b, 0), len(b) + 1
}

func closeMessage(b []byte, start int) []byte {
	size := len(b) - start
	if size < 0x80 {
		b[start-1] = byte(size)
		return b
	}
	extra := protowire.SizeVarint(uint64(size)) - 1
	for range extra {
		b = append(b, 0)
	}
	copy(b[start+extra:], b[start:start+size])
	protowire.AppendVarint(b[:start-1], uint64(size))
	return b
}
