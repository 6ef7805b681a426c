/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The types and maps that the programs on the Go runtime share with user space. */
#pragma once

#include "helpers.h"

/* Frames of a stack, and power-of-two buckets of a distribution: bucket k holds
 * what lasted from 2^k up to 2^(k+1) nanoseconds, the last one all that is longer. */
#define GO_DEPTH 64
#define BUCKETS 40

enum go_phase {
	GO_OTHER = 0,  /* it runs, or nothing is known */
	GO_PARKED = 1, /* since its park */
	GO_READY = 2,  /* made runnable, and not run yet */
};

enum go_flag {
	GO_NO_WAKEUP = 1, /* it ran again, and nobody was seen to make it runnable */
	GO_SEEDED = 2,    /* it was parked before the probes were attached */
};

/* The wait reason that the stack tells: the runtime's numbers fit a byte. */
enum go_reason {
	GO_REASON_STACK = 256,
};

/* Stack numbers below GO_STACK_FIRST are no hashes. */
enum go_stack_id {
	GO_STACK_NONE = 0,
	GO_STACK_FAILED = 1,    /* the kernel gave no stack */
	GO_STACK_FULL = 2,      /* the map of stacks was full */
	GO_STACK_COLLISION = 3, /* another stack has this hash */
	GO_STACK_DISTURBED = 4, /* another probe on this CPU came in between */
	GO_STACK_FIRST = 16,
};

enum go_counter {
	GO_HITS,            /* probes that fired in the target */
	GO_PARKS,
	GO_READIES,         /* of these, of goroutines seen to park */
	GO_EXECUTES,
	GO_OTHER_EXECUTES,  /* of goroutines that were not parked: new, preempted, back from a system call */
	GO_OTHER_READIES,
	GO_WAITS,           /* waits that ended in the window */
	GO_NO_WAKEUPS,      /* see GO_NO_WAKEUP */
	GO_NO_WAKEUP_NS,
	GO_REPARKS,         /* a goroutine parked that was not seen to run since its last park */
	GO_REPARK_NS,
	GO_STALE,           /* the g belonged to another goroutine by then */
	GO_UNREADABLE,      /* the goroutine's id could not be read */
	GO_STATES_FULL,
	GO_WAITS_FULL,
	GO_WAITS_FULL_NS,
	GO_WAKES_FULL,
	GO_LOCKS_FULL,
	GO_STACKS_FULL,
	GO_COLLISION,
	GO_DISTURBED,
	GO_TRUNCATED,
	GO_STACK_FAILURES,
	GO_ACQUIRES,
	GO_RELEASES,
	GO_COUNT_MAX,
};

struct go_state {
	__u64 goid;
	__u64 since;  /* of the park; 0 for before the window */
	__u64 ready;  /* when it was made runnable */
	__u64 stack;
	__u64 waker;  /* stack of who made it runnable */
	__u64 lock;   /* address of the semaphore that it last asked for */
	__u32 phase;
	__u32 reason; /* the runtime's number */
	__u32 flags;
	__u32 locked; /* the wait is for that lock */
};

struct go_wait_key {
	__u64 stack;
	__u64 lock; /* address of the semaphore, 0 for waits that are for none */
	__u32 reason;
	__u32 flags;
};

struct go_wait_value {
	__u64 blocked_ns;
	__u64 runnable_ns;
	__u64 waits;
	__u64 blocked[BUCKETS];
	__u64 runnable[BUCKETS];
};

struct go_wake_key {
	__u64 stack;
	__u64 waker;
	__u64 lock;
	__u32 reason;
	__u32 pad;
};

struct go_wake_value {
	__u64 blocked_ns;
	__u64 runnable_ns;
	__u64 waits;
};

struct go_lock_value {
	__u64 parks;
	__u64 waiting;   /* now */
	__u64 queue_sum; /* of the length that each waiter found, itself counted */
	__u64 queue_max;
	__u64 releases;
	__u64 last_release;
	__u64 intervals; /* from release to release */
	__u64 interval_ns;
	__u64 interval[BUCKETS];
};

struct go_stack {
	__u32 depth;
	__u32 owner; /* thread that uses the entry of scratch; 0 in the map of stacks */
	__u64 ip[GO_DEPTH];
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_UINT(max_entries, 65536);
	MAP_TYPE(key, __u64); /* address of the g, which the runtime never frees */
	MAP_TYPE(value, struct go_state);
} go_states SEC(".maps");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_UINT(max_entries, 8192);
	MAP_TYPE(key, struct go_wait_key);
	MAP_TYPE(value, struct go_wait_value);
} go_waits SEC(".maps");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_UINT(max_entries, 16384);
	MAP_TYPE(key, struct go_wake_key);
	MAP_TYPE(value, struct go_wake_value);
} go_wakes SEC(".maps");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_UINT(max_entries, 8192);
	MAP_TYPE(key, __u64); /* address of the semaphore */
	MAP_TYPE(value, struct go_lock_value);
} go_locks SEC(".maps");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_UINT(max_entries, 16384);
	MAP_TYPE(key, __u64);
	MAP_TYPE(value, struct go_stack);
} go_stacks SEC(".maps");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_UINT(max_entries, GO_COUNT_MAX);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, __u64);
} go_counters SEC(".maps");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct go_stack);
} go_scratch SEC(".maps");

/* New entries of the maps above: larger than a program's stack. Never written. */
struct go_empty {
	struct go_wait_value wait;
	struct go_lock_value lock;
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct go_empty);
} go_empty SEC(".maps");

/* Keep in the object what only user space names. */
const enum go_phase *unused_go_phase __attribute__((unused));
const enum go_flag *unused_go_flag __attribute__((unused));
const enum go_stack_id *unused_go_stack_id __attribute__((unused));
const enum go_reason *unused_go_reason __attribute__((unused));
const enum go_counter *unused_go_counter __attribute__((unused));
