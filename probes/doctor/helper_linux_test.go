package doctor

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/contention-toolkit/contention/probes/seccomptest"
)

// asChild makes the test binary the doctor's child; its value may be what the
// child does instead.
const asChild = "CONTENTION_TEST_DOCTOR_CHILD"

// filterVar says behind which filter the child runs.
const filterVar = "CONTENTION_TEST_SECCOMP"

func TestMain(m *testing.M) {
	switch os.Getenv(asChild) {
	case "":
		goleak.VerifyTestMain(m)
	case "garbage":
		fmt.Println("hello")
	case "silent":
	default:
		if err := errors.Join(seccomptest.Install(os.Getenv(filterVar)), RunTrial(os.Stdin, os.Stdout)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(0)
}

// childOf starts the test binary as a child that does what mode says, behind a
// filter.
func childOf(mode, filter string) func() *exec.Cmd {
	return func() *exec.Cmd {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), asChild+"="+mode, filterVar+"="+filter)
		cmd.Stderr = os.Stderr
		return cmd
	}
}

// root writes files and links (values that begin with @) under a directory.
func root(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		switch {
		case err != nil:
		case text != "" && text[0] == '@':
			err = os.Symlink(text[1:], path)
		default:
			err = os.WriteFile(path, []byte(text), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}
