package broker

import (
	"strconv"
	"strings"

	"github.com/contention-toolkit/contention/broker/wire"
)

const (
	domain          = "persistent://"
	partitionSuffix = "-partition-"
	// maxName bounds the names that clients give, in bytes.
	maxName = 1024
)

// topicName is a topic's full name and what is in it.
type topicName struct {
	full      string
	base      string // without the partition
	namespace string // tenant/namespace
	partition int32  // −1 = not the name of a partition
}

// parseTopicName completes a client's name of a topic.
func parseTopicName(name string) (topicName, error) {
	full := name
	switch parts := strings.Split(name, "/"); {
	case strings.Contains(name, "://"):
	case len(parts) == 1:
		full = domain + "public/default/" + name
	case len(parts) == 3:
		full = domain + name
	}
	rest, persistent := strings.CutPrefix(full, domain)
	parts := strings.SplitN(rest, "/", 3)
	if !persistent || len(full) > maxName || len(parts) != 3 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return topicName{}, refuse(wire.ErrorInvalidTopicName, "InvalidTopicName: %.100q is not persistent://tenant/namespace/topic", name)
	}
	n := topicName{full: full, base: full, namespace: parts[0] + "/" + parts[1], partition: -1}
	if i := strings.LastIndex(full, partitionSuffix); i > 0 {
		number := full[i+len(partitionSuffix):]
		if p, err := strconv.ParseInt(number, 10, 32); err == nil && p >= 0 && strconv.FormatInt(p, 10) == number {
			n.base, n.partition = full[:i], int32(p)
		}
	}
	return n, nil
}

// partitionName returns the name of partition i of a partitioned topic.
func partitionName(base string, i int) string { return base + partitionSuffix + strconv.Itoa(i) }

// canonicalTopic returns the full name of a topic.
func canonicalTopic(name string) (string, error) {
	n, err := parseTopicName(name)
	return n.full, err
}

// checkName refuses names of producers, consumers and subscriptions that are
// too long to keep.
func checkName(what, name string) error {
	if len(name) > maxName {
		return refuse(wire.ErrorNotAllowed, "NotAllowedError: the %s name has %d bytes, the limit is %d", what, len(name), maxName)
	}
	return nil
}
