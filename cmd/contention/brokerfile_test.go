package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/pflag"
)

// odd are flags with values that are not their defaults.
var odd = []string{
	"--listen", "127.0.0.1:1", "--handoff", "direct", "--handoff-max-batch-bytes", "0B", "--retention-bytes", "all", "--flow", "monitor",
	"--sync-interval", "1m30s", "--max-unacked-per-consumer", "-1", "--broker-entry-metadata", "--log-level", "warn", "--cluster-name", "true",
	"--advertised-url", "pulsar://a:1/ #b", "--write-cache-bytes", "3MB", "--backlog-quota-policy", "producer_exception",
}

// What --print-config writes is read by --config, and means the same.
func TestConfigFileRoundTrip(t *testing.T) {
	args := append([]string{"broker", "--print-config"}, odd...)
	code, first, stderr := contention(t, args...)
	if code != 0 {
		t.Fatalf("status %d: %s", code, stderr)
	}
	path := filepath.Join(t.TempDir(), "broker.yaml")
	if err := os.WriteFile(path, []byte(first), 0o600); err != nil {
		t.Fatal(err)
	}
	code, second, stderr := contention(t, "broker", "--print-config", "--config", path)
	if code != 0 || second != first {
		t.Errorf("status %d, %s; want what was read:\n%s\ngot\n%s", code, stderr, first, second)
	}
	for _, want := range []string{"handoff: direct\n", "retention-bytes: all\n", "max-unacked-per-consumer: -1\n", `cluster-name: "true"`, "sync-interval: 1m30s\n"} {
		if !strings.Contains(first, want) {
			t.Errorf("no line %q in\n%s", want, first)
		}
	}
	// The command line wins, wherever it stands.
	code, third, stderr := contention(t, "broker", "--handoff", "batched", "--print-config", "--config", path, "--log-level", "error")
	if code != 0 || !strings.Contains(third, "handoff: batched\n") || !strings.Contains(third, "log-level: ERROR\n") || !strings.Contains(third, "flow: monitor\n") {
		t.Errorf("status %d, %s:\n%s", code, stderr, third)
	}
	// A file may say little, or nothing.
	for text, want := range map[string]string{"": "handoff: batched\n", "# nothing\n": "handoff: batched\n", "flow: monitor\n": "flow: monitor\n", "{executors: 3}": "executors: 3\n"} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, out, stderr := contention(t, "broker", "--print-config", "--config", path); code != 0 || !strings.Contains(out, want) {
			t.Errorf("%q: status %d, %s:\n%s", text, code, stderr, out)
		}
	}
}

func TestConfigFileIsRefusedWithItsLine(t *testing.T) {
	path := filepath.Join(t.TempDir(), "broker.yaml")
	for text, want := range map[string]string{
		"flow: monitor\nhandof: direct\n":                `line 2: "handof" is not a setting`,
		"flow: monitor\n\nflow: atomic\n":                `line 3: "flow" was set in line 1 already`,
		"flow: sometimes\n":                              "line 1",
		"handoff: direct\nflow: [monitor]\n":             `line 2: "flow" needs one value`,
		"flow:\n  monitor: true\n":                       `"flow" needs one value`,
		"flow:\n":                                        `line 1: "flow" needs one value`,
		"- flow\n":                                       "line 1: write settings as name: value",
		"flow: monitor\nexecutors: many\n":               "line 2",
		"executors: 0\n":                                 "executors is 0",
		"config: other.yaml\n":                           "is not a setting",
		"flow: \"monitor\nhandoff: direct\n":             "line",
		"flow: monitor\n---\nflow: atomic\n":             "several documents",
		"storage: disk\n":                                "data directory",
		"write-cache-bytes: 64\n":                        "line 1",
		"flow: &a monitor\n":                             `"flow" needs one value`,
		strings.Repeat("#", 1<<20) + "\nflow: monitor\n": "more than",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		code, stdout, stderr := contention(t, "broker", "--print-config", "--config", path)
		if code != exitUsage || !strings.Contains(stderr, want) || strings.Count(stderr, "\n") != 1 || stdout != "" {
			t.Errorf("%.60q: status %d, stderr %q; want one line with %q", text, code, stderr, want)
		}
	}
	// A line that the command line overrides must be right all the same.
	if err := os.WriteFile(path, []byte("flow: sometimes\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := contention(t, "broker", "--print-config", "--config", path, "--flow", "atomic"); code != exitUsage || !strings.Contains(stderr, "line 1") {
		t.Errorf("status %d, %s", code, stderr)
	}
	if code, _, stderr := contention(t, "broker", "--config", filepath.Join(t.TempDir(), "none")); code != exitUsage || !strings.Contains(stderr, "no such file") {
		t.Errorf("status %d, %s", code, stderr)
	}
}

// The document of the broker's settings has every flag, and no others.
func TestBrokerDocumentListsEveryFlag(t *testing.T) {
	doc, err := os.ReadFile("../../docs/broker.md")
	if err != nil {
		t.Fatal(err)
	}
	fl := newBroker().Flags()
	fl.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" && !strings.Contains(string(doc), "| `--"+f.Name+"`") {
			t.Errorf("docs/broker.md does not list --%s", f.Name)
		}
	})
	for _, line := range strings.Split(string(doc), "\n") {
		name, ok := strings.CutPrefix(line, "| `--")
		if name, _, _ = strings.Cut(name, "`"); ok && fl.Lookup(name) == nil {
			t.Errorf("docs/broker.md lists --%s, which there is not", name)
		}
	}
}

func FuzzConfigFile(f *testing.F) {
	f.Add([]byte("flow: monitor\n"))
	f.Add([]byte("{a: [b, {c: d}]}"))
	f.Add([]byte("? |\n  x\n: y\n"))
	f.Add([]byte("<<: *a\n"))
	f.Add([]byte("a: !!binary x\n--- \n..."))
	f.Fuzz(func(t *testing.T, data []byte) {
		fl := newBroker().Flags()
		if setFromYAML(fl, data) != nil {
			return
		}
		var out strings.Builder
		if err := writeConfigFile(fl, &out); err != nil {
			t.Fatal(err)
		}
		again := newBroker().Flags()
		if err := setFromYAML(again, []byte(out.String())); err != nil {
			t.Fatalf("what was written is not read: %v\n%s", err, out.String())
		}
		fl.VisitAll(func(f *pflag.Flag) {
			if got := again.Lookup(f.Name).Value.String(); got != f.Value.String() && !notInFile[f.Name] {
				t.Errorf("%s was %q and is %q", f.Name, f.Value, got)
			}
		})
	})
}
