//go:build linux && (amd64 || arm64)

package thread

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/contention-toolkit/contention/internal/testutil"
)

// helperEnv makes the test binary do something in a process of its own.
const helperEnv = "THREAD_TEST_HELPER"

// helper runs what helperEnv asks for; its arguments follow the name.
func helper(args []string) error {
	switch args[0] {
	case "available":
		fmt.Println(Available())
		return nil
	case "record": // until it is killed
		var pid int
		if _, err := fmt.Sscan(args[1], &pid); err != nil {
			return err
		}
		r, err := Start(context.Background(), Options{PIDs: []int{pid}, OnCPU: 99, Wakers: true})
		if err != nil {
			return err
		}
		o := r.session.objs
		for _, p := range []*ebpf.Program{o.OffcpuSwitch, o.OffcpuWaking, o.OffcpuExit, o.OffcpuSeed, o.OffcpuTargets, o.OncpuSample} {
			info, err := p.Info()
			if err != nil {
				return err
			}
			id, _ := info.ID()
			fmt.Print(id, " ")
		}
		fmt.Println()
		_, err = io.Copy(io.Discard, os.Stdin)
		return err
	case "namespace": // as process 1 of a PID namespace
		return recordInNamespace(args[1])
	}
	return fmt.Errorf("no helper %q", args[0])
}

func helperCommand(args ...string) *exec.Cmd {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), helperEnv+"="+strings.Join(args, " "))
	cmd.Stderr = os.Stderr
	return cmd
}

// A recorder that is killed leaves no program behind.
func TestKilledRecorder(t *testing.T) {
	testutil.RequireBPF(t, Available())
	tg := startTarget(t, "sleep")
	cmd := helperCommand("record", fmt.Sprint(tg.pid))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the recorder said %q: %v", line, err)
	}
	var programs []ebpf.ProgramID
	for _, f := range strings.Fields(line) {
		var id uint32
		if _, err := fmt.Sscan(f, &id); err != nil {
			t.Fatal(err)
		}
		programs = append(programs, ebpf.ProgramID(id))
	}
	if len(programs) != 6 {
		t.Fatalf("the recorder has programs %q, want 6", line)
	}
	all := loadedPrograms(t)
	for _, id := range programs {
		if !all[id] {
			t.Errorf("program %d is not loaded while the recorder lives", id)
		}
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	testutil.Eventually(t, 20*time.Second, "no program is left", func() bool {
		all := loadedPrograms(t)
		for _, id := range programs {
			if all[id] {
				return false
			}
		}
		return true
	})
}

// loadedPrograms are all the programs of the kernel.
func loadedPrograms(t *testing.T) map[ebpf.ProgramID]bool {
	t.Helper()
	out := map[ebpf.ProgramID]bool{}
	for id := ebpf.ProgramID(0); ; {
		next, err := ebpf.ProgramGetNextID(id)
		if errors.Is(err, os.ErrNotExist) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		out[next] = true
		id = next
	}
}

// A user without capabilities is told which are missing, in one line.
func TestWithoutPrivileges(t *testing.T) {
	cmd := helperCommand("available")
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534, NoSetGroups: true}}
	} else if Available() == nil {
		t.Skip("this user has the capabilities and cannot give them up")
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	got := strings.TrimSuffix(string(out), "\n")
	for _, want := range []string{ErrUnavailable.Error(), "CAP_BPF", "CAP_PERFMON", "run as root"} {
		if !strings.Contains(got, want) {
			t.Errorf("Available() = %q lacks %q", got, want)
		}
	}
	if strings.Contains(got, "\n") {
		t.Errorf("Available() = %q has several lines", got)
	}
}

// Process ids of a PID namespace mean what they mean to its user.
func TestPIDNamespace(t *testing.T) {
	testutil.RequireBPF(t, Available())
	startTarget(t, "sleep") // builds the program; must not contribute
	cmd := helperCommand("namespace", targetExe)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID | syscall.CLONE_NEWNS}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var pid, waits int
	var dur time.Duration
	if _, err := fmt.Sscan(string(out), &pid, &waits, (*int64)(&dur)); err != nil {
		t.Fatalf("%q: %v", out, err)
	}
	if pid > 1000 {
		t.Errorf("the target is process %d: it is in no namespace of its own", pid)
	}
	if most := int(dur/(20*time.Millisecond)) + 2; waits < 3 || waits > most {
		t.Errorf("%d waits of the thread that sleeps, want 3 to %d", waits, most)
	}
}

// recordInNamespace starts a target beside it, records it, and prints its
// process id, how often it slept, and the window.
func recordInNamespace(exe string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	cmd := exec.Command(exe, "sleep")
	cmd.Env = append(os.Environ(), "GODEBUG=asyncpreemptoff=1")
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	if _, err := bufio.NewReader(stdout).ReadString('\n'); err != nil {
		return err
	}
	symbols, err := elfOf(exe)
	if err != nil {
		return err
	}
	r, err := Start(context.Background(), Options{PIDs: []int{cmd.Process.Pid}, Symbols: func(int) (Resolver, error) { return symbols, nil }})
	if err != nil {
		return err
	}
	time.Sleep(500 * time.Millisecond) // the window
	cs, err := r.Stop()
	if err != nil {
		return err
	}
	c := cs[0]
	fmt.Println(cmd.Process.Pid, sum(c.Profile, valueWaits, sleeping), int64(c.Profile.Duration))
	return errors.Join(stdin.Close(), cmd.Wait())
}
