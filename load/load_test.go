package load

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/contention-toolkit/contention/broker/wire"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// small is a scenario that the fake broker does in well under a second.
func small() Scenario {
	sc, err := LoadScenario(DefaultScenario)
	if err != nil {
		panic(err)
	}
	sc.Connections, sc.Devices, sc.InFlight = 7, 100, 60
	sc.Consumers, sc.Applications, sc.ReceiverQueue = 3, 2, 10
	sc.WarmupMessages, sc.Messages, sc.Timeout = 500, 3000, 20*time.Second
	return sc
}

func runSmall(t *testing.T, b *fakeBroker, sc Scenario) (*Result, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return Run(ctx, Options{Broker: startFake(t, b), Scenario: sc})
}

func TestRunUnpaced(t *testing.T) {
	b := &fakeBroker{}
	sc := small()
	var events []Event
	res, err := Run(t.Context(), Options{Broker: "pulsar://" + startFake(t, b), Scenario: sc, Events: func(e Event) { events = append(events, e) }})
	if err != nil {
		t.Fatal(err)
	}
	if !res.Valid || len(res.WhyInvalid) != 0 || !res.Delivery.Valid() {
		t.Fatalf("invalid: %v", res.WhyInvalid)
	}
	if res.Sent != 3500 || res.Published != 3000 || res.Delivery.Expected != 7000 || res.Delivery.Received != 7000 {
		t.Errorf("sent %d, published %d, delivery %+v; want 3500, 3000, 7000 expected and received", res.Sent, res.Published, res.Delivery)
	}
	if res.PublishMs.Count != 3000 || res.EndToEndMs.Count != 3000 {
		t.Errorf("latencies of %d and %d messages, want those of the 3000 measured ones", res.PublishMs.Count, res.EndToEndMs.Count)
	}
	if res.PublishUncorrectedMs != nil || res.Scheduled != 0 {
		t.Error("an unpaced run has uncorrected latencies or a schedule")
	}
	var phases []Phase
	for i, e := range events {
		phases = append(phases, e.Phase)
		if i > 0 && e.UnixNs < events[i-1].UnixNs {
			t.Errorf("%s is earlier than %s", e.Phase, events[i-1].Phase)
		}
	}
	if want := []Phase{PhaseConnected, PhaseWarm, PhaseMeasuring, PhaseMeasured, PhaseDrained}; !slices.Equal(phases, want) {
		t.Errorf("phases %v, want %v", phases, want)
	}
	if warm := events[1]; warm.Published != 500 || !slices.Equal(warm.Delivered, []int64{500, 500}) {
		t.Errorf("warm with %d published and %v delivered, want 500 each", warm.Published, warm.Delivered)
	}
	if events[2].UnixNs != res.WindowStartNs || events[3].UnixNs != res.WindowEndNs {
		t.Error("the events' times are not the window's edges")
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for sub, n := range b.acked {
		if n != 3500 {
			t.Errorf("%s acknowledged %d messages, want all 3500", sub, n)
		}
	}
	if b.pongs < 13*3500/50 {
		t.Errorf("%d of some %d pings were answered", b.pongs, 13*3500/50)
	}
	if len(b.acked) != 2 {
		t.Errorf("%d subscriptions acknowledged, want 2", len(b.acked))
	}
}

// Without any buffer between the two sides, a reader that waits for its own
// write, or a write that waits for a reader, stops the run.
func TestRunOverUnbufferedConnections(t *testing.T) {
	b := &fakeBroker{}
	address := startFake(t, b)
	dial := func(context.Context, string, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		b.serve(theirs)
		return ours, nil
	}
	res, err := Run(t.Context(), Options{Broker: address, Scenario: small(), Dial: dial})
	if err != nil || !res.Valid {
		t.Fatalf("error %v, result %+v", err, res)
	}
}

func TestLookupFollowsRedirects(t *testing.T) {
	owner := &fakeBroker{}
	address := startFake(t, owner)
	first := &fakeBroker{answer: func(c *wire.Command) ([]byte, bool) {
		switch c.Type {
		case wire.TypeLookup:
			m := wire.LookupResponse{RequestID: c.Lookup.RequestID, Response: wire.LookupRedirect, BrokerURL: "pulsar://" + address, Authoritative: true}
			return m.AppendFrame(nil), false
		case wire.TypeConnect:
			return nil, false
		}
		return nil, true // serves nothing
	}}
	res, err := runSmall(t, first, small())
	if err != nil || !res.Valid {
		t.Fatalf("error %v, result %+v", err, res)
	}
	loop := &fakeBroker{}
	loop.answer = func(c *wire.Command) ([]byte, bool) {
		if c.Type != wire.TypeLookup {
			return nil, false
		}
		m := wire.LookupResponse{Response: wire.LookupRedirect, BrokerURL: "pulsar://" + loop.ln.Addr().String()}
		return m.AppendFrame(nil), false
	}
	if _, err := runSmall(t, loop, small()); err == nil || !strings.Contains(err.Error(), "keep redirecting") {
		t.Errorf("redirects in a circle: %v", err)
	}
}

func TestRunByDuration(t *testing.T) {
	sc := small()
	sc.Messages, sc.Duration = 0, 500*time.Millisecond
	progress := 0
	res, err := Run(t.Context(), Options{Broker: startFake(t, &fakeBroker{}), Scenario: sc, ProgressEvery: 20 * time.Millisecond, Events: func(e Event) {
		if e.Phase == PhaseProgress {
			progress++
		}
	}})
	if err != nil || !res.Valid {
		t.Fatalf("error %v, invalid because %v", err, res.WhyInvalid)
	}
	if progress == 0 || progress > 25 {
		t.Errorf("%d progress events every 20 ms in 500 ms", progress)
	}
	if res.WindowSeconds != 0.5 || res.Published == 0 || res.Published > res.Sent-500 {
		t.Errorf("window %v s, %d published of %d sent", res.WindowSeconds, res.Published, res.Sent)
	}
	if res.PublishMs.Count != res.Sent-500 {
		t.Errorf("latencies of %d messages, want those of the %d sent in the window", res.PublishMs.Count, res.Sent-500)
	}
}

func TestRunPaced(t *testing.T) {
	sc := small()
	sc.Devices, sc.InFlight = 5000, 5000 // however late the receipts, all can be sent
	sc.Rate, sc.Messages, sc.Duration = 5000, 0, 500*time.Millisecond
	res, err := runSmall(t, &fakeBroker{}, sc)
	if err != nil || !res.Valid {
		t.Fatalf("error %v, invalid because %v", err, res.WhyInvalid)
	}
	if res.Scheduled != 2500 || res.Unsent != 0 || res.Sent != 3000 {
		t.Errorf("scheduled %d, unsent %d, sent %d; want 2500, 0, 3000 with the warm-up", res.Scheduled, res.Unsent, res.Sent)
	}
	if res.PublishUncorrectedMs == nil || res.EndToEndUncorrectedMs == nil {
		t.Fatal("a paced run lacks the uncorrected latencies")
	}
	if res.PublishMs.Mean < res.PublishUncorrectedMs.Mean {
		t.Errorf("mean from the intended time %v is below that from the real one %v", res.PublishMs.Mean, res.PublishUncorrectedMs.Mean)
	}
}

// A broker that holds receipts back keeps the load from sending; the messages
// that had to wait are charged from when they should have gone.
func TestPacedLatencyIsCountedFromTheIntendedTime(t *testing.T) {
	sc := small()
	sc.Devices, sc.InFlight, sc.Connections, sc.WarmupMessages = 1, 1, 1, 0
	sc.Rate, sc.Messages = 1000, 50
	stall := 100 * time.Millisecond
	b := &fakeBroker{judge: func(n int, _ string) verdict {
		if n == 0 {
			time.Sleep(stall) // the stall is what is measured
		}
		return deliver
	}}
	res, err := runSmall(t, b, sc)
	if err != nil || !res.Valid {
		t.Fatalf("error %v, invalid because %v", err, res.WhyInvalid)
	}
	if res.PublishMs.P50 < 25 || res.PublishMs.Max < 99 {
		t.Errorf("corrected p50 %v ms, max %v ms: half of the messages waited for the stall of 100 ms", res.PublishMs.P50, res.PublishMs.Max)
	}
	if res.PublishUncorrectedMs.P50 >= res.PublishMs.P50 {
		t.Errorf("uncorrected p50 %v ms is not below the corrected %v ms", res.PublishUncorrectedMs.P50, res.PublishMs.P50)
	}
}

func TestLoadNotReached(t *testing.T) {
	sc := small()
	sc.Devices, sc.InFlight, sc.WarmupMessages = 1, 1, 0
	sc.Rate, sc.Messages, sc.Duration = 1e7, 0, 100*time.Millisecond
	res, err := runSmall(t, &fakeBroker{}, sc)
	if err != nil {
		t.Fatal(err)
	}
	if res.Valid || !strings.Contains(strings.Join(res.WhyInvalid, "\n"), "load not reached") || res.Unsent == 0 {
		t.Errorf("valid %t, why %v, unsent %d", res.Valid, res.WhyInvalid, res.Unsent)
	}
}

// brief is the timeout of tests that wait for it: long enough for a busy
// machine to make some progress in.
const brief = 3 * time.Second

func nth(n int, v verdict) func(int, string) verdict {
	return func(i int, _ string) verdict {
		if i == n {
			return v
		}
		return deliver
	}
}

// Each delivery check fires, and only that one.
func TestDeliveryChecks(t *testing.T) {
	for _, tc := range []struct {
		name   string
		judge  func(int, string) verdict
		want   Delivery // counts over both applications; Expected is checked apart
		reason string
	}{
		{"lost", nth(1000, drop), Delivery{Lost: 2, DevicesIncomplete: 2, Disorder: -1}, "were not received"},
		{"duplicates", nth(1000, twice), Delivery{Duplicates: 2}, "more than once"},
		{"disorder", nth(1000, hold), Delivery{Disorder: 2}, "before an earlier one"},
		{"damaged", nth(1000, corrupt), Delivery{Invalid: 2, Lost: 2, DevicesIncomplete: 2, Disorder: -1}, "checksum does not match"},
		{"wrong key", nth(1000, rename), Delivery{Invalid: 2, Lost: 2, DevicesIncomplete: 2, Disorder: -1}, errKey.Error()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			sc := small()
			t.Parallel()
			if tc.want.Lost > 0 {
				sc.Timeout = brief // draining waits that long
			}
			res, err := runSmall(t, &fakeBroker{judge: tc.judge}, sc)
			if err != nil {
				t.Fatal(err)
			}
			got := res.Delivery
			if got.Expected != 7000 || got.Received+got.Lost != got.Expected {
				t.Errorf("expected %d, received %d, lost %d; want 7000 in sum", got.Expected, got.Received, got.Lost)
			}
			got.Expected, got.Received = 0, 0
			if tc.want.Disorder < 0 { // every later message of the key came early
				tc.want.Disorder = got.Disorder
			}
			if got != tc.want || got.Valid() || res.Valid {
				t.Errorf("delivery %+v, valid %t; want %+v, false", got, res.Valid, tc.want)
			}
			if why := strings.Join(res.WhyInvalid, "\n"); !strings.Contains(why, tc.reason) {
				t.Errorf("reasons %q lack %q", why, tc.reason)
			}
		})
	}
}

