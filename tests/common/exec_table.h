/* SPDX-License-Identifier: MIT */
/*
 * A drive whose processor (vdrive/exec.h) has some functions of the test. The file that includes this defines exec_change(), and its
 * program is linked with --wrap=gnv_vd_exec_open. The functions are in place before a thread of the drive uses them.
 */
#ifndef TESTS_COMMON_EXEC_TABLE_H
#define TESTS_COMMON_EXEC_TABLE_H

#include "vdrive/drive.h"

static const struct gnv_vd_exec_ops *exec_whole; /* the functions that the processor had */
static struct gnv_vd_wish exec_wish; /* of its drive */

/* Puts the test's functions into *ops, a copy of *exec_whole. */
static void exec_change(struct gnv_vd_exec_ops *ops);

int __real_gnv_vd_exec_open(struct gnv_vd_wish wish, const struct gnv_log *log, uint32_t *workers, struct gnv_vd_exec **exec);
int __wrap_gnv_vd_exec_open(struct gnv_vd_wish wish, const struct gnv_log *log, uint32_t *workers, struct gnv_vd_exec **exec);
int __wrap_gnv_vd_exec_open(struct gnv_vd_wish wish, const struct gnv_log *log, uint32_t *workers, struct gnv_vd_exec **exec)
{
	static struct gnv_vd_exec_ops ops;
	const int ret = __real_gnv_vd_exec_open(wish, log, workers, exec);

	if (ret)
		return ret;
	exec_whole = (*exec)->ops;
	exec_wish = wish;
	ops = *exec_whole;
	exec_change(&ops);
	(*exec)->ops = &ops;
	return 0;
}

#endif
