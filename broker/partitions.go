package broker

import (
	"fmt"
	"math"
	"slices"

	"github.com/contention-toolkit/contention/broker/wire"
)

// maxPartitions bounds the partitions of one topic.
const maxPartitions = 10_000

// CreatePartitionedTopic makes name a topic of n partitions, or gives one that
// has fewer more of them. Clients see the partitions when they ask next.
func (s *Server) CreatePartitionedTopic(name string, n int) error {
	tn, err := parseTopicName(name)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.partitionTopic(tn, n)
}

// partitionTopic needs s.mu.
func (s *Server) partitionTopic(tn topicName, n int) error {
	switch {
	case tn.partition >= 0:
		return refuse(wire.ErrorInvalidTopicName, "InvalidTopicName: %s is itself the name of a partition", tn.full)
	case n < 1 || n > maxPartitions:
		return refuse(wire.ErrorNotAllowed, "NotAllowedError: %d partitions: use 1 to %d", n, maxPartitions)
	case s.topics[tn.full] != nil:
		return refuse(wire.ErrorNotAllowed, "NotAllowedError: %s exists and has no partitions", tn.full)
	case n < s.partitioned[tn.full]:
		return refuse(wire.ErrorNotAllowed, "NotAllowedError: %s has %d partitions, which cannot become %d", tn.full, s.partitioned[tn.full], n)
	}
	if s.cfg.MaxTopics > 0 && len(s.topics)+len(s.partitioned) >= s.cfg.MaxTopics && s.partitioned[tn.full] == 0 {
		return errTooManyTopics(s.cfg.MaxTopics)
	}
	if s.keepPartitions != nil {
		if err := s.keepPartitions(tn.full, n); err != nil {
			return fmt.Errorf("storing that %s has %d partitions: %w", tn.full, n, err)
		}
	}
	s.partitioned[tn.full] = n
	return nil
}

func errTooManyTopics(limit int) error {
	return refuse(wire.ErrorNotAllowed, "NotAllowedError: the broker has its limit of %d topics", limit)
}

// partitions returns how many partitions a topic has, 0 for none. A topic that
// does not exist becomes one of Config.DefaultPartitions.
func (s *Server) partitions(name string) (int, error) {
	tn, err := parseTopicName(name)
	if err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.partitioned[tn.full]
	if n == 0 && tn.partition < 0 && s.cfg.DefaultPartitions > 0 && s.topics[tn.full] == nil {
		n = s.cfg.DefaultPartitions
		err = s.partitionTopic(tn, n)
	}
	return n, err
}

// checkPartition refuses names that partitions rule out: a partitioned topic's
// own, and partitions that it does not have. It needs s.mu.
func (s *Server) checkPartition(tn topicName) error {
	if n := s.partitioned[tn.full]; n > 0 {
		return refuse(wire.ErrorNotAllowed, "NotAllowedError: %s has %d partitions: use one of them", tn.full, n)
	}
	if n := s.partitioned[tn.base]; tn.partition >= 0 && n > 0 && int(tn.partition) >= n {
		return refuse(wire.ErrorTopicNotFound, "TopicNotFound: %s has %d partitions", tn.base, n)
	}
	return nil
}

// topicsOf lists a namespace's topics, those of partitioned ones whether or
// not they have been used.
func (s *Server) topicsOf(namespace string) []string {
	prefix := domain + namespace + "/"
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name, t := range s.topics {
		if t.namespace == namespace && s.partitioned[t.base] == 0 {
			names = append(names, name)
		}
	}
	for base, n := range s.partitioned {
		if len(base) > len(prefix) && base[:len(prefix)] == prefix {
			for i := range n {
				names = append(names, partitionName(base, i))
			}
		}
	}
	slices.Sort(names)
	return names
}

func (c *conn) partitionedMetadata(m *wire.PartitionedMetadata) {
	r := wire.PartitionedMetadataResponse{RequestID: m.RequestID, Response: wire.MetadataSuccess}
	n, err := c.server.partitions(m.Topic)
	if err != nil {
		r.Response, r.Code, r.Message = wire.MetadataFailed, codeOf(err), err.Error()
	} else {
		r.Partitions = uint32(n)
	}
	c.respond(r.AppendFrame(nil))
}

const modeNonPersistent = 1 // GetTopics.Mode

func (c *conn) topics(m *wire.GetTopics) error {
	r := wire.GetTopicsResponse{RequestID: m.RequestID}
	if m.Mode != modeNonPersistent {
		r.Topics = c.server.topicsOf(m.Namespace)
	}
	frame := r.AppendFrame(nil)
	// A longer frame would make the client drop the connection.
	if limit := min(c.server.cfg.MaxMessageSize, math.MaxInt32) + wire.FramePadding; len(frame) > limit {
		return refuse(wire.ErrorNotAllowed, "NotAllowedError: the list of %d topics of %.100q takes %d bytes, a frame has %d",
			len(r.Topics), m.Namespace, len(frame), limit)
	}
	c.respond(frame)
	return nil
}
