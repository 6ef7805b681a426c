package wire

import (
	"bytes"
	"testing"
)

func benchSend() []byte {
	md := Metadata{ProducerName: []byte("load-17"), SequenceID: 123456, PublishTime: 1_760_000_000_000, PartitionKey: []byte("d-000123")}
	return AppendSend(nil, &Send{ProducerID: 1, SequenceID: 123456}, &md, make([]byte, 128))
}

func BenchmarkDecodeSend(b *testing.B) {
	stream := bytes.Repeat(benchSend(), 100)
	src := bytes.NewReader(stream)
	fr := NewFrameReader(src, ReaderOptions{})
	var f Frame
	var c Command
	var md Metadata
	b.ReportAllocs()
	b.SetBytes(int64(len(stream) / 100))
	for b.Loop() {
		if src.Len() == 0 && !fr.Buffered() {
			src.Reset(stream)
		}
		if err := fr.Next(&f); err != nil {
			b.Fatal(err)
		}
		if err := Parse(f.Command, &c); err != nil {
			b.Fatal(err)
		}
		raw, _, err := SplitPayload(f.HeadersAndPayload)
		if err != nil {
			b.Fatal(err)
		}
		if err := ParseMetadata(raw, &md); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkVerifyChecksum(b *testing.B) {
	frame := benchSend()
	fr := NewFrameReader(bytes.NewReader(frame), ReaderOptions{})
	var f Frame
	if err := fr.Next(&f); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := VerifyChecksum(f.HeadersAndPayload); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAppendSend(b *testing.B) {
	md := Metadata{ProducerName: []byte("load-17"), SequenceID: 123456, PublishTime: 1_760_000_000_000, PartitionKey: []byte("d-000123")}
	payload := make([]byte, 128)
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendSend(buf[:0], &Send{ProducerID: 1, SequenceID: 123456}, &md, payload)
	}
}

func BenchmarkAppendMessage(b *testing.B) {
	hp := AppendHeadersAndPayload(nil, &Metadata{PartitionKey: []byte("d-000123")}, make([]byte, 128))
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendMessage(buf[:0], &Message{ConsumerID: 3, ID: NewMessageID(7, 123456)}, hp)
	}
}

func BenchmarkAppendReceipt(b *testing.B) {
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		m := SendReceipt{ProducerID: 1, SequenceID: 123456, HasMessageID: true, MessageID: NewMessageID(7, 123456)}
		buf = m.AppendFrame(buf[:0])
	}
}

func BenchmarkParseAck(b *testing.B) {
	ack := Ack{ConsumerID: 3}
	for i := range 1000 {
		ack.IDs = append(ack.IDs, NewMessageID(7, uint64(i)))
	}
	cmd := ack.AppendFrame(nil)[8:]
	var c Command
	b.ReportAllocs()
	for b.Loop() {
		if err := Parse(cmd, &c); err != nil {
			b.Fatal(err)
		}
	}
}
