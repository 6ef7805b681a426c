//go:build linux && (amd64 || arm64)

package bpf

import (
	"errors"
	"os"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/rlimit"

	"github.com/contention-toolkit/contention/internal/testutil"
)

// The verifier of the running kernel accepts every program as it is for the
// oldest kernels; package thread loads them as they are for this one.
func TestVerifier(t *testing.T) {
	if err := rlimit.RemoveMemlock(); err != nil {
		testutil.RequireBPF(t, err)
	}
	var offcpu OffcpuObjects
	var gowait GowaitObjects
	t.Run("offcpu", func(t *testing.T) { verify(t, &offcpu, LoadOffcpuObjects) })
	t.Run("gowait", func(t *testing.T) { verify(t, &gowait, LoadGowaitObjects) })
}

func verify(t *testing.T, objs interface{ Close() error }, load func(any, *ebpf.CollectionOptions) error) {
	err := load(objs, &ebpf.CollectionOptions{})
	var rejected *ebpf.VerifierError
	if errors.Is(err, os.ErrPermission) && !(errors.As(err, &rejected) && len(rejected.Log) > 0) {
		testutil.RequireBPF(t, err)
	}
	if err != nil {
		t.Fatalf("%+v", err)
	}
	if err := objs.Close(); err != nil {
		t.Fatal(err)
	}
}
