// SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only
/* Runs admit alone, for a test: a socket filter that takes its arguments from a
 * map and leaves its results there. */
#include "admit.h"

struct admission {
	__u64 bound;
	__u64 random;
	__u64 random2;
	__u64 blocked_ns;
	__u64 runnable_ns;
	__u64 waits;
	__u64 admitted;
};

struct {
	MAP_UINT(type, 2 /* array */);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct admission);
} admissions SEC(".maps");

SEC("socket")
int admit_once(void *ctx)
{
	__u32 zero = 0;
	struct admission *a = map_lookup(&admissions, &zero);

	if (a)
		a->admitted = admit(a->bound, a->random, (__u32)a->random2, &a->blocked_ns, &a->runnable_ns, &a->waits);
	return 0;
}

char LICENSE[] SEC("license") = "GPL";
