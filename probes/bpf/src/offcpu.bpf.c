// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/*
 * Off-CPU time of the threads of some processes, aggregated in the kernel.
 *
 * Each thread is a state machine in the map tasks: RUNNING or OFF (from its
 * switch-out to its next switch-in). What it waited with (stacks,
 * reason, name) is taken at the switch-out, what it waited (blocked until its
 * waking, runnable from there) is added to the map waits at the switch-in. User
 * space reads both maps, so that waits that are still open count as well.
 *
 * The state belongs to the task and is never kept per CPU: threads migrate.
 * The key is the task's address: ids are used again, and both the id and the
 * start time of a thread change when it runs another program. An address is
 * used again only after an end, at which the state moves to the map ended.
 */
#include "admit.h"
#include "oncpu.h"
#include "target.h"

/* Set before loading. */
const volatile __u64 min_blocked_ns;
const volatile __u64 admit_all_ns;  /* see admit; 0 for all waits */
const volatile bool has_prev_state; /* sched_switch gives the state (5.18) */
const volatile bool with_wakers;

/* The window in CLOCK_MONOTONIC, 0 while an edge is not known. User space sets
 * both edges to moments that are still to come: what is before the one or after
 * the other is then left out exactly, however late user space gets a CPU. */
volatile __u64 window_start;
volatile __u64 window_end;
volatile bool seeded; /* every thread from before the window is followed */

INLINE bool in_window(__u64 now)
{
	__u64 start = window_start, end = window_end;

	return start && now >= start && (!end || now < end);
}

/* The part of the life of p that lies in the window. */
INLINE __u64 born(struct task_struct *p)
{
	__u64 start = p->start_time, window = window_start;
	return start > window ? start : window;
}

INLINE __u64 elapsed(__u64 from, __u64 to)
{
	return to > from ? to - from : 0;
}

INLINE long read_state(struct task_struct *p)
{
	struct task_struct___old *old = (void *)p;
	if (field_exists(p->__state))
		return p->__state;
	return old->state;
}

INLINE bool on_cpu(struct task_struct *p)
{
	struct task_struct___byte *byte = (void *)p;
	if (field_size(p->on_cpu) == 1)
		return byte->on_cpu;
	return p->on_cpu;
}

INLINE __u32 blocked_reason(long state)
{
	if (state & TASK_INTERRUPTIBLE)
		return REASON_INTERRUPTIBLE;
	if (state & (TASK_STOPPED | TASK_TRACED))
		return REASON_STOPPED;
	if ((state & TASK_UNINTERRUPTIBLE) && (state & TASK_NOLOAD))
		return REASON_IDLE;
	return REASON_UNINTERRUPTIBLE;
}

INLINE void take_stacks(void *ctx, struct task_state *t)
{
	__u32 entry = SCRATCH_SCHED;
	struct stack *s = map_lookup(&scratch, &entry);

	if (!s)
		return;
	t->user_stack = keep(s, entry, get_stack(ctx, s->ip, sizeof(s->ip), BPF_F_USER_STACK), true);
	t->kernel_stack = keep(s, entry, get_stack(ctx, s->ip, sizeof(s->ip), 0), false);
}

/* find returns the state of a thread, NULL when it is not followed. */
INLINE struct task_state *find(struct task_struct *p)
{
	__u64 key = (__u64)p;
	struct task_state *t = map_lookup(&tasks, &key);

	/* The id changes when a thread other than the first runs another program. */
	if (t && (t->tgid != p->tgid || (t->pid != p->pid && p->pid != p->tgid))) {
		count(COUNT_STALE, 1);
		map_delete(&tasks, &key);
		return NULL;
	}
	return t;
}

/* follow begins to follow a thread; NULL when there is no room. */
INLINE struct task_state *follow(struct task_struct *p, __u64 from, __u32 phase, __u32 reason, __u32 flags)
{
	struct task_state t = {};
	__u64 key = (__u64)p;

	t.born = t.since = t.prior = from;
	t.pid = p->pid;
	t.tgid = p->tgid;
	t.phase = phase;
	t.reason = reason;
	t.flags = flags;
	read_kernel(t.comm, sizeof(t.comm), p->comm);
	long err = map_update(&tasks, &key, &t, BPF_NOEXIST);
	if (err && err != -EEXIST)
		count(COUNT_TASKS_FULL, 1);
	return map_lookup(&tasks, &key);
}

