/* SPDX-License-Identifier: MIT */
/*
 * Lists of transfers on a stream of the program's.
 * Invariant: all that the kernel uses lies in its arguments or belongs to the caller. So nothing here waits, or is kept.
 */
#include <gpunvme/run.h>

#include <errno.h>

#include "run/landing.h"
#include "run/run.h"
#include "util/bits.h"
#include "util/checked.h"
#include "util/entry.h"
#include "util/opts.h"

#define TRANSFERS_MAX (16u << 20)
#define WAVES_MAX 2048u
#define WAVES_AUTO 64u
#define WAVES_AUTO_CPU 8u
#define CPU_THREADS_MAX 64u /* each is started for the list, and spins */

/* The kernel, and the arguments of any of the three. */
struct plan {
	enum gnv_kernel kernel;
	size_t args_len;
	union {
		struct gnv_stream_args queue;
		struct gnv_stream_file_args file;
		struct gnv_stream_volume_args volume;
	} args;
	uint32_t waves;
};

static bool is_one_source(const struct gpunvme_run *run)
{
	if (!run->dq == !run->vol || !!run->dbuf + !!run->vbuf + !!run->target != 1)
		return false;
	return run->dq ? !run->vbuf : !run->dbuf && !run->file;
}

static int check_options(const struct gpunvme_run *run)
{
	if (run->reserved)
		return gnv_fail(-EINVAL, "`reserved` of a list of transfers is %u, not 0", run->reserved);
	if (run->flags & ~(uint32_t)GPUNVME_RUN_STOP)
		return gnv_fail(-EINVAL, "unknown flags 0x%x of a list of transfers. Valid is GPUNVME_RUN_STOP", run->flags);
	if (run->waves > WAVES_MAX)
		return gnv_fail(-EINVAL, "%u waves are too many for a list of transfers: use %u or less", run->waves, WAVES_MAX);
	if (!run->count || run->count > TRANSFERS_MAX)
		return gnv_fail(-EINVAL, "a list has 1 to %u transfers, not %u", TRANSFERS_MAX, run->count);
	if (!run->list || run->list % 8)
		return gnv_fail(-EINVAL, "the list at 0x%llx is at no multiple of 8", (unsigned long long)run->list);
	if (!is_one_source(run))
		return gnv_fail(-EINVAL, "a list has either dq and dbuf or a target, with or without a file, or vol and vbuf or a target");
	if ((run->bounce || run->bounce_len) && (!run->file || run->target))
		return gnv_fail(-EINVAL, "a bounce range is for a file and a dbuf, and the list lacks one of them");
	if (run->bounce % 4)
		return gnv_fail(-EINVAL, "the bounce range begins at byte %llu of the buffer, which is no multiple of 4",
				(unsigned long long)run->bounce);
	return 0;
}

/* Memory that the threads are to access, called @what. A wrong address would end all work of the process on a GPU. */
static int check_reach(struct gpunvme_gpu *gpu, const char *what, uint64_t at, uint64_t len, bool *cached)
{
	const int ret = at ? gpu->ops->mem_reach(gpu, at, len, cached) : -ENOENT;

	switch (ret) {
	case -ENOENT:
		return gnv_fail(-EFAULT, "the %s at 0x%llx is no memory that %s can access, or was freed. Use gpunvme_mem_alloc()",
				what,
				(unsigned long long)at, gpu->info.name);
	case -ERANGE:
		return gnv_fail(-ERANGE, "the %s of %llu bytes at 0x%llx ends after its allocation", what, (unsigned long long)len,
				(unsigned long long)at);
	case -EXDEV:
		return gnv_fail(-EXDEV, "the %s is memory of another GPU than %s. Allocate it for the GPU of the queue",
				what, gpu->info.name);
	default:
		return ret;
	}
}

static int check_memory(struct gpunvme_gpu *gpu, const char *what, uint64_t at, uint64_t len)
{
	bool cached;

	return check_reach(gpu, what, at, len, &cached);
}

/* The drive does not see data in a cache of the GPU, nor the next kernel of the stream the data that the drive has written. */
static int check_buffer(struct gpunvme_gpu *gpu, uint64_t at, uint64_t len)
{
	bool cached = false;
	const int ret = check_reach(gpu, "buffer", at, len, &cached);

	if (ret || !cached)
		return ret;
	return gnv_fail(-EOPNOTSUPP,
			"the buffer is memory that %s caches: the next kernel of the stream could see old data. Use "
			"gpunvme_mem_alloc() with a ROCm that has uncached memory (7.2), or memory of the host",
			gpu->info.name);
}