// The last message of a device leaves no gap behind it: only the comparison of
// end states finds it.
func TestMissingTailIsFound(t *testing.T) {
	sc := small()
	t.Parallel()
	sc.WarmupMessages, sc.Messages, sc.Timeout = 0, 100, brief
	sc.InFlight = 100 // all devices send once
	res, err := runSmall(t, &fakeBroker{judge: nth(99, drop)}, sc)
	if err != nil {
		t.Fatal(err)
	}
	if res.Valid || res.Delivery.Lost != 2 || res.Delivery.Disorder != 0 {
		t.Errorf("valid %t, delivery %+v; want the tail lost at both applications", res.Valid, res.Delivery)
	}
}

// Messages that an earlier run left in the subscription are not this run's
// fault, but are said.
func TestForeignMessages(t *testing.T) {
	body := make([]byte, 200)
	(&stamp{run: 2, device: 3}).put(body) // run ids are odd
	hp := wire.AppendHeadersAndPayload(nil, &wire.Metadata{PartitionKey: appendKey(nil, 3)}, body)
	b := &fakeBroker{backlog: wire.AppendMessage(nil, &wire.Message{ConsumerID: consumerID, ID: wire.NewMessageID(0, 9)}, hp)}
	res, err := runSmall(t, b, small())
	if err != nil || !res.Valid {
		t.Fatalf("error %v, invalid because %v", err, res.WhyInvalid)
	}
	if res.Delivery.Foreign == 0 || len(res.Warnings) == 0 {
		t.Errorf("foreign %d, warnings %v", res.Delivery.Foreign, res.Warnings)
	}
}

