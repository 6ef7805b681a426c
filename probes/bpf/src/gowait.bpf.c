// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/*
 * Waits of the goroutines of one Go program on amd64, aggregated in the kernel:
 * uprobes on the runtime's functions that park a goroutine, make one runnable
 * and run one, and on the contended paths of its semaphores.
 *
 * A goroutine is PARKED from its park on, READY once somebody made it runnable,
 * and its wait ends when it is run. The runtime does these in that order for one
 * goroutine, so that its state needs no lock. The state belongs to the g and
 * holds the goroutine's id: the runtime uses g's again.
 *
 * Probes lie on the instruction that pushes the frame pointer: arguments are in
 * registers as Go's ABI has them, R14 is the current g, and the stack pointer
 * points at the return address.
 */
#include "gowait.h"

/* The kernel hands these out as they are: part of its interface on amd64. */
struct amd64_regs {
	__u64 r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	__u64 orig_ax, ip, cs, flags, sp, ss;
};

struct pid_pair {
	__u32 pid, tgid;
};

static __u64 (*current_pid_tgid)(void) = (void *)14;
static long (*read_user)(void *dst, __u32 size, const void *src) = (void *)112;
static long (*ns_current)(__u64 dev, __u64 ino, struct pid_pair *p, __u32 size) = (void *)120;

/* Set before loading. */
const volatile __u64 namespace_dev; /* PID namespace of the target */
const volatile __u64 namespace_ino;
const volatile __u32 target;      /* thread group, there */
const volatile __u64 goid_offset; /* within a g */
const volatile __u64 lock_reasons[4]; /* bit set of wait reasons that are for a semaphore */
const volatile bool locks_only;

/* The window in CLOCK_MONOTONIC, 0 while an edge is not known. User space sets
 * the end to a moment that is still to come. */
volatile __u64 go_window_start;
volatile __u64 go_window_end;

INLINE void count(__u32 which, __u64 n)
{
	__u64 *v = map_lookup(&go_counters, &which);
	/* Probes in a process can be interrupted by others, so atomically. */
	if (v)
		atomic_add(v, n);
}

INLINE bool in_target(void)
{
	struct pid_pair p = {};

	if (ns_current(namespace_dev, namespace_ino, &p, sizeof(p)) || p.tgid != target)
		return false;
	count(GO_HITS, 1);
	return true;
}

/* The part of a span that lies in the window. */
INLINE __u64 within(__u64 from, __u64 to)
{
	__u64 start = go_window_start, end = go_window_end;

	if (from < start)
		from = start;
	if (end && to > end)
		to = end;
	return to > from ? to - from : 0;
}

INLINE __u32 bucket(__u64 ns)
{
	__u32 b = 0;

	if (ns >> 32) { b += 32; ns >>= 32; }
	if (ns >> 16) { b += 16; ns >>= 16; }
	if (ns >> 8) { b += 8; ns >>= 8; }
	if (ns >> 4) { b += 4; ns >>= 4; }
	if (ns >> 2) { b += 2; ns >>= 2; }
	b += ns >> 1;
	return b < BUCKETS ? b : BUCKETS - 1;
}

/* find_stack returns the number of the stack in scratch, and keeps the stack
 * under it. A function of its own, so that the verifier looks at its loops once. */
__attribute__((noinline)) __u64 find_stack(void)
{
	__u32 zero = 0, depth;
	struct go_stack *old, *s = map_lookup(&go_scratch, &zero);
	__u64 id = 0x8f1bbcdcbfa53e0bULL, differ;

	if (!s)
		return GO_STACK_FAILED;
	depth = s->depth;
	for (int i = 0; i < GO_DEPTH; i++) {
		if (i >= depth)
			break;
		id = (id ^ s->ip[i]) * 0x9e3779b97f4a7c15ULL;
		id ^= id >> 29;
	}
	if (id < GO_STACK_FIRST)
		id += GO_STACK_FIRST;
	old = map_lookup(&go_stacks, &id);
	if (!old) {
		map_update(&go_stacks, &id, s, BPF_NOEXIST);
		old = map_lookup(&go_stacks, &id);
		if (!old) {
			count(GO_STACKS_FULL, 1);
			return GO_STACK_FULL;
		}
	}
	differ = old->depth ^ depth;
	for (int i = 0; i < GO_DEPTH; i++) {
		if (i >= depth)
			break;
		differ |= old->ip[i] ^ s->ip[i];
	}
	if (!differ)
		return id;
	count(GO_COLLISION, 1);
	return GO_STACK_COLLISION;
}

