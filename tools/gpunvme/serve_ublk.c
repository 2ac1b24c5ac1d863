/* SPDX-License-Identifier: MIT */
/*
 * gpunvme serve --ublk: make a namespace a block device of the kernel. It ends at a signal, if the block device is not in use.
 */
#include "serve.h"
#include "verbs.h"

#include "common/permission.h"
#include "common/progress.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/select.h>

static void say(const struct session_opts *o, const struct gpunvme_ublk *ublk)
{
	struct gpunvme_ublk_info info = { .size = sizeof(info) };

	gpunvme_ublk_get_info(ublk, &info);
	printf("%s is %s, with %u queues of %u requests of %u KiB. Unmount it, then end it with Ctrl-C\n", o->dev, info.path,
	       info.queues, info.depth, info.max_bytes >> 10);
	fflush(stdout);
}

static int error_of(const struct gpunvme_ublk *ublk)
{
	struct gpunvme_ublk_info info = { .size = sizeof(info) };
	int ret = gpunvme_ublk_get_info(ublk, &info);

	return ret ? ret : info.error;
}

/* Wait for a signal, or for the end of all queues. */
static int wait_served(const struct gpunvme_ublk *ublk, const sigset_t *before)
{
	const struct timespec look = { 1, 0 };
	int ret = error_of(ublk);

	while (!interrupted && !ret) {
		pselect(0, NULL, NULL, NULL, &look, before);
		ret = error_of(ublk);
	}
	return ret;
}

/* Exit at once, so that another server can continue: nothing is stopped in order. */
static int failed_for_good(const struct gpunvme_ublk *ublk, int why)
{
	struct gpunvme_ublk_info info = { .size = sizeof(info) };

	gpunvme_ublk_get_info(ublk, &info);
	return failed("io_uring failed for %u queues of %s: %s. Its users wait: continue with gpunvme serve --ublk --recover %u",
		      info.ended, info.path, gpunvme_strerror(why), info.id);
}

/* If the block device is mounted, print that and continue. */
static int wait_and_stop(struct gpunvme_ublk *ublk, const sigset_t *before)
{
	int ret, end;

	do {
		end = wait_served(ublk, before);
		interrupted = 0;
		ret = gpunvme_ublk_stop(ublk);
		if (ret && end)
			exit(failed_for_good(ublk, end));
		if (ret == -EBUSY)
			fprintf(stderr, "gpunvme: it goes on: %s\n", gpunvme_errmsg());
	} while (ret == -EBUSY);
	if (!ret && end)
		return failed("io_uring failed: %s. The block device, which was not in use, is gone", gpunvme_strerror(end));
	return ret ? failed("%s", why(ret)) : EXIT_DONE;
}

static int offer(struct session *session, const struct session_opts *o, const struct gpunvme_ublk_opts *opts,
		 const sigset_t *before)
{
	struct gpunvme_ublk *ublk;
	int ret = gpunvme_ublk_start(session->dev, 0, opts, &ublk);

	if (ret)
		return failed("%s", why(ret));
	say(o, ublk);
	return wait_and_stop(ublk, before);
}

int serve_ublk(const struct session_opts *o, const struct serve_opts *s)
{
	struct gpunvme_ublk_opts opts = GPUNVME_UBLK_OPTS_INIT;
	const int recover = s->recover != NOT_GIVEN;
	struct session session;
	sigset_t before;
	int ret;

	if (recover && (s->id != NOT_GIVEN || o->queues || o->depth))
		return misused("--recover keeps number, queues and depth of the block device: leave --id, --queues and --depth out");
	opts.flags = s->ro ? GPUNVME_UBLK_READ_ONLY : 0;
	if (recover || s->id != NOT_GIVEN)
		opts.flags |= recover ? GPUNVME_UBLK_RECOVER : GPUNVME_UBLK_ID;
	opts.id = recover ? s->recover : s->id;
	opts.queues = o->queues;
	opts.depth = o->depth;
	block_signals(&before);
	ret = session_open(&session, o);
	if (ret != GO_ON)
		return ret;
	ret = s->ro || session.ns.read_only ? GO_ON : session_may_write(&session, o);
	if (ret == GO_ON)
		ret = offer(&session, o, &opts, &before);
	session_close(&session);
	return ret;
}

int serve_remove(const struct serve_opts *s)
{
	int ret = gpunvme_ublk_remove(s->remove, s->force ? GPUNVME_UBLK_FORCE : 0);

	return ret ? failed("%s", why(ret)) : EXIT_DONE;
}