/* Fewer waves where the bounce range has not a block for each thread. */
static int plan_bounce(const struct gpunvme_gpu *gpu, const struct gpunvme_run *run, struct plan *p)
{
	const uint64_t blocks = run->bounce_len >> run->dq->lba_shift;

	p->args.file.bounce = ~0ull;
	if (!run->bounce_len)
		return 0;
	if (!gnv_within(run->bounce, run->bounce_len, run->dbuf->len))
		return gnv_fail(-ERANGE, "the bounce range of %llu bytes from %llu on ends after the buffer of %llu bytes",
				(unsigned long long)run->bounce_len, (unsigned long long)run->bounce, (unsigned long long)run->dbuf->len);
	if (blocks < gpu->info.width)
		return gnv_fail(-ERANGE, "the bounce range of %llu bytes has no block for each of the %u threads of a wave: give it %llu bytes",
				(unsigned long long)run->bounce_len, gpu->info.width,
				(unsigned long long)gpu->info.width << run->dq->lba_shift);
	p->waves = (uint32_t)gnv_min(p->waves, blocks / gpu->info.width);
	p->args.file.bounce = run->bounce;
	return 0;
}

/* Is it as gpunvme_landing_get() fills it? */
static bool is_filled(const struct gpunvme_target *t)
{
	if (!t->landing || !t->len)
		return false;
	if (t->way == GPUNVME_TARGET_DIRECT)
		return !t->turns && !t->slots;
	return t->way == GPUNVME_TARGET_LANDING && t->turns == t->landing->turns.lane && t->slots == t->landing->slots &&
	       t->slot_bytes == GNV_LANDING_SLOT;
}

/* Slots are addresses of one drive, or some, and their words are of one GPU: with others, other data would move. */
static int check_target(const struct gpunvme_gpu *gpu, const struct gpunvme_run *run)
{
	const struct gpunvme_target *target = run->target;
	const struct gpunvme_landing *l = target->landing;

	if (!is_filled(target))
		return gnv_fail(-EINVAL, "the target was not filled by gpunvme_landing_get()");
	if (l->gpu != gpu)
		return gnv_fail(-EXDEV, "the target's landing memory is of another handle than this one of %s. Create it with this "
					"handle",
				gpu->info.name);
	if (run->vol ? run->vol->members != l->devs || run->vol->devices != l->devices : run->dq->device && run->dq->device != l->device)
		return gnv_fail(-EXDEV, "the target's landing memory is of another drive than the queue. Create one for each "
				"drive, or for the drives of a volume");
	return 0;
}

/*
 * A target that gpunvme_landing_get() has filled. The memory may have been freed since. Files always land, as they may end within
 * a block. So do volumes, as only landing memory has a table for all members.
 */
static int plan_target(struct gpunvme_gpu *gpu, const struct gpunvme_run *run, struct gnv_stream_target *to)
{
	const struct gpunvme_target *target = run->target;
	const bool lands = run->file || run->vol || target->way == GPUNVME_TARGET_LANDING;
	const uint32_t lba_shift = run->vol ? run->vol->lba_shift : run->dq->lba_shift;
	const int ret = check_target(gpu, run);

	if (ret)
		return ret;
	if (lands && GNV_LANDING_SLOT >> lba_shift < 2)
		return gnv_fail(-EOPNOTSUPP, "a slot of the landing memory has %u bytes, less than two blocks of %u",
				GNV_LANDING_SLOT, 1u << lba_shift);
	*to = (struct gnv_stream_target){ .at = target->base, .len = target->len };
	if (lands) {
		to->turns = target->landing->turns.lane;
		to->slot_bytes = GNV_LANDING_SLOT;
		to->slots = target->landing->slots;
	}
	return lands ? check_memory(gpu, "target", target->base, target->len) : 0;
}

/* A part of its last block is read as a whole block. */
static void round_file(const struct gpunvme_dq *dq, struct gnv_stream_file_args *args)
{
	args->target.file_bytes = args->file.bytes;
	if (args->target.turns)
		args->file.bytes = gnv_align_up(args->file.bytes, 1ull << dq->lba_shift);
}

static int plan_file(struct gpunvme_gpu *gpu, const struct gpunvme_run *run, const struct gpunvme_dbuf *dbuf,
		     const struct gnv_stream_target *target, struct plan *p)
{
	const uint64_t table = (uint64_t)run->file->extents * sizeof(struct gpunvme_dextent);
	int ret;

	ret = gnv_run_check_head(&run->file->head, GPUNVME_KIND_FILE, "gpunvme_file_view");
	if (!ret && table)
		ret = check_memory(gpu, "table of the file", run->file->table, table);
	if (ret)
		return ret;
	p->kernel = GNV_KERNEL_STREAM_FILE;
	p->args_len = sizeof(p->args.file);
	p->args.file.dq = *run->dq;
	p->args.file.dbuf = *dbuf;
	p->args.file.file = *run->file;
	p->args.file.target = *target;
	round_file(run->dq, &p->args.file);
	return 0;
}

