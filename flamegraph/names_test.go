package flamegraph

import (
	"slices"
	"testing"

	"github.com/contention-toolkit/contention/profile"
)

func TestShortName(t *testing.T) {
	for full, want := range map[string]string{
		"github.com/x/y/dispatch.(*Dispatcher).flow":        "dispatch.(*Dispatcher).flow",
		"github.com/x/badger/v3.(*DB).doWrites":             "badger/v3.(*DB).doWrites",
		"badger/v3.Open":                                    "badger/v3.Open",
		"main.main.func1":                                   "main.main.func1",
		"sync.(*Mutex).Lock":                                "sync.(*Mutex).Lock",
		"a.b/c.Map[go.shape.struct { d/e.F }].Get":          "c.Map[go.shape.struct { d/e.F }].Get",
		"main.(*Conn[github.com/x/y.T]).serve":              "main.(*Conn[github.com/x/y.T]).serve",
		"java.util.concurrent.ThreadPoolExecutor.runWorker": "ThreadPoolExecutor.runWorker",
		"java/lang/Object.wait":                             "Object.wait",
		"main.T.Method":                                     "main.T.Method",
		"std::vector<a/b>::push":                            "std::vector<a/b>::push",
		"ends/":                                             "ends/",
		"/":                                                 "/",
		"":                                                  "",
		"..":                                                "..",
	} {
		if got := shortName(full); got != want {
			t.Errorf("shortName(%q) = %q, want %q", full, got, want)
		}
	}
}

func TestLabels(t *testing.T) {
	for full, want := range map[string][]string{
		"github.com/x/dispatch.(*Dispatcher).flow.func1": {"dispatch.(*Dispatcher).flow.func1", "…(*Dispatcher).flow.func1", "…flow.func1"},
		"runtime.gopark": {"runtime.gopark", "…gopark"},
		"futex_wait":     {"futex_wait"},
		"a.":             {"a."},
		"":               {""},
	} {
		if got := labels(full); !slices.Equal(got, want) {
			t.Errorf("labels(%q) = %q, want %q", full, got, want)
		}
	}
}

func TestKinds(t *testing.T) {
	for _, c := range []struct {
		f    profile.Frame
		want Kind
	}{
		{profile.Frame{Function: "sync.(*Mutex).Lock"}, KindLock},
		{profile.Frame{Function: "internal/sync.runtime_SemacquireMutex"}, KindLock},
		{profile.Frame{Function: "runtime.semacquire1"}, KindLock},
		{profile.Frame{Function: "runtime.chanrecv1"}, KindLock},
		{profile.Frame{Function: "runtime.gopark"}, KindLibrary},
		{profile.Frame{Function: "bufio.(*Writer).Flush"}, KindLibrary},
		{profile.Frame{Function: "net.(*conn).Write"}, KindNetwork},
		{profile.Frame{Function: "internal/poll.(*FD).Read"}, KindNetwork},
		{profile.Frame{Function: "syscall.Syscall"}, KindNetwork},
		{profile.Frame{Function: "os.(*File).Sync"}, KindNetwork},
		{profile.Frame{Function: "github.com/x/y.F"}, KindApplication},
		{profile.Frame{Function: "main.main"}, KindApplication},
		{profile.Frame{Function: "encoding/json.Marshal"}, KindLibrary},
		{profile.Frame{Function: "net/http.(*conn).serve"}, KindNetwork},
		{profile.Frame{Function: "futex_wait", Module: profile.KernelModule}, KindKernel},
		{profile.Frame{Function: "pthread_mutex_lock", Module: "/lib/libc.so.6"}, KindLock},
		{profile.Frame{Function: "handle_request", Module: "/usr/bin/broker"}, KindApplication},
		{profile.Frame{Function: "qsort", Module: "/lib/libc.so.6"}, KindLibrary},
		{profile.Frame{Function: "0x7f12"}, KindUnknown},
		{profile.Frame{}, KindUnknown},
	} {
		if got := kindOf(c.f, goApplication(c.f)); got != c.want {
			t.Errorf("kind of %+v = %d, want %d", c.f, got, c.want)
		}
	}
}

func TestCanonical(t *testing.T) {
	for raw, want := range map[string]string{
		"main.(*T).run.func1":                        "main.(*T).run.func*",
		"main.run.func12.3.1":                        "main.run.func*",
		"main.run.func1-range2":                      "main.run.func*",
		"main.run-range1":                            "main.run-range*",
		"main.run.func2.gowrap1":                     "main.run.func*.gowrap*",
		"main.run.deferwrap3":                        "main.run.deferwrap*",
		"main.function1":                             "main.function1",
		"a.Foo$$Lambda$123/0x00000008000c1040.apply": "a.Foo$$Lambda*.apply",
		"a.Foo$$Lambda/0x00000008000c1040.apply":     "a.Foo$$Lambda*.apply",
		"a.Foo$$Lambda.0x00000008000c1040.apply":     "a.Foo$$Lambda*.apply",
		"jdk.GeneratedMethodAccessor12.invoke":       "jdk.GeneratedMethodAccessor*.invoke",
		"LambdaForm$MH/0x0000000800.invoke":          "LambdaForm$MH/*.invoke",
		"[worker tid=4711]":                          "[worker tid=*]",
		"goroutine 18":                               "goroutine *",
		"memcpy+0x1f":                                "memcpy",
		"call at 0xdeadbeef":                         "call at 0x*",
		"0x7ffe":                                     "[unknown]",
		"":                                           "[unknown]",
	} {
		if got := canonical(profile.Frame{Function: raw}); got != want {
			t.Errorf("canonical(%q) = %q, want %q", raw, got, want)
		}
		// A name that was replaced stays as it is.
		if again := canonical(profile.Frame{Function: want}); again != want {
			t.Errorf("canonical(canonical(%q)) = %q, want %q", raw, again, want)
		}
	}
	if got := canonical(profile.Frame{Function: "0x7ffe", Module: "/usr/lib/libfoo.so"}); got != "[unknown in libfoo.so]" {
		t.Errorf("unsymbolised = %q", got)
	}
}

func TestVisible(t *testing.T) {
	for in, want := range map[string]string{
		"a\x00b\nc":            `a\u0000b\u000ac`,
		"\xff\xfe":             `\xff\xfe`,
		"evil\u202egnp.exe":    `evil\u202egnp.exe`,
		"zero\u200bwidth":      `zero\u200bwidth`,
		"\ufffe":               `\ufffe`,
		"e\u0301":              "e\u0301",
		"e\u0301\u0301":        "e\u0301\\u0301",
		"日本 ok":                "日本 ok",
		"<script>]]></script>": "<script>]]></script>", // xml escapes it later
	} {
		if got := visible(in, 1000); got != want {
			t.Errorf("visible(%q) = %q, want %q", in, got, want)
		}
	}
	if got := visible("abcdef", 3); got != "abc…" {
		t.Errorf("limited = %q", got)
	}
}

func TestCut(t *testing.T) {
	for _, c := range []struct {
		s    string
		n    int
		want string
	}{{"abcdef", 6, "abcdef"}, {"abcdef", 4, "abc…"}, {"abcdef", 1, "…"}, {"abcdef", 0, ""}, {"日本語", 4, "日…"}} {
		if got := cut(c.s, c.n); got != c.want || width(got) > c.n {
			t.Errorf("cut(%q, %d) = %q, want %q", c.s, c.n, got, c.want)
		}
	}
}
