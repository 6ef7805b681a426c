//go:build !race

package wire

import "testing"

// The race detector allocates by itself, hence the build tag.
func TestHotPathsDoNotAllocate(t *testing.T) {
	md := Metadata{ProducerName: []byte("load"), PartitionKey: []byte("d-000123")}
	hp := AppendHeadersAndPayload(nil, &md, make([]byte, 128))
	send := AppendSend(nil, &Send{ProducerID: 1, SequenceID: 2}, &md, make([]byte, 128))[8:]
	ack := (&Ack{IDs: make([]MessageID, 100)}).AppendFrame(nil)[8:]
	buf := make([]byte, 0, 1<<10)
	var c Command
	parse := func(b []byte) {
		if err := Parse(b, &c); err != nil {
			t.Fatal(err)
		}
	}
	for name, f := range map[string]func(){
		"parse SEND": func() { parse(send[:8]) },
		"parse ACK":  func() { parse(ack) },
		"metadata": func() {
			raw, _, err := SplitPayload(hp)
			if err == nil {
				err = ParseMetadata(raw, &md)
			}
			if err != nil {
				t.Fatal(err)
			}
		},
		"append MESSAGE": func() { buf = AppendMessage(buf[:0], &Message{ID: NewMessageID(1, 2)}, hp) },
		"append with entry": func() {
			buf = AppendMessageWithEntry(buf[:0], &Message{ID: NewMessageID(1, 2)}, &BrokerEntry{Timestamp: 1, Index: 2}, hp)
		},
		"append SEND":         func() { buf = AppendSend(buf[:0], &Send{SequenceID: 7}, &md, nil) },
		"append SEND_RECEIPT": func() { buf = (&SendReceipt{HasMessageID: true}).AppendFrame(buf[:0]) },
		"append FLOW":         func() { buf = (&Flow{Permits: 500}).AppendFrame(buf[:0]) },
	} {
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations, want 0", name, n)
		}
	}
}
