// Package natstest runs an unmodified nats-server for tests and comparisons: a
// live broker that is not ours. It builds the server from the module under
// testdata/natsserver, starts it as a process of its own on loopback with random
// ports, and publishes to it over the NATS protocol.
package natstest

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
)

// modulePath is the main module of the server's executable.
const modulePath = "github.com/nats-io/nats-server/v2"

var built struct {
	once sync.Once
	path string
	err  error
}

// Build returns the server's executable, built once for all tests of a machine
// and kept in the user's cache directory.
func Build(t testing.TB) string {
	t.Helper()
	path, err := Executable()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// Executable is Build for what is not a test. The working directory must be
// inside the toolkit's module.
func Executable() (string, error) {
	built.once.Do(func() {
		if built.path, built.err = build(); built.err != nil {
			built.err = fmt.Errorf("build nats-server: %w", built.err)
		}
	})
	return built.path, built.err
}

func build() (string, error) {
	dir, err := moduleDir()
	if err != nil {
		return "", err
	}
	sums, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	if err != nil {
		return "", err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	key := fmt.Sprintf("natsserver-%s-%s-%x", runtime.Version(), runtime.GOARCH, sha256.Sum256(sums))
	cache = filepath.Join(cache, "contention-test", key[:min(len(key), 60)])
	path := filepath.Join(cache, "nats-server")
	if check(path) == nil {
		return path, nil
	}
	if err := os.MkdirAll(cache, 0o700); err != nil {
		return "", err
	}
	// Another test process may be building too: each renames a file of its own.
	tmp, err := os.MkdirTemp(cache, "build")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	out := filepath.Join(tmp, "nats-server")
	if _, err := goTool(dir, "build", "-mod=readonly", "-o", out, modulePath); err != nil {
		return "", err
	}
	if err := check(out); err != nil {
		return "", err
	}
	return path, os.Rename(out, path)
}

// check says whether path is the server as this toolchain builds it.
func check(path string) error {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return err
	}
	if info.Path != modulePath || info.Main.Path != modulePath || info.Main.Replace != nil || info.GoVersion != runtime.Version() {
		return fmt.Errorf("%s is %s %s by %s, want %s unmodified by %s", path, info.Main.Path, info.Main.Version, info.GoVersion, modulePath, runtime.Version())
	}
	return nil
}

// moduleDir finds testdata/natsserver from the test's working directory.
func moduleDir() (string, error) {
	out, err := goTool(".", "env", "GOMOD")
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(string(bytes.TrimSpace(out))), "testdata", "natsserver"), nil
}

func goTool(dir string, args ...string) ([]byte, error) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %v in %s: %w: %s", args, dir, err, bytes.TrimSpace(stderr.Bytes()))
	}
	return out, nil
}