/* credit_waker adds an interval to the pair of who waited and who woke it. */
INLINE void credit_waker(struct task_state *t, __u64 blocked, __u64 runnable, __u64 n)
{
	struct wait_value *v, zero = {};
	struct wake_key key = {
		.user_stack = t->user_stack,
		.kernel_stack = t->kernel_stack,
		.waker_user = t->waker_user,
		.waker_kernel = t->waker_kernel,
		.tgid = t->tgid,
		.waker_tgid = t->waker_tgid,
		.reason = t->reason,
	};

	__builtin_memcpy(key.comm, t->comm, sizeof(key.comm));
	__builtin_memcpy(key.waker_comm, t->waker_comm, sizeof(key.waker_comm));
	v = map_lookup(&wakes, &key);
	if (!v) {
		map_update(&wakes, &key, &zero, BPF_NOEXIST);
		v = map_lookup(&wakes, &key);
	}
	if (!v) {
		count(COUNT_WAKERS_FULL, 1);
		count(COUNT_WAKERS_FULL_NS, blocked + runnable);
		return;
	}
	atomic_add(&v->blocked_ns, blocked);
	atomic_add(&v->runnable_ns, runnable);
	atomic_add(&v->waits, n);
}

/* credit adds a closed interval off-CPU to the thread and to its kind of wait. */
INLINE void credit(struct task_state *t, __u64 blocked, __u64 runnable, __u32 flags)
{
	struct wait_value *v, zero = {};
	bool woken = with_wakers && t->reason < REASON_PREEMPTED && t->waking >= t->since && !(flags & WAIT_SEEDED);
	__u64 n = 1;
	struct wait_key key = {
		.user_stack = t->user_stack,
		.kernel_stack = t->kernel_stack,
		.tgid = t->tgid,
		.reason = t->reason,
		.flags = flags,
	};

	t->blocked_ns += blocked;
	t->runnable_ns += runnable;
	count(COUNT_WAITS, 1);
	if (t->reason < REASON_PREEMPTED && blocked < min_blocked_ns) {
		count(COUNT_BELOW_MIN, 1);
		count(COUNT_BELOW_MIN_BLOCKED_NS, blocked);
		count(COUNT_BELOW_MIN_RUNNABLE_NS, runnable);
		return;
	}
	if (admit_all_ns && blocked + runnable < admit_all_ns) {
		__u64 random = (__u64)prandom_u32() << 32 | prandom_u32();
		if (!admit(admit_all_ns, random, prandom_u32(), &blocked, &runnable, &n)) {
			count(COUNT_LEFT_OUT, 1);
			return;
		}
		count(COUNT_ADMITTED, 1);
	}
	if (woken)
		credit_waker(t, blocked, runnable, n);
	if (key.user_stack == STACK_FULL || key.kernel_stack == STACK_FULL)
		count(COUNT_STACKS_FULL_NS, blocked + runnable);
	if (key.user_stack == STACK_COLLISION || key.kernel_stack == STACK_COLLISION)
		count(COUNT_COLLISION_NS, blocked + runnable);
	__builtin_memcpy(key.comm, t->comm, sizeof(key.comm));
	v = map_lookup(&waits, &key);
	if (!v) {
		map_update(&waits, &key, &zero, BPF_NOEXIST);
		v = map_lookup(&waits, &key);
	}
	if (!v) {
		count(COUNT_WAITS_FULL, 1);
		count(COUNT_WAITS_FULL_BLOCKED_NS, blocked);
		count(COUNT_WAITS_FULL_RUNNABLE_NS, runnable);
		return;
	}
	atomic_add(&v->blocked_ns, blocked);
	atomic_add(&v->runnable_ns, runnable);
	atomic_add(&v->waits, n);
}

/* missed_in closes an OFF phase whose switch-in was not seen. That it was
 * blocked until its waking is certain; the rest may be anything. */
INLINE void missed_in(struct task_state *t, __u64 now)
{
	__u64 from = t->since, waking = t->waking;

	if (t->reason < REASON_PREEMPTED && waking > from && waking < now) {
		credit(t, waking - from, 0, t->flags);
		from = waking;
	}
	t->unknown_ns += elapsed(from, now);
	count(COUNT_MISSED_IN, 1);
	count(COUNT_MISSED_NS, elapsed(from, now));
}

