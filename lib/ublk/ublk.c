/* SPDX-License-Identifier: MIT */
/*
 * Start, recover and stop a block device.
 * Invariant: the driver gets the command to start, or to go on, only when every queue waits for requests. Queue pairs and buffers
 * end after the threads that use them.
 */
#include <gpunvme/serve.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "os/linux/users.h"
#include "ublk/ublk.h"
#include "util/bits.h"
#include "util/clock.h"
#include "util/entry.h"
#include "util/mark.h"
#include "util/opts.h"
#include "util/process.h"

#define DEPTH 64u
#define DEPTH_MAX 1024u
#define BYTES (128u << 10)
#define BYTES_MAX (1u << 20) /* the PRP list of one command always has room for it */
#define PAGE 4096u
#define DYING_MS 10000 /* until the kernel has taken down a server that was killed */
#define SETTLE_MS 1000 /* for programs that look at every new disk: udev */

/* ---- The driver ---- */

/* Whether os/linux/ublk.h has set a message already. */
static bool is_said(int ret)
{
	return ret == -EOPNOTSUPP || ret == -EACCES || ret == -ETIMEDOUT;
}

static int get_info(uint32_t id, struct gnv_ublk_info *info)
{
	int ret = gnv_ublk_control(GNV_UBLK_GET_DEV_INFO, id, info, sizeof(*info));

	return ret == -ENODEV ? gnv_fail(ret, "there is no block device %u of ublk", id) : ret;
}

static int add(struct gpunvme_ublk *u, const struct gpunvme_ublk_opts *o, uint64_t mark)
{
	struct gnv_ublk_info *info = &u->info;
	int ret;

	info->queues = (uint16_t)u->workers;
	info->id = o->flags & GPUNVME_UBLK_ID ? o->id : GNV_UBLK_ANY_ID;
	info->pid = -1;
	info->flags = GNV_UBLK_F_USER_RECOVERY | GNV_UBLK_F_USER_RECOVERY_REISSUE;
	info->mark = mark;
	ret = gnv_ublk_control(GNV_UBLK_ADD_DEV, info->id, info, sizeof(*info));
	if (ret == -EEXIST)
		return gnv_fail(ret, "there is a block device %u of ublk already. Choose another number", o->id);
	if (ret < 0)
		return is_said(ret) ? ret : gnv_fail(ret, "the ublk driver makes no device: %s", strerror(-ret));
	u->added = true;
	while (u->workers > info->queues) /* it makes no more than there are CPUs */
		gpunvme_queue_destroy(u->worker[--u->workers].qp);
	return 0;
}

static int set_params(struct gpunvme_ublk *u, bool cache)
{
	struct gnv_ublk_params params;
	int ret;

	gnv_ublk_describe(u, &u->worker->dq, cache, &params);
	ret = gnv_ublk_control(GNV_UBLK_SET_PARAMS, u->info.id, &params, sizeof(params));
	if (ret >= 0 || is_said(ret))
		return ret < 0 ? ret : 0;
	return gnv_fail(ret, "the ublk driver refuses the disk's size or limits: %s", strerror(-ret));
}

/* Both wait in the driver for steps that gnv_ublk_worker_run() has done already. */
static int go(struct gpunvme_ublk *u, uint32_t op)
{
	int ret = gnv_ublk_control(op, u->info.id, NULL, 0);

	if (ret >= 0 || is_said(ret))
		return ret < 0 ? ret : 0;
	return gnv_fail(ret, "the ublk driver does not start device %u: %s", u->info.id, strerror(-ret));
}

/* ---- Going on with the device of a server that has died ---- */

static int fits(const struct gnv_ublk_info *info, uint64_t mark)
{
	if (info->state == GNV_UBLK_DEAD)
		return gnv_fail(-ENODEV, "block device %u has no disk: it was stopped, or never started. Remove it, and make another", info->id);
	if (info->mark != mark)
		return gnv_fail(-EXDEV, "block device %u is of another namespace than this. Name its own namespace", info->id);
	if (!(info->flags & GNV_UBLK_F_USER_RECOVERY))
		return gnv_fail(-EINVAL, "block device %u is not one that another server may go on with", info->id);
	if (info->max_bytes > BYTES_MAX || !info->depth || info->depth > DEPTH_MAX)
		return gnv_fail(-EINVAL, "block device %u has requests that this library does not support", info->id);
	return 0;
}

