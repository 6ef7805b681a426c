package analysis_test

import (
	"strings"
	"testing"

	"github.com/contention-toolkit/contention/analysis"
	"github.com/contention-toolkit/contention/profile"
)

const (
	brokerPkg = "github.com/contention-toolkit/contention/broker"
	natsPkg   = "github.com/nats-io/nats-server/v2/server"
)

var (
	referenceBroker = profile.Target{Module: "github.com/contention-toolkit/contention", Arguments: []string{"contention", "broker", "--handoff", "direct"}}
	natsServer      = profile.Target{Module: "github.com/nats-io/nats-server/v2", Arguments: []string{"nats-server"}}
	anyGo           = profile.Target{Module: "example.com/app"}
)

func stack(functions ...string) []profile.Frame {
	var out []profile.Frame
	for _, f := range functions {
		fr := profile.Frame{Function: f, Module: "/bin/x"}
		if k, ok := strings.CutPrefix(f, "k:"); ok {
			fr = profile.Frame{Function: k, Module: profile.KernelModule}
		}
		out = append(out, fr)
	}
	return out
}

func classifier(t *testing.T, target profile.Target) *analysis.Classifier {
	t.Helper()
	r, err := analysis.BuiltinRules()
	if err != nil {
		t.Fatal(err)
	}
	return r.For(target)
}

