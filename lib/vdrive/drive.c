/* SPDX-License-Identifier: MIT */
/* The table of the engine that runs on a GPU: start, stop, epochs. */
#include "vdrive/drive.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/bits.h"
#include "vdrive/vdrive.h"

#define FAULT_MS 10000u

/* ---- Epochs ---- */

uint64_t gnv_vdrive_change(struct gnv_vdrive *d)
{
	const uint64_t epoch = __atomic_add_fetch(&d->epoch, 1, __ATOMIC_ACQ_REL);

	pthread_mutex_lock(&d->epochs); /* so the epoch in the structure never decreases */
	gnv_vdrive_poke64(d, GNV_VD_AT(d, epoch), __atomic_load_n(&d->epoch, __ATOMIC_ACQUIRE));
	pthread_mutex_unlock(&d->epochs);
	return epoch;
}

/* After a stop, and after the end of the GPU's context, no pass runs: nothing is left to wait for. */
bool gnv_vdrive_has_seen(struct gnv_vdrive *d, uint64_t epoch)
{
	uint64_t ack[GNV_VD_WORKERS];
	uint32_t i;

	if (__atomic_load_n(&d->stopped, __ATOMIC_ACQUIRE) || !__atomic_load_n(&d->started, __ATOMIC_ACQUIRE) ||
	    __atomic_load_n(&d->dead, __ATOMIC_ACQUIRE))
		return true;
	if (d->exec->ops->peek(d->exec, ack, GNV_VD_AT(d, ack), d->workers * sizeof(ack[0])))
		return false;
	for (i = 0; i < d->workers; i++)
		if (ack[i] < epoch)
			return false;
	return true;
}

bool gnv_vdrive_sync(struct gnv_vdrive *d, uint32_t ms)
{
	const uint64_t epoch = gnv_vdrive_change(d);
	struct gnv_deadline deadline = gnv_deadline_in(ms);

	while (!gnv_vdrive_has_seen(d, epoch))
		if (!gnv_deadline_poll_again(&deadline))
			return false;
	return true;
}

/* ---- Start ---- */

static int check_stores(const struct gnv_soft *soft)
{
	unsigned i;

	for (i = 0; i < soft->parts; i++)
		if (soft->part[i].store->ops != &gnv_soft_store_vram)
			return gnv_fail(-EINVAL, "ns%u=: a drive soft:vram: keeps all namespaces in the memory of its GPU. Use vram:SIZE", i + 1);
	return 0;
}

static int alloc_blocks(struct gnv_vdrive *d)
{
	unsigned i;
	int ret = 0;

	for (i = 0; i < d->t.soft.parts && !ret; i++)
		ret = d->exec->ops->alloc(d->exec, d->t.soft.part[i].store->size, &d->flash[i]);
	return ret;
}

static int fill_structure(struct gnv_vdrive *d)
{
	const struct gnv_vd_dma dma = { (void *)(uintptr_t)d->vd };
	int ret = d->exec->ops->poke(d->exec, GNV_VD_AT(d, dma), &dma, sizeof(dma));

	if (!ret)
		ret = d->exec->ops->poke(d->exec, GNV_VD_AT(d, rules), &d->t.soft.config.rules, sizeof(d->t.soft.config.rules));
	if (!ret)
		ret = gnv_vdrive_poke32(d, GNV_VD_AT(d, judged), gnv_vdrive_judged(&d->t.soft.config));
	if (!ret)
		ret = gnv_vdrive_poke32(d, GNV_VD_AT(d, workers), d->workers);
	if (!ret)
		ret = gnv_vdrive_poke64(d, GNV_VD_AT(d, first_own), GNV_SOFT_IOVA_BASE);
	if (!ret)
		ret = gnv_vdrive_describe(d);
	return ret;
}

