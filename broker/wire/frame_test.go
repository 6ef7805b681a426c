package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// The checksum is that of the 14 bytes after it, by the bitwise definition of
// CRC32C and not by the library the encoder uses.
func TestGoldenSend(t *testing.T) {
	tail := []byte{
		0, 0, 0, 9, // metadata
		0x0a, 1, 'p', 0x10, 2, 0x18, 3, // producer_name, sequence_id, publish_time
		0x32, 0, // partition_key, present and empty
		'x',
	}
	crc := binary.BigEndian.AppendUint32(nil, bitwiseCRC32C(tail))
	want := []byte{
		0, 0, 0, 32, // total
		0, 0, 0, 8, // command
		0x08, 6, 0x32, 4, 0x08, 1, 0x10, 2, // SEND {producer_id 1, sequence_id 2}
		0x0e, 0x01,
	}
	want = append(append(want, crc...), tail...)
	md := Metadata{ProducerName: []byte("p"), SequenceID: 2, PublishTime: 3, PartitionKey: []byte{}}
	got := AppendSend(nil, &Send{ProducerID: 1, SequenceID: 2}, &md, []byte("x"))
	checkBytes(t, "SEND", got, want)
	if c := bitwiseCRC32C([]byte("123456789")); c != 0xe3069283 {
		t.Errorf("the test's own CRC32C of the check string is %08x", c)
	}
}

func bitwiseCRC32C(b []byte) uint32 {
	crc := ^uint32(0)
	for _, c := range b {
		crc ^= uint32(c)
		for range 8 {
			crc = crc>>1 ^ 0x82f63b78&-(crc&1)
		}
	}
	return ^crc
}

func TestMetadataRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		want := rapid.Make[Metadata]().Draw(rt, "metadata")
		if !want.Batched {
			want.NumMessages = 1
		}
		if want.UUID == nil {
			want.NumChunks, want.ChunkID = 0, 0
		}
		payload := rapid.SliceOf(rapid.Byte()).Draw(rt, "payload")
		hp := AppendHeadersAndPayload(nil, &want, payload)
		if err := VerifyChecksum(hp); err != nil {
			rt.Fatal(err)
		}
		b, rest, err := SplitPayload(hp)
		if err != nil || !bytes.Equal(rest, payload) {
			rt.Fatalf("payload % x, error %v; want % x", rest, err, payload)
		}
		var got Metadata
		if err := ParseMetadata(b, &got); err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
			rt.Fatal(diff)
		}
	})
}

func TestMetadataTellsAbsentFromEmpty(t *testing.T) {
	md := Metadata{PartitionKey: []byte{}, Batched: true, NumMessages: 1}
	var got Metadata
	if err := ParseMetadata(md.Append(nil), &got); err != nil {
		t.Fatal(err)
	}
	if got.PartitionKey == nil || got.OrderingKey != nil || !got.Batched {
		t.Errorf("partition key %v, ordering key %v, batched %t; want empty, nil, true", got.PartitionKey, got.OrderingKey, got.Batched)
	}
}

// Frames of all sizes survive any cut of the stream into reads.
func TestFrameReaderAnyChunking(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(0, 3000), 1, 20).Draw(rt, "payload sizes")
		var stream []byte
		var want [][]byte
		for i, n := range sizes {
			hp := AppendHeadersAndPayload(nil, &Metadata{SequenceID: uint64(i)}, bytes.Repeat([]byte{byte(i)}, n))
			want = append(want, hp)
			m := Message{ID: NewMessageID(1, uint64(i))}
			if i%3 == 2 {
				stream = AppendMessageWithEntry(stream, &m, &BrokerEntry{Timestamp: 5, Index: uint64(i)}, hp)
			} else {
				stream = AppendMessage(stream, &m, hp)
			}
			stream = (&Ping{}).AppendFrame(stream)
		}
		chunks := rapid.SliceOfN(rapid.IntRange(1, 500), 1, 8).Draw(rt, "chunks")
		fr := NewFrameReader(&chunkReader{b: stream, sizes: chunks}, ReaderOptions{BufferSize: 64, VerifyChecksum: true, MaxFrameSize: 4000})
		var f Frame
		var c Command
		for i, hp := range want {
			if err := fr.Next(&f); err != nil {
				rt.Fatalf("message %d: %v", i, err)
			}
			if err := Parse(f.Command, &c); err != nil || c.Message.ID.Entry != uint64(i) || !bytes.Equal(f.HeadersAndPayload, hp) {
				rt.Fatalf("message %d: error %v, id %v, %d bytes; want %d", i, err, &c.Message.ID, len(f.HeadersAndPayload), len(hp))
			}
			if (i%3 == 2) != (f.BrokerEntry != nil) {
				rt.Fatalf("message %d: broker entry % x", i, f.BrokerEntry)
			}
			var e BrokerEntry
			if err := ParseBrokerEntry(f.BrokerEntry, &e); err != nil || i%3 == 2 && e != (BrokerEntry{Timestamp: 5, Index: uint64(i)}) {
				rt.Fatalf("message %d: broker entry %+v, %v", i, e, err)
			}
			if err := fr.Next(&f); err != nil || f.HeadersAndPayload != nil {
				rt.Fatalf("ping %d: error %v", i, err)
			}
		}
		if err := fr.Next(&f); err != io.EOF {
			rt.Fatalf("end: %v, want io.EOF", err)
		}
		if len(fr.buf) > 4004 {
			rt.Fatalf("buffer grew to %d bytes over the limit's 4004", len(fr.buf))
		}
	})
}

