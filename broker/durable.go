package broker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/contention-toolkit/contention/broker/dispatch"
	"github.com/contention-toolkit/contention/broker/ledger"
	"github.com/contention-toolkit/contention/broker/storage"
	"github.com/contention-toolkit/contention/broker/wire"
)

const (
	// cursorSaveInterval is how old the stored state of a cursor may be: what
	// was acknowledged since comes again after a crash. It is the model's rate.
	cursorSaveInterval = time.Second
	// A failed log is tried again after these.
	recoverFirst, recoverMost = 100 * time.Millisecond, 5 * time.Second
	// blockCacheBytes is what all logs together keep of blocks read.
	blockCacheBytes = 16 << 20
)

// durable is what a broker with disk storage has beside the others.
type durable struct {
	meta  storage.Metadata
	cache *storage.Cache
}

// openDurable opens the data directory and makes the topics, the subscriptions
// and the schemas that it has.
func (s *Server) openDurable() error {
	if s.cfg.Storage != Disk {
		return nil
	}
	meta, err := storage.OpenMeta(s.cfg.DataDir, storage.Sync(s.cfg.Sync))
	if err != nil {
		return fmt.Errorf("broker: %w", err)
	}
	s.durable = &durable{meta: meta, cache: storage.NewCache(blockCacheBytes)}
	s.keepPartitions = meta.PutPartitions
	s.schemas.keep = func(topic string, _ int, sc *wire.Schema) error {
		_, err := meta.AddSchema(topic, storage.Schema{Name: sc.Name, Type: sc.Type, Data: sc.Data, Properties: encodeProperties(sc.Properties)})
		return err
	}
	if err := s.loadDurable(); err != nil {
		return fmt.Errorf("broker: data directory %s: %w", s.cfg.DataDir, errors.Join(err, s.closeDurable()))
	}
	return nil
}

func (s *Server) loadDurable() error {
	m := s.durable.meta
	partitions, err := m.Partitions()
	if err != nil {
		return err
	}
	for name, n := range partitions {
		s.partitioned[name] = n
		if err := s.loadSchemas(name); err != nil {
			return err
		}
	}
	topics, err := m.Topics()
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for _, st := range topics {
		known[strconv.FormatInt(st.Ledger, 10)] = true
	}
	if err := checkLogs(filepath.Join(s.cfg.DataDir, ledgersDir), known); err != nil {
		return err
	}
	for _, st := range topics {
		if err := s.loadTopic(st); err != nil {
			return fmt.Errorf("topic %s: %w", st.Name, err)
		}
	}
	return nil
}

// ledgersDir has a directory for each ledger's log, named by its number.
const ledgersDir = "ledgers"

// checkLogs refuses logs that the metadata does not know, as when its file was
// lost: a new topic would get the number, and with it another one's entries.
func checkLogs(dir string, known map[string]bool) error {
	logs, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, l := range logs {
		if _, err := strconv.ParseInt(l.Name(), 10, 64); err != nil || known[l.Name()] {
			continue
		}
		path := filepath.Join(dir, l.Name())
		if files, err := os.ReadDir(path); err != nil || len(files) > 0 {
			return fmt.Errorf("the log %s is of no topic that the metadata has: put the metadata file back that belongs to it, or move the log away", path)
		}
	}
	return nil
}

func (s *Server) loadTopic(st storage.Topic) error {
	tn, err := parseTopicName(st.Name)
	if err != nil {
		return err
	}
	if err := s.loadSchemas(tn.base); err != nil {
		return err
	}
	t, err := s.makeTopic(tn, uint64(st.Ledger))
	if err != nil {
		return err
	}
	s.topics[tn.full] = t
	cursors, err := s.durable.meta.Cursors(st.Ledger)
	if err != nil {
		return err
	}
	for _, c := range cursors {
		d, err := dispatch.New(t.ledger, t.executor, c.Name, ledger.Earliest, true, s.dispatchConfigNow())
		if err != nil {
			return err
		}
		if last := t.ledger.LastConfirmed(); c.MarkDelete > last {
			s.log.Warn("log ends before what was acknowledged: it has lost entries", "topic", t.name, "subscription", c.Name,
				"acknowledged", c.MarkDelete, "last_entry", last)
		}
		d.Cursor().Restore(ledger.CursorState{MarkDelete: c.MarkDelete, Acked: c.Acked})
		t.subs[c.Name] = &subscription{Dispatcher: d, topic: t, durable: true}
	}
	return nil
}

func (s *Server) loadSchemas(topic string) error {
	if s.schemas.byTopic[topic] != nil {
		return nil // by another of its partitions
	}
	stored, err := s.durable.meta.Schemas(topic)
	if err != nil {
		return err
	}
	for _, sc := range stored {
		properties, err := decodeProperties(sc.Properties)
		if err != nil {
			return fmt.Errorf("version %d of the schema of %s: %w", sc.Version, topic, err)
		}
		s.schemas.byTopic[topic] = append(s.schemas.byTopic[topic],
			wire.Schema{Name: sc.Name, Type: sc.Type, Data: sc.Data, Properties: properties})
	}
	return nil
}

// ledgerOf returns the number of a new topic's ledger.
func (s *Server) ledgerOf(topic string) (uint64, error) {
	if s.durable == nil {
		return s.firstLedger + uint64(len(s.topics)), nil
	}
	t, _, err := s.durable.meta.CreateTopic(topic)
	if err != nil {
		return 0, refuse(wire.ErrorPersistence, "PersistenceError: storing topic %s: %v", topic, err)
	}
	return uint64(t.Ledger), nil
}

