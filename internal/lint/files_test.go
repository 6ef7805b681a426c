package lint

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The limits that CONTRIBUTING.md gives, with room for tables.
const (
	maxFileLines     = 500
	maxTestFileLines = 800
)

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func tracked(t *testing.T) []string {
	t.Helper()
	out, err := exec.Command("git", "ls-files", "--full-name", ":/").Output()
	if err != nil {
		t.Skipf("not a git checkout: %v", err)
	}
	files := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(files) < 20 {
		t.Fatalf("git lists %d files only", len(files))
	}
	return files
}

func root(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

func TestFileLength(t *testing.T) {
	dir := root(t)
	for _, f := range tracked(t) {
		if !strings.HasSuffix(f, ".go") && !strings.HasSuffix(f, ".c") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, f))
		if err != nil {
			continue // deleted and not committed yet
		}
		if generated.Match(data) {
			continue
		}
		limit := maxFileLines
		if strings.HasSuffix(f, "_test.go") {
			limit = maxTestFileLines
		}
		if n := strings.Count(string(data), "\n"); n > limit {
			t.Errorf("%s has %d lines, more than %d: split it by idea", f, n, limit)
		}
	}
}

// No committed file names a path of the machine that it was written on.
func TestNoMachinePaths(t *testing.T) {
	// Split, so that this file does not hold them.
	bad := regexp.MustCompile("/wo" + "rk/(main|shared|\\.)")
	dir := root(t)
	for _, f := range tracked(t) {
		file, err := os.Open(filepath.Join(dir, f))
		if err != nil {
			continue
		}
		sc := bufio.NewScanner(file)
		sc.Buffer(nil, 64<<20)
		for n := 1; sc.Scan(); n++ {
			if bad.Match(sc.Bytes()) {
				t.Errorf("%s:%d names a path of one machine", f, n)
			}
		}
		if err := sc.Err(); err != nil {
			t.Errorf("%s: %v", f, err)
		}
		file.Close()
	}
}