/* The kernel takes down the rings of a process some time after its end. */
static int await_death(uint32_t id, struct gnv_ublk_info *info)
{
	int ret = gnv_ublk_control_within(GNV_UBLK_START_RECOVERY, id, DYING_MS), asked;

	if (ret >= 0 || is_said(ret))
		return ret < 0 ? ret : 0;
	if (ret != -EBUSY)
		return gnv_fail(ret, "the ublk driver does not give block device %u to this process: %s", id, strerror(-ret));
	asked = get_info(id, info);
	return asked ? asked : gnv_fail(ret, "block device %u is in use by process %d. End that process first", id, info->pid);
}

static int adopt(struct gpunvme_ublk *u, uint32_t id, uint64_t mark)
{
	struct gnv_ublk_info info = { .id = id };
	struct gnv_ublk_params params = { .len = sizeof(params) };
	int ret = get_info(id, &info);

	if (!ret)
		ret = fits(&info, mark);
	if (!ret)
		ret = gnv_ublk_control(GNV_UBLK_GET_PARAMS, id, &params, sizeof(params));
	if (!ret && !(params.basic.attrs & GNV_UBLK_ATTR_READ_ONLY) && u->read_only)
		ret = gnv_fail(-EROFS, "block device %u is writable, but the namespace or the options are read-only", id);
	if (!ret)
		ret = await_death(id, &info);
	u->info = info;
	return ret;
}

/* ---- Start ---- */

static int check_opts(const struct gpunvme_ublk_opts *o)
{
	const uint32_t known = GPUNVME_UBLK_READ_ONLY | GPUNVME_UBLK_RECOVER | GPUNVME_UBLK_ID;

	if (o->flags & ~known)
		return gnv_fail(-EINVAL, "unknown flags 0x%x. Valid: GPUNVME_UBLK_READ_ONLY, _RECOVER, _ID", o->flags & ~known);
	if (o->flags & GPUNVME_UBLK_RECOVER && (o->queues || o->depth || o->max_bytes))
		return gnv_fail(-EINVAL, "a block device that is recovered keeps its queues, depth and max_bytes: leave them 0");
	if (o->depth > DEPTH_MAX || o->queues > UINT16_MAX)
		return gnv_fail(-EINVAL, "%u queues of %u requests are too many: use depths up to %u", o->queues, o->depth, DEPTH_MAX);
	if (o->max_bytes && (o->max_bytes < PAGE || o->max_bytes > BYTES_MAX || o->max_bytes % PAGE))
		return gnv_fail(-EINVAL, "requests of %u bytes: use a multiple of %u from %u to %u", o->max_bytes, PAGE, PAGE, BYTES_MAX);
	return 0;
}

static int check_namespace(struct gpunvme_ublk *u, const struct gpunvme_dev_info *dev, const struct gpunvme_ublk_opts *o)
{
	const uint32_t most = (1u << (31 - __builtin_clz(dev->max_depth))) - 1; /* as of sq_depth() */

	if (u->ns.lba_size > PAGE)
		return gnv_fail(-EOPNOTSUPP, "the blocks of namespace %u have %u bytes, but ublk takes at most %u. Format it with smaller blocks",
				u->ns.nsid, u->ns.lba_size, PAGE);
	if ((u->ns.read_only || dev->read_only) && !u->read_only)
		return gnv_fail(-EROFS, "namespace %u is read-only. Use GPUNVME_UBLK_READ_ONLY (gpunvme serve --ro)", u->ns.nsid);
	u->info.depth = (uint16_t)(o->depth ? o->depth : gnv_min(DEPTH, most));
	if (u->info.depth > most)
		return gnv_fail(-EINVAL, "a depth of %u is more than queues of this controller hold. Use %u or less", u->info.depth, most);
	return 0;
}

/* One request is one command. */
static int choose_bytes(struct gpunvme_ublk *u, uint32_t wanted)
{
	uint64_t most = (uint64_t)u->worker->dq.max_blocks << u->worker->dq.lba_shift;

	if (u->info.max_bytes) /* a block device that is recovered */
		return u->info.max_bytes <= most ? 0 : gnv_fail(-EINVAL, "its requests are longer than one command of this controller");
	most = gnv_min(most, wanted ? wanted : BYTES) / PAGE * PAGE;
	if (!most)
		return gnv_fail(-EOPNOTSUPP, "a command of this controller carries less than %u bytes, which ublk wants at least", PAGE);
	u->info.max_bytes = (uint32_t)most;
	return 0;
}

