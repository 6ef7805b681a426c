package load

import (
	"embed"
	"errors"
	"fmt"
	"math"
	"os"
	"path"
	"strings"
	"time"

	"github.com/contention-toolkit/contention/broker/wire"
	"github.com/goccy/go-yaml"
)

//go:embed scenarios/*.yaml
var builtins embed.FS

// DefaultScenario is the built-in that a scenario file starts from.
const DefaultScenario = "iot-telemetry-max-rate"

// Scenario says what to send, through what, and who receives it. Start from
// [LoadScenario]: the zero value is not valid.
type Scenario struct {
	Name  string `yaml:"name"`
	Topic string `yaml:"topic"`
	// Connections that publish, each with one producer.
	Connections int `yaml:"connections"`
	// Devices is the number of keys.
	Devices int `yaml:"devices"`
	// InFlight bounds the unacknowledged messages over all connections; at
	// most one per device.
	InFlight int `yaml:"in_flight"`
	// MessageSize is the payload, at least MinMessageSize.
	MessageSize Size `yaml:"message_size"`
	// Rate in messages a second; 0 sends as fast as acknowledgements come.
	Rate float64 `yaml:"rate"`
	// SubscriptionType is key_shared or shared; shared has no order to check.
	SubscriptionType string `yaml:"subscription_type"`
	// Consumers per application, each on a connection of its own.
	Consumers int `yaml:"consumers"`
	// Applications is the number of subscriptions; each receives everything.
	Applications int `yaml:"applications"`
	// ReceiverQueue is each consumer's window of permits, in messages;
	// refilled at half.
	ReceiverQueue int `yaml:"receiver_queue"`
	// WarmupMessages precede the window; 0 is no warm-up.
	WarmupMessages int64 `yaml:"warmup_messages"`
	// Duration of the window. With Messages set it is not used.
	Duration time.Duration `yaml:"duration"`
	// Messages ends the window after so many instead of after Duration.
	Messages int64 `yaml:"messages"`
	// Timeout is how long connecting may take, and how long anything awaited
	// may make no progress.
	Timeout time.Duration `yaml:"timeout"`
}

// MinMessageSize is the payload's header, in bytes.
const MinMessageSize Size = payloadHeader

// BuiltinScenarios returns the built-in names, sorted.
func BuiltinScenarios() []string {
	entries, err := builtins.ReadDir("scenarios")
	if err != nil {
		panic(err) // embedded: cannot fail
	}
	var names []string
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	return names
}

// LoadScenario returns a built-in by its name, or reads a YAML file. What a
// file leaves out is as in DefaultScenario; keys it does not know are errors.
func LoadScenario(nameOrFile string) (Scenario, error) {
	sc, err := parseBuiltin(DefaultScenario)
	if err != nil {
		return Scenario{}, err
	}
	for _, name := range BuiltinScenarios() {
		if name == nameOrFile {
			return parseBuiltin(name)
		}
	}
	if !strings.ContainsAny(nameOrFile, "./") {
		return Scenario{}, fmt.Errorf("scenario %q is neither built in (%s) nor a file: a file's name ends in .yaml", nameOrFile, strings.Join(BuiltinScenarios(), ", "))
	}
	text, err := os.ReadFile(nameOrFile)
	if err != nil {
		return Scenario{}, fmt.Errorf("read scenario: %w", err)
	}
	sc.Name = strings.TrimSuffix(path.Base(nameOrFile), path.Ext(nameOrFile))
	if err := parseScenario(text, &sc); err != nil {
		return Scenario{}, fmt.Errorf("scenario %s: %w", nameOrFile, err)
	}
	return sc, nil
}

func parseBuiltin(name string) (sc Scenario, err error) {
	text, err := builtins.ReadFile("scenarios/" + name + ".yaml")
	if err == nil {
		err = parseScenario(text, &sc)
	}
	if err != nil {
		return Scenario{}, fmt.Errorf("built-in scenario %s: %w", name, err)
	}
	return sc, nil
}

func parseScenario(text []byte, sc *Scenario) error {
	if err := yaml.UnmarshalWithOptions(text, sc, yaml.Strict()); err != nil {
		return err
	}
	return sc.Validate()
}

const (
	maxConnections = 20_000
	maxDevices     = 50_000_000
	// maxInFlightPerConnection keeps a connection's table of unacknowledged
	// messages small.
	maxInFlightPerConnection = 1 << 20
)

// Validate returns every reason why the scenario cannot run, joined.
func (s *Scenario) Validate() error {
	var errs []error
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	refuse(s.Topic == "", "topic is empty: name one, such as persistent://public/default/iot-telemetry")
	refuse(s.Connections < 1 || s.Connections > maxConnections, "connections: %d is not between 1 and %d", s.Connections, maxConnections)
	refuse(s.Devices < 1 || s.Devices > maxDevices, "devices: %d is not between 1 and %d", s.Devices, maxDevices)
	refuse(s.InFlight < 1, "in_flight: %d is less than 1", s.InFlight)
	refuse(s.InFlight > s.Devices, "in_flight: %d is more than the %d devices, which have one message in flight each", s.InFlight, s.Devices)
	refuse(s.Connections > 0 && s.InFlight/max(s.Connections, 1) > maxInFlightPerConnection, "in_flight: more than %d for each of %d connections", maxInFlightPerConnection, s.Connections)
	refuse(s.MessageSize < MinMessageSize, "message_size: %v is less than the %v that device, counter and times take", s.MessageSize, MinMessageSize)
	refuse(s.MessageSize > wire.DefaultMaxMessageSize-1024, "message_size: %v does not fit the protocol's %v", s.MessageSize, Size(wire.DefaultMaxMessageSize))
	refuse(s.Rate < 0 || math.IsNaN(s.Rate) || s.Rate > 1e8, "rate: %v is not between 0 (unpaced) and 100,000,000 messages a second", s.Rate)
	if _, err := s.subType(); err != nil {
		errs = append(errs, err)
	}
	refuse(s.Consumers < 1 || s.Consumers > maxConnections, "consumers: %d is not between 1 and %d", s.Consumers, maxConnections)
	refuse(s.Applications < 1 || s.Applications > 1000, "applications: %d is not between 1 and 1000", s.Applications)
	refuse(s.ReceiverQueue < 2 || s.ReceiverQueue > 1<<20, "receiver_queue: %d is not between 2 and %d", s.ReceiverQueue, 1<<20)
	refuse(s.WarmupMessages < 0, "warmup_messages: %d is negative", s.WarmupMessages)
	refuse(s.Messages < 0, "messages: %d is negative", s.Messages)
	refuse(s.Messages == 0 && s.Duration <= 0, "duration: %v is not positive, and messages does not stand in for it", s.Duration)
	refuse(s.Timeout <= 0, "timeout: %v is not positive", s.Timeout)
	return errors.Join(errs...)
}

func (s *Scenario) subType() (wire.SubType, error) {
	switch strings.ToLower(s.SubscriptionType) {
	case "key_shared":
		return wire.KeyShared, nil
	case "shared":
		return wire.Shared, nil
	}
	return 0, fmt.Errorf("subscription_type: %q is not key_shared or shared", s.SubscriptionType)
}

func (s *Scenario) paced() bool { return s.Rate > 0 }
