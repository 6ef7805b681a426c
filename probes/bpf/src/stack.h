/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Stacks by number: each distinct stack is kept once, under a hash of it. */
#pragma once

#include "offcpu.h"

INLINE void count(__u32 which, __u64 n)
{
	__u64 *v = map_lookup(&counters, &which);
	if (v)
		*v += n;
}

/* intern returns the number of the stack in an entry of scratch, and keeps the
 * stack under it. A function of its own and with no pointer as its argument, so
 * that the verifier looks at its loops once and not for each use. */
__attribute__((noinline)) __u64 intern(__u32 entry)
{
	struct stack *old, *s = map_lookup(&scratch, &entry);
	__u64 id, differ = 0;
	__u32 depth;

	if (!s)
		return STACK_FAILED;
	id = s->user ? 0x9ae16a3b2f90404fULL : 0xc949c7defebbb2d1ULL;
	depth = s->depth;
	for (int i = 0; i < MAX_DEPTH; i++) {
		if (i >= depth)
			break;
		id = (id ^ s->ip[i]) * 0x9e3779b97f4a7c15ULL;
		id ^= id >> 29;
	}
	if (id < STACK_FIRST)
		id += STACK_FIRST;
	old = map_lookup(&stacks, &id);
	if (!old) {
		if (!map_update(&stacks, &id, s, BPF_NOEXIST))
			return id;
		old = map_lookup(&stacks, &id); /* another CPU was first */
		if (!old) {
			count(COUNT_STACKS_FULL, 1);
			return STACK_FULL;
		}
	}
	differ = (old->depth ^ depth) | (old->user ^ s->user);
	for (int i = 0; i < MAX_DEPTH; i++) {
		if (i >= depth)
			break;
		differ |= old->ip[i] ^ s->ip[i];
	}
	if (!differ)
		return id;
	count(COUNT_COLLISION, 1);
	return STACK_COLLISION;
}

/* keep interns the stack of size bytes in s, which is an entry of scratch, or
 * says that there is none. */
INLINE __u64 keep(struct stack *s, __u32 entry, long size, bool user)
{
	if (size <= 0) {
		count(user ? COUNT_USER_FAILED : COUNT_KERNEL_FAILED, 1);
		return STACK_FAILED;
	}
	s->depth = (__u32)size / sizeof(__u64);
	s->user = user;
	if (s->depth >= MAX_DEPTH)
		count(COUNT_TRUNCATED, 1);
	return intern(entry);
}