static int plan_queue(struct gpunvme_gpu *gpu, const struct gpunvme_run *run, struct plan *p)
{
	const struct gpunvme_dbuf *dbuf = run->target ? &run->target->use.dbuf : run->dbuf;
	struct gnv_stream_target target = { .len = 0 };
	int ret = gnv_run_check_views(run->dq, 1);

	if (!ret && run->target)
		ret = plan_target(gpu, run, &target);
	if (target.turns)
		dbuf = &run->target->landing->dbuf;
	if (!ret)
		ret = gnv_run_check(gpu, run->dq, 1, dbuf);
	if (!ret)
		ret = check_buffer(gpu, dbuf->base, dbuf->len);
	if (ret)
		return ret;
	if (run->file)
		return plan_file(gpu, run, dbuf, &target, p);
	p->kernel = GNV_KERNEL_STREAM;
	p->args_len = sizeof(p->args.queue);
	p->args.queue.dq = *run->dq;
	p->args.queue.dbuf = *dbuf;
	p->args.queue.target = target;
	return 0;
}

static int plan_volume(struct gpunvme_gpu *gpu, const struct gpunvme_run *run, struct plan *p)
{
	const uint64_t views = (uint64_t)run->vol->queues * run->vol->members * sizeof(struct gpunvme_dq);
	const struct gpunvme_dvbuf *vbuf = run->vbuf;
	int ret;

	ret = gnv_run_check_head(&run->vol->head, GPUNVME_KIND_VOLUME, "gpunvme_queue_view");
	if (!ret && !views)
		ret = gnv_fail(-EINVAL, "the view of the volume was not filled by gpunvme_queue_view()");
	if (!ret)
		ret = check_memory(gpu, "view of the volume", run->vol->dq, views);
	if (!ret && vbuf)
		ret = check_memory(gpu, "buffer of the volume", vbuf->member, run->vol->members * sizeof(struct gpunvme_dbuf));
	else if (!ret)
		ret = plan_target(gpu, run, &p->args.volume.target);
	if (ret)
		return ret;
	vbuf = vbuf ? vbuf : &run->target->landing->dvbuf;
	ret = check_buffer(gpu, vbuf->base, vbuf->len);
	if (ret)
		return ret;
	p->kernel = GNV_KERNEL_STREAM_VOLUME;
	p->args_len = sizeof(p->args.volume);
	p->args.volume.vol = *run->vol;
	p->args.volume.vbuf = *vbuf;
	return 0;
}

static uint32_t waves_of(const struct gpunvme_gpu *gpu, const struct gpunvme_run *run)
{
	const bool cpu = gpu->info.kind == GPUNVME_GPU_CPU;
	uint32_t waves = run->waves ? run->waves : cpu ? WAVES_AUTO_CPU : WAVES_AUTO;

	if (run->flags & GPUNVME_RUN_STOP)
		return 1;
	if (cpu)
		waves = (uint32_t)gnv_min(waves, CPU_THREADS_MAX / gpu->info.width);
	return (uint32_t)gnv_min(run->count, waves);
}

/* Where the list stands in the arguments of each kernel. */
static struct gnv_stream_list *list_of(struct plan *p)
{
	return p->kernel == GNV_KERNEL_STREAM	   ? &p->args.queue.list :
	       p->kernel == GNV_KERNEL_STREAM_FILE ? &p->args.file.list :
						     &p->args.volume.list;
}

static int make_plan(struct gpunvme_gpu *gpu, const struct gpunvme_run *run, struct plan *p)
{
	int ret = check_options(run);

	if (!ret)
		ret = check_memory(gpu, "list", run->list, run->count * sizeof(struct gpunvme_transfer));
	if (ret)
		return ret;
	p->waves = waves_of(gpu, run);
	ret = run->vol ? plan_volume(gpu, run, p) : plan_queue(gpu, run, p);
	if (!ret && run->file)
		ret = plan_bounce(gpu, run, p);
	if (!ret)
		*list_of(p) = (struct gnv_stream_list){ run->list, run->count, run->flags };
	return ret;
}

GPUNVME_API int gpunvme_run_on_stream(struct gpunvme_gpu *gpu, void *stream, const struct gpunvme_run *user)
{
	struct gpunvme_run run = GPUNVME_RUN_INIT;
	struct plan p = { .waves = 0 };
	struct gnv_launch launch = { .args = &p.args };
	int ret = gnv_enter(gpu, gpu && user, "gpu and run");

	if (!ret)
		ret = gnv_opts_copy(&run, user, gpunvme_run);
	if (!ret)
		ret = make_plan(gpu, &run, &p);
	if (ret)
		return ret;
	launch.kernel = p.kernel;
	launch.args_len = p.args_len;
	launch.threads = p.waves * gpu->info.width;
	return gpu->ops->enqueue(gpu, stream, &launch);
}