func TestBadServers(t *testing.T) {
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed.Close()
	reject := func(t wire.CommandType, frame []byte) func(*wire.Command) ([]byte, bool) {
		return func(c *wire.Command) ([]byte, bool) {
			if c.Type == t {
				return frame, frame == nil
			}
			return nil, false
		}
	}
	noTopic := (&wire.Error{RequestID: 1, Code: wire.ErrorTopicNotFound, Message: "no such topic"}).AppendFrame(nil)
	for _, tc := range []struct {
		name   string
		broker *fakeBroker // nil: nobody listens
		wants  []string
	}{
		{"refused", nil, []string{"lookup: connect to broker", "refused", "check that it runs"}},
		{"silent at connect", &fakeBroker{answer: reject(wire.TypeConnect, nil)}, []string{"did not answer in time", "raise the timeout"}},
		{"silent at subscribe", &fakeBroker{answer: reject(wire.TypeSubscribe, nil)}, []string{"did not answer in time", "of application-"}},
		{"error at producer", &fakeBroker{answer: reject(wire.TypeProducer, noTopic)}, []string{"producer connection", "TopicNotFound", "no such topic"}},
		{"error at lookup", &fakeBroker{answer: reject(wire.TypeLookup, noTopic)}, []string{"lookup", "TopicNotFound"}},
		{"closes the producers", &fakeBroker{answer: func(c *wire.Command) ([]byte, bool) {
			if c.Type == wire.TypeSend && c.Send.SequenceID == 20 {
				return (&wire.Close{ID: producerID, RequestID: 5}).AppendProducerFrame(nil), false
			}
			return nil, false
		}}, []string{"unexpected CLOSE_PRODUCER"}},
		{"hangs up in warm-up", &fakeBroker{judge: nth(50, hangUp)}, []string{"warm-up: producer connection", "broke", "broker's log"}},
		{"hangs up while measuring", &fakeBroker{judge: nth(1500, hangUp)}, []string{"measuring: producer connection", "broke"}},
		{"send error", &fakeBroker{judge: nth(1500, refuse)}, []string{"SEND_ERROR PersistenceError", "disk full"}},
		{"receipts out of order", &fakeBroker{judge: nth(1500, forget)}, []string{"receipts must come once and in order"}},
		{"no receipts", &fakeBroker{judge: func(n int, _ string) verdict {
			if n > 1500 {
				return mute
			}
			return deliver
		}}, []string{"measuring: broker sent no receipt and no message for", "60 of"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			sc := small()
			sc.Timeout = brief
			address := closed.Addr().String()
			if tc.broker != nil {
				address = startFake(t, tc.broker)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			res, err := Run(ctx, Options{Broker: address, Scenario: sc})
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range tc.wants {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("error %q lacks %q", err, w)
				}
			}
			if res == nil || res.Valid || len(res.WhyInvalid) == 0 || res.WhyInvalid[0] != err.Error() {
				t.Errorf("the partial result is not there or does not say why it is invalid: %+v", res)
			}
			if _, err := json.Marshal(res); err != nil {
				t.Errorf("the partial result has no JSON: %v", err)
			}
		})
	}
}

