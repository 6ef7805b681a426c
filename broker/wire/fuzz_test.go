package wire

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// seedFrames returns one frame of every command.
func seedFrames() [][]byte {
	var frames [][]byte
	for _, tc := range commandCases() {
		for seed := range 3 {
			frame := rapid.Custom(func(rt *rapid.T) []byte {
				b, _ := tc.encode(rt)
				return b
			}).Example(seed)
			frames = append(frames, frame)
		}
	}
	return frames
}

// recorded returns what the official client sent in the broker's conformance
// tests, one stream a test.
func recorded(f *testing.F) (streams [][]byte) {
	files, err := filepath.Glob("../testdata/fuzz/FuzzConnection/*")
	if err != nil || len(files) == 0 {
		f.Fatalf("no recorded streams: %v", err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		_, quoted, _ := strings.Cut(string(text), "[]byte(")
		stream, err := strconv.Unquote(strings.TrimSuffix(strings.TrimSpace(quoted), ")"))
		if err != nil {
			f.Fatalf("%s: %v", name, err)
		}
		streams = append(streams, []byte(stream))
	}
	return streams
}

// eachFrame calls do for the frames of a stream, until one is broken.
func eachFrame(stream []byte, do func(*Frame)) {
	fr := NewFrameReader(bytes.NewReader(stream), ReaderOptions{})
	for fm := (Frame{}); fr.Next(&fm) == nil; {
		do(&fm)
	}
}

// FuzzParse: whatever the bytes, Parse returns, and does not depend on what the
// Command held.
func FuzzParse(f *testing.F) {
	for _, frame := range seedFrames() {
		fr := NewFrameReader(bytes.NewReader(frame), ReaderOptions{})
		var fm Frame
		if err := fr.Next(&fm); err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.Clone(fm.Command))
	}
	for _, stream := range recorded(f) {
		eachFrame(stream, func(fm *Frame) { f.Add(bytes.Clone(fm.Command)) })
	}
	var used Command
	f.Fuzz(func(t *testing.T, b []byte) {
		var fresh Command
		err := Parse(b, &fresh)
		again := Parse(b, &used)
		if (err == nil) != (again == nil) || fresh.Type != used.Type {
			t.Fatalf("fresh: %v %v, used: %v %v", fresh.Type, err, used.Type, again)
		}
		if len(fresh.Ack.IDs) > MaxMessageIDs || len(fresh.Redeliver.IDs) > MaxMessageIDs {
			t.Fatalf("more ids than the bound")
		}
	})
}

func FuzzMetadata(f *testing.F) {
	f.Add((&Metadata{ProducerName: []byte("p"), PartitionKey: []byte("k"), Batched: true, NumMessages: 3}).Append(nil))
	f.Add([]byte{})
	for _, stream := range recorded(f) {
		eachFrame(stream, func(fm *Frame) {
			if md, _, err := SplitPayload(fm.HeadersAndPayload); err == nil {
				f.Add(bytes.Clone(md))
			}
		})
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var m, again Metadata
		if ParseMetadata(b, &m) != nil {
			return
		}
		if err := ParseMetadata(m.Append(nil), &again); err != nil {
			t.Fatalf("what was parsed cannot be parsed again: %v", err)
		}
		if !bytes.Equal(m.PartitionKey, again.PartitionKey) || m.NumMessages != again.NumMessages || m.SequenceID != again.SequenceID {
			t.Fatalf("%+v became %+v", m, again)
		}
	})
}

// FuzzFrameReader: any stream ends in an error, frames are disjoint and in
// order, and the buffer stays within the limit.
func FuzzFrameReader(f *testing.F) {
	var all []byte
	for _, frame := range seedFrames() {
		f.Add(frame, uint8(7))
		all = append(all, frame...)
	}
	f.Add(all, uint8(100))
	for _, stream := range recorded(f) {
		f.Add(stream, uint8(50))
	}
	f.Fuzz(func(t *testing.T, b []byte, chunk uint8) {
		const limit = 4096
		fr := NewFrameReader(&chunkReader{b: b, sizes: []int{int(chunk) + 1}}, ReaderOptions{BufferSize: 32, MaxFrameSize: limit, VerifyChecksum: chunk&1 == 0})
		var fm Frame
		var c Command
		last := int64(-1)
		for {
			err := fr.Next(&fm)
			if err == io.EOF {
				return
			}
			if err != nil {
				var fe *FrameError
				if !errors.As(err, &fe) || fe.Offset > int64(len(b)) {
					t.Fatalf("error %v without a place in the stream", err)
				}
				return
			}
			if fm.Offset <= last || len(fr.buf) > limit+4 {
				t.Fatalf("frame at %d after one at %d, buffer of %d bytes", fm.Offset, last, len(fr.buf))
			}
			last = fm.Offset
			if Parse(fm.Command, &c) == nil && fm.HeadersAndPayload != nil {
				if md, _, err := SplitPayload(fm.HeadersAndPayload); err == nil {
					var m Metadata
					_ = ParseMetadata(md, &m) // must only return
				}
			}
		}
	})
}
