package load

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/broker/wire"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// modelDelivery recounts a history the slow way.
func modelDelivery(history [][2]int, acked []uint32) Delivery {
	seen := map[[2]int]bool{}
	var d Delivery
	for _, m := range history {
		device, n := m[0], m[1]
		if seen[m] {
			d.Duplicates++
			continue
		}
		seen[m] = true
		for below := range n {
			if !seen[[2]int{device, below}] {
				d.Disorder++
				break
			}
		}
		if n < int(acked[device]) {
			d.Received++
		} else {
			d.Invalid++
		}
	}
	for device, n := range acked {
		lost := int64(0)
		for i := range int(n) {
			if !seen[[2]int{device, i}] {
				lost++
			}
		}
		d.Expected += int64(n)
		d.Lost += lost
		if lost > 0 {
			d.DevicesIncomplete++
		}
	}
	return d
}

func TestTrackerAgainstModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		const devices = 3
		acked := make([]uint32, devices)
		for i := range acked {
			acked[i] = uint32(rapid.IntRange(0, 6).Draw(rt, "acked"))
		}
		tr := newTracker(devices, true)
		history := rapid.SliceOf(rapid.Custom(func(rt *rapid.T) [2]int {
			return [2]int{rapid.IntRange(0, devices-1).Draw(rt, "device"), rapid.IntRange(0, 7).Draw(rt, "counter")}
		})).Draw(rt, "history")
		var obs []observation
		for _, m := range history {
			obs = append(obs, observation{stamp: stamp{device: int32(m[0]), counter: uint32(m[1])}})
		}
		cut := rapid.IntRange(0, len(obs)).Draw(rt, "cut")
		tr.observe(obs[:cut], bad{}, 1, newWindow())
		tr.observe(obs[cut:], bad{}, 2, newWindow())
		seen := map[[2]int]bool{}
		for i, m := range history {
			if obs[i].fresh == seen[m] {
				rt.Fatalf("message %d: fresh %t", i, obs[i].fresh)
			}
			seen[m] = true
		}
		if diff := cmp.Diff(modelDelivery(history, acked), tr.finish(acked, nil)); diff != "" {
			rt.Fatal(diff)
		}
	})
}

// A message whose receipt never came may have arrived or not.
func TestTrackerUnacknowledged(t *testing.T) {
	for _, counters := range [][]uint32{{0, 1}, {0, 1, 2}, {0, 2}} {
		tr := newTracker(1, true)
		var obs []observation
		for _, n := range counters {
			obs = append(obs, observation{stamp: stamp{counter: n}})
		}
		tr.observe(obs, bad{}, 1, newWindow())
		got := tr.finish([]uint32{2}, map[int32]bool{0: true})
		if got.Invalid != 0 || got.Received+got.Lost != 2 {
			t.Errorf("received %v with 2 acknowledged and one unacknowledged: %+v", counters, got)
		}
	}
}

func TestTrackerCountsTheWindow(t *testing.T) {
	w := newWindow()
	tr := newTracker(1, true)
	for i, at := range []int64{5, 10, 15, 20} {
		if i == 1 {
			w.start.Store(10)
			w.end.Store(20)
		}
		tr.observe([]observation{{stamp: stamp{counter: uint32(i)}}}, bad{}, at, w)
	}
	if tr.inWindow != 2 || tr.lastUnique.Load() != 20 {
		t.Errorf("%d in [10, 20), last at %d; want 2 and 20", tr.inWindow, tr.lastUnique.Load())
	}
}

func TestPoolTakesTurns(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := newPool(5)
		model := []int32{0, 1, 2, 3, 4}
		var out []int32
		for range rapid.IntRange(1, 30).Draw(rt, "steps") {
			back := out[:rapid.IntRange(0, len(out)).Draw(rt, "back")]
			out = out[len(back):]
			n := rapid.IntRange(0, 6).Draw(rt, "n")
			got := p.exchange(slices.Clone(back), n)
			model = append(model, back...)
			want := model[:min(n, len(model))]
			if !slices.Equal(got, want) {
				rt.Fatalf("took %v, want %v", got, want)
			}
			model = model[len(want):]
			out = append(slices.Clone(out), got...)
			if p.size.Load() != int64(len(model)) {
				rt.Fatalf("size %d, want %d", p.size.Load(), len(model))
			}
		}
	})
}

func TestGate(t *testing.T) {
	var g gate
	if g.take(3) != 0 || !g.closed() {
		t.Error("the zero gate is open")
	}
	g.open(5)
	if a, b, c := g.take(3), g.take(3), g.take(3); a != 3 || b != 2 || c != 0 || !g.closed() {
		t.Errorf("took %d, %d, %d of 5", a, b, c)
	}
}

