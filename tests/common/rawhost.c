/* SPDX-License-Identifier: MIT */
#include "common/rawhost.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "vdrive/vdrive.h"

struct rawhost host;

static uint64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
}

static int make_image(struct rawhost *h)
{
	int fd, ret;

	snprintf(h->path, sizeof(h->path), "/tmp/gnv-test-XXXXXX");
	fd = mkstemp(h->path);
	if (fd < 0)
		return -1;
	ret = ftruncate(fd, RAWHOST_IMAGE);
	close(fd);
	return ret;
}

static void place(struct rawhost *h, struct rawhost_queue *q, uint16_t qid, uint32_t sq_size, uint32_t cq_size)
{
	uint32_t at = qid * 0x8000u;

	*q = (struct rawhost_queue){ .qid = qid,
				     .sq_size = sq_size,
				     .cq_size = cq_size,
				     .sq_iova = h->iova + at,
				     .cq_iova = h->iova + at + 0x4000,
				     .sq = (void *)(h->cpu + at),
				     .cq = (void *)(h->cpu + at + 0x4000),
				     .phase = 1 };
	memset(h->cpu + at, 0, 0x8000);
}

bool rawhost_is_vram(void)
{
	return getenv("GPUNVME_TEST_VRAM");
}

const struct gnv_log *rawhost_log;

int rawhost_open(struct rawhost *h, const struct gnv_soft_config *config)
{
	struct gnv_soft_config c = GNV_SOFT_CONFIG_INIT;
	int ret;

	memset(h, 0, sizeof(*h));
	if (config)
		c = *config;
	if (!c.path && rawhost_is_vram()) {
		c.path = RAWHOST_VRAM;
		c.engine = &gnv_vdrive_engine;
	} else if (!c.path) {
		assert_int_equal(make_image(h), 0);
		c.path = h->path;
	}
	h->dstrd = c.dstrd;
	h->cpu = aligned_alloc(65536, RAWHOST_MEM);
	assert_non_null(h->cpu);
	memset(h->cpu, 0, RAWHOST_MEM);
	h->mem.cpu = h->cpu;
	h->mem.len = RAWHOST_MEM;
	assert_int_equal(gnv_soft_space_create(&h->space), 0);
	assert_int_equal(h->space->ops->map(h->space, &h->mem, &h->iova), 0);
	ret = gnv_soft_create(&c, h->space, rawhost_log, &h->soft);
	if (!ret)
		h->bar = gnv_soft_bar(h->soft, NULL);
	place(h, &h->admin, 0, RAWHOST_ENTRIES, RAWHOST_ENTRIES);
	return ret;
}

void rawhost_close(struct rawhost *h)
{
	gnv_soft_destroy(h->soft);
	/* A controller that forgot a reference is found here. */
	assert_int_equal(h->space->ops->unmap(h->space, h->iova, RAWHOST_MEM), 0);
	gnv_space_put(h->space);
	free(h->cpu);
	if (h->path[0])
		unlink(h->path);
}

uint32_t rawhost_read32(struct rawhost *h, unsigned offset)
{
	return __atomic_load_n((uint32_t *)(void *)(h->bar + offset), __ATOMIC_ACQUIRE);
}

uint64_t rawhost_read64(struct rawhost *h, unsigned offset)
{
	return rawhost_read32(h, offset) | (uint64_t)rawhost_read32(h, offset + 4) << 32;
}

void rawhost_write32(struct rawhost *h, unsigned offset, uint32_t value)
{
	__atomic_store_n((uint32_t *)(void *)(h->bar + offset), value, __ATOMIC_RELEASE);
}

void rawhost_write64(struct rawhost *h, unsigned offset, uint64_t value)
{
	rawhost_write32(h, offset, (uint32_t)value);
	rawhost_write32(h, offset + 4, (uint32_t)(value >> 32));
}

