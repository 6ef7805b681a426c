/* SPDX-License-Identifier: Apache-2.0 OR GPL-2.0-only */
/* The part of the BPF programming interface that our programs use. */
#pragma once

typedef unsigned char __u8;
typedef unsigned int __u32;
typedef int __s32;
typedef unsigned long long __u64;
typedef long long __s64;
typedef _Bool bool;
#define true 1
#define false 0
#define NULL ((void *)0)

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define NOINLINE static __attribute__((noinline))

/* Definitions of maps are read from BTF: integers are array lengths of pointer types. */
#define MAP_UINT(name, val) int(*name)[val]
#define MAP_TYPE(name, val) typeof(val) *name

#define BPF_MAP_TYPE_HASH 1
#define BPF_MAP_TYPE_PERCPU_ARRAY 6

#define BPF_ANY 0
#define BPF_NOEXIST 1
#define BPF_F_USER_STACK 256

#define EEXIST 17

static void *(*map_lookup)(void *map, const void *key) = (void *)1;
static long (*map_update)(void *map, const void *key, const void *value, __u64 flags) = (void *)2;
static long (*map_delete)(void *map, const void *key) = (void *)3;
static __u64 (*ktime_get_ns)(void) = (void *)5;
static __u32 (*prandom_u32)(void) = (void *)7;
static long (*current_comm)(void *buf, __u32 size) = (void *)16;
static __u64 (*current_task)(void) = (void *)35;
static long (*get_stack)(void *ctx, void *buf, __u32 size, __u64 flags) = (void *)67;
static long (*read_kernel)(void *dst, __u32 size, const void *src) = (void *)113;
static long (*get_task_stack)(void *task, void *buf, __u32 size, __u64 flags) = (void *)141;
static long (*task_pt_regs)(void *task) = (void *)175;

/* Compile once, run everywhere: these become relocations against the running kernel's types. */
#define CORE __attribute__((preserve_access_index))
#define field_exists(field) __builtin_preserve_field_info(field, 2)
#define field_size(field) __builtin_preserve_field_info(field, 1)
#define field_offset(type, field) \
	__builtin_preserve_field_info(((type *)0)->field, 0)
#define enum_value_exists(type, value) \
	__builtin_preserve_enum_value(*(typeof(type) *)value, 0)

/* Add without asking for the old value, which clang would, and 5.10 cannot. */
#define atomic_add(ptr, n) \
	asm volatile("lock *(u64 *)(%0 + 0) += %1" ::"r"(ptr), "r"((__u64)(n)) : "memory")