/*
 * Undo a start that failed, and keep its error message: the driver keeps a block device that it had before. A queue that cannot be
 * deleted, and the memory that its controller may write to, goes with the device.
 */
static void undo(struct gpunvme_ublk *u, int why)
{
	const struct gnv_message cause = gnv_message();

	gnv_ublk_join_workers(u);
	gnv_ublk_end_queues(u);
	if (u->added)
		gnv_ublk_control(GNV_UBLK_DEL_DEV, u->info.id, NULL, 0);
	gpunvme_gpu_close(u->gpu);
	free(u->worker);
	free(u);
	gnv_fail_again(why, &cause);
}

static int serve(struct gpunvme_ublk *u)
{
	uint32_t i;
	int ret = 0;

	u->fd = gnv_ublk_open(u->info.id);
	if (u->fd < 0)
		return u->fd;
	for (i = 0; i < u->workers && !ret; i++)
		ret = gnv_ublk_open_worker(u, &u->worker[i]);
	if (ret)
		return ret;
	return gnv_ublk_start_workers(u);
}

static int start(struct gpunvme_ublk *u, const struct gpunvme_ublk_opts *o, const struct gpunvme_dev_info *dev)
{
	const bool recover = o->flags & GPUNVME_UBLK_RECOVER;
	const uint64_t mark = gnv_mark(dev, &u->ns);
	int ret = check_namespace(u, dev, o);

	if (!ret && recover)
		ret = adopt(u, o->id, mark);
	if (!ret)
		ret = gpunvme_gpu_open("cpu", NULL, &u->gpu);
	if (!ret)
		ret = gnv_ublk_make_queues(u, recover ? u->info.queues : o->queues, o->cmd_timeout_ms);
	if (!ret)
		ret = choose_bytes(u, o->max_bytes);
	if (!ret && !recover)
		ret = add(u, o, mark);
	if (!ret && !recover)
		ret = set_params(u, dev->vwc);
	if (!ret)
		ret = serve(u);
	if (!ret)
		ret = go(u, recover ? GNV_UBLK_END_RECOVERY : GNV_UBLK_START_DEV);
	return ret;
}

GPUNVME_API int gpunvme_ublk_start(struct gpunvme_dev *dev, uint32_t nsid, const struct gpunvme_ublk_opts *opts,
				   struct gpunvme_ublk **out)
{
	struct gpunvme_dev_info info = { .size = sizeof(info) };
	struct gpunvme_ublk_opts o = GPUNVME_UBLK_OPTS_INIT;
	struct gpunvme_ublk *u;
	int ret;

	if (!dev || !out)
		return gnv_null("dev and ublk");
	ret = gnv_opts_copy(&o, opts, gpunvme_ublk_opts);
	if (!ret)
		ret = check_opts(&o);
	if (!ret)
		ret = gpunvme_dev_get_info(dev, &info);
	if (ret)
		return ret;
	u = calloc(1, sizeof(*u));
	if (!u)
		return gnv_fail(-ENOMEM, "out of memory");
	u->process = gnv_process();
	u->dev = dev;
	u->fd = -1;
	u->read_only = o.flags & GPUNVME_UBLK_READ_ONLY;
	u->ns.size = sizeof(u->ns);
	ret = gpunvme_ns_get_info(dev, nsid, &u->ns);
	if (!ret)
		ret = start(u, &o, &info);
	if (ret) {
		undo(u, ret);
		return ret;
	}
	u->added = true;
	*out = u;
	return 0;
}

/* ---- Information ---- */

