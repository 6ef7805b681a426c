package broker

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/contention-toolkit/contention/broker/stats"
	"github.com/contention-toolkit/contention/broker/wire"
)

// topicStats, and what is in it, have Pulsar's names for what this broker knows.
// Rates are per second, averages since they were read before.
type topicStats struct {
	MsgRateIn        float64                      `json:"msgRateIn"`
	MsgThroughputIn  float64                      `json:"msgThroughputIn"`
	MsgRateOut       float64                      `json:"msgRateOut"`
	MsgThroughputOut float64                      `json:"msgThroughputOut"`
	BytesInCounter   int64                        `json:"bytesInCounter"`
	MsgInCounter     int64                        `json:"msgInCounter"`
	BytesOutCounter  int64                        `json:"bytesOutCounter"`
	MsgOutCounter    int64                        `json:"msgOutCounter"`
	AverageMsgSize   float64                      `json:"averageMsgSize"`
	StorageSize      int64                        `json:"storageSize"`
	BacklogSize      int64                        `json:"backlogSize"`
	Publishers       []publisherStats             `json:"publishers"`
	Subscriptions    map[string]subscriptionStats `json:"subscriptions"`
}

type publisherStats struct {
	ProducerID   uint64 `json:"producerId"`
	ProducerName string `json:"producerName"`
	Address      string `json:"address"`
	AccessMode   string `json:"accessMode"`
}

type subscriptionStats struct {
	MsgRateOut                       float64         `json:"msgRateOut"`
	MsgThroughputOut                 float64         `json:"msgThroughputOut"`
	BytesOutCounter                  int64           `json:"bytesOutCounter"`
	MsgOutCounter                    int64           `json:"msgOutCounter"`
	MsgRateRedeliver                 float64         `json:"msgRateRedeliver"`
	MessageAckRate                   float64         `json:"messageAckRate"`
	MsgBacklog                       int64           `json:"msgBacklog"` // entries
	BacklogSize                      int64           `json:"backlogSize"`
	MsgInReplay                      int             `json:"msgInReplay"`
	BlockedSubscriptionOnUnackedMsgs bool            `json:"blockedSubscriptionOnUnackedMsgs"`
	UnackedMessages                  int64           `json:"unackedMessages"`
	Type                             string          `json:"type"`
	ActiveConsumerName               string          `json:"activeConsumerName"`
	DrainingHashesCount              int             `json:"drainingHashesCount"`
	Durable                          bool            `json:"durable"`
	Consumers                        []consumerStats `json:"consumers"`
}

type consumerStats struct {
	ConsumerName                 string `json:"consumerName"`
	MsgOutCounter                uint64 `json:"msgOutCounter"`
	AvailablePermits             int64  `json:"availablePermits"`
	UnackedMessages              int64  `json:"unackedMessages"`
	BlockedConsumerOnUnackedMsgs bool   `json:"blockedConsumerOnUnackedMsgs"`
	PriorityLevel                int32  `json:"priorityLevel"`
}

// handleTopics serves Pulsar's paths for topics. A topic's name may have
// slashes, escaped or not.
func (s *Server) handleTopics(mux *http.ServeMux) {
	const base = "/admin/v2/persistent/{tenant}/{namespace}"
	mux.HandleFunc("GET "+base, func(w http.ResponseWriter, r *http.Request) {
		names := s.topicsOf(r.PathValue("tenant") + "/" + r.PathValue("namespace"))
		if names == nil {
			names = []string{}
		}
		writeJSON(w, names)
	})
	mux.HandleFunc("GET "+base+"/{rest...}", func(w http.ResponseWriter, r *http.Request) {
		switch name, what := pathTopic(r); what {
		case "stats":
			s.showStats(w, name)
		case "partitions":
			s.showPartitions(w, name)
		default:
			http.NotFound(w, r)
		}
	})
	for method, status := range map[string]bool{http.MethodPut: false, http.MethodPost: true} {
		mux.HandleFunc(method+" "+base+"/{rest...}", func(w http.ResponseWriter, r *http.Request) {
			name, what := pathTopic(r)
			if what != "partitions" {
				http.NotFound(w, r)
				return
			}
			s.partition(w, r, name, status)
		})
	}
}

// pathTopic splits a path into the topic's full name and what is asked about it.
func pathTopic(r *http.Request) (name, what string) {
	rest := r.PathValue("rest")
	i := strings.LastIndexByte(rest, '/')
	if i < 0 {
		return "", ""
	}
	return domain + r.PathValue("tenant") + "/" + r.PathValue("namespace") + "/" + rest[:i], rest[i+1:]
}

