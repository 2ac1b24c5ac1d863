/* SPDX-License-Identifier: MIT */
/*
 * Which process this is, for objects that must not be used in a child of fork(): locks that a thread of the parent held, threads
 * that are not there, memory that is not mapped, descriptors that are closed. os/linux/fork.c implements these functions.
 */
#ifndef GNV_UTIL_PROCESS_H
#define GNV_UTIL_PROCESS_H

#include <stdbool.h>
#include <stdint.h>

/* The mark of this process: a child has another one, however it was made. */
uint64_t gnv_process(void);

/* Was an object with this mark made by another process? Then gnv_fail() has the message, and the caller returns -ECHILD. */
bool gnv_foreign(uint64_t mark);

/* The same without a system call. It does not know a child that shares its parent's memory, as those of vfork() do. */
bool gnv_forked(uint64_t mark);

#endif