static int open_exec(struct gnv_vdrive *d)
{
	struct gnv_soft *soft = &d->t.soft;
	const struct gnv_soft_config *config = &soft->config;
	const struct gnv_vd_wish wish = { .on = config->on, .threads = config->threads, .queues = config->queues,
					  .before_launch = gnv_vdrive_look_at_lent, .ctx = d };
	size_t len;
	int ret;

	ret = gnv_vd_exec_open(wish, soft->log, &d->workers, &d->exec);
	if (ret)
		return ret;
	len = sizeof(struct gnv_vd) + d->workers * sizeof(struct gnv_vd_worker);
	ret = d->exec->ops->alloc(d->exec, len, &d->vd);
	if (!ret)
		ret = d->exec->ops->show(d->exec, soft->bar, soft->bar_len, &d->bar, &d->bar_cookie);
	d->bar_shown = !ret;
	return ret;
}

/* Start the kernel. Return: 0 when each worker has made a pass; -errno with an error message. */
static int start_exec(struct gnv_vdrive *d)
{
	const struct gnv_soft *soft = &d->t.soft;
	int ret = d->exec->ops->start(d->exec, d->vd, soft->config.slice_us * 1000ull);

	if (ret)
		return ret;
	__atomic_store_n(&d->started, true, __ATOMIC_RELEASE);
	if (!gnv_vdrive_sync(d, soft->patience_ms))
		return gnv_fail(-EBUSY, "the kernel of the drive does not run. Check whether other work fills its GPU");
	return 0;
}

static void init_locks(struct gnv_vdrive *d)
{
	pthread_mutex_init(&d->lock, NULL);
	pthread_mutex_init(&d->epochs, NULL);
	pthread_mutex_init(&d->collecting, NULL);
	pthread_mutex_init(&d->lending, NULL);
}

/* The threads start last, because they use all the rest. After an error free_drive() ends what has started. */
static int start(struct gnv_soft *soft, struct gnv_space *space)
{
	struct gnv_vdrive *d = gnv_vdrive_of(soft);
	int ret;

	init_locks(d);
	pthread_mutex_init(&d->t.errors.lock, NULL);
	d->order = calloc(1, sizeof(*d->order));
	ret = d->order ? check_stores(soft) : gnv_fail(-ENOMEM, "out of memory");
	if (!ret)
		ret = gnv_vdrive_check_faults(&soft->config);
	if (!ret)
		ret = open_exec(d);
	if (!ret)
		ret = alloc_blocks(d);
	if (!ret)
		gnv_vdrive_measure_link(d);
	if (!ret && soft->config.image)
		ret = gnv_vdrive_load_image(d, soft->config.image);
	if (!ret)
		ret = fill_structure(d);
	if (!ret)
		ret = start_exec(d);
	if (!ret)
		ret = gnv_vdrive_attend(d);
	soft->blocks = d->exec && !d->exec->is_cpu ? d->workers : 0;
	soft->config.threads = 1; /* config.threads was the number of workers. Thread 0 alone polls the registers */
	if (!ret)
		ret = gnv_soft_engine_threads.start(soft, space);
	__atomic_store_n(&d->served, !ret, __ATOMIC_RELEASE);
	return ret;
}

/* ---- Stop ---- */

static bool stop_exec(struct gnv_vdrive *d)
{
	if (!d->exec || !d->vd || d->stopped)
		return true;
	gnv_vdrive_poke32(d, GNV_VD_AT(d, stop), 1);
	if (!d->exec->ops->stop(d->exec, d->t.soft.patience_ms))
		return false;
	__atomic_store_n(&d->stopped, true, __ATOMIC_RELEASE);
	return true;
}

static bool stop(struct gnv_soft *soft)
{
	struct gnv_vdrive *d = gnv_vdrive_of(soft);

	if (!gnv_soft_engine_threads.stop(soft))
		return false;
	gnv_vdrive_end_attendant(d);
	return stop_exec(d);
}

