/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Where the targets' threads run, by the kernel's CPU clock. */
#pragma once

#include "stack.h"

INLINE bool in_window(__u64 now);

/* oncpu_sample runs on each CPU at a fixed period. */
SEC("perf_event")
int oncpu_sample(void *ctx)
{
	__u64 task = current_task(), one = 1, *n;
	struct task_state *t = map_lookup(&tasks, &task);
	struct sample_key key = {};
	__u32 entry = SCRATCH_CPU;
	struct stack *s;
	long size;

	/* Who is followed is a target: no other filter is needed. */
	if (!t || !in_window(ktime_get_ns()))
		return 0;
	s = map_lookup(&scratch, &entry);
	if (!s)
		return 0;
	count(COUNT_SAMPLES, 1);
	key.user_stack = keep(s, entry, get_stack(ctx, s->ip, sizeof(s->ip), BPF_F_USER_STACK), true);
	/* There is none while the thread runs its own code. */
	size = get_stack(ctx, s->ip, sizeof(s->ip), 0);
	if (size > 0)
		key.kernel_stack = keep(s, entry, size, false);
	key.tgid = t->tgid;
	current_comm(key.comm, sizeof(key.comm));
	n = map_lookup(&samples, &key);
	if (n)
		atomic_add(n, 1);
	else if (map_update(&samples, &key, &one, BPF_NOEXIST)) {
		n = map_lookup(&samples, &key);
		if (n)
			atomic_add(n, 1);
		else
			count(COUNT_SAMPLES_FULL, 1);
	}
	return 0;
}
