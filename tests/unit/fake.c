/* SPDX-License-Identifier: MIT */
#include "fake.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

#include "common/virtual.h"
#include "life/life.h"
#include "util/bits.h"
#include "util/mmio.h"

#pragma weak virtual_begin
#pragma weak virtual_end

void *fake_dma(uint64_t iova)
{
	return (void *)(uintptr_t)(iova & ~FAKE_IOVA_TAG);
}

static int space_map(struct gnv_space *space, const struct gpunvme_mem *mem, uint64_t *iova)
{
	struct fake *fake = gnv_container_of(space, struct fake, space);
	int ret = 0;

	pthread_mutex_lock(&fake->lock);
	if (++fake->mapped == fake->map_fails_at)
		ret = -ENOSPC;
	else
		fake->maps++;
	pthread_mutex_unlock(&fake->lock);
	*iova = (uintptr_t)mem->cpu | FAKE_IOVA_TAG;
	return ret;
}

static void space_cut(struct gnv_space *space, uint64_t iova, size_t len)
{
	(void)iova;
	(void)len;
	gnv_container_of(space, struct fake, space)->cuts++;
}

static int space_unmap(struct gnv_space *space, uint64_t iova, size_t len)
{
	struct fake *fake = gnv_container_of(space, struct fake, space);
	int ret = 0;

	(void)iova;
	(void)len;
	pthread_mutex_lock(&fake->lock);
	if (fake->unmap_busy)
		ret = -EBUSY;
	else
		fake->maps--;
	pthread_mutex_unlock(&fake->lock);
	return ret;
}

static void space_close(struct gnv_space *space)
{
	(void)space;
}

static const struct gnv_space_ops space_ops = { "fake", space_map, space_cut, space_unmap, space_close };

static int port_halt(struct gnv_port *port)
{
	struct fake *fake = gnv_container_of(port, struct fake, port);

	fake->halted++;
	return fake->halt_fails ? -EIO : 0;
}

static void forget_queues(struct fake *fake)
{
	fake->cqs = fake->sqs = 0;
	memset(fake->ioq, 0, sizeof(fake->ioq));
}

static int port_reset(struct gnv_port *port)
{
	struct fake *fake = gnv_container_of(port, struct fake, port);

	pthread_mutex_lock(&fake->lock);
	fake->resets++;
	if (!fake->reset_ret) {
		if (!fake->reset_in_vain)
			fake->fault = FAKE_WELL;
		forget_queues(fake);
		fake->cc = 0;
		gnv_mmio_write32(fake->bar + GPUNVME_REG_CC, 0);
		gnv_mmio_write32(fake->bar + GPUNVME_REG_CSTS, 0);
	}
	pthread_mutex_unlock(&fake->lock);
	return fake->reset_ret ? gnv_fail(fake->reset_ret, "the function reset failed. Try another") : 0;
}

static void port_close(struct gnv_port *port)
{
	gnv_container_of(port, struct fake, port)->closed++;
}

static int port_export(struct gnv_port *port, uint64_t offset, size_t len, int *fd)
{
	(void)port;
	(void)offset;
	(void)len;
	(void)fd;
	return -EOPNOTSUPP;
}

static void port_watch(struct gnv_port *port, gnv_port_lost_fn *lost, void *ctx)
{
	struct fake *fake = gnv_container_of(port, struct fake, port);

	fake->lost = lost;
	fake->lost_ctx = ctx;
}

static const struct gnv_mem_ops bar_ops = { "bar", NULL, gnv_mem_attach_host, gnv_mem_detach_host };
/* Never while it is enabled. */
static int port_allow_dma(struct gnv_port *port)
{
	struct fake *fake = gnv_container_of(port, struct fake, port);

	fake->enable_dma += !(gnv_mmio_read32(fake->bar + GPUNVME_REG_CC) & GPUNVME_CC_EN);
	return 0;
}

static int refuse_detach(struct gpunvme_mem *mem, struct gpunvme_gpu *gpu, struct gnv_gpu_range *range)
{
	(void)mem;
	(void)gpu;
	(void)range;
	return gnv_fail(-EBUSY, "the GPU keeps it");
}

