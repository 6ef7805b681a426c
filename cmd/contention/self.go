package main

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// mainPackage is this command's import path.
const mainPackage = "github.com/contention-toolkit/contention/cmd/contention"

// selfWithSymbols returns an executable of this command that has a symbol
// table, which the sampler needs of the broker that it records. `go run` and
// `go test` leave it out; one is then built beside, and remove deletes it.
func selfWithSymbols(ctx context.Context, progress io.Writer) (path string, remove func(), err error) {
	nothing := func() {}
	exe, err := os.Executable()
	if err != nil {
		return "", nothing, fmt.Errorf("find this executable: %w", err)
	}
	if runtime.GOOS != "linux" || hasSymbols(exe) {
		return exe, nothing, nil
	}
	dir, err := os.MkdirTemp("", "contention-build-")
	if err != nil {
		return "", nothing, fmt.Errorf("build with symbols: %w", err)
	}
	remove = func() { os.RemoveAll(dir) }
	path = filepath.Join(dir, "contention")
	fmt.Fprintln(progress, "this executable has no symbol table (go run leaves it out): building one that has")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, mainPackage)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		remove()
		return "", nothing, fmt.Errorf("this executable has no symbol table, which sampling the broker needs, and building one failed: %w: %s; build it with `go build ./cmd/contention` and run that",
			err, strings.TrimSpace(string(out)))
	}
	return path, remove, nil
}

func hasSymbols(path string) bool {
	f, err := elf.Open(path)
	if err != nil {
		return true // not for us to judge: the sampler says what it lacks
	}
	defer f.Close()
	_, err = f.Symbols()
	return !errors.Is(err, elf.ErrNoSymbols)
}
