package executor

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A mutant is one edit of a source file that puts a defect in.
type mutant struct {
	name     string
	file     string
	old, new string
	caught   []string // tests, each of which must fail
}

// batchingMutants: the first two are the defects of the design's earlier draft.
var batchingMutants = []mutant{
	{
		"rejection only clears the flag: the caller's task can still run, others' are stranded", "batching.go",
		"\t\t// The strict poll:", "\t\tb.scheduled.Store(false)\n\t\treturn err\n\t\t// The strict poll:",
		[]string{"TestRejectedCallerFailsAndItsTaskDoesNotRunLater", "TestTasksOfOthersGoToTheHandlerOnRejection", "TestRejectedFollowUpBatchFailsWhatIsLeft", "TestAgainstAModel"},
	}, {
		"the flag is cleared before the batch polls", "batching.go",
		"\titems, weight := 0, int64(0)\n", "\titems, weight := 0, int64(0)\n\tb.scheduled.Store(false)\n",
		[]string{"TestTaskQueuedWhileABatchRunsIsNotLeftBehind", "TestAgainstAModel"},
	}, {
		"the queue is not looked at again after the flag is cleared", "batching.go",
		"\tif !q.Empty() {\n\t\t_ =", "\tif false {\n\t\t_ =",
		[]string{"TestItemLimitLeavesTheRestToTheNextBatch", "TestAgainstAModel"},
	}, {
		"the rejected caller's task goes to the handler as well", "batching.go",
		"if t == own {", "if t == own && false {",
		[]string{"TestRejectedCallerFailsAndItsTaskDoesNotRunLater", "TestAgainstAModel"},
	}, {
		"the handler does not get the others' tasks", "batching.go",
		"\t\t\tb.o.Rejected(t, err)\n", "",
		[]string{"TestTasksOfOthersGoToTheHandlerOnRejection", "TestAgainstAModel"},
	}, {
		"a batch runs one task too many", "batching.go",
		"for items < b.o.MaxItems &&", "for items <= b.o.MaxItems &&",
		[]string{"TestItemLimitLeavesTheRestToTheNextBatch", "TestAgainstAModel"},
	}, {
		"weights do not end a batch", "batching.go",
		"&& weight < b.o.MaxWeight {", "{",
		[]string{"TestWeightLimit", "TestAgainstAModel"},
	}, {
		"racing first tasks replace the queue", "batching.go",
		"b.queue.CompareAndSwap(nil, mpsc.New[T](b.o.Chunk))", "b.queue.Store(mpsc.New[T](b.o.Chunk))",
		[]string{"TestRacingFirstTasksUseOneQueue"},
	},
}

var queueMutants = []mutant{
	{
		"the strict poll gives up on an invisible element", "mpsc/queue.go",
		"\t\tif q.Empty() {\n\t\t\treturn nil", "\t\tif true {\n\t\t\treturn nil",
		[]string{"TestClaimedElementIsNeitherLostNorSpunOn"},
	}, {
		"the relaxed poll spins on an invisible element", "mpsc/queue.go",
		"\tif v == nil {\n\t\treturn nil\n\t}\n\tslot.Store(nil)", "\tfor v == nil {\n\t\tv = slot.Load()\n\t\truntime.Gosched()\n\t}\n\tslot.Store(nil)",
		[]string{"TestClaimedElementIsNeitherLostNorSpunOn"},
	}, {
		"a new chunk is linked before its index is claimed", "mpsc/queue.go",
		"\tc.slots[0].Store(v)\n\tq.tailChunk.Store(c)", "\tc.slots[0].Store(v)\n\told.next.Store(c)\n\tpause(growing)\n\tq.tailChunk.Store(c)",
		[]string{"TestInterleavingsAgainstASlice"},
	}, {
		"a producer does not wait while another grows", "mpsc/queue.go",
		"if t&1 != 0 {", "if false {",
		[]string{"TestGrowthRace"},
	}, {
		"a chunk serves again with its old link", "mpsc/queue.go",
		"\t\tc.next.Store(nil)\n", "",
		[]string{"TestInterleavingsAgainstASlice"},
	}, {
		"a taken element stays in its slot", "mpsc/queue.go",
		"\tslot.Store(nil)\n", "",
		[]string{"TestSpareChunkIsClean"},
	}, {
		"the channel's overflow list does not wake the consumer", "channelqueue.go",
		"\tcase q.kick <- struct{}{}:\n", "",
		[]string{"TestSpillWakesTheConsumer"},
	}, {
		"the overflow list waits for an empty channel", "channelqueue.go",
		"q.due, q.ahead = len(q.overflow), len(q.ch)", "q.due, q.ahead = len(q.overflow), 1<<30",
		[]string{"TestOverflowComesAfterWhatWasAheadAndIsNotStarved"},
	}, {
		"the overflow list passes what was in the channel before", "channelqueue.go",
		"q.due, q.ahead = len(q.overflow), len(q.ch)", "q.due, q.ahead = len(q.overflow), 0",
		[]string{"TestOverflowComesAfterWhatWasAheadAndIsNotStarved", "TestQueueAgainstASlice"},
	}, {
		"the channel's consumer ends while an Offer is under way", "channelqueue.go",
		"\t\tif q.pending.Load() == 0 {", "\t\tif true {",
		[]string{"TestConsumerWaitsForAnOfferUnderWay"},
	}, {
		"a limit forgets what is running", "ring.go",
		"r.size+int(r.running.Load()) >= r.limit", "r.size >= r.limit",
		[]string{"TestLimitIsExact", "TestQueueAgainstASlice"},
	}, {
		"unlock does not wake", "futex/futex.go",
		"\t\twake(&m.state, 1)\n", "",
		[]string{"TestMutexExcludes"},
	},
}

