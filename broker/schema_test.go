package broker

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/contention-toolkit/contention/broker/wire"
)

func TestSchemaVersions(t *testing.T) {
	ss := schemas{byTopic: map[string][]wire.Schema{}}
	kv := func(pairs ...string) (kvs []wire.KeyValue) {
		for i := 0; i < len(pairs); i += 2 {
			kvs = append(kvs, wire.KeyValue{Key: pairs[i], Value: pairs[i+1]})
		}
		return kvs
	}
	data := []byte("one")
	for i, step := range []struct {
		topic  string
		schema *wire.Schema
		want   []byte
	}{
		{"a", nil, nil},
		{"a", &wire.Schema{Type: schemaNone}, nil},
		{"a", &wire.Schema{Type: schemaAutoConsume}, nil},
		{"a", &wire.Schema{Name: "n", Type: 2, Data: data, Properties: kv("x", "1", "y", "2")}, schemaVersion(0)},
		{"a", &wire.Schema{Name: "other", Type: 2, Data: []byte("one"), Properties: kv("y", "2", "x", "1")}, schemaVersion(0)},
		{"a", &wire.Schema{Type: 4, Data: []byte("one"), Properties: kv("y", "2", "x", "1")}, schemaVersion(1)},
		{"a", &wire.Schema{Type: 2, Data: []byte("two")}, schemaVersion(2)},
		{"b", &wire.Schema{Type: 2, Data: []byte("two")}, schemaVersion(0)},
	} {
		if got, err := ss.add(step.topic, step.schema); err != nil || !bytes.Equal(got, step.want) {
			t.Errorf("step %d: version %x, error %v, want %x", i, got, err, step.want)
		}
		if step.schema != nil && string(step.schema.Data) == "one" {
			data[0] = 'X' // the parser's buffer is reused
		}
	}
	if s, v, err := ss.get("a", nil); err != nil || string(s.Data) != "two" || !bytes.Equal(v, schemaVersion(2)) {
		t.Errorf("latest: %+v, %x, %v", s, v, err)
	}
	if s, _, err := ss.get("a", schemaVersion(0)); err != nil || string(s.Data) != "one" || s.Name != "n" {
		t.Errorf("first: %+v, %v", s, err)
	}
	for _, bad := range [][]byte{schemaVersion(3), {1}, bytes.Repeat([]byte{255}, 8)} {
		if _, _, err := ss.get("a", bad); codeOf(err) != wire.ErrorTopicNotFound {
			t.Errorf("version %x: %v", bad, err)
		}
	}
	if _, err := ss.add("a", &wire.Schema{Type: 2, Data: make([]byte, maxSchemaSize+1)}); codeOf(err) != wire.ErrorIncompatibleSchema {
		t.Errorf("too large: %v", err)
	}
	for i := len(ss.byTopic["a"]); i < maxSchemas; i++ {
		if _, err := ss.add("a", &wire.Schema{Type: 2, Data: fmt.Append(nil, i)}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := ss.add("a", &wire.Schema{Type: 2, Data: []byte("more")}); codeOf(err) != wire.ErrorIncompatibleSchema {
		t.Errorf("too many: %v", err)
	}
	ss.keep = func(string, int, *wire.Schema) error { return errors.New("disk full") }
	if _, err := ss.add("c", &wire.Schema{Type: 2}); err == nil {
		t.Error("a schema that could not be stored was accepted")
	}
}