type chunkReader struct {
	b     []byte
	sizes []int
	i     int
}

func (r *chunkReader) Read(p []byte) (int, error) {
	if len(r.b) == 0 {
		return 0, io.EOF
	}
	n := min(len(p), len(r.b), r.sizes[r.i%len(r.sizes)])
	r.i++
	copy(p, r.b[:n])
	r.b = r.b[n:]
	return n, nil
}

func TestFrameReaderBatchesReads(t *testing.T) {
	var stream []byte
	for i := range 100 {
		stream = (&Flow{ConsumerID: uint64(i)}).AppendFrame(stream)
	}
	counter := &countingReader{r: bytes.NewReader(stream)}
	fr := NewFrameReader(counter, ReaderOptions{})
	var f Frame
	for range 100 {
		if err := fr.Next(&f); err != nil {
			t.Fatal(err)
		}
	}
	if counter.reads != 1 {
		t.Errorf("%d reads for 100 frames in one chunk, want 1", counter.reads)
	}
	if fr.Buffered() {
		t.Error("Buffered after the last frame")
	}
}

type countingReader struct {
	r     io.Reader
	reads int
}

func (c *countingReader) Read(p []byte) (int, error) {
	c.reads++
	return c.r.Read(p)
}

func TestFrameReaderErrors(t *testing.T) {
	ping := (&Ping{}).AppendFrame(nil)
	send := AppendSend(nil, &Send{}, &Metadata{}, []byte("payload"))
	flipped := bytes.Clone(send)
	flipped[len(flipped)-1] ^= 1
	noMagic := bytes.Clone(send)
	noMagic[8+8] = 0x0f
	for _, tc := range []struct {
		name   string
		stream []byte
		is     error
		wants  string
	}{
		{"cut length", []byte{0, 0}, io.ErrUnexpectedEOF, "frame at byte 0: stream ends after 2 bytes"},
		{"cut frame", append(bytes.Clone(ping), ping[:7]...), io.ErrUnexpectedEOF, "frame at byte 13, 9 bytes long: stream ends after 7 bytes"},
		{"too large", []byte{0xff, 0xff, 0xff, 0xff}, ErrFrameTooLarge, "4294967295 bytes long"},
		{"too short", []byte{0, 0, 0, 3, 0, 0, 0}, errShortFrame, "3 bytes long"},
		{"command too long", []byte{0, 0, 0, 4, 0, 0, 0, 1}, errShortFrame, "command of 1 bytes"},
		{"checksum", flipped, ErrChecksum, "frame says"},
		{"no magic", noMagic, errNoMagic, "0x0e01"},
		{"cut broker entry", []byte{0, 0, 0, 10, 0, 0, 0, 0, 0x0e, 2, 0, 0, 0, 9}, nil, "broker entry metadata of 9 bytes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fr := NewFrameReader(bytes.NewReader(tc.stream), ReaderOptions{VerifyChecksum: true})
			var f Frame
			var err error
			for err == nil {
				err = fr.Next(&f)
			}
			if !strings.Contains(err.Error(), tc.wants) || tc.is != nil && !errors.Is(err, tc.is) {
				t.Fatalf("error %v, want one with %q that is %v", err, tc.wants, tc.is)
			}
			var fe *FrameError
			if !errors.As(err, &fe) {
				t.Errorf("error is a %T, want a *FrameError", err)
			}
			if again := fr.Next(&f); again != err {
				t.Errorf("second call: %v, want the same error", again)
			}
			if f.Command != nil || !fr.Buffered() {
				t.Errorf("after an error: command %v, Buffered %t", f.Command, fr.Buffered())
			}
		})
	}
}

func TestFrameReaderPassesReadErrors(t *testing.T) {
	cause := errors.New("cable cut")
	fr := NewFrameReader(iotest.ErrReader(cause), ReaderOptions{})
	var f Frame
	if err := fr.Next(&f); !errors.Is(err, cause) {
		t.Errorf("error %v, want one that wraps %v", err, cause)
	}
	stuck := NewFrameReader(readerFunc(func([]byte) (int, error) { return 0, nil }), ReaderOptions{})
	if err := stuck.Next(&f); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("reader that never progresses: %v", err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// A peer that announces 5 MB and sends a few bytes must not cost 5 MB.
func TestFrameReaderGrowsWithDataOnly(t *testing.T) {
	stream := append([]byte{0, 0x50, 0, 0}, make([]byte, 100)...)
	fr := NewFrameReader(bytes.NewReader(stream), ReaderOptions{BufferSize: 64})
	var f Frame
	if err := fr.Next(&f); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Fatal(err)
	}
	if len(fr.buf) > 256 {
		t.Errorf("buffer of %d bytes for 104 that arrived", len(fr.buf))
	}
}

func TestFrameReaderLetsGoOfALargeBuffer(t *testing.T) {
	stream := AppendSend(nil, &Send{}, &Metadata{}, make([]byte, 100_000))
	stream = (&Ping{}).AppendFrame(stream)
	fr := NewFrameReader(iotest.OneByteReader(bytes.NewReader(stream)), ReaderOptions{BufferSize: 1024})
	var f Frame
	for range 2 {
		if err := fr.Next(&f); err != nil {
			t.Fatal(err)
		}
	}
	if len(fr.buf) != 1024 {
		t.Errorf("buffer of %d bytes at rest, want 1024", len(fr.buf))
	}
}
