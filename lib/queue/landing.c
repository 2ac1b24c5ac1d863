/* SPDX-License-Identifier: MIT */
/*
 * Memory of the host through which transfers on streams go, where a device cannot access their target.
 * Invariant: slots are taken and given back by kernels alone (gpu/kernels/landing.h).
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "dev/dev.h"
#include "dma/mem_map.h"
#include "gpu/gpu.h"
#include "queue/queue.h"
#include "run/landing.h"
#include "util/entry.h"
#include "util/opts.h"

#define SLOTS 64u
#define SLOTS_MAX 4096u

static size_t turns_len(const struct gpunvme_landing *l)
{
	return (1 + (size_t)l->slots) * sizeof(uint64_t);
}

static size_t local_len(const struct gpunvme_landing *l)
{
	return turns_len(l) + l->devs * sizeof(struct gpunvme_dbuf);
}

static int check_options(const struct gpunvme_landing_opts *opts)
{
	if (opts->flags & ~(uint32_t)GPUNVME_LANDING_ALWAYS)
		return gnv_fail(-EINVAL, "unknown flags 0x%x of landing memory. Valid is GPUNVME_LANDING_ALWAYS", opts->flags);
	if (opts->slots > SLOTS_MAX)
		return gnv_fail(-EINVAL, "landing memory has at most %u slots, not %u", SLOTS_MAX, opts->slots);
	return 0;
}

static int make_memory(struct gpunvme_landing *l, struct gpunvme_queue *queue, uint32_t flags)
{
	const struct gpunvme_mem_opts opts = { sizeof(opts), flags, 0 };
	int ret = gpunvme_mem_alloc(l->gpu, queue, (size_t)l->slots * GNV_LANDING_SLOT, &opts, &l->mem);
	uint32_t m;

	for (m = 0; m < l->devs && !ret; m++)
		ret = gpunvme_mem_map(l->mem, l->dev[m]);
	return ret ? ret : gpunvme_mem_dbuf(l->mem, l->dev[0], &l->dbuf);
}

/* The words of the slots, which are zero, and the table for volumes. */
static int make_local(struct gpunvme_landing *l)
{
	struct gpunvme_dbuf dbuf[GPUNVME_QUEUE_DEVICES];
	int ret = l->gpu->ops->local_alloc(l->gpu, local_len(l), &l->turns);
	uint32_t m;

	for (m = 0; m < l->devs && !ret; m++)
		ret = gpunvme_mem_dbuf(l->mem, l->dev[m], &dbuf[m]);
	if (ret)
		return ret;
	l->dvbuf = (struct gpunvme_dvbuf){ l->dbuf.base, l->dbuf.len, l->turns.lane + turns_len(l), 0 };
	return l->gpu->ops->poke(l->gpu, l->dvbuf.member, dbuf, l->devs * sizeof(dbuf[0]));
}

/* In memory of the GPU: is it cached, or not reached by a drive? */
static bool may_lie_elsewhere(struct gpunvme_landing *l, const struct gpunvme_queue *queue, int ret)
{
	bool cached = false;

	if (!queue->local)
		return false;
	if (!ret && !l->gpu->ops->mem_reach(l->gpu, l->dbuf.base, l->dbuf.len, &cached) && cached)
		return true;
	return ret == -EOPNOTSUPP || ret == -EXDEV;
}

/* No command has seen it. A device with other commands in flight may keep it mapped, and frees it when it is closed. */
static void drop_memory(struct gpunvme_landing *l)
{
	gnv_map_free(l->mem);
	l->mem = NULL;
}

/* The parts of it. Those of a failure are freed by fail_create(). */
static int make_parts(struct gpunvme_landing *l, struct gpunvme_queue *queue)
{
	int ret = make_memory(l, queue, 0);

	if (may_lie_elsewhere(l, queue, ret)) {
		drop_memory(l);
		ret = make_memory(l, queue, GPUNVME_MEM_HOST);
	}
	return ret ? ret : make_local(l);
}

