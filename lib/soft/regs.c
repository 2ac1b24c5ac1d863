/* SPDX-License-Identifier: MIT */
/*
 * The register page: enable, reset and shutdown (Base Specification 3.1.3, 3.5, 3.6).
 *
 * The page is plain memory, so the host can write to read-only registers; they get their values back at the next look.
 */
#include "soft/state.h"

#include <string.h>

#include "util/mmio.h"

#define VERSION_1_4 0x00010400u
#define READY_TIMEOUT 60ull /* units of 500 ms: a reset waits for I/O in flight */
#define IOSQES 6u
#define IOCQES 4u

static void *reg(struct gnv_soft *soft, unsigned offset)
{
	return soft->bar + offset;
}

uint32_t *gnv_soft_doorbell(struct gnv_soft *soft, unsigned qid, bool cq)
{
	return reg(soft, GPUNVME_REG_DOORBELLS + (2 * qid + cq) * (4u << soft->config.dstrd));
}

static void set_csts(struct gnv_soft *soft, uint32_t csts)
{
	soft->csts = csts;
	gnv_mmio_write32(reg(soft, GPUNVME_REG_CSTS), csts);
}

/* Give read-only registers their values back. */
static void restore(struct gnv_soft *soft)
{
	static const uint16_t zero[] = { GPUNVME_REG_INTMS,  GPUNVME_REG_INTMC, GPUNVME_REG_NSSR,
					 GPUNVME_REG_CMBLOC, GPUNVME_REG_CMBSZ, GPUNVME_REG_CRTO };
	unsigned i;

	if (gnv_mmio_read64(reg(soft, GPUNVME_REG_CAP)) != soft->cap)
		gnv_mmio_write64(reg(soft, GPUNVME_REG_CAP), soft->cap);
	if (gnv_mmio_read32(reg(soft, GPUNVME_REG_VS)) != VERSION_1_4)
		gnv_mmio_write32(reg(soft, GPUNVME_REG_VS), VERSION_1_4);
	if (gnv_mmio_read32(reg(soft, GPUNVME_REG_CSTS)) != soft->csts)
		gnv_mmio_write32(reg(soft, GPUNVME_REG_CSTS), soft->csts);
	for (i = 0; i < sizeof(zero) / sizeof(zero[0]); i++)
		if (gnv_mmio_read32(reg(soft, zero[i])))
			gnv_mmio_write32(reg(soft, zero[i]), 0);
}

static void clear_doorbells(struct gnv_soft *soft)
{
	unsigned qid;

	for (qid = 0; qid <= soft->config.queues; qid++) {
		gnv_mmio_write32(gnv_soft_doorbell(soft, qid, false), 0);
		gnv_mmio_write32(gnv_soft_doorbell(soft, qid, true), 0);
	}
}

void gnv_soft_regs_init(struct gnv_soft *soft)
{
	soft->cap = GPUNVME_FIELD_PREP(GPUNVME_CAP_MQES_0B, (uint64_t)soft->config.depth - 1) | GPUNVME_CAP_CQR |
		    GPUNVME_FIELD_PREP(GPUNVME_CAP_TO, READY_TIMEOUT) |
		    GPUNVME_FIELD_PREP(GPUNVME_CAP_DSTRD, (uint64_t)soft->config.dstrd) | GPUNVME_CAP_CSS_NVM |
		    GPUNVME_FIELD_PREP(GPUNVME_CAP_MPSMAX, (uint64_t)GNV_SOFT_MAX_MPS);
	restore(soft);
}

/* ---- Enabling ---- */

static bool cc_is_legal(uint32_t cc)
{
	return !(cc & (GPUNVME_CC_CSS | GPUNVME_CC_AMS)) && GPUNVME_FIELD_GET(GPUNVME_CC_MPS, cc) <= GNV_SOFT_MAX_MPS &&
	       GPUNVME_FIELD_GET(GPUNVME_CC_IOSQES, cc) == IOSQES && GPUNVME_FIELD_GET(GPUNVME_CC_IOCQES, cc) == IOCQES;
}

/* Make the admin queues from AQA, ASQ and ACQ. Return: false when the host gave an impossible place or size. */
static bool make_admin_queues(struct gnv_soft *soft)
{
	uint32_t aqa = gnv_mmio_read32(reg(soft, GPUNVME_REG_AQA));
	struct gnv_soft_ring sq = { .iova = gnv_mmio_read64(reg(soft, GPUNVME_REG_ASQ)),
				    .entries = GPUNVME_FIELD_GET(GPUNVME_AQA_ASQS_0B, aqa) + 1 };
	struct gnv_soft_ring cq = { .iova = gnv_mmio_read64(reg(soft, GPUNVME_REG_ACQ)),
				    .entries = GPUNVME_FIELD_GET(GPUNVME_AQA_ACQS_0B, aqa) + 1 };

	if (sq.entries < 2 || cq.entries < 2 || gnv_soft_cq_new(soft, &cq))
		return false;
	if (gnv_soft_sq_new(soft, &sq, 0)) {
		gnv_soft_cq_free(soft, 0);
		return false;
	}
	return true;
}

