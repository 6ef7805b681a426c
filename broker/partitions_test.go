package broker

import (
	"slices"
	"strings"
	"testing"

	"github.com/contention-toolkit/contention/broker/wire"
)

func (c *client) partitions(topic string) wire.PartitionedMetadataResponse {
	c.t.Helper()
	c.write((&wire.PartitionedMetadata{Topic: topic, RequestID: 1}).AppendFrame(nil))
	return c.expect(wire.TypePartitionedMetadataResponse).PartitionedMetadataResponse
}

func TestPartitionedTopic(t *testing.T) {
	s := startServer(t, nil)
	if err := s.CreatePartitionedTopic("p", 3); err != nil {
		t.Fatal(err)
	}
	c := dial(t, s)
	for topic, want := range map[string]uint32{"p": 3, "p-partition-2": 0, "other": 0} {
		if r := c.partitions(topic); r.Partitions != want || r.Response != wire.MetadataSuccess {
			t.Errorf("%s: %+v, want %d partitions", topic, r, want)
		}
	}
	c.producer("p-partition-2", 1)
	c.subscribe("p-partition-2", "sub", 1, wire.Exclusive, 10)
	c.send(1, 0, "k", []byte("x"))
	for range 2 { // receipt and message, in either order
		c.next()
		switch c.cmd.Type {
		case wire.TypeSendReceipt:
			if p := c.cmd.SendReceipt.MessageID.Partition; p != 2 {
				t.Errorf("the receipt names partition %d", p)
			}
		case wire.TypeMessage:
			if p := c.cmd.Message.ID.Partition; p != 2 {
				t.Errorf("the message names partition %d", p)
			}
		default:
			t.Fatalf("got %v", c.cmd.Type)
		}
	}
	for topic, code := range map[string]wire.ServerError{"p": wire.ErrorNotAllowed, "p-partition-3": wire.ErrorTopicNotFound} {
		c.write((&wire.Producer{Topic: topic, ProducerID: 9, RequestID: 9}).AppendFrame(nil))
		wantError(t, *c.expect(wire.TypeError), code)
	}
	c.producer("plain", 2)
	for name, n := range map[string]int{"p": 2, "plain": 4, "p-partition-1": 2, "x": 0, "y": maxPartitions + 1, "a/b": 1} {
		if err := s.CreatePartitionedTopic(name, n); err == nil {
			t.Errorf("%d partitions of %s were accepted", n, name)
		}
	}
}

func TestDefaultPartitions(t *testing.T) {
	s := startServer(t, func(c *Config) { c.DefaultPartitions, c.MaxTopics = 2, 3 })
	c := dial(t, s)
	for topic, want := range map[string]uint32{"a": 2, "b": 2, "a-partition-1": 0} {
		if r := c.partitions(topic); r.Partitions != want {
			t.Errorf("%s: %+v, want %d partitions", topic, r, want)
		}
	}
	c.partitions("c")
	if r := c.partitions("d"); r.Response != wire.MetadataFailed || r.Code != wire.ErrorNotAllowed {
		t.Errorf("above the limit of topics: %+v", r)
	}
}

func TestTopicsOfNamespace(t *testing.T) {
	s := startServer(t, func(c *Config) { c.MaxMessageSize = 1000 })
	if err := s.CreatePartitionedTopic("x/y/p", 2); err != nil {
		t.Fatal(err)
	}
	c := dial(t, s)
	for i, topic := range []string{"x/y/a", "x/y/p-partition-1", "x/y-z/no", "other"} {
		c.producer(topic, uint64(i))
	}
	list := func(namespace string, mode int32) []string {
		t.Helper()
		c.write((&wire.GetTopics{RequestID: 5, Namespace: namespace, Mode: mode}).AppendFrame(nil))
		r := c.expect(wire.TypeGetTopicsResponse).GetTopicsResponse
		if r.RequestID != 5 {
			t.Fatalf("%+v", r)
		}
		return r.Topics
	}
	want := []string{"persistent://x/y/a", "persistent://x/y/p-partition-0", "persistent://x/y/p-partition-1"}
	for mode, want := range map[int32][]string{0: want, 1: nil, 2: want} {
		if got := list("x/y", mode); !slices.Equal(got, want) {
			t.Errorf("mode %d: %v, want %v", mode, got, want)
		}
	}
	if got := list("nothing/here", 0); len(got) != 0 {
		t.Errorf("%v", got)
	}
	for i := range 20 { // more than a frame takes
		c.producer("x/y/"+strings.Repeat("long", 200)+string(rune('a'+i)), uint64(100+i))
	}
	c.write((&wire.GetTopics{RequestID: 6, Namespace: "x/y"}).AppendFrame(nil))
	wantError(t, *c.expect(wire.TypeError), wire.ErrorNotAllowed)
}

func TestTopicNames(t *testing.T) {
	for name, want := range map[string]topicName{
		"t":                           {"persistent://public/default/t", "persistent://public/default/t", "public/default", -1},
		"a/b/t":                       {"persistent://a/b/t", "persistent://a/b/t", "a/b", -1},
		"persistent://a/b/c/d":        {"persistent://a/b/c/d", "persistent://a/b/c/d", "a/b", -1},
		"t-partition-7":               {"persistent://public/default/t-partition-7", "persistent://public/default/t", "public/default", 7},
		"t-partition-07":              {"persistent://public/default/t-partition-07", "persistent://public/default/t-partition-07", "public/default", -1},
		"t-partition--1":              {"persistent://public/default/t-partition--1", "persistent://public/default/t-partition--1", "public/default", -1},
		"t-partition-1-partition-2":   {"persistent://public/default/t-partition-1-partition-2", "persistent://public/default/t-partition-1", "public/default", 2},
		"t-partition-99999999999":     {"persistent://public/default/t-partition-99999999999", "persistent://public/default/t-partition-99999999999", "public/default", -1},
		"persistent://a/b/-partition": {"persistent://a/b/-partition", "persistent://a/b/-partition", "a/b", -1},
	} {
		if got, err := parseTopicName(name); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, want)
		}
	}
	for _, name := range []string{"", "a/b", "persistent://", "persistent://a", "persistent://a/b", "persistent://a/b/", "persistent:///b/c", "non-persistent://a/b/c", strings.Repeat("x", 2000)} {
		if got, err := parseTopicName(name); err == nil {
			t.Errorf("%.50q was accepted: %+v", name, got)
		}
	}
}

func TestUnsupportedRequestsGetAnError(t *testing.T) {
	s := startServer(t, nil)
	c := dial(t, s)
	for _, typ := range []wire.CommandType{wire.TypeConsumerStats, wire.TypeTransactionBroker, wire.TypeNewTransaction, wire.TypeWatchTopics} {
		c.write((&wire.Unsupported{RequestID: 9}).AppendFrame(nil, typ))
		if e := c.expect(wire.TypeError).Error; e.RequestID != 9 || e.Code != wire.ErrorNotAllowed || !strings.Contains(e.Message, typ.String()) {
			t.Errorf("%v: %+v", typ, e)
		}
	}
}