static int free_parts(struct gpunvme_landing *l)
{
	const int ret = gpunvme_mem_free(l->mem);

	if (ret)
		return ret;
	if (l->turns.lane)
		l->gpu->ops->local_free(l->gpu, &l->turns, local_len(l));
	gnv_gpu_put(l->gpu);
	free(l);
	return 0;
}

static int fail_create(struct gpunvme_landing *l, int ret)
{
	const struct gnv_message kept = gnv_message();

	drop_memory(l);
	(void)free_parts(l);
	return gnv_fail_again(ret, &kept);
}

/* A target of several devices is none that all of them can access. */
static void fill(struct gpunvme_landing *l, const struct gpunvme_queue *queue, const struct gpunvme_landing_opts *opts)
{
	*l = (struct gpunvme_landing){ .process = gnv_process(), .gpu = gnv_gpu_get(queue->gpu), .devs = queue->devices };
	memcpy(l->dev, queue->dev, sizeof(l->dev));
	l->device = l->dev[0]->number;
	l->devices = gnv_dev_numbers(l->dev, l->devs);
	l->slots = opts->slots ? opts->slots : SLOTS;
	l->always = opts->flags & GPUNVME_LANDING_ALWAYS || l->devs > 1;
}

GPUNVME_API int gpunvme_landing_create(struct gpunvme_queue *queue, const struct gpunvme_landing_opts *opts,
				       struct gpunvme_landing **landing)
{
	struct gpunvme_landing_opts known = GPUNVME_LANDING_OPTS_INIT;
	int ret = gnv_enter(queue->gpu, queue && landing, "queue and landing");
	struct gpunvme_landing *l;

	if (!ret)
		ret = gnv_opts_copy(&known, opts, gpunvme_landing_opts);
	if (!ret)
		ret = check_options(&known);
	if (!ret)
		ret = gnv_queue_check(queue);
	if (ret)
		return ret;
	l = calloc(1, sizeof(*l));
	if (!l)
		return gnv_fail(-ENOMEM, "out of memory");
	fill(l, queue, &known);
	ret = make_parts(l, queue);
	if (ret)
		return fail_create(l, ret);
	*landing = l;
	return 0;
}

GPUNVME_API int gpunvme_landing_destroy(struct gpunvme_landing *landing)
{
	const uint32_t used = landing ? __atomic_load_n(&landing->direct, __ATOMIC_RELAXED) +
						__atomic_load_n(&landing->landing, __ATOMIC_RELAXED) :
					0;

	if (!landing)
		return 0;
	if (gnv_foreign(landing->process))
		return -ECHILD;
	if (used)
		return gnv_fail(-EBUSY, "%u targets are in use. Call gpunvme_landing_put() for each", used);
	return free_parts(landing);
}

static int count_retired(struct gpunvme_landing *l, uint32_t *retired)
{
	uint64_t *turns = calloc(1, turns_len(l));
	uint32_t i;
	int ret;

	if (!turns)
		return gnv_fail(-ENOMEM, "out of memory");
	ret = l->gpu->ops->peek(l->gpu, turns, l->turns.lane, turns_len(l));
	for (i = 0; !ret && i < l->slots; i++)
		*retired += turns[1 + i] == GNV_STREAM_RETIRED;
	free(turns);
	return ret;
}

GPUNVME_API int gpunvme_landing_get_info(struct gpunvme_landing *landing, struct gpunvme_landing_info *info)
{
	struct gpunvme_landing_info known = { .slot_bytes = GNV_LANDING_SLOT };
	int ret = gnv_enter(landing, landing && info, "landing and info");

	if (!ret)
		ret = count_retired(landing, &known.retired);
	if (ret)
		return ret;
	known.slots = landing->slots;
	known.direct = __atomic_load_n(&landing->direct, __ATOMIC_RELAXED);
	known.landing = __atomic_load_n(&landing->landing, __ATOMIC_RELAXED);
	return gnv_info_copy(info, &known, gpunvme_landing_info);
}

