/* SPDX-License-Identifier: MIT */
/*
 * Controller registers: Base Specification 3.1.3 (properties), 3.5 (initialisation), 3.6 (shutdown).
 * Invariant: every wait has a deadline, and every read of CSTS passes gnv_ctrl_status().
 */
#include "nvme/ctrl.h"

#include <errno.h>

#include "util/bits.h"
#include "util/clock.h"
#include "util/mmio.h"

#define TO_UNIT_MS 500u
#define READY_MAX_MS 600000u /* CRTO can name nine hours */
#define SHUTDOWN_MIN_MS 5000u
#define IOSQES_64 6u
#define IOCQES_16 4u
#define BAR_GONE 0xffffffffu

static uint32_t reg_read(const struct gnv_ctrl *ctrl, enum gpunvme_reg reg)
{
	return gnv_mmio_read32(ctrl->bar + reg);
}

static void reg_write(struct gnv_ctrl *ctrl, enum gpunvme_reg reg, uint32_t value)
{
	gnv_mmio_write32(ctrl->bar + reg, value);
}

int gnv_ctrl_kill(struct gnv_ctrl *ctrl, int ret)
{
	int alive = 0;

	__atomic_compare_exchange_n(&ctrl->dead, &alive, ret, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
	return ret;
}

int gnv_ctrl_dead(const struct gnv_ctrl *ctrl)
{
	return __atomic_load_n(&ctrl->dead, __ATOMIC_RELAXED);
}

void gnv_ctrl_revive(struct gnv_ctrl *ctrl)
{
	__atomic_store_n(&ctrl->dead, 0, __ATOMIC_RELAXED);
}

int gnv_ctrl_status(struct gnv_ctrl *ctrl, uint32_t *csts)
{
	*csts = reg_read(ctrl, GPUNVME_REG_CSTS);
	if (*csts == BAR_GONE)
		return gnv_fail(gnv_ctrl_kill(ctrl, -ENODEV),
				"the controller is gone: its registers read as all ones; check power, slot "
				"and link");
	return 0;
}

static void read_timeouts(struct gnv_ctrl *ctrl)
{
	uint32_t units = (uint32_t)GPUNVME_FIELD_GET(GPUNVME_CAP_TO, ctrl->cap), crwmt;

	if (!units)
		units = 1;
	ctrl->disable_ms = units * TO_UNIT_MS;
	ctrl->shutdown_ms = SHUTDOWN_MIN_MS;
	if (ctrl->cap & GPUNVME_CAP_CRMS) {
		crwmt = GPUNVME_FIELD_GET(GPUNVME_CRTO_CRWMT, reg_read(ctrl, GPUNVME_REG_CRTO));
		if (crwmt > units)
			units = crwmt;
	}
	ctrl->ready_ms = (uint32_t)gnv_min((uint64_t)units * TO_UNIT_MS, READY_MAX_MS);
}

int gnv_ctrl_init(struct gnv_ctrl *ctrl, const struct gpunvme_mem *bar0)
{
	uint32_t csts, mpsmin;
	int ret;

	*ctrl = (struct gnv_ctrl){ .bar = bar0->cpu, .bar_len = bar0->len };
	if (bar0->len < GPUNVME_REG_DOORBELLS + 8)
		return gnv_fail(-EOPNOTSUPP, "BAR0 has %zu bytes, too few for an NVMe controller", bar0->len);
	ret = gnv_ctrl_status(ctrl, &csts);
	if (ret)
		return ret;
	ctrl->cap = gnv_mmio_read64(ctrl->bar + GPUNVME_REG_CAP);
	ctrl->vs = reg_read(ctrl, GPUNVME_REG_VS);
	ctrl->dstrd = (uint32_t)GPUNVME_FIELD_GET(GPUNVME_CAP_DSTRD, ctrl->cap);
	ctrl->max_depth = (uint32_t)GPUNVME_FIELD_GET(GPUNVME_CAP_MQES_0B, ctrl->cap) + 1;
	mpsmin = (uint32_t)GPUNVME_FIELD_GET(GPUNVME_CAP_MPSMIN, ctrl->cap);
	if (!(ctrl->cap & GPUNVME_CAP_CSS_NVM))
		return gnv_fail(-EOPNOTSUPP, "the controller does not offer the NVM command set (CAP 0x%llx)",
				(unsigned long long)ctrl->cap);
	if (mpsmin > GPUNVME_FIELD_GET(GPUNVME_CAP_MPSMAX, ctrl->cap))
		return gnv_fail(-EOPNOTSUPP, "the controller offers no memory page size (CAP 0x%llx)",
				(unsigned long long)ctrl->cap);
	if (ctrl->max_depth < 2)
		return gnv_fail(-EOPNOTSUPP, "the controller offers queues of one entry, which can hold nothing");
	ctrl->page_size = 4096u << mpsmin; /* the smallest page is the nearest to the 4 KiB of hosts and GPUs */
	read_timeouts(ctrl);
	if (gnv_ctrl_max_queues(ctrl) < 1)
		return gnv_fail(-EOPNOTSUPP, "BAR0 of %zu bytes has no room for the doorbells of one I/O queue", ctrl->bar_len);
	return 0;
}

uint32_t gnv_ctrl_max_queues(const struct gnv_ctrl *ctrl)
{
	size_t pairs = (ctrl->bar_len - GPUNVME_REG_DOORBELLS) / ((size_t)8 << ctrl->dstrd);

	return pairs ? (uint32_t)gnv_min(pairs - 1, 65535) : 0;
}

/* Wait for the bits of CSTS under `mask` to become `want`. */
static int wait_status(struct gnv_ctrl *ctrl, uint32_t mask, uint32_t want, uint32_t ms, bool fatal_ends)
{
	struct gnv_deadline deadline = gnv_deadline_in(ms);
	uint32_t csts;

	do {
		int ret = gnv_ctrl_status(ctrl, &csts);

		if (ret)
			return ret;
		if ((csts & mask) == want)
			return 0;
		if (fatal_ends && csts & GPUNVME_CSTS_CFS)
			return -EIO;
	} while (gnv_deadline_poll_again(&deadline));
	return -ETIMEDOUT;
}

int gnv_ctrl_disable(struct gnv_ctrl *ctrl)
{
	uint32_t cc = reg_read(ctrl, GPUNVME_REG_CC), csts;
	int ret = gnv_ctrl_status(ctrl, &csts);

	if (ret)
		return ret;
	if (cc & GPUNVME_CC_EN) {
		/* Clearing EN before RDY came up is undefined (3.1.3.5): give it its time, then clear all the same. */
		if (!(csts & (GPUNVME_CSTS_RDY | GPUNVME_CSTS_CFS)))
			wait_status(ctrl, GPUNVME_CSTS_RDY, GPUNVME_CSTS_RDY, ctrl->ready_ms, true);
		reg_write(ctrl, GPUNVME_REG_CC, cc & ~(GPUNVME_CC_EN | GPUNVME_CC_SHN));
	}
	ret = wait_status(ctrl, GPUNVME_CSTS_RDY, 0, ctrl->disable_ms, false);
	if (!ret)
		ctrl->enabled = false;
	if (ret == -ETIMEDOUT)
		return gnv_fail(ret, "the controller did not stop (CSTS.RDY stays 1) within %u ms; reset or power-cycle it",
				ctrl->disable_ms);
	return ret;
}

int gnv_ctrl_enable(struct gnv_ctrl *ctrl, uint64_t asq, uint64_t acq, uint32_t entries)
{
	uint32_t cc = GPUNVME_CC_EN | GPUNVME_FIELD_PREP(GPUNVME_CC_MPS, gnv_log2(ctrl->page_size) - 12) |
		      GPUNVME_FIELD_PREP(GPUNVME_CC_IOSQES, IOSQES_64) | GPUNVME_FIELD_PREP(GPUNVME_CC_IOCQES, IOCQES_16);
	int ret;

	reg_write(ctrl, GPUNVME_REG_AQA,
		  GPUNVME_FIELD_PREP(GPUNVME_AQA_ASQS_0B, entries - 1) | GPUNVME_FIELD_PREP(GPUNVME_AQA_ACQS_0B, entries - 1));
	gnv_mmio_write64(ctrl->bar + GPUNVME_REG_ASQ, asq);
	gnv_mmio_write64(ctrl->bar + GPUNVME_REG_ACQ, acq);
	ctrl->enabled = true;
	reg_write(ctrl, GPUNVME_REG_CC, cc);
	ret = wait_status(ctrl, GPUNVME_CSTS_RDY, GPUNVME_CSTS_RDY, ctrl->ready_ms, true);
	if (ret == -ETIMEDOUT)
		return gnv_fail(ret, "the controller did not become ready (CSTS.RDY stays 0) within %u ms; reset or power-cycle it",
				ctrl->ready_ms);
	if (ret == -EIO)
		return gnv_fail(ret, "the controller reports a fatal error while it starts (CSTS.CFS); reset or power-cycle it");
	return ret;
}

int gnv_ctrl_shutdown(struct gnv_ctrl *ctrl)
{
	uint32_t cc = reg_read(ctrl, GPUNVME_REG_CC);
	int ret;

	reg_write(ctrl, GPUNVME_REG_CC, (cc & ~GPUNVME_CC_SHN) | GPUNVME_CC_SHN_NORMAL);
	ret = wait_status(ctrl, GPUNVME_CSTS_SHST, GPUNVME_CSTS_SHST_DONE, ctrl->shutdown_ms, true);
	if (ret == -ETIMEDOUT || ret == -EIO)
		return gnv_fail(-ETIMEDOUT, "the controller did not finish its shutdown within %u ms", ctrl->shutdown_ms);
	return ret;
}