func TestClassify(t *testing.T) {
	lock := []string{"runtime.gopark", "runtime.goparkunlock", "runtime.semacquire1", "internal/sync.runtime_SemacquireMutex", "internal/sync.(*Mutex).lockSlow", "sync.(*Mutex).Lock"}
	inSyscall := []string{"internal/runtime/syscall.Syscall6", "syscall.RawSyscall6", "syscall.Syscall6", brokerPkg + "/executor/futex.wait"}
	futex := append([]string{"k:schedule", "k:futex_do_wait", "k:__futex_wait", "k:do_futex"}, inSyscall...)
	read := []string{"runtime.gopark", "runtime.netpollblock", "internal/poll.runtime_pollWait", "internal/poll.(*FD).Read", "net.(*conn).Read"}
	on := func(leaf []string, more ...string) []profile.Frame {
		return stack(append(append([]string(nil), leaf...), more...)...)
	}
	for name, tc := range map[string]struct {
		target profile.Target
		in     analysis.Stack
		want   analysis.Attributes
	}{
		"queue lock": {referenceBroker,
			analysis.Stack{Plane: profile.PlaneGoroutine, Reason: "sync.Mutex.Lock", Frames: on(lock, brokerPkg+"/executor.(*Queue).Offer", brokerPkg+"/ledger.(*Ledger).Add", brokerPkg+".(*connection).read")},
			analysis.Attributes{Class: "lock", Idle: "no", Operation: "executor queue offer", Site: brokerPkg + "/executor.(*Queue).Offer"}},
		"executor without work": {referenceBroker,
			analysis.Stack{Plane: profile.PlaneGoroutine, Reason: "sync.Cond.Wait", Frames: stack("runtime.gopark", "sync.(*Cond).Wait", brokerPkg+"/executor.(*Queue).TakeAll")},
			analysis.Attributes{Class: "condition/channel", Idle: "yes", Operation: "executor without work", Site: brokerPkg + "/executor.(*Queue).TakeAll"}},
		"queue lock, re-taken by the executor": {referenceBroker,
			analysis.Stack{Plane: profile.PlaneGoroutine, Reason: "sync.Mutex.Lock", Frames: on(lock, "sync.(*Cond).Wait", brokerPkg+"/executor.(*Queue).TakeAll")},
			analysis.Attributes{Class: "lock", Idle: "no", Operation: "executor queue take", Site: brokerPkg + "/executor.(*Queue).TakeAll"}},
		"parking queue, thread: offer": {referenceBroker,
			analysis.Stack{Plane: profile.PlaneThread, Reason: "interruptible", Frames: on(futex, brokerPkg+"/executor/futex.(*Mutex).lockSlow", brokerPkg+"/executor/futex.(*Mutex).Lock", brokerPkg+"/executor.(*ParkingQueue).Offer", brokerPkg+"/executor.(*Executor).Execute")},
			analysis.Attributes{Class: "lock", Idle: "no", Operation: "executor queue offer", Site: brokerPkg + "/executor.(*ParkingQueue).Offer"}},
		"parking queue, thread: preempted with the lock": {referenceBroker,
			analysis.Stack{Plane: profile.PlaneThread, Reason: "preempted", Frames: stack(brokerPkg+"/executor.(*ring).put", brokerPkg+"/executor.(*ParkingQueue).Offer")},
			analysis.Attributes{Class: "scheduler", Idle: "no", Operation: "executor queue offer", Site: brokerPkg + "/executor.(*ring).put"}},
		"parking queue, thread: without work": {referenceBroker,
			analysis.Stack{Plane: profile.PlaneThread, Reason: "interruptible", Frames: on(futex, brokerPkg+"/executor/futex.(*Cond).Wait", brokerPkg+"/executor.(*ParkingQueue).TakeAll")},
			analysis.Attributes{Class: "condition/channel", Idle: "yes", Operation: "executor without work", Site: brokerPkg + "/executor.(*ParkingQueue).TakeAll"}},
		"parking queue, thread: the lock, re-taken by the executor": {referenceBroker,
			analysis.Stack{Plane: profile.PlaneThread, Reason: "interruptible", Frames: on(futex, brokerPkg+"/executor/futex.(*Mutex).lockSlow", brokerPkg+"/executor/futex.(*Cond).Wait", brokerPkg+"/executor.(*ParkingQueue).TakeAll")},
			analysis.Attributes{Class: "lock", Idle: "no", Operation: "executor queue take", Site: brokerPkg + "/executor.(*ParkingQueue).TakeAll"}},
		"parking queue, goroutine: no lock, a system call": {referenceBroker,
			analysis.Stack{Plane: profile.PlaneGoroutine, Reason: "syscall", Frames: on(inSyscall, brokerPkg+"/executor/futex.(*Mutex).lockSlow", brokerPkg+"/executor.(*ParkingQueue).Offer")},
			analysis.Attributes{Class: "unknown", Idle: "unknown", Operation: "executor queue offer", Site: brokerPkg + "/executor.(*ParkingQueue).Offer"}},
		"parking queue, goroutine: without work": {referenceBroker,
			analysis.Stack{Plane: profile.PlaneGoroutine, Reason: "syscall", Frames: on(inSyscall, brokerPkg+"/executor/futex.(*Cond).Wait", brokerPkg+"/executor.(*ParkingQueue).TakeAll")},
			analysis.Attributes{Class: "unknown", Idle: "yes", Operation: "executor without work", Site: brokerPkg + "/executor.(*ParkingQueue).TakeAll"}},
		"channel queue: a full channel is no idle wait": {referenceBroker,
			analysis.Stack{Plane: profile.PlaneGoroutine, Reason: "select", Frames: stack("runtime.gopark", "runtime.selectgo", brokerPkg+"/executor.(*ChannelQueue).Offer")},
			analysis.Attributes{Class: "condition/channel", Idle: "no", Operation: "executor queue offer", Site: brokerPkg + "/executor.(*ChannelQueue).Offer"}},
		"channel queue: the overflow list's lock": {referenceBroker,
			analysis.Stack{Plane: profile.PlaneGoroutine, Reason: "sync.Mutex.Lock", Frames: on(lock, brokerPkg+"/executor.(*ChannelQueue).offerUnblocked", brokerPkg+"/executor.(*ChannelQueue).Offer")},
			analysis.Attributes{Class: "lock", Idle: "no", Operation: "executor queue offer", Site: brokerPkg + "/executor.(*ChannelQueue).offerUnblocked"}},
		"channel queue: without work": {referenceBroker,
			analysis.Stack{Plane: profile.PlaneGoroutine, Reason: "select", Frames: stack("runtime.gopark", "runtime.selectgo", brokerPkg+"/executor.(*ChannelQueue).TakeAll")},
			analysis.Attributes{Class: "condition/channel", Idle: "yes", Operation: "executor without work", Site: brokerPkg + "/executor.(*ChannelQueue).TakeAll"}},
		"a connection's writer waits for work": {referenceBroker,
			analysis.Stack{Plane: profile.PlaneGoroutine, Reason: "select", Frames: stack("runtime.gopark", "runtime.selectgo", brokerPkg+".(*conn).waitForOutput", brokerPkg+".(*conn).writeLoop")},
			analysis.Attributes{Class: "condition/channel", Idle: "yes", Operation: "connection writer without work", Site: brokerPkg + ".(*conn).waitForOutput"}},
		"the same writer, woken and without a CPU": {referenceBroker,
			analysis.Stack{Plane: profile.PlaneGoroutine, Reason: "runnable", Frames: stack("runtime.gopark", "runtime.selectgo", brokerPkg+".(*conn).waitForOutput", brokerPkg+".(*conn).writeLoop")},
			analysis.Attributes{Class: "scheduler", Idle: "no", Operation: "connection writer", Site: brokerPkg + ".(*conn).waitForOutput"}},
		"publish back-pressure is no idle wait": {referenceBroker,
			analysis.Stack{Plane: profile.PlaneGoroutine, Reason: "select", Frames: stack("runtime.gopark", "runtime.selectgo", brokerPkg+".(*conn).waitForWriter", brokerPkg+".(*conn).send")},
			analysis.Attributes{Class: "condition/channel", Idle: "no", Operation: "publish back-pressure", Site: brokerPkg + ".(*conn).waitForWriter"}},
		"only the broker's packages are its application": {referenceBroker,
			analysis.Stack{Plane: profile.PlaneGoroutine, Reason: "sync.Mutex.Lock", Frames: on(lock, "github.com/prometheus/client_golang/prometheus.(*Registry).Gather", "main.main")},
			analysis.Attributes{Class: "lock", Idle: "no"}},
		"a read loop is network and idle": {anyGo,
			analysis.Stack{Plane: profile.PlaneGoroutine, Reason: "IO wait", Frames: on(read, "example.com/app.(*conn).loop")},
			analysis.Attributes{Class: "network", Idle: "yes", Operation: "network read", Site: "example.com/app.(*conn).loop"}},
		"a socket write is network and not idle": {anyGo,
			analysis.Stack{Plane: profile.PlaneGoroutine, Reason: "IO wait", Frames: stack("runtime.gopark", "internal/poll.runtime_pollWait", "internal/poll.(*FD).Write", "net.(*conn).Write", "main.run")},
			analysis.Attributes{Class: "network", Idle: "no", Operation: "network write", Site: "main.run"}},
		"a channel wait of an unknown program stays unknown": {anyGo,
			analysis.Stack{Plane: profile.PlaneGoroutine, Reason: "chan receive", Frames: stack("runtime.gopark", "runtime.chanrecv1", "main.worker")},
			analysis.Attributes{Class: "condition/channel", Idle: "unknown", Site: "main.worker"}},
		"a reason that no rule knows": {anyGo,
			analysis.Stack{Plane: profile.PlaneGoroutine, Reason: "a new reason", Frames: stack("runtime.gopark", "main.worker")},
			analysis.Attributes{Class: "unknown", Idle: "unknown", Site: "main.worker"}},
		"a runnable goroutine waits for a P": {anyGo,
			analysis.Stack{Plane: profile.PlaneGoroutine, Reason: "runnable", Frames: on(lock, "main.worker")},
			analysis.Attributes{Class: "scheduler", Idle: "no", Site: "main.worker"}},
		"the runtime's background workers are idle": {anyGo,
			analysis.Stack{Plane: profile.PlaneGoroutine, Reason: "GC worker (idle)", Frames: stack("runtime.gopark", "runtime.gcBgMarkWorker")},
			analysis.Attributes{Class: "GC", Idle: "yes", Operation: "Go runtime background"}},
		"a GC assist is not idle": {anyGo,
			analysis.Stack{Plane: profile.PlaneGoroutine, Reason: "GC assist wait", Frames: stack("runtime.gopark", "runtime.gcAssistAlloc", "main.f")},
			analysis.Attributes{Class: "GC", Idle: "no", Operation: "garbage collection", Site: "main.f"}},
		"nats: push on a generic queue": {natsServer,
			analysis.Stack{Plane: profile.PlaneGoroutine, Reason: "sync.Mutex.Lock", Frames: on(lock, natsPkg+".(*ipQueue[go.shape.*uint8]).push", natsPkg+".(*stream).queueInbound")},
			analysis.Attributes{Class: "lock", Idle: "no", Operation: "internal queue push", Site: natsPkg + ".(*ipQueue[...]).push"}},
		"nats: read loop": {natsServer,
			analysis.Stack{Plane: profile.PlaneGoroutine, Reason: "IO wait", Frames: on(read, natsPkg+".(*client).readLoop")},
			analysis.Attributes{Class: "network", Idle: "yes", Operation: "connection read", Site: natsPkg + ".(*client).readLoop"}},
		"nats rules do not reach other programs": {anyGo,
			analysis.Stack{Plane: profile.PlaneGoroutine, Reason: "IO wait", Frames: on(read, natsPkg+".(*client).readLoop")},
			analysis.Attributes{Class: "network", Idle: "yes", Operation: "network read", Site: natsPkg + ".(*client).readLoop"}},
		"thread: scheduler without work": {anyGo,
			analysis.Stack{Plane: profile.PlaneThread, Reason: "interruptible", Frames: stack("k:schedule", "k:futex_wait_queue", "runtime.futex", "runtime.mPark", "runtime.stopm", "runtime.findRunnable")},
			analysis.Attributes{Class: "scheduler", Idle: "yes", Operation: "Go scheduler without work"}},
		"the runtime's updater of GOMAXPROCS is idle": {anyGo,
			analysis.Stack{Plane: profile.PlaneGoroutine, Reason: "GOMAXPROCS updater (idle)", Frames: stack("runtime.gopark")},
			analysis.Attributes{Class: "GC", Idle: "yes", Operation: "Go runtime background"}},
		"thread: waiting for signals": {anyGo,
			analysis.Stack{Plane: profile.PlaneThread, Reason: "interruptible", Frames: stack("k:futex_wait", "runtime.futex", "runtime.notetsleepg", "os/signal.signal_recv", "os/signal.loop")},
			analysis.Attributes{Class: "scheduler", Idle: "yes", Operation: "Go waiting for signals"}},
		"thread: the CPU profiler's reader": {anyGo,
			analysis.Stack{Plane: profile.PlaneThread, Reason: "interruptible", Frames: stack("k:futex_wait", "runtime.futex", "runtime.notetsleepg", "runtime.(*profBuf).read", "runtime/pprof.readProfile")},
			analysis.Attributes{Class: "scheduler", Idle: "yes", Operation: "Go CPU profiler"}},
		"thread: fsync": {anyGo,
			analysis.Stack{Plane: profile.PlaneThread, Reason: "uninterruptible", Frames: stack("k:io_schedule", "k:vfs_fsync_range", "syscall.Syscall", "os.(*File).Sync", "main.flush")},
			analysis.Attributes{Class: "disk", Idle: "no", Site: "main.flush"}},
		"thread: preempted in application code": {anyGo,
			analysis.Stack{Plane: profile.PlaneThread, Reason: "preempted", Frames: stack("main.spin")},
			analysis.Attributes{Class: "scheduler", Idle: "no", Site: "main.spin"}},
		"thread: futex of a program that is not Go": {profile.Target{},
			analysis.Stack{Plane: profile.PlaneThread, Reason: "interruptible", Frames: stack("k:futex_wait", "pthread_mutex_lock")},
			analysis.Attributes{Class: "lock", Idle: "unknown"}},
		"a kernel function never is an application frame": {profile.Target{},
			analysis.Stack{Plane: profile.PlaneThread, Reason: "interruptible", Frames: stack("k:main.x", "k:ep_poll")},
			analysis.Attributes{Class: "network", Idle: "yes"}},
	} {
		if got := classifier(t, tc.target).Classify(tc.in); got != tc.want {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, tc.want)
		}
	}
}