// partition creates a partitioned topic, or gives one that exists more.
func (s *Server) partition(w http.ResponseWriter, r *http.Request, name string, exists bool) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64))
	n := 0
	if err == nil {
		n, err = strconv.Atoi(strings.TrimSpace(string(body)))
	}
	if err != nil {
		reason(w, http.StatusBadRequest, errors.New("send the number of partitions, and nothing else, as the body"))
		return
	}
	s.mu.Lock()
	was := s.partitioned[name]
	s.mu.Unlock()
	switch {
	case exists && was == 0:
		reason(w, http.StatusNotFound, fmt.Errorf("%s is not a partitioned topic: PUT creates one", name))
		return
	case !exists && was != 0:
		reason(w, http.StatusConflict, fmt.Errorf("%s has %d partitions already: POST gives it more", name, was))
		return
	}
	if err := s.CreatePartitionedTopic(name, n); err != nil {
		status := http.StatusConflict
		if codeOf(err) == wire.ErrorInvalidTopicName || n < 1 || n > maxPartitions {
			status = http.StatusPreconditionFailed
		}
		reason(w, status, err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (s *Server) showPartitions(w http.ResponseWriter, name string) {
	tn, err := parseTopicName(name)
	if err != nil {
		reason(w, http.StatusPreconditionFailed, err)
		return
	}
	s.mu.Lock()
	n := s.partitioned[tn.full]
	s.mu.Unlock()
	writeJSON(w, map[string]int{"partitions": n})
}

func (s *Server) showStats(w http.ResponseWriter, name string) {
	tn, err := parseTopicName(name)
	if err != nil {
		reason(w, http.StatusPreconditionFailed, err)
		return
	}
	s.mu.Lock()
	t := s.topics[tn.full]
	s.mu.Unlock()
	if t == nil {
		reason(w, http.StatusNotFound, fmt.Errorf("topic %s does not exist", tn.full))
		return
	}
	writeJSON(w, t.stats())
}

// stats reads the topic's figures as Pulsar's admin server shows them.
func (t *topic) stats() topicStats {
	f := t.figures(stats.Now())
	out := topicStats{
		MsgRateIn: f.rates.in, MsgThroughputIn: f.rates.inBytes, MsgRateOut: f.rates.out, MsgThroughputOut: f.rates.outBytes,
		BytesInCounter: int64(f.counts.inBytes), MsgInCounter: int64(f.counts.in),
		BytesOutCounter: int64(f.counts.outBytes), MsgOutCounter: int64(f.counts.out),
		StorageSize: f.storage, BacklogSize: f.backlog * f.perItem,
		Publishers: []publisherStats{}, Subscriptions: map[string]subscriptionStats{},
	}
	if f.counts.in > 0 {
		out.AverageMsgSize = f.counts.inBytes / f.counts.in
	}
	for _, p := range t.producers() {
		out.Publishers = append(out.Publishers, publisherStats{p.id, p.name, p.conn.net.RemoteAddr().String(), accessNames[p.access]})
	}
	for i := range f.subs {
		s := &f.subs[i]
		st := subscriptionStats{
			MsgRateOut: s.rates.out, MsgThroughputOut: s.rates.outBytes, MsgRateRedeliver: s.rates.redelivered, MessageAckRate: s.rates.acked,
			BytesOutCounter: int64(s.counts.outBytes), MsgOutCounter: int64(s.counts.out),
			MsgBacklog: s.Backlog, BacklogSize: s.Backlog * f.perItem, MsgInReplay: s.Replay, BlockedSubscriptionOnUnackedMsgs: s.Blocked,
			UnackedMessages: s.Unacked, Type: s.Type.String(), ActiveConsumerName: s.Active, DrainingHashesCount: s.DrainingHashes,
			Durable: s.sub.durable, Consumers: []consumerStats{},
		}
		for _, c := range s.sub.ConsumerStats() {
			st.Consumers = append(st.Consumers, consumerStats{c.Name, c.Delivered, c.Permits, c.Unacked, c.Blocked, c.Priority})
		}
		out.Subscriptions[s.name] = st
	}
	return out
}

var accessNames = map[wire.AccessMode]string{
	wire.AccessShared: "Shared", wire.AccessExclusive: "Exclusive", wire.AccessWaitForExclusive: "WaitForExclusive",
	wire.AccessExclusiveWithFencing: "ExclusiveWithFencing",
}
