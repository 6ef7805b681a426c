package conformance

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
)

var stringPointer = reflect.TypeFor[*string]()

type reading struct {
	Device string `json:"device"`
	Value  int    `json:"value"`
}

const (
	schemaOne = `{"type":"record","name":"device","namespace":"t","fields":[{"name":"device","type":"string"}]}`
	schemaTwo = `{"type":"record","name":"reading","namespace":"t","fields":[{"name":"device","type":"string"},{"name":"value","type":"int"}]}`
)

func TestConformanceSchemaJSON(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	// More than one property, whose order the client does not keep.
	js := pulsar.NewJSONSchema(schemaTwo, map[string]string{"a": "1", "b": "2", "c": "3"})
	sub := r.consumer(c, pulsar.ConsumerOptions{Schema: js})
	p := r.producer(c, pulsar.ProducerOptions{Schema: js})
	want := reading{"d", 7}
	r.send(p, &pulsar.ProducerMessage{Value: want})
	m := r.receive(sub)
	var got reading
	if err := m.GetSchemaValue(&got); err != nil || got != want {
		t.Errorf("got %+v, error %v", got, err)
	}
	version := m.SchemaVersion()
	if len(version) == 0 {
		t.Error("the message has no schema version")
	}
	r.send(r.producer(c, pulsar.ProducerOptions{Schema: js}), &pulsar.ProducerMessage{Value: want})
	if again := r.receive(sub).SchemaVersion(); !bytes.Equal(again, version) {
		t.Errorf("the same schema has versions %x and %x", version, again)
	}
}

// A producer may bring another schema with a message, and a consumer asks the
// broker for the schema of a version it does not know.
func TestConformanceSchemaVersions(t *testing.T) {
	r := start(t, nil)
	c := r.client()
	one, two := pulsar.NewJSONSchema(schemaOne, nil), pulsar.NewJSONSchema(schemaTwo, nil)
	sub := r.consumer(c, pulsar.ConsumerOptions{Schema: one})
	p := r.producer(c, pulsar.ProducerOptions{Schema: one}) // only batches carry the version
	versions := map[string]bool{}
	for i, s := range []pulsar.Schema{one, two, one} {
		r.send(p, &pulsar.ProducerMessage{Value: reading{"d", i}, Schema: s})
		m := r.receive(sub)
		var got reading
		if err := m.GetSchemaValue(&got); err != nil || got != (reading{"d", i}) {
			t.Errorf("message %d: got %+v, error %v", i, got, err)
		}
		versions[string(m.SchemaVersion())] = true
	}
	if len(versions) != 2 {
		t.Errorf("%d versions of two schemas", len(versions))
	}
}

func TestConformanceSchemaOfPartitions(t *testing.T) {
	r := start(t, nil)
	if err := r.s.CreatePartitionedTopic(r.topic(), 3); err != nil {
		t.Fatal(err)
	}
	c := r.client()
	sub := r.consumer(c, pulsar.ConsumerOptions{Schema: pulsar.NewStringSchema(nil)})
	p := r.producer(c, pulsar.ProducerOptions{Schema: pulsar.NewStringSchema(nil), DisableBatching: true})
	for range 6 {
		r.send(p, &pulsar.ProducerMessage{Value: "v"})
		var got *string // the client sets the pointer
		if err := r.receive(sub).GetSchemaValue(&got); err != nil || *got != "v" {
			t.Fatalf("got %v, error %v", got, err)
		}
	}
}
