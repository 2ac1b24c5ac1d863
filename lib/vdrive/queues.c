/* SPDX-License-Identifier: MIT */
/* I/O queues of the drive. Thread 0 calls all functions but gnv_vdrive_has_ring(). Queue 0 belongs to lib/soft/engine. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/bits.h"
#include "vdrive/drive.h"

#define CQE_BYTES 16u
#define SQE_BYTES 64u
#define ABORT_MS 1000u

static uint64_t at_sq(const struct gnv_vdrive *d, unsigned qid)
{
	return GNV_VD_AT(d, sq) + qid * sizeof(struct gnv_vd_sq);
}

static uint64_t at_cq(const struct gnv_vdrive *d, unsigned qid)
{
	return GNV_VD_AT(d, cq) + qid * sizeof(struct gnv_vd_cq);
}

static uint32_t worker_of(const struct gnv_vdrive *d, unsigned cqid)
{
	return (cqid - 1) % d->workers;
}

static uint64_t at_first(const struct gnv_vdrive *d, unsigned worker)
{
	return GNV_VD_AT(d, worker) + worker * sizeof(struct gnv_vd_worker) + offsetof(struct gnv_vd_worker, first);
}

/* ---- The view of commands ---- */

/* Fill the view with copies. Its pointers are addresses of the GPU. */
static void copy_view(const struct gnv_vdrive *d, struct gnv_vd_view *view)
{
	const struct gnv_soft *soft = &d->t.soft;
	unsigned i;

	view->io = soft->io;
	view->io.quirks = (const void *)(uintptr_t)GNV_VD_AT(d, view.quirks);
	view->io.rules = (void *)(uintptr_t)GNV_VD_AT(d, rules);
	view->io.part = (void *)(uintptr_t)GNV_VD_AT(d, view.part);
	view->io.events = 0;
	view->io.doom = 0;
	view->quirks = soft->config.quirks;
	view->timing = soft->timing;
	for (i = 0; i < soft->parts; i++) {
		view->store[i] = *soft->part[i].store;
		view->store[i].ops = NULL;
		view->part[i] = soft->part[i];
		view->part[i].store = (void *)(uintptr_t)(GNV_VD_AT(d, view.store) + i * sizeof(view->store[0]));
		view->part[i].no_zero_range = false;
		view->flash[i] = d->flash[i];
	}
}

int gnv_vdrive_describe(struct gnv_vdrive *d)
{
	struct gnv_vd_view *view = calloc(1, sizeof(*view));
	int ret;

	if (!view)
		return gnv_fail(-ENOMEM, "out of memory");
	copy_view(d, view);
	if (!d->exec->is_cpu) /* the GPU has its own clock, and rates count from now on */
		d->exec->ops->peek(d->exec, &view->timing.born, GNV_VD_AT(d, worker) + offsetof(struct gnv_vd_worker, looked),
				   sizeof(view->timing.born));
	ret = d->exec->ops->poke(d->exec, GNV_VD_AT(d, view), view, sizeof(*view));
	free(view);
	return ret;
}

/* ---- Creation ---- */

/* Get a ring and its address for the GPU. */
static uint16_t get_ring(struct gnv_vdrive *d, const struct gnv_soft_ring *at, size_t entry, const struct gnv_soft_map **map,
			 uint64_t *ring)
{
	void *cpu;
	const uint16_t status = gnv_soft_ring_get(&d->t.soft, at, entry, map, &cpu);

	if (!status)
		*ring = d->region[(*map)->slot].at + (uint64_t)((char *)cpu - (*map)->cpu);
	return status;
}

static uint64_t doorbell_of(struct gnv_vdrive *d, unsigned qid, bool cq)
{
	uint32_t GNV_MMIO *doorbell = gnv_soft_doorbell(&d->t.soft, qid, cq);

	gnv_mmio_write32(doorbell, 0);
	return d->bar + (uint64_t)((const char GNV_FORCE *)doorbell - d->t.soft.bar);
}

uint16_t gnv_vdrive_cq_create(struct gnv_soft *soft, const struct gnv_soft_ring *ring)
{
	struct gnv_vdrive *d = gnv_vdrive_of(soft);
	struct gnv_vdrive_cq *cq = &d->cq[ring->qid];
	struct gnv_vd_cq made = { .size = ring->entries, .interrupts = ring->interrupts, .state = { .phase = 1, .bad = UINT64_MAX } };
	uint16_t status;

	if (!ring->qid)
		return gnv_soft_cq_create(soft, ring);
	if (!d->io_queues && gnv_vdrive_describe(d))
		return GPUNVME_SC_INTERNAL;
	status = get_ring(d, ring, CQE_BYTES, &cq->map, &made.ring);
	if (status) {
		cq->map = NULL;
		return status;
	}
	made.doorbell = doorbell_of(d, ring->qid, true);
	if (d->exec->ops->poke(d->exec, at_cq(d, ring->qid), &made, sizeof(made)) ||
	    d->exec->ops->peek(d->exec, &cq->reported, GNV_VD_AT(d, posted) + ring->qid * sizeof(uint64_t), sizeof(cq->reported))) {
		gnv_soft_space_put(d->t.space, cq->map);
		cq->map = NULL;
		return GPUNVME_SC_INTERNAL;
	}
	pthread_mutex_lock(&d->lock);
	cq->interrupts = ring->interrupts;
	cq->vector = ring->vector;
	d->io_queues++;
	pthread_mutex_unlock(&d->lock);
	return 0;
}