static void enable(struct gnv_soft *soft, uint32_t cc)
{
	gnv_soft_features_reset(soft);
	clear_doorbells(soft);
	soft->page = 4096u << GPUNVME_FIELD_GET(GPUNVME_CC_MPS, cc);
	if (cc_is_legal(cc) && make_admin_queues(soft)) {
		soft->state = GNV_SOFT_READY;
		set_csts(soft, GPUNVME_CSTS_RDY);
		return;
	}
	soft->state = GNV_SOFT_FATAL;
	set_csts(soft, GPUNVME_CSTS_CFS);
	gnv_log(&soft->log, GPUNVME_LOG_ERROR,
		"soft controller: CC.EN was set with an illegal CC (0x%08x), AQA, ASQ or ACQ; CSTS.CFS is set", cc);
}

/* ---- Reset and shutdown ---- */

static void begin_reset(struct gnv_soft *soft)
{
	gnv_soft_quiesce(soft, true);
	soft->state = GNV_SOFT_RESETTING;
}

static bool end_reset(struct gnv_soft *soft)
{
	unsigned qid;

	if (!gnv_soft_is_quiet(soft))
		return false;
	for (qid = 0; qid <= soft->config.queues; qid++)
		if (soft->sqs[qid])
			gnv_soft_sq_free(soft, (uint16_t)qid);
	for (qid = 0; qid <= soft->config.queues; qid++)
		if (soft->cqs[qid])
			gnv_soft_cq_free(soft, (uint16_t)qid);
	clear_doorbells(soft);
	soft->state = GNV_SOFT_OFF;
	set_csts(soft, 0);
	return true;
}

static void begin_shutdown(struct gnv_soft *soft)
{
	gnv_soft_quiesce(soft, false);
	soft->state = GNV_SOFT_STOPPING;
	set_csts(soft, (soft->csts & ~GPUNVME_CSTS_SHST) | GPUNVME_CSTS_SHST_BUSY);
}

static bool end_shutdown(struct gnv_soft *soft)
{
	int ret;

	if (!gnv_soft_is_quiet(soft))
		return false;
	ret = soft->file.read_only ? 0 : gnv_os_file_sync(&soft->file);
	if (ret)
		gnv_log(&soft->log, GPUNVME_LOG_ERROR, "soft controller: flushing the image at shutdown failed: %s",
			strerror(-ret));
	soft->state = GNV_SOFT_STOPPED;
	set_csts(soft, (soft->csts & ~GPUNVME_CSTS_SHST) | GPUNVME_CSTS_SHST_DONE);
	return true;
}

/* ---- Doorbells of queues that do not exist: looked at one by one, as nothing but a mistake depends on it ---- */

static void scan_doorbells(struct gnv_soft *soft)
{
	unsigned qid = soft->scan / 2;
	bool cq = soft->scan % 2;
	uint32_t *doorbell = gnv_soft_doorbell(soft, qid, cq);

	soft->scan = (soft->scan + 1) % (2 * (soft->config.queues + 1));
	if ((cq ? (void *)soft->cqs[qid] : (void *)soft->sqs[qid]) || !gnv_mmio_read32(doorbell))
		return;
	gnv_mmio_write32(doorbell, 0);
	gnv_soft_raise(soft, GNV_SOFT_EVENT_DOORBELL_REGISTER);
}

bool gnv_soft_regs_poll(struct gnv_soft *soft)
{
	uint32_t cc = gnv_mmio_read32(reg(soft, GPUNVME_REG_CC));
	uint32_t shn = cc & GPUNVME_CC_SHN;
	bool shutdown = shn && shn != soft->shn_seen;
	bool enabled = cc & GPUNVME_CC_EN;

	restore(soft);
	if (soft->state == GNV_SOFT_RESETTING)
		return end_reset(soft);
	soft->shn_seen = shn;
	if (!enabled && soft->state != GNV_SOFT_OFF && (soft->csts & (GPUNVME_CSTS_RDY | GPUNVME_CSTS_CFS))) {
		begin_reset(soft);
		return true;
	}
	if (soft->state == GNV_SOFT_STOPPING)
		return end_shutdown(soft);
	if (shutdown && soft->state != GNV_SOFT_STOPPED) {
		begin_shutdown(soft);
		return true;
	}
	if (enabled && !shn && (soft->state == GNV_SOFT_OFF || !(soft->csts & (GPUNVME_CSTS_RDY | GPUNVME_CSTS_CFS)))) {
		enable(soft, cc);
		return true;
	}
	if (soft->state == GNV_SOFT_READY)
		scan_doorbells(soft);
	return false;
}