INLINE void leave_cpu(void *ctx, struct task_struct *p, bool preempt, long state, __u64 now)
{
	struct task_state *t = find(p);

	if (!t) {
		/* The end of an exiting thread may already have been seen. */
		if ((p->flags & PF_EXITING) || !is_wanted(p))
			return;
		/* One that has taken a wanted name counts from now on. */
		t = follow(p, some_threads && seeded ? now : born(p), PHASE_RUNNING, 0, 0);
		if (!t)
			return;
	}
	if (t->phase == PHASE_RUNNING)
		t->running_ns += elapsed(t->since, now);
	else
		missed_in(t, now);
	if (preempt)
		t->reason = REASON_PREEMPTED;
	else if (!state)
		t->reason = REASON_YIELDED;
	else
		t->reason = blocked_reason(state);
	take_stacks(ctx, t);
	read_kernel(t->comm, sizeof(t->comm), p->comm);
	t->pid = p->pid;
	t->flags = 0;
	t->prior = t->since;
	t->since = now;
	t->phase = PHASE_OFF;
}

/* blocked_part is how much of the OFF phase that ends now was blocked. */
INLINE __u64 blocked_part(struct task_state *t, __u64 now, __u32 *flags)
{
	__u64 waking = t->waking, off = elapsed(t->since, now);

	if (t->reason >= REASON_PREEMPTED)
		return 0;
	if (waking >= t->since)
		return elapsed(t->since, waking < now ? waking : now);
	/* Woken between setting its state and leaving its CPU. */
	if (waking && waking >= t->prior && !(t->flags & WAIT_SEEDED)) {
		count(COUNT_EARLY_WAKEUP, 1);
		return 0;
	}
	count(COUNT_MISSED_WAKEUP, 1);
	count(COUNT_MISSED_WAKEUP_NS, off);
	*flags |= WAIT_MISSED_WAKEUP;
	return off;
}

INLINE void enter_cpu(struct task_struct *p, __u64 now)
{
	struct task_state *t = find(p);

	if (!t) {
		if ((p->flags & PF_EXITING) || !is_wanted(p))
			return;
		/* A thread from before the window that seeding has not reached
		 * yet: it is woken, and nothing is known of what it waited for. */
		if (p->start_time > window_start)
			t = follow(p, born(p), PHASE_OFF, REASON_STARTED, 0);
		else
			t = follow(p, born(p), PHASE_OFF, REASON_INTERRUPTIBLE, WAIT_SEEDED);
		if (!t)
			return;
	}
	if (t->phase == PHASE_OFF) {
		__u32 flags = t->flags;
		__u64 blocked = blocked_part(t, now, &flags);
		credit(t, blocked, elapsed(t->since, now) - blocked, flags);
	} else {
		t->unknown_ns += elapsed(t->since, now);
		count(COUNT_MISSED_OUT, 1);
		count(COUNT_MISSED_NS, elapsed(t->since, now));
	}
	t->since = now;
	t->phase = PHASE_RUNNING;
}

SEC("tp_btf/sched_switch")
int offcpu_switch(__u64 *ctx)
{
	struct task_struct *prev = (void *)ctx[1];
	struct task_struct *next = (void *)ctx[2];
	bool out, in;
	__u64 now;

	if (!window_start)
		return 0;
	count(COUNT_SWITCHES, 1);
	out = is_target(prev);
	in = is_target(next);
	if (!out && !in)
		return 0;
	now = ktime_get_ns();
	if (!in_window(now))
		return 0;
	count(COUNT_MATCHED, 1);
	if (out) {
		long state;
		if (has_prev_state)
			state = (__u32)ctx[3];
		else
			state = read_state(prev);
		leave_cpu(ctx, prev, (bool)ctx[0], state, now);
	}
	if (in)
		enter_cpu(next, now);
	return 0;
}

/* take_waker keeps who wakes a thread: the current one, or an interrupt on it. */
INLINE void take_waker(void *ctx, struct task_state *t)
{
	__u64 task = current_task();
	struct task_state *w = map_lookup(&tasks, &task);
	__u32 entry = SCRATCH_SCHED;
	struct stack *s = map_lookup(&scratch, &entry);
	long size;

	if (!s)
		return;
	current_comm(t->waker_comm, sizeof(t->waker_comm));
	t->waker_tgid = 0;
	t->waker_user = STACK_FOREIGN;
	if (w) {
		t->waker_tgid = w->tgid;
		t->waker_user = keep(s, entry, get_stack(ctx, s->ip, sizeof(s->ip), BPF_F_USER_STACK), true);
	}
	size = get_stack(ctx, s->ip, sizeof(s->ip), 0);
	t->waker_kernel = keep(s, entry, size, false);
}