bool rawhost_wait32(struct rawhost *h, unsigned offset, uint32_t mask, uint32_t value)
{
	uint64_t end = now_ms() + RAWHOST_SOON;

	while ((rawhost_read32(h, offset) & mask) != value) {
		if (now_ms() > end)
			return false;
		sched_yield();
	}
	return true;
}

void rawhost_ring_sq(struct rawhost *h, const struct rawhost_queue *q, uint32_t tail)
{
	rawhost_write32(h, 0x1000 + 2u * q->qid * (4u << h->dstrd), tail);
}

void rawhost_ring_cq(struct rawhost *h, const struct rawhost_queue *q, uint32_t head)
{
	rawhost_write32(h, 0x1000 + (2u * q->qid + 1) * (4u << h->dstrd), head);
}

uint32_t rawhost_enable(struct rawhost *h)
{
	uint64_t end = now_ms() + RAWHOST_SOON;
	uint32_t csts;

	place(h, &h->admin, 0, h->admin.sq_size, h->admin.cq_size);
	rawhost_write32(h, GPUNVME_REG_AQA, (h->admin.cq_size - 1) << 16 | (h->admin.sq_size - 1));
	rawhost_write64(h, GPUNVME_REG_ASQ, h->admin.sq_iova);
	rawhost_write64(h, GPUNVME_REG_ACQ, h->admin.cq_iova);
	rawhost_write32(h, GPUNVME_REG_CC, RAWHOST_CC_ENABLE);
	do {
		csts = rawhost_read32(h, GPUNVME_REG_CSTS);
		sched_yield();
	} while (!(csts & (GPUNVME_CSTS_RDY | GPUNVME_CSTS_CFS)) && now_ms() < end);
	return csts;
}

bool rawhost_disable(struct rawhost *h)
{
	rawhost_write32(h, GPUNVME_REG_CC, RAWHOST_CC_ENABLE & ~1u);
	return rawhost_wait32(h, GPUNVME_REG_CSTS, 0xffffffffu, 0);
}

uint16_t rawhost_create_pair(struct rawhost *h, struct rawhost_queue *q, uint16_t qid, uint32_t sq_size, uint32_t cq_size)
{
	struct gpunvme_sqe cq = { .opc = GPUNVME_ADMIN_CREATE_CQ, .cdw10 = (cq_size - 1) << 16 | qid, .cdw11 = 1 };
	struct gpunvme_sqe sq = { .opc = GPUNVME_ADMIN_CREATE_SQ,
				  .cdw10 = (sq_size - 1) << 16 | qid,
				  .cdw11 = (uint32_t)qid << 16 | 1 };
	uint16_t status;

	place(h, q, qid, sq_size, cq_size);
	cq.prp1 = q->cq_iova;
	sq.prp1 = q->sq_iova;
	status = rawhost_run(h, &h->admin, &cq, NULL);
	return status ? status : rawhost_run(h, &h->admin, &sq, NULL);
}

void rawhost_start(struct rawhost *h, const struct gnv_soft_config *config)
{
	assert_int_equal(rawhost_open(h, config), 0);
	assert_int_equal(rawhost_enable(h), GPUNVME_CSTS_RDY);
	assert_int_equal(rawhost_create_pair(h, &h->io, 1, RAWHOST_ENTRIES, RAWHOST_ENTRIES), 0);
}

uint16_t rawhost_put(struct rawhost_queue *q, const struct gpunvme_sqe *sqe)
{
	uint16_t cid = q->next_cid++;

	q->sq[q->tail] = *sqe;
	q->sq[q->tail].cid = cid;
	q->tail = (q->tail + 1) % q->sq_size;
	return cid;
}

uint16_t rawhost_submit(struct rawhost *h, struct rawhost_queue *q, const struct gpunvme_sqe *sqe)
{
	uint16_t cid = rawhost_put(q, sqe);

	rawhost_ring_sq(h, q, q->tail);
	return cid;
}