func TestApplicationFrame(t *testing.T) {
	c := classifier(t, anyGo)
	for fn, want := range map[string]bool{
		"main.main": true, "main.(*T).m": true, "github.com/a/b.F": true, "example.com/x.(*T[go.shape.int]).M": true,
		"vendor/golang.org/x/net/http2.F": true, "gopkg.in/yaml%2ev3.F": true,
		"sync.(*Mutex).Lock": false, "runtime.gopark": false, "internal/poll.(*FD).Read": false, "net/http.(*conn).serve": false,
		"encoding/json.F": false, "slices.SortFunc[go.shape.github.com/a/b.T]": false, "type:.eq.main.T": false, "": false, "0x1234": false,
	} {
		if got := c.Application(profile.Frame{Function: fn}); got != want {
			t.Errorf("%q: application is %v, want %v", fn, got, want)
		}
	}
	b := classifier(t, referenceBroker)
	for fn, want := range map[string]bool{
		brokerPkg + ".(*conn).serve": true, brokerPkg + "/wire.Decode": true, brokerPkg + "/executor.New": true,
		brokerPkg + "/executor/mpsc.(*Queue[...]).Offer": true, brokerPkg + "/storage.(*Log).Append": true,
		brokerPkg + "/executor/futex.(*Mutex).lockSlow": false, "github.com/contention-toolkit/contention/cmd/contention.run": false, "main.main": false,
	} {
		if got := b.Application(profile.Frame{Function: fn}); got != want {
			t.Errorf("reference broker: %q: application is %v, want %v", fn, got, want)
		}
	}
	set, err := c.WithApplication("^net/http")
	if err != nil {
		t.Fatal(err)
	}
	if !set.Application(profile.Frame{Function: "net/http.F"}) || set.Application(profile.Frame{Function: "main.main"}) {
		t.Error("a pattern given does not replace the default")
	}
	if _, err := c.WithApplication("("); err == nil {
		t.Error("a broken pattern was accepted")
	}
}