/* Allocate the slots of commands that wait for a time. All are free. */
static int make_parking(struct gnv_vdrive *d, struct gnv_vd_sq *sq)
{
	const uint32_t n = sq->parked_max;
	uint32_t *index = malloc(n * sizeof(*index));
	uint32_t i;
	int ret;

	if (!index)
		return -ENOMEM;
	for (i = 0; i < n; i++)
		index[i] = i;
	ret = d->exec->ops->alloc(d->exec, n * (sizeof(struct gnv_soft_cmd) + sizeof(uint64_t) + sizeof(uint32_t)), &sq->slots);
	if (!ret) {
		sq->due = sq->slots + n * sizeof(struct gnv_soft_cmd);
		sq->index = sq->due + n * sizeof(uint64_t);
		ret = d->exec->ops->poke(d->exec, sq->index, index, n * sizeof(*index));
		if (ret)
			d->exec->ops->free(d->exec, sq->slots);
	}
	free(index);
	return ret;
}

/* Put the queue into its worker's list. The worker polls it from then on. */
static int link_sq(struct gnv_vdrive *d, const struct gnv_vd_sq *made)
{
	const uint32_t worker = worker_of(d, made->cq);
	struct gnv_vdrive_sq *sq = &d->sq[made->qid];
	int ret;

	*sq = (struct gnv_vdrive_sq){ .map = sq->map, .memory = made->slots, .next = d->first[worker], .cq = made->cq };
	ret = d->exec->ops->poke(d->exec, at_sq(d, made->qid), made, sizeof(*made));
	gnv_vdrive_change(d);
	if (!ret)
		ret = gnv_vdrive_poke32(d, at_first(d, worker), made->qid);
	if (ret)
		return ret;
	pthread_mutex_lock(&d->lock);
	d->first[worker] = made->qid;
	d->io_queues++;
	pthread_mutex_unlock(&d->lock);
	return 0;
}

uint16_t gnv_vdrive_sq_create(struct gnv_soft *soft, const struct gnv_soft_ring *ring, uint16_t cqid)
{
	struct gnv_vdrive *d = gnv_vdrive_of(soft);
	struct gnv_vdrive_sq *sq = &d->sq[ring->qid];
	const bool wide = gnv_soft_has(&soft->config.quirks, GNV_SOFT_SQE_128);
	struct gnv_vd_sq made = { .size = ring->entries, .stride = wide ? 2 * SQE_BYTES : SQE_BYTES, .cq = cqid, .qid = ring->qid,
				  .parked_max = (uint32_t)gnv_min(gnv_max(ring->entries, GNV_VD_BATCH), GNV_VD_PARKED),
				  .state = { .bad = UINT64_MAX } };
	uint16_t status;

	if (!ring->qid)
		return gnv_soft_sq_create(soft, ring, cqid);
	status = get_ring(d, ring, made.stride, &sq->map, &made.ring);
	if (status) {
		sq->map = NULL;
		return status;
	}
	made.doorbell = doorbell_of(d, ring->qid, false);
	made.next = d->first[worker_of(d, cqid)];
	if (make_parking(d, &made))
		goto put_map;
	if (link_sq(d, &made))
		goto free_parking;
	return 0;

free_parking:
	d->exec->ops->free(d->exec, made.slots);
put_map:
	gnv_soft_space_put(d->t.space, sq->map);
	sq->map = NULL;
	return GPUNVME_SC_INTERNAL;
}

/* ---- Deletion ---- */

static void set_flags(struct gnv_vdrive *d, unsigned qid, uint32_t flags)
{
	flags |= __atomic_fetch_or(&d->sq[qid].flags, flags, __ATOMIC_RELAXED); /* atomic, because the attendant reads them */
	gnv_vdrive_poke32(d, at_sq(d, qid) + offsetof(struct gnv_vd_sq, flags), flags);
}

void gnv_vdrive_sq_close(struct gnv_soft *soft, uint16_t qid)
{
	struct gnv_vdrive *d = gnv_vdrive_of(soft);

	if (!qid) {
		gnv_soft_sq_close(soft, qid);
		return;
	}
	set_flags(d, qid, GNV_VD_CLOSED);
	d->sq[qid].closed = gnv_vdrive_change(d);
}