bool rawhost_reap(struct rawhost *h, struct rawhost_queue *q, struct gpunvme_cqe *cqe, unsigned ms, bool ring)
{
	uint64_t end = now_ms() + ms;
	uint32_t *at = q->cq + (size_t)q->head * 4;
	uint32_t dword[4];

	while ((__atomic_load_n(&at[3], __ATOMIC_RELAXED) >> 16 & 1) != q->phase) {
		if (now_ms() > end)
			return false;
		sched_yield();
	}
	dword[3] = __atomic_load_n(&at[3], __ATOMIC_ACQUIRE);
	memcpy(dword, at, 12);
	if (cqe)
		memcpy(cqe, dword, sizeof(*cqe));
	q->head = (q->head + 1) % q->cq_size;
	q->phase ^= q->head == 0;
	if (ring)
		rawhost_ring_cq(h, q, q->head);
	return true;
}

uint16_t rawhost_run(struct rawhost *h, struct rawhost_queue *q, const struct gpunvme_sqe *sqe, struct gpunvme_cqe *cqe)
{
	uint16_t cid = rawhost_submit(h, q, sqe);
	struct gpunvme_cqe done;

	if (!rawhost_reap(h, q, &done, RAWHOST_SOON, true))
		return 0xffff;
	assert_int_equal(done.cid, cid);
	assert_int_equal(done.sqid, q->qid);
	if (cqe)
		*cqe = done;
	return done.status >> 1 & GPUNVME_ST_CODE;
}

struct gpunvme_sqe rawhost_rw(const struct rawhost *h, uint8_t opc, uint64_t lba, uint32_t blocks, uint32_t at)
{
	return (struct gpunvme_sqe){ .opc = opc,
				     .nsid = 1,
				     .prp1 = rawhost_iova(h, at),
				     .prp2 = (rawhost_iova(h, at) & ~4095ull) + 4096,
				     .cdw10 = (uint32_t)lba,
				     .cdw11 = (uint32_t)(lba >> 32),
				     .cdw12 = blocks - 1 };
}

uint64_t rawhost_iova(const struct rawhost *h, uint32_t at)
{
	return h->iova + RAWHOST_DATA + at;
}

char *rawhost_data(const struct rawhost *h, uint32_t at)
{
	return h->cpu + RAWHOST_DATA + at;
}

static uint8_t pattern(size_t i, uint32_t seed)
{
	return (uint8_t)((i * 2654435761u + seed * 40503u) >> 11 | 1);
}

void rawhost_fill(const struct rawhost *h, uint32_t at, size_t len, uint32_t seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		rawhost_data(h, at)[i] = (char)pattern(i, seed);
}

bool rawhost_is_filled(const struct rawhost *h, uint32_t at, size_t len, uint32_t seed)
{
	size_t i;

	for (i = 0; i < len; i++)
		if ((uint8_t)rawhost_data(h, at)[i] != pattern(i, seed))
			return false;
	return true;
}

int rawhost_setup_disabled(void **state)
{
	return rawhost_open(&host, *state);
}

int rawhost_setup_enabled(void **state)
{
	assert_int_equal(rawhost_open(&host, *state), 0);
	assert_int_equal(rawhost_enable(&host), GPUNVME_CSTS_RDY);
	return 0;
}

int rawhost_setup(void **state)
{
	rawhost_start(&host, *state);
	return 0;
}

int rawhost_teardown(void **state)
{
	(void)state;
	rawhost_close(&host);
	return 0;
}

uint16_t rawhost_admin(const struct gpunvme_sqe *sqe, struct gpunvme_cqe *cqe)
{
	return rawhost_run(&host, &host.admin, sqe, cqe);
}

uint16_t rawhost_io(const struct gpunvme_sqe *sqe)
{
	return rawhost_run(&host, &host.io, sqe, NULL);
}

uint16_t rawhost_read_block(void)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 1, 0);

	return rawhost_io(&sqe);
}