static int port_cmb(struct gnv_port *port, const struct gnv_port_cmb *where, struct gpunvme_mem **mem, uint64_t *iova)
{
	struct fake *fake = gnv_container_of(port, struct fake, port);
	const struct gnv_log silent = { .fn = NULL };
	static struct gnv_mem_ops stays;
	int ret;

	fake->cmb = *where;
	if (fake->no_cmb)
		return gnv_fail(-EOPNOTSUPP, "no memory in it");
	*iova = FAKE_CMB_IOVA;
	if (fake->cmb_stays)
		leak_expected(true);
	ret = gnv_mem_host_alloc((size_t)gnv_min(where->size, fake->cmb_room ? fake->cmb_room : FAKE_CMB_BAR), 0, &silent, mem);
	if (fake->cmb_stays)
		leak_expected(false);
	if (!ret && fake->cmb_stays) {
		stays = *(*mem)->ops;
		stays.detach = refuse_detach;
		(*mem)->ops = &stays;
	}
	return ret;
}

static const struct gnv_port_ops port_ops = { "fake", port_halt, port_reset, port_export, port_watch, port_allow_dma, port_cmb,
					     port_close };

static uint32_t reg(struct fake *fake, unsigned offset)
{
	return gnv_mmio_read32(fake->bar + offset);
}

static void set_csts(struct fake *fake, uint32_t clear, uint32_t set)
{
	gnv_mmio_write32(fake->bar + GPUNVME_REG_CSTS, (reg(fake, GPUNVME_REG_CSTS) & ~clear) | set);
}

static void enable(struct fake *fake)
{
	fake->head = fake->cq_tail = 0;
	fake->phase = 1;
	memset(fake->bar + GPUNVME_REG_DOORBELLS, 0, 8);
	switch (fake->fault) {
	case FAKE_NEVER_READY:
		break;
	case FAKE_FATAL_AT_ENABLE:
		set_csts(fake, 0, GPUNVME_CSTS_CFS);
		break;
	case FAKE_GONE_AT_ENABLE:
		set_csts(fake, 0, ~0u);
		break;
	default:
		set_csts(fake, GPUNVME_CSTS_SHST, GPUNVME_CSTS_RDY);
	}
}

static void watch_cc(struct fake *fake)
{
	uint32_t cc = reg(fake, GPUNVME_REG_CC), changed = cc ^ fake->cc;

	fake->cc = cc;
	if (changed & GPUNVME_CC_EN && cc & GPUNVME_CC_EN)
		enable(fake);
	if (changed & GPUNVME_CC_EN && !(cc & GPUNVME_CC_EN) && fake->fault != FAKE_NEVER_DISABLED &&
	    reg(fake, GPUNVME_REG_CSTS) != ~0u) {
		set_csts(fake, ~0u, 0);
		forget_queues(fake);
	}
	if (changed & GPUNVME_CC_SHN && cc & GPUNVME_CC_EN && (cc & GPUNVME_CC_SHN) == GPUNVME_CC_SHN_NORMAL)
		__atomic_fetch_add(&fake->shutdowns, 1, __ATOMIC_RELAXED);
	if (changed & GPUNVME_CC_SHN && cc & GPUNVME_CC_SHN && !fake->no_shutdown)
		set_csts(fake, GPUNVME_CSTS_SHST, GPUNVME_CSTS_SHST_DONE);
}

/* Copy data of a command, as a controller walks PRP1 and PRP2. */
static void transfer(struct fake *fake, const struct gpunvme_sqe *cmd, size_t len, bool to_host)
{
	size_t done, page = 4096;

	for (done = 0; done < len; done += page) {
		size_t part = len - done < page ? len - done : page, i = done / page;
		uint64_t at = cmd->prp1;

		if (i)
			at = len <= 2 * page ? cmd->prp2 : ((uint64_t *)fake_dma(cmd->prp2))[i - 1];
		if (to_host)
			memcpy(fake_dma(at), fake->data + done, part);
		else
			memcpy(fake->data + done, fake_dma(at), part);
	}
}

