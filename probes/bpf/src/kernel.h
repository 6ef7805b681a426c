/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The few kernel types that are read, fields in any order: CO-RE finds where
 * they are. A name after ___ is another shape of the same type. */
#pragma once

#include "helpers.h"

struct ns_common {
	unsigned int inum;
} CORE;

struct pid_namespace {
	struct ns_common ns;
} CORE;

struct upid {
	int nr;
	struct pid_namespace *ns;
} CORE;

struct pid {
	unsigned int level;
	struct upid numbers[1];
} CORE;

struct kernfs_node {
	__u64 id;
} CORE;

struct cgroup;

struct cgroup_subsys_state {
	struct cgroup *cgroup;
	struct cgroup_subsys_state *parent;
} CORE;

struct cgroup {
	struct cgroup_subsys_state self;
	struct kernfs_node *kn;
} CORE;

struct css_set {
	struct cgroup_subsys_state *subsys[1];
	struct cgroup *dfl_cgrp;
} CORE;

struct task_struct {
	unsigned int __state;
	unsigned int flags;
	int on_cpu;
	int pid;
	int tgid;
	__u64 start_time;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	struct css_set *cgroups;
	char comm[16];
} CORE;

/* Before 5.14. */
struct task_struct___old {
	volatile long state;
} CORE;

/* Found on 7.3; 6.18 still has an int. */
struct task_struct___byte {
	unsigned char on_cpu;
} CORE;

struct pt_regs {
	unsigned long bp;
	unsigned long ip;
	unsigned long sp;
} CORE;

struct bpf_iter__task {
	void *meta;
	struct task_struct *task;
} CORE;

/* Only asked whether it is there. */
enum bpf_func_id {
	BPF_FUNC_task_pt_regs = 175,
};

/* Bits of the task state. */
#define TASK_INTERRUPTIBLE 0x1
#define TASK_UNINTERRUPTIBLE 0x2
#define TASK_STOPPED 0x4
#define TASK_TRACED 0x8
#define EXIT_DEAD 0x10
#define EXIT_ZOMBIE 0x20
#define TASK_DEAD 0x80
#define TASK_WAKING 0x200
#define TASK_NOLOAD 0x400
#define TASK_NEW 0x800

#define PF_EXITING 0x4
#define PF_KTHREAD 0x200000
