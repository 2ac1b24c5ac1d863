/* SPDX-License-Identifier: MIT */
/*
 * A thread of the host that launches the kernel of a drive again and again, two launches ahead, without waiting for the end of a
 * launch. Each team counts its end in the drive's structure, so the thread knows the number of launches in flight.
 */
#ifndef GNV_VDRIVE_LAUNCHER_H
#define GNV_VDRIVE_LAUNCHER_H

#include <pthread.h>

#include "vdrive/exec.h"
#include "vdrive/shared.h"

#define GNV_VD_AHEAD 2u /* launches */

struct gnv_vd_launcher {
	struct gnv_vd_exec *exec;
	void (*before_launch)(void *ctx);
	void *ctx;
	const struct gnv_log *log;
	uint32_t workers; /* teams of a launch */

	/* from start() on */
	int (*launch)(struct gnv_vd_exec *exec);
	const struct gnv_vd_args *args;
	pthread_t thread;
	bool started;
	bool over; /* atomic: the thread ends */
	bool stop; /* atomic: no more launches */
	uint64_t launched; /* atomic, written by the thread */
};

static inline struct gnv_vd_launcher gnv_vd_launcher_of(struct gnv_vd_exec *exec, const struct gnv_vd_wish *wish,
							const struct gnv_log *log, uint32_t workers)
{
	return (struct gnv_vd_launcher){
		.exec = exec, .before_launch = wish->before_launch, .ctx = wish->ctx, .log = log, .workers = workers
	};
}

/* No launch begins any more, and the thread uses nothing of the drive: nor its log, which may be gone after a failed opening. */
static inline bool gnv_vd_launcher_is_stopped(const struct gnv_vd_launcher *l)
{
	return __atomic_load_n(&l->stop, __ATOMIC_ACQUIRE);
}

/*
 * @launch: gives one launch with @args to the processor. Its -ENOTRECOVERABLE is final.
 * Return: 0; -EAGAIN, with an error message: no thread can be started.
 */
int gnv_vd_launcher_start(struct gnv_vd_launcher *l, int (*launch)(struct gnv_vd_exec *exec), const struct gnv_vd_args *args);

/* As is_queued() of exec.h. */
bool gnv_vd_launcher_is_queued(struct gnv_vd_launcher *l);

/*
 * No more launches begin. Also without start(). Return: false, with a line in the log: the thread did not end within @ms, as a
 * launch may wait in the driver for a kernel of the program. A later call goes on.
 */
bool gnv_vd_launcher_stop(struct gnv_vd_launcher *l, uint32_t ms);

#endif