// intended is the first step at which the message is due.
func TestPacerSchedule(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := pacer{start: 12345, rate: rapid.Float64Range(0.5, 5e6).Draw(rt, "rate")}
		i := int64(rapid.IntRange(0, 1_000_000).Draw(rt, "i"))
		at := p.intended(i)
		if (at-p.start)%paceStep != 0 || p.due(at) <= i || p.due(at-1) > i {
			rt.Fatalf("message %d at %v/s intended %d ns after the start: due then %d, just before %d", i, p.rate, at-p.start, p.due(at), p.due(at-1))
		}
		if ideal := float64(i+1) / p.rate * 1e9; float64(at-p.start) < ideal-1e-6*ideal-1 || float64(at-p.start) > ideal+1e-6*ideal+2*float64(paceStep) {
			rt.Fatalf("message %d is intended at %d ns, ideally at %.0f", i, at-p.start, ideal)
		}
	})
	p := pacer{rate: 30_000}
	if n := p.due(int64(10 * time.Second)); n != 300_000 {
		t.Errorf("30,000/s has %d due after 10 s, want 300,000", n)
	}
}

func TestBuiltinScenarios(t *testing.T) {
	names := BuiltinScenarios()
	if !slices.Equal(names, []string{"iot-telemetry-high-rate", "iot-telemetry-max-rate"}) {
		t.Fatalf("built-ins %v", names)
	}
	for _, name := range names {
		sc, err := LoadScenario(name)
		if err != nil {
			t.Fatal(err)
		}
		if sc.Name != name || sc.Connections != 500 || sc.Devices != 100_000 || sc.InFlight != 100_000 || sc.MessageSize != 128 {
			t.Errorf("%s: %+v", name, sc)
		}
	}
	high, _ := LoadScenario("iot-telemetry-high-rate")
	if high.Rate != 30_000 || high.Applications != 5 || high.Consumers != 10 {
		t.Errorf("high rate: %+v", high)
	}
}

func TestLoadScenarioFile(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	sc, err := LoadScenario(write("large.yaml", "message_size: 4KB\nduration: 1m30s\nrate: 2500.5\n"))
	if err != nil {
		t.Fatal(err)
	}
	if sc.Name != "large" || sc.MessageSize != 4096 || sc.Duration != 90*time.Second || sc.Rate != 2500.5 || sc.Consumers != 20 {
		t.Errorf("%+v", sc)
	}
	for name, tc := range map[string]struct{ text, wants string }{
		"key":      {"mesage_size: 4KB\n", "mesage_size"},
		"unit":     {"message_size: 128\n", "no unit"},
		"duration": {"duration: 10\n", "duration"},
		"value":    {"connections: 0\n", "connections: 0 is not between"},
		"syntax":   {"connections: [\n", "syntax.yaml"},
	} {
		_, err := LoadScenario(write(name+".yaml", tc.text))
		if err == nil || !strings.Contains(err.Error(), tc.wants) {
			t.Errorf("%s: error %v, want one with %q", name, err, tc.wants)
		}
	}
	if _, err := LoadScenario("iot-telemetry"); err == nil || !strings.Contains(err.Error(), DefaultScenario) {
		t.Errorf("unknown name: %v, want the built-in ones listed", err)
	}
	if _, err := LoadScenario(filepath.Join(dir, "none.yaml")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
}

func TestValidateGivesEveryReason(t *testing.T) {
	for field, breakIt := range map[string]func(*Scenario){
		"topic":             func(s *Scenario) { s.Topic = "" },
		"connections":       func(s *Scenario) { s.Connections = -1 },
		"devices":           func(s *Scenario) { s.Devices = 0 },
		"in_flight":         func(s *Scenario) { s.InFlight = s.Devices + 1 },
		"message_size":      func(s *Scenario) { s.MessageSize = 31 },
		"rate":              func(s *Scenario) { s.Rate = -1 },
		"subscription_type": func(s *Scenario) { s.SubscriptionType = "failover" },
		"consumers":         func(s *Scenario) { s.Consumers = 0 },
		"applications":      func(s *Scenario) { s.Applications = 0 },
		"receiver_queue":    func(s *Scenario) { s.ReceiverQueue = 1 },
		"warmup_messages":   func(s *Scenario) { s.WarmupMessages = -1 },
		"messages":          func(s *Scenario) { s.Messages = -1 },
		"duration":          func(s *Scenario) { s.Messages, s.Duration = 0, 0 },
		"timeout":           func(s *Scenario) { s.Timeout = 0 },
	} {
		sc := small()
		breakIt(&sc)
		if err := sc.Validate(); err == nil || !strings.HasPrefix(err.Error(), field+":") && !strings.HasPrefix(err.Error(), field+" ") {
			t.Errorf("%s: error %v", field, err)
		}
	}
	var zero Scenario
	if err := zero.Validate(); strings.Count(err.Error(), "\n") < 8 {
		t.Errorf("the zero scenario has only these reasons: %v", err)
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]Size{"128B": 128, "0B": 0, "4KB": 4096, "5MB": 5 << 20, " 1 KiB ": 1024, "2GB": 2 << 30} {
		got, err := ParseSize(text)
		if err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
		if back, err := ParseSize(got.String()); err != nil || back != got {
			t.Errorf("%q prints as %q, which reads as %d, %v", text, got, back, err)
		}
	}
	for _, text := range []string{"", "128", "B", "-1B", "1.5KB", "9999999999999GB", "0x10B", "1kb"} {
		if n, err := ParseSize(text); err == nil {
			t.Errorf("%q reads as %d", text, n)
		}
	}
}

// Whatever arrives is a message of this load or an error; nothing panics, and
// what is accepted is within the devices.
func FuzzStamp(f *testing.F) {
	body := make([]byte, 128)
	(&stamp{run: 1, device: 77, counter: 5, sent: 6, intended: 7}).put(body)
	f.Add(wire.AppendHeadersAndPayload(nil, &wire.Metadata{PartitionKey: appendKey(nil, 77)}, body)[6:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, tail []byte) {
		// A right checksum, so that what follows it is reached.
		hp := []byte{0x0e, 0x01, 0, 0, 0, 0}
		hp = append(hp, tail...)
		var s stamp
		var md wire.Metadata
		for _, devices := range []int{1, 100} {
			sum := crc32.Checksum(hp[6:], crc32.MakeTable(crc32.Castagnoli))
			hp[2], hp[3], hp[4], hp[5] = byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum)
			if s.parse(hp, &md, 128, devices) == nil && (s.device < 0 || int(s.device) >= devices) {
				t.Fatalf("accepted device %d of %d", s.device, devices)
			}
		}
	})
}

