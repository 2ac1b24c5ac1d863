/* SPDX-License-Identifier: MIT */
/*
 * The register page: enable, reset and shutdown (Base Specification 3.1.3, 3.5, 3.6).
 *
 * The page is plain memory, so the host can write to read-only registers. The next poll restores them.
 */
#include "soft/core/controller.h"

#include <string.h>

#include <gpunvme/status.h>

#include "util/log.h"
#include "util/mmio.h"

#define READY_TIMEOUT 60ull /* units of 500 ms: a reset waits for I/O in flight */
#define IOSQES 6u
#define IOCQES 4u
#define CMB_BAR 2u
#define CMB_MIB 2u /* of CMBSZ: units of 1 MiB */

static void GNV_MMIO *reg(struct gnv_soft *soft, unsigned offset)
{
	return (char GNV_FORCE GNV_MMIO *)soft->bar + offset;
}

uint32_t GNV_MMIO *gnv_soft_doorbell(struct gnv_soft *soft, unsigned qid, bool cq)
{
	return reg(soft, GPUNVME_REG_DOORBELLS + (2 * qid + cq) * (4u << soft->config.dstrd));
}

static void set_csts(struct gnv_soft *soft, uint32_t csts)
{
	soft->csts = csts;
	gnv_mmio_write32(reg(soft, GPUNVME_REG_CSTS), csts);
}

/*
 * Memory of its own: Base Specification 3.1.3 (CMBLOC, CMBSZ, CMBMSC, CMBSTS), 8.2.1. As QEMU's (nvme_cmb_enable_regs() of its
 * hw/nvme/ctrl.c) it takes all but completion queues. On this page the first two do not depend on CMBMSC.CRE.
 */
static uint32_t cmb_loc(const struct gnv_soft *soft)
{
	return soft->config.cmb ? GPUNVME_CMBLOC_CDPCILS | CMB_BAR : 0;
}

static uint32_t cmb_size(const struct gnv_soft *soft)
{
	const uint32_t takes = GPUNVME_CMBSZ_SQS | GPUNVME_CMBSZ_LISTS | GPUNVME_CMBSZ_RDS | GPUNVME_CMBSZ_WDS;

	return soft->config.cmb ? GPUNVME_FIELD_PREP(GPUNVME_CMBSZ_SZ, soft->config.cmb) |
					  GPUNVME_FIELD_PREP(GPUNVME_CMBSZ_SZU, CMB_MIB) | takes :
				  0;
}

static void cmb_enable(struct gnv_soft *soft)
{
	const uint64_t msc = gnv_mmio_read64(reg(soft, GPUNVME_REG_CMBMSC));

	soft->io.cmb_base = soft->config.cmb && msc & GPUNVME_CMBMSC_CMSE ? msc & ~(uint64_t)0xfff : 0;
}

/* Give read-only registers their values back. */
static void restore(struct gnv_soft *soft)
{
	const struct {
		uint16_t at;
		uint32_t value;
	} constant[] = { { GPUNVME_REG_INTMS, 0 },	{ GPUNVME_REG_INTMC, 0 },	       { GPUNVME_REG_NSSR, 0 },
			 { GPUNVME_REG_CMBSTS, 0 },	{ GPUNVME_REG_CMBLOC, cmb_loc(soft) }, { GPUNVME_REG_CMBSZ, cmb_size(soft) },
			 { GPUNVME_REG_CRTO, 0 } };
	unsigned i;

	if (gnv_mmio_read64(reg(soft, GPUNVME_REG_CAP)) != soft->cap)
		gnv_mmio_write64(reg(soft, GPUNVME_REG_CAP), soft->cap);
	if (gnv_mmio_read32(reg(soft, GPUNVME_REG_VS)) != soft->version)
		gnv_mmio_write32(reg(soft, GPUNVME_REG_VS), soft->version);
	if (gnv_mmio_read32(reg(soft, GPUNVME_REG_CSTS)) != soft->csts)
		gnv_mmio_write32(reg(soft, GPUNVME_REG_CSTS), soft->csts);
	for (i = 0; i < sizeof(constant) / sizeof(constant[0]); i++)
		if (gnv_mmio_read32(reg(soft, constant[i].at)) != constant[i].value)
			gnv_mmio_write32(reg(soft, constant[i].at), constant[i].value);
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
		    GPUNVME_FIELD_PREP(GPUNVME_CAP_MPSMAX, (uint64_t)GNV_SOFT_MAX_MPS) | (soft->config.cmb ? GPUNVME_CAP_CMBS : 0);
	if (gnv_soft_has(&soft->config.quirks, GNV_SOFT_OFFLINE)) { /* as nvme_mmio_read() of QEMU's hw/nvme/ctrl.c */
		soft->cap = 0;
		soft->csts = GPUNVME_CSTS_CFS;
	}
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
				    .entries = GPUNVME_FIELD_GET(GPUNVME_AQA_ACQS_0B, aqa) + 1,
				    .interrupts = soft->config.irq.vectors != 0 };

	if (sq.entries < 2 || cq.entries < 2 || gnv_soft_cq_new(soft, &cq))
		return false;
	if (gnv_soft_sq_new(soft, &sq, 0)) {
		gnv_soft_cq_free(soft, 0);
		return false;
	}
	return true;
}