func TestRulesRefuse(t *testing.T) {
	for yaml, want := range map[string]string{
		"rules: [{reason: '(', class: lock}]":            "rule 1",
		"rules: [{class: lokc}]":                         "lokc",
		"rules: [{class: lock, idle: maybe}]":            "maybe",
		"rules: [{class: lock}, {frame: x}]":             "rule 2",
		"rules: [{under: x, class: lock}]":               "under needs frame",
		"rules: [{plane: fiber, class: lock}]":           "fiber",
		"rules: [{klass: lock}]":                         "klass",
		"when: {module: '['}\nrules: [{class: lock}]":    "pattern",
		"application: ['[']\nrules: [{operation: name}]": "pattern",
	} {
		f, err := analysis.ParseRules([]byte(yaml))
		if err == nil {
			_, err = analysis.CompileRules([]analysis.RuleFile{*f})
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\nerror is %v, want one that names %q", yaml, err, want)
		}
	}
}

// under, unless, thread and kernel conditions, and that the first rule wins
// for each attribute on its own.
func TestRuleConditions(t *testing.T) {
	f, err := analysis.ParseRules([]byte(`
name: test
rules:
  - {frame: "^offer$", under: "^produce$", operation: produced}
  - {frame: "^offer$", unless: "^test$", operation: offered}
  - {frames: ["^a$", "^b$"], idle: "yes"}
  - {thread: "^io-", class: network}
  - {kernel: "^k$", class: disk}
  - {class: lock, idle: "no"}
`))
	if err != nil {
		t.Fatal(err)
	}
	r, err := analysis.CompileRules([]analysis.RuleFile{*f})
	if err != nil {
		t.Fatal(err)
	}
	c := r.For(profile.Target{})
	for _, tc := range []struct {
		s    analysis.Stack
		want string
	}{
		{analysis.Stack{Frames: stack("offer", "x", "produce")}, "lock/no/produced"},
		{analysis.Stack{Frames: stack("produce", "offer")}, "lock/no/offered"},
		{analysis.Stack{Frames: stack("offer", "test")}, "lock/no/"},
		{analysis.Stack{Frames: stack("b")}, "lock/yes/"},
		{analysis.Stack{Frames: stack("b"), Thread: "io-1"}, "network/yes/"},
		{analysis.Stack{Frames: stack("k")}, "lock/no/"},
		{analysis.Stack{Frames: stack("k:k")}, "disk/no/"},
	} {
		a := c.Classify(tc.s)
		if got := a.Class + "/" + a.Idle + "/" + a.Operation; got != tc.want {
			t.Errorf("%v %q: %s, want %s", tc.s.Frames, tc.s.Thread, got, tc.want)
		}
	}
}

func TestAnnotate(t *testing.T) {
	p := profile.New(profile.Blocked)
	p.Add(p.InternFrames(stack("runtime.gopark", "main.f")), p.InternLabels(profile.Label{Key: "reason", Value: "sync.Mutex.Lock"}), 5)
	c := &profile.Capture{Source: profile.SourceGoroutines, Profile: p}
	classifier(t, anyGo).Annotate(c)
	l := p.Labels(p.Samples[0].Labels)
	if l.Get("class") != "lock" || l.Get("idle") != "no" || l.Get("reason") != "sync.Mutex.Lock" {
		t.Errorf("labels are %v", l)
	}
	c.Source = profile.SourceMutex
	p.Relabel(func([]profile.Frame, profile.Labels) profile.Labels { return nil })
	classifier(t, anyGo).Annotate(c)
	if l := p.Labels(p.Samples[0].Labels); len(l) != 0 {
		t.Errorf("a mutex profile was labelled %v: it charges the unlocker", l)
	}
}
