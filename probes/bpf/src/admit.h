/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Admission of waits in proportion to their length. */
#pragma once

#include "helpers.h"

/* admit says whether a wait of blocked + runnable nanoseconds is kept, and
 * weights it. Waits of bound or longer always are. A shorter one is kept with
 * the probability length / bound, and then stands for bound nanoseconds and for
 * bound / length waits, so that every sum is expected to be what it would be if
 * all were kept. The bound is a second at most: the products fit. random and
 * random2 are uniform. */
INLINE bool admit(__u64 bound, __u64 random, __u32 random2, __u64 *blocked, __u64 *runnable, __u64 *waits)
{
	__u64 length = *blocked + *runnable;

	*waits = 1;
	if (length >= bound)
		return true;
	if (!length) { /* a clock that did not move: no time, but a wait */
		*waits = bound;
		return random % bound == 0;
	}
	if (random % bound >= length)
		return false;
	*waits = bound / length;
	/* The part that is no whole wait, as one wait now and then. */
	if (((__u64)random2 * length) >> 32 < bound % length)
		*waits += 1;
	*blocked = *blocked * bound / length;
	*runnable = bound - *blocked;
	return true;
}