/* A drive that dies when it is woken too early. */
static bool hasty(const struct gnv_soft *soft)
{
	return gnv_soft_has(&soft->config.quirks, GNV_SOFT_HASTY) && soft->off_ns && soft->engine->now(soft) - soft->off_ns < 2000000000u;
}

void gnv_soft_fatal(struct gnv_soft *soft)
{
	soft->state = GNV_SOFT_FATAL;
	set_csts(soft, soft->csts | GPUNVME_CSTS_CFS);
}

static void enable(struct gnv_soft *soft, uint32_t cc)
{
	if (soft->stubborn == GNV_SOFT_FAILS)
		cc = 0; /* which is no legal value */
	gnv_soft_features_reset(soft);
	clear_doorbells(soft);
	cmb_enable(soft);
	soft->io.page = 4096u << GPUNVME_FIELD_GET(GPUNVME_CC_MPS, cc);
	if (!hasty(soft) && cc_is_legal(cc) && make_admin_queues(soft)) {
		soft->state = GNV_SOFT_READY;
		set_csts(soft, GPUNVME_CSTS_RDY);
		return;
	}
	gnv_soft_fatal(soft);
	gnv_log(soft->log, GPUNVME_LOG_ERROR,
		"soft controller: CC.EN was set with an illegal CC (0x%08x), AQA, ASQ or ACQ: CSTS.CFS is set", cc);
}

/* ---- Reset and shutdown ---- */

static void begin_reset(struct gnv_soft *soft)
{
	gnv_soft_quiesce(soft, true);
	soft->hmb.on = false;
	soft->state = GNV_SOFT_RESETTING;
}

static bool end_reset(struct gnv_soft *soft)
{
	if (!soft->engine->is_quiet(soft))
		return false;
	gnv_soft_free_queues(soft);
	clear_doorbells(soft);
	gnv_soft_timing_forget(&soft->timing);
	soft->state = GNV_SOFT_OFF;
	soft->off_ns = soft->engine->now(soft);
	set_csts(soft, 0);
	return true;
}

static void begin_shutdown(struct gnv_soft *soft)
{
	gnv_soft_quiesce(soft, false);
	soft->hmb.on = false;
	soft->state = GNV_SOFT_STOPPING;
	soft->flushed = false;
	set_csts(soft, (soft->csts & ~GPUNVME_CSTS_SHST) | GPUNVME_CSTS_SHST_BUSY);
}

/* By the stores, as for a host's Flush. A drive may take any time, and registers are polled meanwhile. */
static void begin_flush(struct gnv_soft *soft)
{
	soft->flushed = true;
	soft->flush_failed = 0;
	soft->engine->flush(soft);
}

static bool end_shutdown(struct gnv_soft *soft)
{
	if (!soft->engine->is_quiet(soft))
		return false;
	if (!soft->flushed) {
		begin_flush(soft);
		return true;
	}
	if (soft->flush_failed)
		gnv_log(soft->log, GPUNVME_LOG_ERROR, "soft controller: flushing the image at shutdown failed: %s",
			gpunvme_strerror(soft->flush_failed));
	soft->state = GNV_SOFT_STOPPED;
	set_csts(soft, (soft->csts & ~GPUNVME_CSTS_SHST) | GPUNVME_CSTS_SHST_DONE);
	return true;
}

/* Return: true when it is done. Once it was taken back it is a controller reset, which CC.EN decides about afterwards. */
static bool reset_function(struct gnv_soft *soft)
{
	uint32_t asked = GNV_SOFT_ASKED;

	if (soft->state != GNV_SOFT_RESETTING)
		begin_reset(soft);
	if (!end_reset(soft) || !__atomic_compare_exchange_n(&soft->function_reset, &asked, GNV_SOFT_BEING_DONE, false,
							     __ATOMIC_ACQUIRE, __ATOMIC_RELAXED))
		return false;
	gnv_mmio_write32(reg(soft, GPUNVME_REG_CC), 0);
	gnv_mmio_write32(reg(soft, GPUNVME_REG_AQA), 0);
	gnv_mmio_write64(reg(soft, GPUNVME_REG_ASQ), 0);
	gnv_mmio_write64(reg(soft, GPUNVME_REG_ACQ), 0);
	gnv_mmio_write64(reg(soft, GPUNVME_REG_CMBMSC), 0);
	soft->shn_seen = 0;
	soft->hmb.known = false;
	if (!soft->for_ever)
		soft->stubborn = GNV_SOFT_WILLING;
	__atomic_store_n(&soft->function_reset, GNV_SOFT_UNASKED, __ATOMIC_RELEASE);
	return true;
}