func TestStartIsAwaitedAndCancelEndsTheRun(t *testing.T) {
	start := make(chan struct{})
	warm := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var phases []Phase
	go func() {
		<-warm
		close(start)
	}()
	res, err := Run(ctx, Options{Broker: startFake(t, &fakeBroker{}), Scenario: small(), Start: start, Events: func(e Event) {
		phases = append(phases, e.Phase)
		switch e.Phase {
		case PhaseWarm:
			close(warm)
		case PhaseMeasuring:
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || res == nil || res.Valid {
		t.Fatalf("error %v, result %+v; want Canceled and an invalid result", err, res)
	}
	if len(phases) < 3 || phases[2] != PhaseMeasuring {
		t.Errorf("phases %v", phases)
	}

	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	_, err = Run(ctx, Options{Broker: startFake(t, &fakeBroker{}), Scenario: small(), Start: make(chan struct{}), Events: func(e Event) {
		if e.Phase == PhaseWarm {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "waiting for the start") {
		t.Errorf("error %v", err)
	}
}

func TestCancelWhileConnecting(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	b := &fakeBroker{answer: func(c *wire.Command) ([]byte, bool) {
		cancel()
		return nil, true
	}}
	sc := small()
	sc.Timeout = time.Hour
	if _, err := Run(ctx, Options{Broker: startFake(t, b), Scenario: sc}); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want Canceled", err)
	}
}

func TestBadOptions(t *testing.T) {
	for _, address := range []string{"", "localhost", "http://127.0.0.1:80", "pulsar://", ":6650"} {
		if _, err := Run(t.Context(), Options{Broker: address, Scenario: small()}); err == nil {
			t.Errorf("broker %q is accepted", address)
		}
	}
	if _, err := Run(t.Context(), Options{Broker: "127.0.0.1:1"}); err == nil {
		t.Error("the zero scenario is accepted")
	}
}

func TestWriteHistograms(t *testing.T) {
	sc := small()
	sc.Rate = 20_000
	res, err := runSmall(t, &fakeBroker{}, sc)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := res.WriteHistograms(dir); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*"))
	if err != nil || len(files) != 12 {
		t.Errorf("%d files (%v), want text and encoding of publish and two applications, corrected and not", len(files), err)
	}
	b, err := os.ReadFile(filepath.Join(dir, "publish.hdr"))
	if err != nil {
		t.Fatal(err)
	}
	h, err := hdrhistogram.Decode([]byte(strings.TrimSpace(string(b))))
	if err != nil {
		t.Fatal(err)
	}
	if h.TotalCount() != 3000 || float64(h.ValueAtPercentile(50))/1000 != res.PublishMs.P50 {
		t.Errorf("decoded %d values with p50 %d µs, want 3000 with %v ms", h.TotalCount(), h.ValueAtPercentile(50), res.PublishMs.P50)
	}
	text, err := os.ReadFile(filepath.Join(dir, "end-to-end-application-1.hgrm"))
	if err != nil || !strings.Contains(string(text), "Percentile") {
		t.Errorf("percentile text: %v\n%s", err, text)
	}
	if err := res.WriteHistograms(filepath.Join(dir, "missing")); err == nil {
		t.Error("no error for a directory that is not there")
	}
}
