package load

import (
	"context"
	"testing"
	"time"

	"github.com/contention-toolkit/contention/broker"
	"github.com/contention-toolkit/contention/broker/ledger"
)

// The reference broker, in both hand-over modes, passes every check.
func TestReferenceBroker(t *testing.T) {
	for _, mode := range []ledger.Handover{ledger.Direct, ledger.Batched} {
		for _, rate := range []float64{0, 5000} {
			t.Run(string(mode), func(t *testing.T) {
				cfg := broker.DefaultConfig()
				cfg.Listen, cfg.AdminListen, cfg.Handover = "127.0.0.1:0", "", mode
				s, err := broker.Start(t.Context(), cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer func() {
					ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
					defer cancel()
					if err := s.Shutdown(ctx); err != nil {
						t.Errorf("shut the broker down: %v", err)
					}
				}()
				sc := small()
				sc.Connections, sc.Devices, sc.InFlight, sc.ReceiverQueue = 50, 5000, 4000, 100
				sc.WarmupMessages, sc.Messages, sc.Rate = 5000, 20_000, rate
				if rate > 0 {
					sc.Messages = 2000
				}
				res, err := Run(t.Context(), Options{Broker: s.URL(), Scenario: sc})
				if err != nil {
					t.Fatal(err)
				}
				if !res.Valid || res.Delivery.Received != 2*(5000+sc.Messages) {
					t.Errorf("received %d, invalid because %v", res.Delivery.Received, res.WhyInvalid)
				}
			})
		}
	}
}
