/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/*
 * Waits for locks alone, without a probe that every goroutine's switch hits.
 * The probes lie on calls within semacquire1 and semrelease1, which the kernel
 * emulates as it does the push, and which only contended locks come to.
 * Arguments are in registers, and the frame is on the chain of frame pointers.
 */
#pragma once

#define CALL_SIZE 5

/* take_stack_here numbers the stack from the probed call outwards. */
INLINE __u64 take_stack_here(struct amd64_regs *ctx)
{
	__u32 zero = 0, me = (__u32)current_pid_tgid();
	struct go_stack *s = map_lookup(&go_scratch, &zero);
	long n;

	if (!s)
		goto failed;
	*(volatile __u32 *)&s->owner = me;
	n = get_stack(ctx, s->ip, sizeof(s->ip), BPF_F_USER_STACK);
	if (n <= 0)
		goto failed;
	s->ip[0] = ctx->ip + CALL_SIZE; /* a return address, as the others are */
	return number_stack(s, me, n);
failed:
	count(GO_STACK_FAILURES, 1);
	return GO_STACK_FAILED;
}

/* finish_wait ends the wait of a goroutine that runs. */
INLINE void finish_wait(struct go_state *st, __u64 goid, __u64 now)
{
	if (st->phase == GO_OTHER)
		return;
	if (st->phase == GO_PARKED)
		leave_queue(st);
	if (goid != st->goid)
		count(GO_STALE, 1);
	else if (go_window_start && now >= go_window_start && (!go_window_end || st->since < go_window_end))
		end_wait(st, now);
	st->phase = GO_OTHER;
}

/* root.queue(addr, s, lifo) in semacquire1: the current goroutine parks next. */
SEC("uprobe")
int go_queue(struct amd64_regs *ctx)
{
	__u64 now = ktime_get_ns(), g = ctx->r14, goid;
	struct go_state *st;

	if (!in_target())
		return 0;
	count(GO_PARKS, 1);
	if (!read_goid(g, &goid))
		return 0;
	st = state_of(g);
	if (!st)
		return 0;
	finish_wait(st, goid, now); /* it was woken, and the lock was gone */
	st->locked = 1;
	st->lock = ctx->bx;
	st->goid = goid;
	st->ready = 0;
	st->waker = GO_STACK_NONE;
	st->reason = GO_REASON_STACK;
	st->flags = 0;
	st->stack = take_stack_here(ctx);
	st->since = now;
	st->phase = GO_PARKED;
	join_queue(st->lock, now);
	return 0;
}

INLINE void note_release(__u64 addr, __u64 now)
{
	struct go_lock_value *l;
	__u64 last, ns;

	if (!go_window_start || !within(now, now + 1))
		return;
	l = lock_of(addr);
	if (!l)
		return;
	last = l->last_release;
	l->last_release = now;
	atomic_add(&l->releases, 1);
	if (!last || now < last)
		return;
	ns = now - last;
	atomic_add(&l->intervals, 1);
	atomic_add(&l->interval_ns, ns);
	atomic_add(&l->interval[bucket(ns)], 1);
}

/* readyWithTime(s, ...) in semrelease1: the current goroutine lets the one of the
 * sudog s go on. Its g is the sudog's first field. */
SEC("uprobe")
int go_hand(struct amd64_regs *ctx)
{
	__u64 now = ktime_get_ns(), g, goid;
	struct go_state *st;

	if (!in_target())
		return 0;
	if (read_user(&g, sizeof(g), (void *)ctx->ax)) {
		count(GO_UNREADABLE, 1);
		return 0;
	}
	count(GO_RELEASES, 1);
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
	if (st->locked)
		note_release(st->lock, now);
	st->ready = now;
	st->waker = take_stack_here(ctx);
	st->phase = GO_READY;
	return 0;
}

/* releaseSudog(s) in semacquire1: the current goroutine has what it waited for. */
SEC("uprobe")
int go_done(struct amd64_regs *ctx)
{
	__u64 now = ktime_get_ns(), g = ctx->r14, goid;
	struct go_state *st;

	if (!in_target())
		return 0;
	count(GO_ACQUIRES, 1);
	st = map_lookup(&go_states, &g);
	if (!st || !read_goid(g, &goid))
		return 0;
	finish_wait(st, goid, now);
	return 0;
}
