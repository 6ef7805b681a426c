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
	STACK_FOREIGN = 4,   /* of a process that is not recorded: not taken */
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
	COUNT_ADMITTED,          /* waits shorter than the bound of admission that were kept */
	COUNT_LEFT_OUT,          /* and that were not */
	COUNT_WAKERS_FULL,       /* a wait whose waker found no room in the map wakes */
	COUNT_WAKERS_FULL_NS,
	COUNT_ENDED_FULL,        /* a thread that ended found no room in the map ended; its sums: */
	COUNT_ENDED_TOTAL_NS,
	COUNT_ENDED_RUNNING_NS,
	COUNT_ENDED_BLOCKED_NS,
	COUNT_ENDED_RUNNABLE_NS,
	COUNT_ENDED_UNKNOWN_NS,
	COUNT_STALE,             /* a state of a thread whose end was not seen */
	COUNT_SAMPLES,           /* samples on CPU of the targets */
	COUNT_SAMPLES_FULL,      /* of these, without room in the map samples */
	COUNT_MAX,
};

struct task_key {
	__u64 task;       /* address of the task_struct */
	__u64 start_time; /* of the task */
};

struct task_state {
	__u64 since;      /* start of the phase */
	__u64 prior;      /* start of the running phase before this OFF phase */
	__u64 waking;     /* when it was last woken: the only field that others write */
	__u64 born;       /* start of the life within the window */
	__u64 running_ns; /* closed phases, within the window */
	__u64 blocked_ns;
	__u64 runnable_ns;
	__u64 unknown_ns; /* between switches that do not fit */
	__u64 user_stack;
	__u64 kernel_stack;
	__u64 waker_user;  /* stacks of who woke it last */
	__u64 waker_kernel;
	__u64 regs_ip; /* user registers at the window's start, where seeded */
	__u64 regs_sp;
	__u64 regs_bp;
	__u32 pid; /* in the first PID namespace */
	__u32 tgid;
	enum phase phase;
	enum reason reason;
	__u32 flags; /* of wait_flag */
	__u32 waker_tgid;
	__u8 comm[COMM_LEN];
	__u8 waker_comm[COMM_LEN];
};

/* A thread that has ended. */
struct task_life {
	__u64 born;
	__u64 end;
	__u64 running_ns;
	__u64 blocked_ns;
	__u64 runnable_ns;
	__u64 unknown_ns;
	__u32 pid;
	__u32 pad;
	__u8 comm[COMM_LEN];
};

struct target {
	__u64 start_time; /* of its leader: the id may come to mean another process */
	__u32 pid;        /* in the recorder's PID namespace */
	__u32 pad;
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

struct wake_key {
	__u64 user_stack; /* of the waiter */
	__u64 kernel_stack;
	__u64 waker_user;
	__u64 waker_kernel;
	__u32 tgid;
	__u32 waker_tgid;
	enum reason reason;
	__u32 pad;
	__u8 comm[COMM_LEN];
	__u8 waker_comm[COMM_LEN];
};

struct sample_key {
	__u64 user_stack;
	__u64 kernel_stack;
	__u32 tgid;
	__u32 pad;
	__u8 comm[COMM_LEN];
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
	MAP_TYPE(key, __u32); /* thread group, in the first PID namespace */
	MAP_TYPE(value, struct target);
} targets SEC(".maps");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_UINT(max_entries, 1024);
	MAP_TYPE(key, __u32);   /* thread, in the recorder's PID namespace */
	MAP_TYPE(value, __u32); /* 1 */
} wanted_threads SEC(".maps");

struct comm {
	__u8 text[COMM_LEN];
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_UINT(max_entries, 64);
	MAP_TYPE(key, struct comm);
	MAP_TYPE(value, __u32); /* 1 */
} wanted_names SEC(".maps");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_UINT(max_entries, 16384);
	MAP_TYPE(key, __u64); /* address of the task_struct: a thread keeps it through exec */
	MAP_TYPE(value, struct task_state);
} tasks SEC(".maps");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_UINT(max_entries, 16384);
	MAP_TYPE(key, struct task_key);
	MAP_TYPE(value, struct task_life);
} ended SEC(".maps");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_UINT(max_entries, 32768);
	MAP_TYPE(key, struct wait_key);
	MAP_TYPE(value, struct wait_value);
} waits SEC(".maps");

/* Of one entry unless wakers are asked for, and on-CPU samples. */
struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, struct wake_key);
	MAP_TYPE(value, struct wait_value);
} wakes SEC(".maps");

struct {
	MAP_UINT(type, BPF_MAP_TYPE_HASH);
	MAP_UINT(max_entries, 1);
	MAP_TYPE(key, struct sample_key);
	MAP_TYPE(value, __u64); /* samples */
} samples SEC(".maps");

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
	SCRATCH_CPU = 2,   /* for samples on CPU, whose timer interrupts seeding too */
	SCRATCH_ENTRIES,
};

struct {
	MAP_UINT(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	MAP_UINT(max_entries, SCRATCH_ENTRIES);
	MAP_TYPE(key, __u32);
	MAP_TYPE(value, struct stack);
} scratch SEC(".maps");

/* Keep in the object what only user space names. */
const enum wait_flag *unused_wait_flag __attribute__((unused));
const enum stack_id *unused_stack_id __attribute__((unused));