static void identify(struct fake *fake, const struct gpunvme_sqe *cmd)
{
	uint32_t i, n = 0, list[1024] = { 0 };

	switch (cmd->cdw10 & 0xff) {
	case GPUNVME_CNS_CTRL:
		memcpy(fake->data, &fake->id, 4096);
		break;
	case GPUNVME_CNS_NS:
		memcpy(fake->data, &fake->ns, 4096);
		break;
	case GPUNVME_CNS_NS_DESC_LIST:
		memcpy(fake->data, cmd->nsid > 1 && fake->plain ? fake->plain : fake->desc, 4096);
		break;
	case GPUNVME_CNS_CTRL_NVM:
		memcpy(fake->data, &fake->limits, 4096);
		break;
	default:
		for (i = 0; i < fake->ns_count && n < 1024; i++)
			if (fake->ns_list[i] > cmd->nsid)
				list[n++] = fake->ns_list[i];
		memcpy(fake->data, list, 4096);
	}
	transfer(fake, cmd, 4096, true);
}

/* Where its rings lie; deleted ones lie nowhere. */
static void note_queue(struct fake *fake, const struct gpunvme_sqe *cmd)
{
	const uint32_t qid = cmd->cdw10 & 0xffff, entries = (cmd->cdw10 >> 16) + 1;
	struct fake_ioq *q = &fake->ioq[qid];

	if (qid > FAKE_IO_QUEUES)
		return;
	if (cmd->opc == GPUNVME_ADMIN_CREATE_CQ)
		*q = (struct fake_ioq){ .cq = cmd->prp1, .cq_entries = entries, .phase = 1 };
	if (cmd->opc == GPUNVME_ADMIN_CREATE_SQ) {
		q->sq = cmd->prp1;
		q->sq_entries = entries;
		memset(fake->bar + GPUNVME_REG_DOORBELLS + 8 * (size_t)qid, 0, 8);
	}
	if (cmd->opc == GPUNVME_ADMIN_DELETE_SQ || cmd->opc == GPUNVME_ADMIN_DELETE_CQ)
		q->sq = 0;
}

static uint16_t execute(struct fake *fake, const struct gpunvme_sqe *cmd, uint32_t *result)
{
	uint32_t count = (fake->granted & 0xffff) + 1;
	bool queue = cmd->opc <= GPUNVME_ADMIN_CREATE_CQ && cmd->opc != GPUNVME_ADMIN_GET_LOG_PAGE;

	*result = 0;
	if (queue && fake->orders < sizeof(fake->order))
		fake->order[fake->orders++] = cmd->opc;
	if (queue && (cmd->cdw10 & 0xffff) > count)
		return GPUNVME_SC_INVALID_QID;
	if (queue)
		note_queue(fake, cmd);
	switch (cmd->opc) {
	case GPUNVME_ADMIN_CREATE_CQ:
		fake->cqs++;
		return 0;
	case GPUNVME_ADMIN_CREATE_SQ:
		fake->sqs++;
		return 0;
	case GPUNVME_ADMIN_DELETE_CQ:
		fake->cqs--;
		return 0;
	case GPUNVME_ADMIN_DELETE_SQ:
		fake->sqs--;
		return 0;
	case GPUNVME_ADMIN_IDENTIFY:
		fake->cns |= 1u << (cmd->cdw10 & 31);
		if (fake->slow_us)
			nanosleep(&(struct timespec){ fake->slow_us / 1000000, fake->slow_us % 1000000 * 1000 }, NULL);
		if (fake->no_list && (cmd->cdw10 & 0xff) == GPUNVME_CNS_ACTIVE_NS_LIST)
			return fake->list_status ? fake->list_status : GPUNVME_SC_INVALID_FIELD;
		if (fake->no_desc && (cmd->cdw10 & 0xff) == GPUNVME_CNS_NS_DESC_LIST)
			return GPUNVME_SC_INVALID_FIELD;
		if (fake->no_limits && (cmd->cdw10 & 0xff) == GPUNVME_CNS_CTRL_NVM)
			return GPUNVME_SC_INVALID_FIELD;
		identify(fake, cmd);
		return 0;
	case GPUNVME_ADMIN_SET_FEATURES:
	case GPUNVME_ADMIN_GET_FEATURES:
		*result = (cmd->cdw10 & 0xff) == GPUNVME_FID_NUM_QUEUES ? fake->granted : cmd->cdw10 ^ cmd->cdw11;
		return 0;
	case GPUNVME_ADMIN_GET_LOG_PAGE:
		memset(fake->data, 0x77, sizeof(fake->data));
		transfer(fake, cmd, 4 * (((size_t)cmd->cdw10 >> 16) + 1), true);
		return 0;
	case 0xc1: /* vendor: write cdw10 bytes to the controller */
	case 0xc2: /* and back */
		transfer(fake, cmd, cmd->cdw10, cmd->opc == 0xc2);
		return 0;
	default:
		return GPUNVME_SC_INVALID_OPCODE;
	}
}

