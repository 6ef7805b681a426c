/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The types and maps that the off-CPU programs share with user space. */
#pragma once

#include "kernel.h"

/* As the kernel's default of kernel.perf_event_max_stack. */
#define MAX_DEPTH 127
#define COMM_LEN 16

enum phase {
	PHASE_RUNNING = 1,
	PHASE_OFF = 2,
	PHASE_EXITED = 3,
};

enum reason {
	REASON_INTERRUPTIBLE = 1,
	REASON_UNINTERRUPTIBLE = 2,
	REASON_IDLE = 3,    /* uninterruptible, and not counted as load */
	REASON_STOPPED = 4, /* by a signal or a debugger */
	/* From here on runnable from the start. */
	REASON_PREEMPTED = 5,
	REASON_YIELDED = 6, /* runnable without the scheduler's preempt flag */
	REASON_STARTED = 7, /* created, and waiting for its first CPU */
};

enum wait_flag {
	WAIT_MISSED_WAKEUP = 1, /* switched in, and no waking was seen */
	WAIT_SEEDED = 2,        /* off-CPU since before the window: no user stack */
};

/* Stack numbers below STACK_FIRST are no hashes. */
enum stack_id {
	STACK_NONE = 0,
	STACK_FAILED = 1,    /* the kernel gave no stack */
	STACK_FULL = 2,      /* the map of stacks was full */
	STACK_COLLISION = 3, /* another stack has this hash */
	STACK_FIRST = 16,
};

enum counter {
	COUNT_SWITCHES,          /* switches on the whole machine */
	COUNT_MATCHED,           /* of these, to or from a target's thread */
	COUNT_WAKINGS,           /* wakings of a target's threads */
	COUNT_WAITS,             /* intervals off-CPU that ended */
	COUNT_MISSED_WAKEUP,     /* see WAIT_MISSED_WAKEUP */
	COUNT_MISSED_WAKEUP_NS,
	COUNT_EARLY_WAKEUP,      /* the waking came while the thread was still leaving its CPU */
	COUNT_MISSED_IN,         /* a switch-out of a thread that was not seen to switch in */
	COUNT_MISSED_OUT,        /* the other way round */
	COUNT_MISSED_NS,         /* time of which nothing is known for either reason */
	COUNT_TASKS_FULL,        /* a thread could not be followed */
	COUNT_WAITS_FULL,        /* an interval found no room in the map waits */
	COUNT_WAITS_FULL_BLOCKED_NS,
	COUNT_WAITS_FULL_RUNNABLE_NS,
	COUNT_STACKS_FULL,
	COUNT_STACKS_FULL_NS,
	COUNT_COLLISION,
	COUNT_COLLISION_NS,
	COUNT_TRUNCATED,         /* stacks of MAX_DEPTH frames: they may go on */
	COUNT_USER_FAILED,
	COUNT_KERNEL_FAILED,
	COUNT_BELOW_MIN,         /* blocked for less than min_blocked_ns */
	COUNT_BELOW_MIN_BLOCKED_NS,
	COUNT_BELOW_MIN_RUNNABLE_NS,
	COUNT_MAX,
};

struct task_key {
	__u64 task;       /* address of the task_struct */
	__u64 start_time; /* of the task */
};

struct task_state {
	__u64 since;      /* start of the phase; end of the life when EXITED */
	__u64 prior;      /* start of the running phase before this OFF phase */
	__u64 waking;     /* when it was last woken: the only field that others write */
	__u64 born;       /* start of the life within the window */
	__u64 running_ns; /* closed phases, within the window */
	__u64 blocked_ns;
	__u64 runnable_ns;
	__u64 unknown_ns; /* between switches that do not fit */
	__u64 user_stack;
	__u64 kernel_stack;
	__u64 regs_ip; /* user registers at the window's start, where seeded */
	__u64 regs_sp;
	__u64 regs_bp;
	__u32 pid; /* in the first PID namespace */
	__u32 tgid;
	enum phase phase;
	enum reason reason;
	__u32 flags; /* of wait_flag */
	__u32 pad;
	__u8 comm[COMM_LEN];
};

struct wait_key {
	__u64 user_stack;
	__u64 kernel_stack;
	__u32 tgid;
	enum reason reason;
	__u32 flags; /* of wait_flag */
	__u32 pad;
	__u8 comm[COMM_LEN];
};

struct wait_value {
	__u64 blocked_ns;
	__u64 runnable_ns;
	__u64 waits;
};

struct stack {
	__u32 depth;
	__u32 user;
	__u64 ip[MAX_DEPTH];
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_UINT(max_entries, 1024);
	MAP_TYPE(key, __u32);   /* thread group, in the recorder's PID namespace */
	MAP_TYPE(value, __u32); /* 1 */
} wanted SEC(".maps");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_UINT(max_entries, 1024);
	MAP_TYPE(key, __u32);   /* thread group, in the first PID namespace */
	MAP_TYPE(value, __u32); /* the same, as in wanted */
} targets SEC(".maps");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_UINT(max_entries, 16384);
	MAP_TYPE(key, struct task_key);
	MAP_TYPE(value, struct task_state);
} tasks SEC(".maps");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_UINT(max_entries, 32768);
	MAP_TYPE(key, struct wait_key);
	MAP_TYPE(value, struct wait_value);
} waits SEC(".maps");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_UINT(max_entries, 16384);
	MAP_TYPE(key, __u64);
	MAP_TYPE(value, struct stack);
} stacks SEC(".maps");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_UINT(max_entries, COUNT_MAX);
	MAP_TYPE(key, enum counter);
	MAP_TYPE(value, __u64);
} counters SEC(".maps");

enum scratch_entry {
	SCRATCH_SCHED = 0, /* for the scheduler's probes, which never nest */
	SCRATCH_SEED = 1,  /* for seeding, which they can interrupt */
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_UINT(max_entries, 2);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct stack);
} scratch SEC(".maps");

/* Keep in the object what only user space names. */
const enum wait_flag *unused_wait_flag __attribute__((unused));
const enum stack_id *unused_stack_id __attribute__((unused));
