package storage

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

const (
	writerEnv = "CONTENTION_STORAGE_TEST_WRITER" // mode or "meta", and directory, for the child
	roundsEnv = "CONTENTION_STORAGE_KILLS"       // rounds in each mode
)

// runWriter appends until it is killed, and says after each append what the next
// entry is.
func runWriter(spec string) int {
	mode, dir, _ := strings.Cut(spec, ":")
	if mode == "meta" {
		return runMetaWriter(dir)
	}
	l, err := OpenLog(dir, LogOptions{Sync: Sync(mode), SyncInterval: 5 * time.Millisecond, SegmentBytes: 200_000, Logger: quiet()})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for {
		n := rand.IntN(40) + 1
		if rand.IntN(20) == 0 {
			n *= 50
		}
		if err := l.Append(makeEntries(l.Next(), l.NextIndex(), n, 100)); err != nil {
			fmt.Println(err)
			return 1
		}
		if next := l.Next(); rand.IntN(50) == 0 {
			if err := l.Trim(next - 20_000); err != nil {
				fmt.Println(err)
				return 1
			}
		}
		fmt.Println(l.Next())
	}
}

// runMetaWriter writes topics and cursors and kills itself.
func runMetaWriter(dir string) int {
	m, err := OpenMeta(dir, SyncNever)
	for i := 0; i < 5 && err == nil; i++ {
		var a Topic
		if a, _, err = m.CreateTopic(fmt.Sprint("topic", i)); err == nil {
			err = m.PutCursors([]LedgerCursor{{a.Ledger, Cursor{Name: "s", MarkDelete: int64(i)}}})
		}
	}
	if err == nil {
		err = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}
	fmt.Println(err)
	return 1
}

// A process that is killed at a random moment loses nothing that Append took, in
// no mode, and what it leaves goes on.
func TestLogSurvivesKill(t *testing.T) {
	rounds := 6
	if v := os.Getenv(roundsEnv); v != "" {
		var err error
		if rounds, err = strconv.Atoi(v); err != nil {
			t.Fatal(err)
		}
	}
	if testing.Short() {
		rounds = 2
	}
	for _, mode := range Syncs() {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "log")
			cut := 0
			for round := range rounds {
				stored := killWriter(t, string(mode)+":"+dir)
				l := mustOpen(t, dir, LogOptions{Sync: mode})
				if l.Next() < stored {
					t.Fatalf("round %d: %d were stored, next is %d; opening found %+v", round, stored, l.Next(), l.Recovered())
				}
				if l.Recovered().CutBytes > 0 {
					cut++
				}
				checkContents(t, l)
				mustAppend(t, l, 3, 100)
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
			t.Logf("%d kills, %d with a torn tail", rounds, cut)
		})
	}
}

// checkContents reads everything and compares it with what makeEntries makes.
func checkContents(t *testing.T, l *Log) {
	t.Helper()
	all := readAll(t, l, l.First(), 1000)
	if len(all) == 0 {
		return
	}
	// The index follows from all messages before.
	index := int64(0)
	for id := range all[0].ID {
		index += id%3 + 1
	}
	same(t, all, makeEntries(all[0].ID, index, len(all), 100))
}

// killWriter runs a writer for a while, kills it and returns the entries that it
// said were stored.
func killWriter(t *testing.T, spec string) int64 {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), writerEnv+"="+spec)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(time.Duration(20+rand.IntN(100))*time.Millisecond, func() { _ = cmd.Process.Kill() })
	var last int64
	for r := bufio.NewReader(out); ; {
		line, err := r.ReadString('\n')
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if last, err = strconv.ParseInt(strings.TrimSpace(line), 10, 64); err != nil {
			t.Fatalf("the writer says %q", line)
		}
	}
	var killed *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &killed) || killed.Exited() {
		t.Fatalf("the writer ended by itself: %v", err)
	}
	return last
}
