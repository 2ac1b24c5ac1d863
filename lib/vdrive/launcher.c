/* SPDX-License-Identifier: MIT */
#include "vdrive/launcher.h"

#include <errno.h>
#include <time.h>

#include "util/bits.h"
#include "util/clock.h"
#include "util/thread.h"

#define LOOK_MIN_NS 50000u
#define LOOK_MAX_NS 10000000u

/* @ended: teams that have ended, of all launches */
static int launch_ahead(struct gnv_vd_launcher *l, uint64_t ended)
{
	int ret = 0;

	while (!ret && !gnv_vd_launcher_is_stopped(l) && l->launched - ended / l->workers < GNV_VD_AHEAD) {
		l->before_launch(l->ctx);
		ret = l->launch(l->exec);
		__atomic_store_n(&l->launched, l->launched + !ret, __ATOMIC_RELEASE);
	}
	return ret;
}

static int read_ended(const struct gnv_vd_launcher *l, uint64_t *ended)
{
	return l->exec->ops->peek(l->exec, ended, l->args->vd + offsetof(struct gnv_vd, ended), sizeof(*ended));
}

/* Any kernel of the GPU's context can write to the drive's structure. */
static int look(const struct gnv_vd_launcher *l, uint64_t *ended)
{
	const int ret = read_ended(l, ended);

	if (!ret && *ended > l->launched * l->workers)
		return gnv_fail(-ENOTRECOVERABLE,
				"its kernel has counted %llu ends of %llu: another kernel has overwritten its memory. Open the drive "
				"again, and check the addresses that your kernels write to",
				(unsigned long long)*ended, (unsigned long long)(l->launched * l->workers));
	return ret;
}

/* Only the end of the processor and overwritten memory are final. Other errors may pass, for example a lack of memory. */
static void *launch_on(void *arg)
{
	struct gnv_vd_launcher *l = arg;
	const struct timespec pause = { 0, (long)gnv_min(gnv_max(l->args->slice_ns / 8, LOOK_MIN_NS), LOOK_MAX_NS) };
	uint64_t ended = 0;
	bool said = false;
	int ret = 0;

	while (!gnv_vd_launcher_is_stopped(l) && ret != -ENOTRECOVERABLE) {
		ret = launch_ahead(l, ended);
		nanosleep(&pause, NULL);
		if (!ret)
			ret = look(l, &ended);
		if (ret && !said && !gnv_vd_launcher_is_stopped(l))
			gnv_log(l->log, GPUNVME_LOG_ERROR, "the drive soft:vram: stands still: %s (said once)", gpunvme_errmsg());
		said |= ret != 0;
	}
	__atomic_store_n(&l->over, true, __ATOMIC_RELEASE);
	return NULL;
}

int gnv_vd_launcher_start(struct gnv_vd_launcher *l, int (*launch)(struct gnv_vd_exec *exec), const struct gnv_vd_args *args)
{
	int ret;

	l->launch = launch;
	l->args = args;
	ret = gnv_thread_start(&l->thread, launch_on, l);
	if (ret)
		return gnv_fail(ret, "cannot start a thread of the drive: no more can be started. Raise RLIMIT_NPROC (ulimit -u)");
	l->started = true;
	return 0;
}

bool gnv_vd_launcher_is_queued(struct gnv_vd_launcher *l)
{
	const uint64_t launched = __atomic_load_n(&l->launched, __ATOMIC_ACQUIRE); /* before ended: an end in between counts */
	uint64_t ended;

	return launched && !read_ended(l, &ended) && ended < launched * l->workers;
}

bool gnv_vd_launcher_stop(struct gnv_vd_launcher *l, uint32_t ms)
{
	struct gnv_deadline deadline = gnv_deadline_in(ms);

	__atomic_store_n(&l->stop, true, __ATOMIC_RELEASE);
	while (l->started && !__atomic_load_n(&l->over, __ATOMIC_ACQUIRE))
		if (!gnv_deadline_poll_again(&deadline)) {
			gnv_log(l->log, GPUNVME_LOG_ERROR,
				"the drive soft:vram: does not end, and its memory stays: the driver of the GPU does not return from a "
				"launch");
			return false;
		}
	if (l->started)
		pthread_join(l->thread, NULL);
	l->started = false;
	return true;
}