func TestStampRoundTrip(t *testing.T) {
	want := stamp{run: 9, device: 4321, counter: 1 << 30, sent: 123456789, intended: 123000000}
	body := make([]byte, 40)
	want.put(body)
	hp := wire.AppendHeadersAndPayload(nil, &wire.Metadata{PartitionKey: appendKey(nil, 4321)}, body)
	var got stamp
	var md wire.Metadata
	if err := got.parse(hp, &md, 40, 5000); err != nil || got != want {
		t.Errorf("got %+v, %v; want %+v", got, err, want)
	}
	if err := got.parse(hp, &md, 41, 5000); err != errPayloadSize {
		t.Errorf("another size: %v", err)
	}
	if err := got.parse(hp, &md, 40, 4321); err != errDevice {
		t.Errorf("device out of range: %v", err)
	}
	md.Batched, md.NumMessages = true, 1
	if err := got.parse(wire.AppendHeadersAndPayload(nil, &md, body), &md, 40, 5000); err != errBatched {
		t.Errorf("batch: %v", err)
	}
	if key := string(appendKey(nil, 4321)); key != "d00004321" {
		t.Errorf("key %q", key)
	}
}

func TestRecorderMergesStripesAndCountsWhatIsOutOfRange(t *testing.T) {
	r := newRecorder(true)
	for who := range 2 * recorderStripes {
		r.record(who, []sample{{intended: 2_000_000, sent: 1_000_000}})
	}
	r.record(0, []sample{{intended: -5000, sent: int64(2 * time.Hour)}})
	intended, sent, bad := r.merged()
	if intended.TotalCount() != 2*recorderStripes+1 || sent.TotalCount() != intended.TotalCount() || bad != 2 {
		t.Errorf("%d and %d values, %d out of range", intended.TotalCount(), sent.TotalCount(), bad)
	}
	if l := latency(intended); l.P50 != 2 || l.Count != 9 {
		t.Errorf("latency %+v, want a median of 2 ms", l)
	}
}

func TestProducerRingGrowsInPlace(t *testing.T) {
	sc := small()
	sc.Devices, sc.InFlight, sc.Connections = 1000, 10, 10
	r := newRun(Options{Scenario: sc})
	p := newProducer(&link{wake: make(chan struct{}, 1)}, r, 0)
	p.next, p.head = 13, 13 // not aligned with the ring
	before := len(p.slots)
	for d := range int32(100) {
		p.send([]int32{d}, 1, 1, 0)
	}
	if len(p.slots) <= before {
		t.Fatalf("ring of %d did not grow for 100 messages", len(p.slots))
	}
	for d := range int32(100) {
		if err := p.receipt(&wire.SendReceipt{ProducerID: producerID, SequenceID: 13 + uint64(d)}, 2); err != nil {
			t.Fatal(err)
		}
		if p.freed[d] != d {
			t.Fatalf("receipt %d frees device %d", d, p.freed[d])
		}
	}
	if p.send(make([]int32, 5), 1, 1, 4) {
		t.Error("sent over the limit")
	}
}

func ExampleSize() {
	s, err := ParseSize("4KB")
	fmt.Println(int64(s), s, err)
	// Output: 4096 4KB <nil>
}
