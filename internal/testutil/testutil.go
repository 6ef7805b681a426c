// Package testutil holds what tests of several packages share.
package testutil

import (
	"os"
	"testing"
	"time"
)

// RequireBPF skips a test where err, which the probe's own check gave, says that
// BPF programs cannot be used here. Where CONTENTION_REQUIRE_BPF=1 is set it
// fails the test instead, so that skips cannot hide a broken machine.
func RequireBPF(t testing.TB, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if os.Getenv("CONTENTION_REQUIRE_BPF") == "1" {
		t.Fatalf("CONTENTION_REQUIRE_BPF=1, and: %v", err)
	}
	t.Skipf("needs privileges: %v", err)
}

// Eventually waits until ok is true, and fails the test when it is not within
// the time.
func Eventually(t testing.TB, within time.Duration, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(within)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", within, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
