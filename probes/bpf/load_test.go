//go:build linux && (amd64 || arm64)

package bpf

import (
	"errors"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"
)

// The verifier of the running kernel accepts every program, with either shape
// of sched_switch that the loader may choose.
func TestVerifier(t *testing.T) {
	for _, prevState := range []bool{false, true} {
		err := load(prevState)
		if errors.Is(err, os.ErrPermission) {
			if os.Getenv("CONTENTION_REQUIRE_BPF") == "1" {
				t.Fatalf("CONTENTION_REQUIRE_BPF=1: %v", err)
			}
			t.Skipf("no privilege to load BPF programs: %v", err)
		}
		if err != nil {
			t.Errorf("has_prev_state=%v: %+v", prevState, err)
		}
	}
}

func load(prevState bool) error {
	if err := rlimit.RemoveMemlock(); err != nil {
		return err
	}
	spec, err := LoadOffcpu()
	if err != nil {
		return err
	}
	if err := spec.Variables[OffcpuVarHasPrevState].Set(prevState); err != nil {
		return err
	}
	var objs OffcpuObjects
	if err := spec.LoadAndAssign(&objs, &ebpf.CollectionOptions{}); err != nil {
		return err
	}
	return objs.Close()
}