// openLog opens the log of t's ledger, or returns nil for memory storage. What
// fails in it later disconnects t's producers.
func (s *Server) openLog(t *topic, id uint64, cfg *ledger.Config) error {
	if s.durable == nil {
		return nil
	}
	dir := filepath.Join(s.cfg.DataDir, ledgersDir, strconv.FormatUint(id, 10))
	log, err := storage.OpenLog(dir, storage.LogOptions{
		Sync: storage.Sync(s.cfg.Sync), SyncInterval: s.cfg.SyncInterval, Cache: s.durable.cache, Logger: s.log,
	})
	if err != nil {
		return fmt.Errorf("topic %s: %w", t.name, err)
	}
	cfg.Log = log
	cfg.OnLogFailure = func(error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if !s.closing {
			s.wg.Go(func() { s.recoverTopic(t) })
		}
	}
	return nil
}

// recoverTopic disconnects a topic's producers, whose clients then open new
// ones, and makes its log usable again, as soon as that works.
func (s *Server) recoverTopic(t *topic) {
	for _, p := range t.producers() {
		p.conn.onReader(func() error { p.conn.disconnectProducer(p); return nil })
	}
	for wait := recoverFirst; ; wait = min(2*wait, recoverMost) {
		err := t.ledger.Recover()
		if err == nil {
			s.log.Info("ledger takes entries again", "topic", t.name)
			return
		}
		s.log.Error("ledger is still fenced", "topic", t.name, "err", err, "next_try", wait)
		select {
		case <-time.After(wait):
		case <-s.stop:
			return
		}
	}
}

// saveCursors stores cursors from time to time and a last time at the end.
func (s *Server) saveCursors() {
	tick := time.NewTicker(cursorSaveInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			if err := s.saveDirtyCursors(); err != nil {
				s.log.Error("storing cursors failed, what they acknowledged comes again after a crash", "err", err)
			}
		case <-s.stop:
			return
		}
	}
}

// saveDirtyCursors stores the state of durable subscriptions that acknowledged
// something since it was stored last.
func (s *Server) saveDirtyCursors() error {
	if s.durable == nil {
		return nil
	}
	var dirty []*subscription
	for _, t := range s.allTopics() {
		t.mu.Lock()
		for _, sub := range t.subs {
			if sub.durable && sub.Cursor().TakeDirty() {
				dirty = append(dirty, sub)
			}
		}
		t.mu.Unlock()
	}
	if len(dirty) == 0 {
		return nil
	}
	states := make([]storage.LedgerCursor, len(dirty))
	for i, sub := range dirty {
		states[i] = sub.stored()
	}
	err := s.durable.meta.PutCursors(states)
	if err != nil {
		for _, sub := range dirty {
			sub.Cursor().SetDirty() // tried again next time
		}
	}
	return err
}

// stored is the subscription as the metadata has it.
func (sub *subscription) stored() storage.LedgerCursor {
	st := sub.Cursor().State()
	return storage.LedgerCursor{
		Ledger: int64(sub.topic.ledger.ID),
		Cursor: storage.Cursor{Name: sub.Name, MarkDelete: st.MarkDelete, Acked: st.Acked},
	}
}

// keep stores a subscription that is new or was moved, before its client hears
// of it.
func (s *Server) keep(sub *subscription) error {
	if s.durable == nil || !sub.durable {
		return nil
	}
	if err := s.durable.meta.PutCursors([]storage.LedgerCursor{sub.stored()}); err != nil {
		return refuse(wire.ErrorPersistence, "PersistenceError: storing subscription %s: %v", sub.Name, err)
	}
	return nil
}

// forget removes a deleted subscription.
func (s *Server) forget(sub *subscription) error {
	if s.durable == nil || !sub.durable {
		return nil
	}
	if err := s.durable.meta.DeleteCursor(int64(sub.topic.ledger.ID), sub.Name); err != nil {
		return refuse(wire.ErrorPersistence, "PersistenceError: deleting subscription %s: %v", sub.Name, err)
	}
	return nil
}

// closeDurable closes logs and metadata, after the executors.
func (s *Server) closeDurable() error {
	if s.durable == nil {
		return nil
	}
	errs := []error{s.saveDirtyCursors()}
	for _, t := range s.allTopics() {
		errs = append(errs, t.ledger.CloseLog())
	}
	return errors.Join(append(errs, s.durable.meta.Close())...)
}

// encodeProperties writes key-value pairs as lengths and bytes.
func encodeProperties(properties []wire.KeyValue) []byte {
	var b []byte
	for _, p := range properties {
		for _, text := range []string{p.Key, p.Value} {
			b = binary.AppendUvarint(b, uint64(len(text)))
			b = append(b, text...)
		}
	}
	return b
}

func decodeProperties(b []byte) ([]wire.KeyValue, error) {
	var out []wire.KeyValue
	r := bytes.NewReader(b)
	for r.Len() > 0 {
		var pair [2]string
		for i := range pair {
			n, err := binary.ReadUvarint(r)
			if err != nil || n > uint64(r.Len()) {
				return nil, errors.New("properties are not what this program writes")
			}
			text := make([]byte, n)
			_, _ = r.Read(text)
			pair[i] = string(text)
		}
		out = append(out, wire.KeyValue{Key: pair[0], Value: pair[1]})
	}
	return out, nil
}