static void close_exec(struct gnv_vdrive *d)
{
	unsigned i;

	if (d->bar_shown && d->exec->ops->hide(d->exec, d->bar_cookie))
		d->t.soft.bar_stays = true;
	for (i = 0; i < GNV_SOFT_NAMESPACES; i++)
		if (d->flash[i])
			d->exec->ops->free(d->exec, d->flash[i]);
	if (d->vd)
		d->exec->ops->free(d->exec, d->vd);
	d->exec->ops->close(d->exec);
}

static void free_drive(struct gnv_soft *soft)
{
	struct gnv_vdrive *d = gnv_vdrive_of(soft);

	gnv_vdrive_end_attendant(d);
	soft->stays = !stop_exec(d);
	if (d->exec && !soft->stays)
		close_exec(d);
	gnv_soft_engine_threads.free(soft);
	if (soft->stays)
		return; /* the kernel, or the thread that launches it, may go on */
	pthread_mutex_destroy(&d->lock);
	pthread_mutex_destroy(&d->epochs);
	pthread_mutex_destroy(&d->collecting);
	pthread_mutex_destroy(&d->lending);
	free(d->order);
}

/* ---- The rest of the table ---- */

static uint64_t clock_of(const struct gnv_soft *soft)
{
	(void)soft;
	return gnv_soft_now();
}

/* A test's function can be called on CPU threads only. No worker uses the old function when this returns. */
static void set_fault(struct gnv_soft *soft, const struct gnv_soft_fault *fault)
{
	struct gnv_vdrive *d = gnv_vdrive_of(soft);

	if (!d->exec->is_cpu)
		return;
	gnv_vdrive_poke64(d, GNV_VD_AT(d, hook), 0);
	gnv_vdrive_sync(d, FAULT_MS);
	if (!fault)
		return;
	d->hook = *fault;
	gnv_vdrive_poke64(d, GNV_VD_AT(d, hook), (uintptr_t)&d->hook);
	gnv_vdrive_sync(d, FAULT_MS);
}

static void complete(struct gnv_soft *soft, struct gnv_soft_cmd *cmd, uint16_t status)
{
	gnv_soft_engine_threads.complete(soft, cmd, status);
}

static void discard(struct gnv_soft *soft, struct gnv_soft_cmd *cmd)
{
	gnv_soft_engine_threads.discard(soft, cmd);
}

/* Blocks have no volatile cache. */
static void flush(struct gnv_soft *soft)
{
	(void)soft;
}

static void hold(struct gnv_soft *soft)
{
	gnv_soft_engine_threads.hold(soft);
}

static void release(struct gnv_soft *soft)
{
	gnv_soft_engine_threads.release(soft);
}

const struct gnv_soft_engine_ops gnv_vdrive_engine = {
	.name = "vdrive",
	.size = sizeof(struct gnv_vdrive),
	.far_rings = true,
	.start = start,
	.stop = stop,
	.free = free_drive,
	.cq_create = gnv_vdrive_cq_create,
	.sq_create = gnv_vdrive_sq_create,
	.sq_close = gnv_vdrive_sq_close,
	.sq_is_dry = gnv_vdrive_sq_is_dry,
	.sq_delete = gnv_vdrive_sq_delete,
	.cq_delete = gnv_vdrive_cq_delete,
	.abort = gnv_vdrive_abort,
	.quiesce = gnv_vdrive_quiesce,
	.is_quiet = gnv_vdrive_is_quiet,
	.flush = flush,
	.complete = complete,
	.discard = discard,
	.map = gnv_vdrive_map,
	.unmap = gnv_vdrive_unmap,
	.has_ring = gnv_vdrive_has_ring,
	.is_still = gnv_vdrive_is_still,
	.counters = gnv_vdrive_counters,
	.errors = gnv_vdrive_errors,
	.now = clock_of,
	.hold = hold,
	.release = release,
	.set_fault = set_fault,
};