/* A controller on threads would copy memory that they have no address of, command by command. Kernels that land do it faster. */
static bool is_copied(const struct gpunvme_landing *l, const struct gpunvme_mem *mem)
{
	const struct gnv_port *port = l->dev[0]->nvme.port;

	return !mem->cpu && port->space->copies && !port->far_rings;
}

/* Return: 0; -EOPNOTSUPP, -EXDEV or -ERANGE it may land. */
static int go_directly(struct gpunvme_landing *l, void *ptr, size_t len, uint32_t flags, struct gpunvme_target *target)
{
	bool cached = false;
	int ret;

	if (l->always || (uintptr_t)ptr % 4)
		return -EOPNOTSUPP;
	ret = l->gpu->ops->mem_reach(l->gpu, (uintptr_t)ptr, len, &cached);
	if (!ret && cached)
		return -EOPNOTSUPP;
	ret = gpunvme_mem_get(l->gpu, l->dev[0], ptr, len, flags, &target->use);
	if (ret)
		return ret;
	if (is_copied(l, target->use.mem))
		return gpunvme_mem_put(&target->use), -EOPNOTSUPP;
	target->way = GPUNVME_TARGET_DIRECT;
	target->base = target->use.dbuf.base + target->use.offset;
	return 0;
}

static int land(struct gpunvme_landing *l, void *ptr, size_t len, struct gpunvme_target *target)
{
	bool cached;
	const int ret = l->gpu->ops->mem_reach(l->gpu, (uintptr_t)ptr, len, &cached);

	switch (ret) {
	case 0:
		break;
	case -ENOENT:
		return gnv_fail(-EFAULT, "%p is no memory that %s can access, or was freed", ptr, l->gpu->info.name);
	case -ERANGE:
		return gnv_fail(-ERANGE, "%zu bytes at %p end after their allocation", len, ptr);
	case -EXDEV:
		return gnv_fail(-EXDEV, "%p is memory of another GPU than %s", ptr, l->gpu->info.name);
	default:
		return ret;
	}
	target->way = GPUNVME_TARGET_LANDING;
	target->base = (uintptr_t)ptr;
	target->slots = l->slots;
	target->slot_bytes = GNV_LANDING_SLOT;
	target->turns = l->turns.lane;
	target->use.dbuf = l->dbuf;
	return 0;
}

static uint32_t *users(struct gpunvme_landing *l, uint32_t way)
{
	return way == GPUNVME_TARGET_DIRECT ? &l->direct : &l->landing;
}

GPUNVME_API int gpunvme_landing_get(struct gpunvme_landing *landing, void *ptr, size_t len, uint32_t flags,
				    struct gpunvme_target *target)
{
	int ret = gnv_enter(landing, landing && target, "landing and target");
	struct gpunvme_target made = { .len = len, .landing = landing };

	if (ret)
		return ret;
	if (!ptr || !len || len > PTRDIFF_MAX || (uintptr_t)ptr > UINTPTR_MAX - len)
		return gnv_fail(-EINVAL, "%p and %zu bytes are no memory", ptr, len);
	if (flags & ~(uint32_t)GPUNVME_GET_KEEP)
		return gnv_fail(-EINVAL, "unknown flags 0x%x of a target. Valid is GPUNVME_GET_KEEP", flags);
	ret = go_directly(landing, ptr, len, flags, &made);
	if (ret == -EOPNOTSUPP || ret == -EXDEV || ret == -ERANGE)
		ret = land(landing, ptr, len, &made);
	if (ret)
		return ret;
	__atomic_fetch_add(users(landing, made.way), 1, __ATOMIC_RELAXED);
	*target = made;
	return 0;
}

GPUNVME_API int gpunvme_landing_put(struct gpunvme_target *target)
{
	int ret = 0;

	if (!target || !target->landing)
		return 0;
	if (gnv_foreign(target->landing->process))
		return -ECHILD;
	if (target->way == GPUNVME_TARGET_DIRECT)
		ret = gpunvme_mem_put(&target->use);
	if (ret)
		return ret;
	__atomic_fetch_sub(users(target->landing, target->way), 1, __ATOMIC_RELAXED);
	memset(target, 0, sizeof(*target));
	return 0;
}
