package flamegraph

import (
	"path"
	"regexp"
	"strings"
	"unicode"

	"github.com/contention-toolkit/contention/profile"
)

// Kind groups frames by what they belong to; pictures colour by it.
type Kind uint8

// The kinds. Where frames of one name differ in kind, the later one is used.
const (
	KindUnknown     Kind = iota // no symbol, or a part left out
	KindLibrary                 // the language's runtime and library
	KindNetwork                 // network and system calls
	KindLock                    // locks, conditions and channels
	KindApplication             // the application and its dependencies
	KindKernel
)

// Name is one function as it is shown.
type Name struct {
	Text   string // full name, not escaped
	Kernel bool
	Kind   Kind
}

const (
	rootName   = "all"
	emptyName  = "[unknown]"
	foldName   = "[middle of deep stacks]"
	noSiteName = "[no application frame]"
)

// unsymbolised says whether a frame is an address only.
func unsymbolised(fn string) bool {
	return fn == "" || strings.HasPrefix(fn, "0x") || fn == emptyName
}

func kindOf(f profile.Frame, application bool) Kind {
	f.Function = bounded(f.Function)
	switch {
	case f.Kernel():
		return KindKernel
	case unsymbolised(f.Function):
		return KindUnknown
	case application:
		return KindApplication
	case lockNames.MatchString(f.Function):
		return KindLock
	case networkNames.MatchString(f.Function):
		return KindNetwork
	}
	return KindLibrary
}

var (
	lockNames = regexp.MustCompile(`^(sync|internal/sync|sync/atomic|golang\.org/x/sync/[a-z]+)\.` +
		`|^runtime\.(sem|chan|select|lock|unlock|notesleep|notetsleep|notifyList|block)` +
		`|^(__)?pthread_(mutex|cond|rwlock|spin|join)|^__lll_|^(__)?futex|^sem_(wait|timedwait)` +
		`|^std::.*(mutex|condition_variable)` +
		`|^java[./]util[./]concurrent[./]locks[./]|[./]Unsafe\.park$|^java[./]lang[./]Object\.wait|ObjectMonitor|ObjectSynchronizer`)
	networkNames = regexp.MustCompile(`^(net|net/[a-z/]+|internal/poll|syscall|internal/runtime/syscall(/[a-z]+)?|internal/syscall/[a-z/]+|os)\.` +
		`|^runtime\.(netpoll|entersyscall|exitsyscall|cgocall|asmcgocall)` +
		`|^(__libc_|__GI_|__)?(accept4?|connect|recv(from|msg|mmsg)?|send(to|msg|mmsg)?|p?read(v|64)?|p?write(v|64)?|fsync|fdatasync|epoll_(wait|pwait2?)|p?poll|p?select|syscall)$` +
		`|^(sun|java)[./](nio|net)[./]`)
)

// goApplication is the rule for Go: the first path element of the package has a
// dot, or the package is main. A C function has neither path nor package and
// counts unless it is of the C library.
func goApplication(f profile.Frame) bool {
	fn := strings.TrimPrefix(f.Function, "vendor/")
	if f.Kernel() || unsymbolised(fn) {
		return false
	}
	if strings.HasPrefix(fn, "main.") {
		return true
	}
	head := fn[:pathEnd(fn)]
	if slash := strings.IndexByte(head, '/'); slash > 0 {
		return strings.Contains(head[:slash], ".")
	}
	if strings.Contains(fn, ".") {
		return false
	}
	return f.Module != "" && !cLibrary.MatchString(path.Base(f.Module))
}

var cLibrary = regexp.MustCompile(`^(libc|libpthread|libm|librt|libstdc\+\+|libgcc_s|libjvm|ld-linux|ld-musl|\[vdso\])\b`)

// pathEnd is where type parameters and receivers begin, which may hold slashes
// and dots of their own.
func pathEnd(fn string) int {
	if i := strings.IndexAny(fn, "([{<*"); i >= 0 {
		return i
	}
	return len(fn)
}

var majorVersion = regexp.MustCompile(`^v[0-9]+[./]`)

// shortName is the name without the path of its package:
// dispatch.(*Dispatcher).flow, and with what a major version is of:
// badger/v3.(*DB).doWrites.
func shortName(fn string) string {
	end := pathEnd(fn)
	if i := strings.LastIndexByte(fn[:end], '/'); i >= 0 && i+1 < len(fn) {
		if majorVersion.MatchString(fn[i+1:]) {
			i = strings.LastIndexByte(fn[:i], '/')
		}
		return fn[i+1:]
	}
	return fn[jvmPackage(fn[:end]):]
}

// jvmPackage is the length of a leading package in the JVM's form: at least two
// elements in lower case before one that is not.
func jvmPackage(fn string) int {
	off, n := 0, 0
	for {
		dot := strings.IndexByte(fn[off:], '.')
		if dot <= 0 {
			return 0
		}
		if unicode.IsUpper(rune(fn[off])) {
			if n >= 2 {
				return off
			}
			return 0
		}
		off += dot + 1
		n++
	}
}

// labels returns forms of a name from long to short for narrower and narrower
// boxes: dispatch.(*Dispatcher).flow, (*Dispatcher).flow, flow.
func labels(fn string) []string {
	s := shortName(fn)
	out := []string{s}
	dot := strings.IndexByte(s, '.')
	if dot <= 0 || dot > pathEnd(s) || dot+1 == len(s) {
		return out
	}
	s = s[dot+1:]
	out = append(out, "…"+s)
	if strings.HasPrefix(s, "(") {
		if i := strings.Index(s, ")."); i > 0 && i+2 < len(s) {
			out = append(out, "…"+s[i+2:])
		}
	}
	return out
}

var schedulerLeaf = map[string]bool{
	"runtime.gopark": true, "runtime.goparkunlock": true, "runtime.park_m": true, "runtime.mcall": true,
	"runtime.gosched_m": true, "runtime.goschedImpl": true, "runtime.schedule": true, "runtime.gopreempt_m": true,
	"runtime.goyield": true, "runtime.goyield_m": true,
}

var kernelSchedulerLeaf = regexp.MustCompile(`^(__schedule|schedule|finish_task_switch|__traceiter_sched_switch|preempt_schedule|trace_event_raw_event_sched)`)

func isSchedulerLeaf(f profile.Frame) bool {
	if f.Kernel() {
		return kernelSchedulerLeaf.MatchString(f.Function) && !strings.HasPrefix(f.Function, "schedule_")
	}
	return schedulerLeaf[f.Function]
}

// nameWork is how much of a name is looked at, in bytes.
const nameWork = 4 << 10

// bounded cuts a name that no picture could show before it is worked on.
func bounded(s string) string { return s[:min(len(s), nameWork)] }