/* ---- Doorbells of queues that do not exist: looked at one by one, as nothing but a mistake depends on it ---- */

static void scan_doorbells(struct gnv_soft *soft)
{
	unsigned qid = soft->scan / 2;
	bool cq = soft->scan % 2;
	uint32_t GNV_MMIO *doorbell = gnv_soft_doorbell(soft, qid, cq);

	soft->scan = (soft->scan + 1) % (2 * (soft->config.queues + 1));
	if ((cq ? soft->queue[qid].cq : soft->queue[qid].sq) || !gnv_mmio_read32(doorbell))
		return;
	gnv_mmio_write32(doorbell, 0);
	gnv_soft_raise(soft, GNV_SOFT_EVENT_DOORBELL_REGISTER);
}

/* ---- Faults ---- */

/* A rule decides about each change of CC.EN. */
static void judge_enable(struct gnv_soft *soft, bool enabled)
{
	enum gnv_soft_action action = gnv_soft_fault_judge_enable(&soft->config.rules, enabled);

	soft->was_enabled = enabled;
	soft->stubborn = action == GNV_SOFT_UNREADY ? GNV_SOFT_NOT_READY :
			 action == GNV_SOFT_DIES    ? GNV_SOFT_FAILS :
			 action == GNV_SOFT_HOLDS   ? GNV_SOFT_DEAF :
						       GNV_SOFT_WILLING;
}

/* A controller that is gone accesses no host memory, and its registers no longer change. */
static void let_go(struct gnv_soft *soft)
{
	uint32_t asked = GNV_SOFT_ASKED;

	if (soft->state != GNV_SOFT_RESETTING)
		begin_reset(soft);
	if (end_reset(soft) && __atomic_compare_exchange_n(&soft->function_reset, &asked, GNV_SOFT_BEING_DONE, false, __ATOMIC_ACQUIRE,
							   __ATOMIC_RELAXED))
		__atomic_store_n(&soft->function_reset, GNV_SOFT_UNASKED, __ATOMIC_RELEASE);
}

/* Return: true if the controller is gone. A dead one only sets CSTS. */
static bool meet_doom(struct gnv_soft *soft)
{
	uint32_t doom = __atomic_load_n(&soft->io.doom, __ATOMIC_RELAXED);
	unsigned at;

	if (!doom)
		return false;
	gnv_soft_quiesce(soft, true);
	if (doom == GNV_SOFT_ONES) {
		if (__atomic_load_n(&soft->function_reset, __ATOMIC_ACQUIRE))
			let_go(soft);
		for (at = 0; at < GPUNVME_REG_DOORBELLS; at += 4)
			gnv_mmio_write32(reg(soft, at), UINT32_MAX);
		return true;
	}
	__atomic_store_n(&soft->io.doom, GNV_SOFT_GO, __ATOMIC_RELAXED);
	gnv_soft_fatal(soft);
	return false;
}

bool gnv_soft_regs_poll(struct gnv_soft *soft)
{
	uint32_t cc = gnv_mmio_read32(reg(soft, GPUNVME_REG_CC));
	uint32_t shn = cc & GPUNVME_CC_SHN;
	bool shutdown = shn && shn != soft->shn_seen;
	bool enabled = cc & GPUNVME_CC_EN;

	if (meet_doom(soft))
		return false;
	restore(soft);
	if (gnv_soft_has(&soft->config.quirks, GNV_SOFT_OFFLINE))
		return false;
	if (soft->faulty && enabled != soft->was_enabled)
		judge_enable(soft, enabled);
	if (!gnv_soft_is_silent(soft))
		gnv_soft_hmb_work(soft);
	if (__atomic_load_n(&soft->function_reset, __ATOMIC_ACQUIRE))
		return reset_function(soft);
	if (soft->state == GNV_SOFT_RESETTING)
		return end_reset(soft);
	if (!enabled && soft->stubborn == GNV_SOFT_DEAF)
		return false;
	if (enabled && soft->state == GNV_SOFT_OFF && soft->stubborn == GNV_SOFT_NOT_READY)
		return false;
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
