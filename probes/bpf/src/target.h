/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* Which threads are recorded. */
#pragma once

#include "stack.h"

/* Set before loading. */
const volatile __u32 pid_namespace; /* inode of the recorder's */
const volatile __u32 recorder;      /* its PID there: never recorded */
const volatile __u64 cgroup_id;     /* 0 for no filter by cgroup */
const volatile __s32 cgroup_subsys; /* number of the v1 controller, -1 for v2 */
const volatile bool all_of_cgroup;  /* no process is named: all of the cgroup */
const volatile bool some_threads;   /* only those of wanted_threads and wanted_names */

volatile __u32 own_tgid; /* the recorder's thread group, in the first PID namespace */

/* Levels of cgroups that are looked at from the task's own up. */
#define CGROUP_LEVELS 16

INLINE bool in_cgroup(struct task_struct *p)
{
	struct css_set *set = p->cgroups;
	struct cgroup *cg;

	if (!set)
		return false;
	if (cgroup_subsys < 0) {
		cg = set->dfl_cgrp;
	} else {
		struct cgroup_subsys_state *css = NULL;
		read_kernel(&css, sizeof(css),
			    (void *)set + field_offset(struct css_set, subsys) + (cgroup_subsys & 31) * sizeof(void *));
		cg = NULL;
		if (css)
			read_kernel(&cg, sizeof(cg), (void *)css + field_offset(struct cgroup_subsys_state, cgroup));
	}
	for (int i = 0; i < CGROUP_LEVELS && cg; i++) {
		struct cgroup_subsys_state *up = NULL;
		struct kernfs_node *kn = NULL;
		__u64 id = 0;

		read_kernel(&kn, sizeof(kn), (void *)cg + field_offset(struct cgroup, kn));
		read_kernel(&id, sizeof(id), (void *)kn + field_offset(struct kernfs_node, id));
		if (id == cgroup_id)
			return true;
		read_kernel(&up, sizeof(up), (void *)cg + field_offset(struct cgroup, self) + field_offset(struct cgroup_subsys_state, parent));
		cg = NULL;
		if (up)
			read_kernel(&cg, sizeof(cg), (void *)up + field_offset(struct cgroup_subsys_state, cgroup));
	}
	return false;
}

/* is_target says whether p is of a process that is recorded. */
INLINE bool is_target(struct task_struct *p)
{
	__u32 tgid = p->tgid;
	struct target *t;

	if (!tgid)
		return false;
	if (all_of_cgroup)
		return tgid != own_tgid && !(p->flags & PF_KTHREAD) && in_cgroup(p);
	t = map_lookup(&targets, &tgid);
	if (!t || t->start_time != p->group_leader->start_time)
		return false;
	return !cgroup_id || in_cgroup(p);
}

/* thread_id is the id of a thread in the recorder's PID namespace, 0 where it has none. */
INLINE __u32 thread_id(struct task_struct *p)
{
	struct upid upid = {};
	struct pid *pid = p->thread_pid;
	__u32 level, inum = 0;

	if (!pid)
		return 0;
	level = pid->level;
	for (int i = 0; i < 32; i++) {
		if (i > level)
			return 0;
		read_kernel(&upid, sizeof(upid),
			    (void *)pid + field_offset(struct pid, numbers) + i * sizeof(upid));
		read_kernel(&inum, sizeof(inum),
			    (void *)upid.ns + field_offset(struct pid_namespace, ns.inum));
		if (inum == pid_namespace)
			return upid.nr;
	}
	return 0;
}

/* is_wanted says whether a thread of a target is recorded. One that has been
 * followed stays so, whatever its name becomes: see tasks. */
INLINE bool is_wanted(struct task_struct *p)
{
	struct comm name = {};
	__u32 id;

	if (!some_threads)
		return true;
	read_kernel(&name, sizeof(name), p->comm);
	if (map_lookup(&wanted_names, &name))
		return true;
	id = thread_id(p);
	return id && map_lookup(&wanted_threads, &id);
}

/* offcpu_targets translates wanted (PIDs as the user sees them) into targets. */
SEC("iter/task")
int offcpu_targets(struct bpf_iter__task *ctx)
{
	struct task_struct *p = ctx->task;
	struct target t = {};
	__u32 nr, tgid;

	if (!p || p->pid != p->tgid)
		return 0;
	nr = thread_id(p);
	tgid = p->tgid;
	if (!nr)
		return 0;
	if (nr == recorder) {
		own_tgid = tgid;
		return 0;
	}
	if (all_of_cgroup) {
		if ((p->flags & PF_KTHREAD) || !in_cgroup(p))
			return 0;
	} else if (!map_lookup(&wanted, &nr)) {
		return 0;
	}
	t.pid = nr;
	t.start_time = p->start_time;
	map_update(&targets, &tgid, &t, BPF_ANY);
	return 0;
}