static void complete(struct fake *fake, const struct gpunvme_sqe *cmd, enum fake_fault fault, uint32_t result, uint16_t status)
{
	uint64_t acq = gnv_mmio_read64(fake->bar + GPUNVME_REG_ACQ);
	struct gpunvme_cqe *cqe = (struct gpunvme_cqe *)fake_dma(acq) + fake->cq_tail;
	uint32_t cid = cmd->cid ^ (fault == FAKE_WRONG_CID), sqhd = fault == FAKE_WRONG_SQHD ? 0x8000 : fake->head;

	cqe->dw0 = result;
	gnv_mmio_write32((char *)cqe + 8, sqhd | (uint32_t)(fault == FAKE_WRONG_SQID) << 16);
	gnv_mmio_write32((char *)cqe + 12, cid | fake->phase << 16 | (uint32_t)status << 17);
	fake->cq_tail = (fake->cq_tail + 1) % 32;
	fake->phase ^= !fake->cq_tail;
}

static void watch_doorbell(struct fake *fake)
{
	uint64_t asq = gnv_mmio_read64(fake->bar + GPUNVME_REG_ASQ);
	enum fake_fault fault = FAKE_WELL;
	uint32_t result = 0;
	uint16_t status = 0;

	if (!(reg(fake, GPUNVME_REG_CSTS) & GPUNVME_CSTS_RDY) || reg(fake, GPUNVME_REG_DOORBELLS) == fake->head)
		return;
	fake->last = ((struct gpunvme_sqe *)fake_dma(asq))[fake->head];
	fake->head = (fake->head + 1) % 32;
	fake->commands++;
	if (fake->last.opc == fake->fault_opc)
		fault = fake->fault;
	switch (fault) {
	case FAKE_SILENT:
		return;
	case FAKE_GONE:
		set_csts(fake, 0, ~0u);
		return;
	case FAKE_FATAL:
		set_csts(fake, 0, GPUNVME_CSTS_CFS);
		return;
	case FAKE_STOPPED:
		set_csts(fake, GPUNVME_CSTS_RDY, 0);
		return;
	case FAKE_STATUS:
		status = fake->status;
		break;
	default:
		if (!fake->admin || !fake->admin(fake, &fake->last, &status))
			status = execute(fake, &fake->last, &result);
	}
	complete(fake, &fake->last, fault, result, status);
}

static void complete_io(struct fake *fake, uint32_t qid, const struct gpunvme_sqe *cmd, uint16_t status)
{
	struct fake_ioq *q = &fake->ioq[qid];
	struct gpunvme_cqe *cqe = (struct gpunvme_cqe *)fake_dma(q->cq) + q->cq_tail;

	gnv_mmio_write32((char *)cqe + 8, q->head | qid << 16);
	gnv_mmio_write32((char *)cqe + 12, cmd->cid | q->phase << 16 | (uint32_t)status << 17);
	q->cq_tail = (q->cq_tail + 1) % q->cq_entries;
	q->phase ^= !q->cq_tail;
}

static void watch_queue(struct fake *fake, uint32_t qid)
{
	const unsigned bells = GPUNVME_REG_DOORBELLS + 8 * qid;
	struct fake_ioq *q = &fake->ioq[qid];
	struct gpunvme_sqe cmd;
	uint16_t status;

	while (q->sq && q->head != reg(fake, bells) && (q->cq_tail + 1) % q->cq_entries != reg(fake, bells + 4)) {
		cmd = ((struct gpunvme_sqe *)fake_dma(q->sq))[q->head];
		q->head = (q->head + 1) % q->sq_entries;
		if (fake->io(fake, &cmd, &status))
			complete_io(fake, qid, &cmd, status);
	}
}