/* number_stack numbers the stack in scratch, n bytes of it. */
INLINE __u64 number_stack(struct go_stack *s, __u32 me, long n)
{
	__u64 id;

	s->depth = (__u32)n / sizeof(__u64);
	if (s->depth >= GO_DEPTH)
		count(GO_TRUNCATED, 1);
	id = find_stack();
	if (*(volatile __u32 *)&s->owner == me)
		return id;
	*(volatile __u32 *)&s->owner = 0; /* the other one's is mixed as well */
	count(GO_DISTURBED, 1);
	return GO_STACK_DISTURBED;
}

/* take_stack numbers the stack of the probed function's caller. */
INLINE __u64 take_stack(struct amd64_regs *ctx)
{
	__u32 zero = 0, me = (__u32)current_pid_tgid();
	struct go_stack *s = map_lookup(&go_scratch, &zero);
	__u64 ret = 0;
	long n;

	if (!s || read_user(&ret, sizeof(ret), (void *)ctx->sp))
		goto failed;
	/* A probe may be interrupted, and another one fire on the same CPU. */
	*(volatile __u32 *)&s->owner = me;
	/* Without the probed function itself. Kernels from 6.11 on know that its
	 * caller is not on the chain of frame pointers yet. */
	n = get_stack(ctx, s->ip, sizeof(s->ip), BPF_F_USER_STACK | 1);
	if (n <= 0 || s->ip[0] != ret) {
		s->ip[0] = ret;
		n = get_stack(ctx, &s->ip[1], sizeof(s->ip) - sizeof(s->ip[0]), BPF_F_USER_STACK | 1);
		if (n < 0)
			n = 0;
		n += sizeof(s->ip[0]);
	}
	return number_stack(s, me, n);
failed:
	count(GO_STACK_FAILURES, 1);
	return GO_STACK_FAILED;
}

INLINE bool read_goid(__u64 g, __u64 *goid)
{
	if (!read_user(goid, sizeof(*goid), (void *)(g + goid_offset)))
		return true;
	count(GO_UNREADABLE, 1);
	return false;
}

INLINE bool is_lock(__u32 reason) { return lock_reasons[(reason >> 6) & 3] >> (reason & 63) & 1; }

INLINE struct go_lock_value *lock_of(__u64 addr)
{
	struct go_lock_value *l = map_lookup(&go_locks, &addr);
	struct go_empty *e;
	__u32 zero = 0;

	if (l)
		return l;
	e = map_lookup(&go_empty, &zero);
	if (!e)
		return NULL;
	map_update(&go_locks, &addr, &e->lock, BPF_NOEXIST);
	l = map_lookup(&go_locks, &addr);
	if (!l)
		count(GO_LOCKS_FULL, 1);
	return l;
}

INLINE void join_queue(__u64 addr, __u64 now)
{
	struct go_lock_value *l = lock_of(addr);
	__u64 n;

	if (!l)
		return;
	atomic_add(&l->waiting, 1);
	if (!within(now, now + 1) || !go_window_start)
		return;
	n = *(volatile __u64 *)&l->waiting;
	atomic_add(&l->parks, 1);
	atomic_add(&l->queue_sum, n);
	if (n > l->queue_max && n < (1ULL << 32))
		l->queue_max = n;
}

INLINE void leave_queue(struct go_state *st)
{
	struct go_lock_value *l;

	if (!st->locked)
		return;
	l = map_lookup(&go_locks, &st->lock);
	if (l)
		atomic_add(&l->waiting, -1LL);
}

/* end_wait adds a wait that ends now. */
INLINE void end_wait(struct go_state *st, __u64 now)
{
	__u64 blocked, runnable = 0;
	struct go_wait_value *v;
	struct go_wake_value *w, none = {};
	struct go_empty *e;
	__u32 zero = 0;
	struct go_wait_key k = {
		.stack = st->stack,
		.lock = st->locked ? st->lock : 0,
		.reason = st->reason,
	};
	struct go_wake_key wk = {.stack = st->stack, .waker = st->waker, .lock = k.lock, .reason = k.reason};

	if (st->phase == GO_READY) {
		blocked = within(st->since, st->ready);
		runnable = within(st->ready, now);
	} else {
		k.flags = GO_NO_WAKEUP;
		blocked = within(st->since, now);
		count(GO_NO_WAKEUPS, 1);
		count(GO_NO_WAKEUP_NS, blocked);
	}
	count(GO_WAITS, 1);
	v = map_lookup(&go_waits, &k);
	if (!v) {
		e = map_lookup(&go_empty, &zero);
		if (!e)
			return;
		map_update(&go_waits, &k, &e->wait, BPF_NOEXIST);
		v = map_lookup(&go_waits, &k);
		if (!v) {
			count(GO_WAITS_FULL, 1);
			count(GO_WAITS_FULL_NS, blocked + runnable);
			return;
		}
	}
	atomic_add(&v->blocked_ns, blocked);
	atomic_add(&v->runnable_ns, runnable);
	atomic_add(&v->waits, 1);
	atomic_add(&v->blocked[bucket(blocked)], 1);
	if (st->phase != GO_READY)
		return;
	atomic_add(&v->runnable[bucket(runnable)], 1);
	w = map_lookup(&go_wakes, &wk);
	if (!w) {
		map_update(&go_wakes, &wk, &none, BPF_NOEXIST);
		w = map_lookup(&go_wakes, &wk);
		if (!w) {
			count(GO_WAKES_FULL, 1);
			return;
		}
	}
	atomic_add(&w->blocked_ns, blocked);
	atomic_add(&w->runnable_ns, runnable);
	atomic_add(&w->waits, 1);
}