SEC("tp_btf/sched_waking")
int offcpu_waking(__u64 *ctx)
{
	struct task_struct *p = (void *)ctx[0];
	struct task_state *t;
	__u64 now;

	if (!window_start || !is_target(p))
		return 0;
	now = ktime_get_ns();
	if (!in_window(now))
		return 0;
	t = find(p);
	if (!t)
		return 0;
	count(COUNT_WAKINGS, 1);
	/* The first waking of a wait counts. */
	if (t->phase == PHASE_OFF && t->waking >= t->since)
		return 0;
	if (with_wakers && t->phase == PHASE_OFF)
		take_waker(ctx, t);
	t->waking = now;
	return 0;
}

/* bury moves a thread that ends to the map ended. */
INLINE void bury(struct task_struct *p, struct task_state *t, __u64 now)
{
	struct task_key key = {.task = (__u64)p, .start_time = p->start_time};
	__u64 task = (__u64)p;
	struct task_life l = {
		.born = t->born,
		.end = now,
		.running_ns = t->running_ns,
		.blocked_ns = t->blocked_ns,
		.runnable_ns = t->runnable_ns,
		.unknown_ns = t->unknown_ns,
		.pid = t->pid,
	};

	__builtin_memcpy(l.comm, t->comm, sizeof(l.comm));
	if (map_update(&ended, &key, &l, BPF_ANY)) {
		count(COUNT_ENDED_FULL, 1);
		count(COUNT_ENDED_TOTAL_NS, elapsed(l.born, now));
		count(COUNT_ENDED_RUNNING_NS, l.running_ns);
		count(COUNT_ENDED_BLOCKED_NS, l.blocked_ns);
		count(COUNT_ENDED_RUNNABLE_NS, l.runnable_ns);
		count(COUNT_ENDED_UNKNOWN_NS, l.unknown_ns);
	}
	map_delete(&tasks, &task);
}

SEC("tp_btf/sched_process_exit")
int offcpu_exit(__u64 *ctx)
{
	struct task_struct *p = (void *)ctx[0];
	struct task_state *t;
	__u64 now;

	if (!window_start || !is_target(p))
		return 0;
	now = ktime_get_ns();
	if (!in_window(now))
		return 0;
	t = find(p);
	if (!t)
		return 0;
	if (t->phase == PHASE_RUNNING)
		t->running_ns += elapsed(t->since, now);
	else
		missed_in(t, now);
	bury(p, t, now);
	return 0;
}

/* seed_registers keeps what user space needs to walk the user stack. */
INLINE void seed_registers(struct task_struct *p, struct task_state *t)
{
	struct pt_regs *regs = NULL;

	if (!enum_value_exists(enum bpf_func_id, BPF_FUNC_task_pt_regs) || !field_exists(regs->bp))
		return;
	regs = (void *)task_pt_regs(p);
	if (!regs)
		return;
	t->regs_ip = regs->ip;
	t->regs_sp = regs->sp;
	t->regs_bp = regs->bp;
	/* A number of its own, under which user space keeps the walked stack. */
	t->user_stack = (__u64)p;
}

/* offcpu_seed begins to follow the threads that are there as the window begins. */
SEC("iter/task")
int offcpu_seed(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	__u32 entry = SCRATCH_SEED;
	struct task_state t = {};
	__u64 key = (__u64)p;
	struct stack *s;
	long state;

	if (!p || !window_start || !is_target(p) || !is_wanted(p))
		return 0;
	if ((p->flags & PF_EXITING) || p->start_time > window_start)
		return 0;
	state = read_state(p);
	if (state & (TASK_DEAD | EXIT_DEAD | EXIT_ZOMBIE | TASK_NEW))
		return 0;
	t.born = t.since = t.prior = window_start;
	t.pid = p->pid;
	t.tgid = p->tgid;
	read_kernel(t.comm, sizeof(t.comm), p->comm);
	if (on_cpu(p)) {
		t.phase = PHASE_RUNNING;
	} else {
		t.phase = PHASE_OFF;
		t.flags = WAIT_SEEDED;
		if (!state || (state & TASK_WAKING))
			t.reason = REASON_PREEMPTED;
		else
			t.reason = blocked_reason(state);
		s = map_lookup(&scratch, &entry);
		if (s)
			t.kernel_stack = keep(s, entry, get_task_stack(p, s->ip, sizeof(s->ip), 0), false);
		seed_registers(p, &t);
	}
	/* When a probe was first, what it saw is newer. */
	long err = map_update(&tasks, &key, &t, BPF_NOEXIST);
	if (err && err != -EEXIST)
		count(COUNT_TASKS_FULL, 1);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