/* A pass that has seen the flag leaves no command of the queue. */
bool gnv_vdrive_sq_is_dry(struct gnv_soft *soft, uint16_t qid)
{
	struct gnv_vdrive *d = gnv_vdrive_of(soft);

	return qid ? gnv_vdrive_has_seen(d, d->sq[qid].closed) : gnv_soft_sq_is_dry(soft, qid);
}

static void unlink_sq(struct gnv_vdrive *d, uint32_t qid)
{
	const uint32_t worker = worker_of(d, d->sq[qid].cq);
	uint32_t before = d->first[worker];

	if (before == qid) {
		d->first[worker] = d->sq[qid].next;
		gnv_vdrive_poke32(d, at_first(d, worker), d->first[worker]);
		return;
	}
	while (d->sq[before].next != qid)
		before = d->sq[before].next;
	d->sq[before].next = d->sq[qid].next;
	gnv_vdrive_poke32(d, at_sq(d, before) + offsetof(struct gnv_vd_sq, next), d->sq[before].next);
}

/* If a worker may still use the slots, they are not freed. The drive has failed then, and stop() returns false. */
void gnv_vdrive_sq_delete(struct gnv_soft *soft, uint16_t qid)
{
	struct gnv_vdrive *d = gnv_vdrive_of(soft);
	struct gnv_vdrive_sq *sq = &d->sq[qid];
	const struct gnv_soft_map *map = sq->map;

	if (!qid) {
		gnv_soft_sq_delete(soft, qid);
		return;
	}
	pthread_mutex_lock(&d->lock);
	unlink_sq(d, qid);
	d->io_queues--;
	sq->map = NULL;
	pthread_mutex_unlock(&d->lock);
	if (d->stopped || gnv_vdrive_sync(d, soft->patience_ms))
		d->exec->ops->free(d->exec, sq->memory);
	gnv_mmio_write32(gnv_soft_doorbell(soft, qid, false), 0);
	gnv_soft_space_put(d->t.space, map);
}

void gnv_vdrive_cq_delete(struct gnv_soft *soft, uint16_t qid)
{
	struct gnv_vdrive *d = gnv_vdrive_of(soft);
	const struct gnv_soft_map *map = d->cq[qid].map;

	if (!qid) {
		gnv_soft_cq_delete(soft, qid);
		return;
	}
	pthread_mutex_lock(&d->lock);
	d->cq[qid] = (struct gnv_vdrive_cq){ 0 };
	d->io_queues--;
	pthread_mutex_unlock(&d->lock);
	gnv_mmio_write32(gnv_soft_doorbell(soft, qid, true), 0);
	gnv_soft_space_put(d->t.space, map);
}

bool gnv_vdrive_abort(struct gnv_soft *soft, uint16_t sqid, uint16_t cid)
{
	struct gnv_vdrive *d = gnv_vdrive_of(soft);
	struct gnv_vdrive_sq *sq = &d->sq[sqid];
	uint64_t aborted = 0;

	sq->aborts = (sq->aborts + 1) & 0x7fffffff;
	gnv_vdrive_poke64(d, at_sq(d, sqid) + offsetof(struct gnv_vd_sq, abort), sq->aborts << 16 | cid);
	if (!gnv_vdrive_sync(d, ABORT_MS))
		return false;
	d->exec->ops->peek(d->exec, &aborted, at_sq(d, sqid) + offsetof(struct gnv_vd_sq, aborted), sizeof(aborted));
	return aborted >> 1 == sq->aborts && aborted & 1;
}

void gnv_vdrive_quiesce(struct gnv_soft *soft, bool dead)
{
	struct gnv_vdrive *d = gnv_vdrive_of(soft);
	unsigned qid;

	gnv_soft_quiesce_servers(soft, dead);
	for (qid = 1; qid <= soft->config.queues; qid++)
		if (d->sq[qid].map)
			set_flags(d, qid, GNV_VD_GONE);
	d->quiet = gnv_vdrive_change(d);
}

/*
 * An end of the controller by a command is taken over before the reset ends, so it does not reach the controller after the reset.
 */
bool gnv_vdrive_is_quiet(struct gnv_soft *soft)
{
	struct gnv_vdrive *d = gnv_vdrive_of(soft);

	return gnv_soft_is_quiet(soft) && gnv_vdrive_has_seen(d, d->quiet) && !gnv_vdrive_is_doomed(d);
}

static bool lies_in(const struct gnv_soft_map *map, uint64_t iova, uint64_t len)
{
	return map && map->iova >= iova && map->iova - iova < len;
}

bool gnv_vdrive_has_ring(struct gnv_soft *soft, uint64_t iova, uint64_t len)
{
	struct gnv_vdrive *d = gnv_vdrive_of(soft);
	bool found = gnv_soft_lies_in_queue(soft, iova, len);
	unsigned qid;

	pthread_mutex_lock(&d->lock);
	for (qid = 1; qid <= soft->config.queues && !found; qid++)
		found = lies_in(d->sq[qid].map, iova, len) || lies_in(d->cq[qid].map, iova, len);
	pthread_mutex_unlock(&d->lock);
	return found;
}