GPUNVME_API int gpunvme_ublk_get_info(const struct gpunvme_ublk *u, struct gpunvme_ublk_info *out)
{
	struct gpunvme_ublk_info info = { .size = sizeof(info) };
	uint32_t i;

	if (!u)
		return gnv_null("ublk");
	info.id = u->info.id;
	info.nsid = u->ns.nsid;
	info.queues = u->workers;
	info.depth = u->info.depth;
	info.max_bytes = u->info.max_bytes;
	snprintf(info.path, sizeof(info.path), "/dev/ublkb%u", u->info.id);
	info.ended = __atomic_load_n(&u->ended, __ATOMIC_ACQUIRE);
	info.error = __atomic_load_n(&u->error, __ATOMIC_RELAXED);
	for (i = 0; i < u->workers; i++) {
		info.requests += __atomic_load_n(&u->worker[i].requests, __ATOMIC_RELAXED);
		info.failed += __atomic_load_n(&u->worker[i].failed, __ATOMIC_RELAXED);
		info.recoveries += __atomic_load_n(&u->worker[i].recoveries, __ATOMIC_RELAXED);
	}
	return gnv_info_copy(out, &info, gpunvme_ublk_info);
}

/* ---- Stop ---- */

static int in_use(uint32_t id, const char *text)
{
	return gnv_fail(-EBUSY, "/dev/ublkb%u is in use: %s", id,
			*text ? text : "a program has it open, or mounted where this process does not see it. End that first");
}

/* Old drivers stop a disk even if it is mounted, so the library looks. A process that opens the disk after the look gets errors. */
static int stop_unused(uint32_t id)
{
	struct gnv_deadline deadline = gnv_deadline_in(SETTLE_MS);
	char text[GNV_USERS_TEXT];
	int ret;

	do
		ret = gnv_ublk_users(id, text);
	while (ret == -EBUSY && gnv_deadline_poll_again(&deadline));
	if (ret)
		return ret;
	return gnv_ublk_control(GNV_UBLK_STOP_DEV, id, NULL, 0);
}

static int stop_disk(uint32_t id, uint64_t flags)
{
	char text[GNV_USERS_TEXT];
	int ret = flags & GNV_UBLK_F_SAFE_STOP ? gnv_ublk_control_within(GNV_UBLK_TRY_STOP_DEV, id, SETTLE_MS) : stop_unused(id);

	if (ret == -ENODEV) /* somebody else did */
		return 0;
	if (ret != -EBUSY)
		return ret;
	gnv_ublk_users(id, text);
	return in_use(id, text);
}

/* Of a server that has died. The driver itself does not reply while requests wait (os/linux/ublk.h). */
static int stop_dead(uint32_t id, uint64_t flags)
{
	char text[GNV_USERS_TEXT];

	if (!gnv_ublk_waits(GNV_SYSFS, id))
		return stop_disk(id, flags);
	gnv_ublk_users(id, text);
	return in_use(id, text);
}

static int remove_device(uint32_t id)
{
	int ret = gnv_ublk_control(GNV_UBLK_DEL_DEV, id, NULL, 0);

	return ret == -ENODEV ? 0 : ret;
}

GPUNVME_API int gpunvme_ublk_stop(struct gpunvme_ublk *u)
{
	int ret = 0;

	if (!u)
		return 0;
	if (gnv_foreign(u->process))
		return -ECHILD;
	if (u->fd >= 0) {
		ret = stop_disk(u->info.id, u->info.flags);
		if (ret)
			return ret;
		gnv_ublk_join_workers(u);
	}
	ret = u->added ? remove_device(u->info.id) : 0;
	if (ret)
		return ret;
	u->added = false; /* its number may be another's from now on */
	ret = gnv_ublk_end_queues(u);
	if (ret)
		return ret;
	gpunvme_gpu_close(u->gpu);
	free(u->worker);
	free(u);
	return 0;
}

GPUNVME_API int gpunvme_ublk_remove(uint32_t id, uint32_t flags)
{
	struct gnv_ublk_info info = { .id = id };
	int ret;

	if (flags & ~(uint32_t)GPUNVME_UBLK_FORCE)
		return gnv_fail(-EINVAL, "unknown flags 0x%x. Valid: GPUNVME_UBLK_FORCE", flags);
	ret = get_info(id, &info);
	if (ret)
		return ret;
	if (info.state == GNV_UBLK_LIVE)
		return gnv_fail(-EBUSY, "block device %u is in use by process %d, which must end it", id, info.pid);
	if (info.state != GNV_UBLK_DEAD)
		ret = flags & GPUNVME_UBLK_FORCE ? gnv_ublk_control(GNV_UBLK_STOP_DEV, id, NULL, 0) : stop_dead(id, info.flags);
	if (ret)
		return ret;
	return remove_device(id);
}