static void take_turn(struct fake *fake)
{
	watch_cc(fake);
	watch_doorbell(fake);
	for (uint32_t qid = 1; fake->io && qid <= FAKE_IO_QUEUES; qid++)
		watch_queue(fake, qid);
}

static void turn(void *arg)
{
	struct fake *fake = arg;

	pthread_mutex_lock(&fake->lock);
	take_turn(fake);
	pthread_mutex_unlock(&fake->lock);
}

static void *serve(void *arg)
{
	const struct timespec pause = { 0, 20000 };
	struct fake *fake = arg;
	bool stop;

	do {
		pthread_mutex_lock(&fake->lock);
		stop = fake->stop;
		take_turn(fake);
		pthread_mutex_unlock(&fake->lock);
		nanosleep(&pause, NULL);
	} while (!stop);
	return NULL;
}

void fake_set_cap(struct fake *fake, uint64_t cap)
{
	gnv_mmio_write64(fake->bar + GPUNVME_REG_CAP, cap);
}

struct fake *fake_new(void)
{
	struct fake *fake = aligned_alloc(4096, gnv_align_up(sizeof(*fake), 4096));

	assert_non_null(fake);
	memset(fake, 0, sizeof(*fake));
	fake->space.ops = &space_ops;
	fake->space.refs = 1;
	fake->bar0.cpu = fake->bar;
	fake->bar0.len = sizeof(fake->bar);
	fake->bar0.page = 4096;
	fake->bar0.ops = &bar_ops;
	fake->port = (struct gnv_port){
		.ops = &port_ops, .bar0 = &fake->bar0, .space = &fake->space, .placement = "fake", .address = "fake0"
	};
	memset(&fake->id, 0, sizeof(fake->id));
	memcpy(fake->id.mn, "Fake Drive                              ", 40);
	memcpy(fake->id.sn, "S\x01N                 ", 20);
	memcpy(fake->id.fr, "1.0     ", 8);
	fake->id.sqes = 0x66;
	fake->id.cqes = 0x44;
	fake->id.nn = 1;
	fake->id.mdts = 5;
	fake->ns.nsze = 1000;
	fake->ns.lbaf[0].lbads = 9;
	fake->granted = 15 | 15 << 16;
	fake->admin_ms = 20000;
	fake_set_cap(fake, FAKE_CAP);
	gnv_mmio_write32(fake->bar + GPUNVME_REG_VS, 0x10400);
	pthread_mutex_init(&fake->lock, NULL);
	if (virtual_begin)
		virtual_begin(turn, fake);
	else
		assert_int_equal(pthread_create(&fake->thread, NULL, serve, fake), 0);
	return fake;
}

int fake_open(struct fake *fake, struct gpunvme_dev **dev)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;

	opts.admin_timeout_ms = fake->admin_ms;
	opts.log = fake->log;
	return gnv_dev_create(&fake->port, &opts, 0, dev);
}

void fake_hurry(struct fake *fake, struct gpunvme_dev *dev)
{
	fake->admin_ms = 300;
	fake_set_cap(fake, (FAKE_CAP & ~GPUNVME_CAP_TO) | 1ull << 24);
	if (dev) {
		dev->nvme.admin.timeout_ms = fake->admin_ms;
		dev->nvme.ctrl.ready_ms = dev->nvme.ctrl.disable_ms = 500;
	}
}

static void stop(struct fake *fake)
{
	if (virtual_end) {
		virtual_end();
		return;
	}
	pthread_mutex_lock(&fake->lock);
	fake->stop = true;
	pthread_mutex_unlock(&fake->lock);
	pthread_join(fake->thread, NULL);
}

void fake_delete(struct fake *fake, bool leaked)
{
	stop(fake);
	assert_int_equal(fake->closed, !leaked);
	if (!leaked)
		assert_int_equal(fake->maps, 0);
	pthread_mutex_destroy(&fake->lock);
	free(fake);
}