// TestDefectsAreCaught proves that the tests of this package and of mpsc and
// futex catch each of these defects: it builds the package's tests with the
// edited file in place of the real one and wants the named test to fail. A
// build without an edit must pass, so that it is the defect which fails. That
// takes a build each: without CONTENTION_MUTANTS=all only the two defects of the
// earlier draft are tried.
func TestDefectsAreCaught(t *testing.T) {
	if testing.Short() {
		t.Skip("builds the tests many times over")
	}
	if _, err := exec.LookPath("go"); err != nil {
		t.Skip("needs the go command: ", err)
	}
	all := batchingMutants[:2]
	if os.Getenv("CONTENTION_MUTANTS") == "all" {
		all = append(append([]mutant(nil), batchingMutants...), queueMutants...)
	}
	tests := map[string][]string{} // by package
	for _, m := range all {
		tests[path.Dir(m.file)] = append(tests[path.Dir(m.file)], m.caught...)
	}
	for pkg, names := range tests {
		out, err := runTests(t, mutant{file: pkg + "/none", caught: names})
		if err != nil {
			t.Fatalf("%s without an edit: %v\n%s", pkg, err, out)
		}
		for _, n := range names {
			if !strings.Contains(out, "--- PASS: "+n+" ") {
				t.Fatalf("%s has no test %s that passes", pkg, n)
			}
		}
	}
	for _, m := range all {
		t.Run(m.name, func(t *testing.T) {
			out, err := runTests(t, m)
			var exit *exec.ExitError
			if err == nil || !errors.As(err, &exit) {
				t.Fatalf("nothing failed with this defect in %s: %v\n%s", m.file, err, out)
			}
			for _, n := range m.caught {
				// A lost task shows as a test that never ends.
				caught := regexp.MustCompile(`--- FAIL: ` + n + `\b|panic: test timed out[^\n]*\n\s*running tests:\n\s*` + n + `\b`)
				if !caught.MatchString(out) {
					t.Errorf("%s did not fail with this defect in %s:\n%s", n, m.file, out)
				}
			}
		})
	}
}

// runTests runs the tests that should catch m, with m in place, and returns
// what they print. A file named none is no edit.
func runTests(t *testing.T, m mutant) (string, error) {
	t.Helper()
	args := []string{"test", "-tags", "pause", "-vet", "off", "-ldflags", "-s -w", "-count", "1", "-timeout", "15s", "-v", "-run", "^(" + strings.Join(m.caught, "|") + ")$"}
	if path.Base(m.file) != "none" {
		args = append(args, "-overlay", overlay(t, m))
	}
	cmd := exec.Command("go", append(args, "./"+path.Dir(m.file))...)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// overlay writes the edited file and returns the name of a file that tells the
// go command to use it.
func overlay(t *testing.T, m mutant) string {
	t.Helper()
	file, err := filepath.Abs(filepath.FromSlash(m.file))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), m.old); n != 1 {
		t.Fatalf("%s: the text to edit is there %d times:\n%s", m.file, n, m.old)
	}
	dir := t.TempDir()
	edited, list := filepath.Join(dir, filepath.Base(file)), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: edited}})
	if err == nil {
		err = errors.Join(os.WriteFile(edited, []byte(strings.Replace(string(source), m.old, m.new, 1)), 0o600), os.WriteFile(list, replace, 0o600))
	}
	if err != nil {
		t.Fatal(fmt.Errorf("writing the mutant: %w", err))
	}
	return list
}