/* The state of a goroutine, made where there is none. */
INLINE struct go_state *state_of(__u64 g)
{
	struct go_state *st = map_lookup(&go_states, &g), none = {};

	if (st)
		return st;
	map_update(&go_states, &g, &none, BPF_NOEXIST);
	st = map_lookup(&go_states, &g);
	if (!st)
		count(GO_STATES_FULL, 1);
	return st;
}

/* gopark(unlockf, lock, reason, ...) of the current goroutine. */
SEC("uprobe")
int go_park(struct amd64_regs *ctx)
{
	__u64 now = ktime_get_ns(), g = ctx->r14, goid;
	__u32 reason = (__u8)ctx->cx;
	struct go_state *st;
	bool lock = is_lock(reason);

	if (!in_target())
		return 0;
	count(GO_PARKS, 1);
	if (locks_only && !lock)
		return 0;
	if (!read_goid(g, &goid))
		return 0;
	st = state_of(g);
	if (!st)
		return 0;
	if (st->phase != GO_OTHER && st->goid == goid) {
		count(GO_REPARKS, 1);
		count(GO_REPARK_NS, within(st->since, now));
	}
	/* A goroutine that parks for a lock does so for the one asked for last. */
	st->locked = lock && st->lock && st->goid == goid;
	st->goid = goid;
	st->ready = 0;
	st->waker = GO_STACK_NONE;
	st->reason = reason;
	st->flags = 0;
	st->stack = take_stack(ctx);
	st->since = now;
	st->phase = GO_PARKED;
	if (st->locked)
		join_queue(st->lock, now);
	return 0;
}

/* ready(gp, ...): the current goroutine makes gp runnable. */
SEC("uprobe")
int go_ready(struct amd64_regs *ctx)
{
	__u64 now = ktime_get_ns(), g = ctx->ax, goid;
	struct go_state *st;

	if (!in_target())
		return 0;
	st = map_lookup(&go_states, &g);
	if (!st || st->phase != GO_PARKED) {
		count(GO_OTHER_READIES, 1);
		return 0;
	}
	if (!read_goid(g, &goid) || goid != st->goid) {
		count(GO_STALE, 1);
		st->phase = GO_OTHER;
		return 0;
	}
	count(GO_READIES, 1);
	leave_queue(st);
	st->ready = now;
	st->waker = take_stack(ctx);
	st->phase = GO_READY;
	return 0;
}

/* execute(gp, ...): the scheduler runs gp next. */
SEC("uprobe")
int go_execute(struct amd64_regs *ctx)
{
	__u64 now = ktime_get_ns(), g = ctx->ax, goid;
	struct go_state *st;

	if (!in_target())
		return 0;
	count(GO_EXECUTES, 1);
	st = map_lookup(&go_states, &g);
	if (!st || st->phase == GO_OTHER) {
		count(GO_OTHER_EXECUTES, 1);
		return 0;
	}
	if (st->phase == GO_PARKED)
		leave_queue(st);
	if (!read_goid(g, &goid) || goid != st->goid)
		count(GO_STALE, 1);
	else if (go_window_start && now >= go_window_start && (!go_window_end || st->since < go_window_end))
		end_wait(st, now);
	st->phase = GO_OTHER;
	return 0;
}

/* semacquire1(addr, ...): the current goroutine may come to wait for addr. */
SEC("uprobe")
int go_acquire(struct amd64_regs *ctx)
{
	__u64 g = ctx->r14, goid;
	struct go_state *st;

	if (!in_target() || !read_goid(g, &goid))
		return 0;
	count(GO_ACQUIRES, 1);
	st = state_of(g);
	if (!st)
		return 0;
	st->phase = GO_OTHER; /* it runs */
	st->goid = goid;
	st->lock = ctx->ax;
	return 0;
}

#include "golocks.h"

/* semrelease1(addr, ...): the current goroutine lets go of addr. */
SEC("uprobe")
int go_release(struct amd64_regs *ctx)
{
	__u64 now = ktime_get_ns();

	if (!in_target())
		return 0;
	count(GO_RELEASES, 1);
	note_release(ctx->ax, now);
	return 0;
}

/* Does nothing: what a hit costs by itself is measured with it. */
SEC("uprobe")
int go_nothing(struct amd64_regs *ctx)
{
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
