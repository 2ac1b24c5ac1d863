/* SPDX-License-Identifier: MIT */
/*
 * Controller registers: Base Specification 3.1.3 (properties), 3.5 (initialisation), 3.6 (shutdown), 8.26
 * (controllers that are offline).
 * Invariant: every wait has a deadline, and every read of CSTS passes gnv_ctrl_status().
 */
#include "nvme/ctrl.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "util/bits.h"
#include "util/clock.h"

#define TO_UNIT_MS 500u
#define READY_MAX_MS 600000u /* CRTO can name nine hours */
#define SHUTDOWN_MIN_MS 5000u
#define IOSQES_64 6u
#define IOCQES_16 4u
#define BAR_GONE 0xffffffffu

static uint32_t reg_read(const struct gnv_ctrl *ctrl, enum gpunvme_reg reg)
{
	return gnv_mem_reg_read32(ctrl->regs, reg);
}

static void reg_write(struct gnv_ctrl *ctrl, enum gpunvme_reg reg, uint32_t value)
{
	gnv_mem_reg_write32(ctrl->regs, reg, value);
}

/* In halves, low first, as gnv_mmio_write64() (util/mmio.h). */
static void reg_write64(struct gnv_ctrl *ctrl, enum gpunvme_reg reg, uint64_t value)
{
	gnv_mem_reg_write32(ctrl->regs, reg, (uint32_t)value);
	gnv_mem_reg_write32(ctrl->regs, (size_t)reg + 4, (uint32_t)(value >> 32));
}

/* With the lock held. Return: true when it was alive. */
static bool die(struct gnv_ctrl *ctrl, int ret, const char *why)
{
	const int was = ctrl->dead;
	const bool worse = was != ret && (!was || ret == -ENODEV);

	if (worse || !ctrl->why[0])
		snprintf(ctrl->why, sizeof(ctrl->why), "%.*s", why ? (int)gnv_cause_len(why) : 0, why ? why : "");
	if (worse)
		__atomic_store_n(&ctrl->dead, ret, __ATOMIC_RELAXED);
	return !was;
}

static void end(struct gnv_ctrl *ctrl, int ret, const char *why, bool taken)
{
	char cause[GNV_CTRL_WHY];
	bool news;

	pthread_mutex_lock(&ctrl->lock);
	ctrl->taken |= taken;
	news = die(ctrl, ret, why);
	pthread_mutex_unlock(&ctrl->lock);
	if (!news || !ctrl->died)
		return;
	gnv_ctrl_why(ctrl, cause);
	ctrl->died(ctrl->died_ctx, cause);
}

int gnv_ctrl_kill(struct gnv_ctrl *ctrl, int ret, const char *why)
{
	end(ctrl, ret, why, false);
	return ret;
}

void gnv_ctrl_why(const struct gnv_ctrl *ctrl, char why[GNV_CTRL_WHY])
{
	pthread_mutex_t *lock = &((struct gnv_ctrl *)(uintptr_t)ctrl)->lock;

	pthread_mutex_lock(lock);
	if (ctrl->dead && !ctrl->why[0])
		snprintf(why, GNV_CTRL_WHY, "it is being reset");
	else
		memcpy(why, ctrl->why, GNV_CTRL_WHY);
	pthread_mutex_unlock(lock);
}

int gnv_ctrl_check(const struct gnv_ctrl *ctrl)
{
	int ret = gnv_ctrl_dead(ctrl);
	char why[GNV_CTRL_WHY];

	if (!ret)
		return 0;
	gnv_ctrl_why(ctrl, why);
	if (ret == -ENODEV)
		return gnv_fail(ret, "the controller is gone: %s. Close it, check power, slot and link, and open it again", why);
	return gnv_fail(ret, "the controller is dead: %s. Call gpunvme_dev_reset(), or close it and open it again", why);
}

int gnv_ctrl_dead(const struct gnv_ctrl *ctrl)
{
	return __atomic_load_n(&ctrl->dead, __ATOMIC_RELAXED);
}

void gnv_ctrl_take(struct gnv_ctrl *ctrl, const char *why)
{
	end(ctrl, -ENODEV, why, true);
}

/* A controller that is taken away died under the same lock, and is not revived. */
int gnv_ctrl_kept(struct gnv_ctrl *ctrl)
{
	bool taken;

	pthread_mutex_lock(&ctrl->lock);
	taken = ctrl->taken;
	pthread_mutex_unlock(&ctrl->lock);
	return taken ? gnv_ctrl_check(ctrl) : 0;
}

int gnv_ctrl_revive(struct gnv_ctrl *ctrl)
{
	pthread_mutex_lock(&ctrl->lock);
	if (!ctrl->taken) {
		ctrl->why[0] = 0;
		__atomic_store_n(&ctrl->dead, 0, __ATOMIC_RELAXED);
	}
	pthread_mutex_unlock(&ctrl->lock);
	return gnv_ctrl_kept(ctrl);
}

int gnv_ctrl_status(struct gnv_ctrl *ctrl, uint32_t *csts)
{
	*csts = reg_read(ctrl, GPUNVME_REG_CSTS);
	if (*csts != BAR_GONE)
		return 0;
	gnv_ctrl_kill(ctrl, -ENODEV, "its registers read as all ones");
	return gnv_ctrl_check(ctrl);
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

	*ctrl = (struct gnv_ctrl){ .regs = bar0, .bar = gnv_mem_regs(bar0), .bar_len = bar0->len };
	pthread_mutex_init(&ctrl->lock, NULL);
	if (bar0->len < GPUNVME_REG_DOORBELLS + 8)
		return gnv_fail(-EOPNOTSUPP, "BAR0 has %zu bytes, too few for an NVMe controller", bar0->len);
	ret = gnv_ctrl_status(ctrl, &csts);
	if (ret)
		return ret;
	ctrl->cap = reg_read(ctrl, GPUNVME_REG_CAP) | (uint64_t)reg_read(ctrl, GPUNVME_REG_CAP + 4) << 32;
	ctrl->vs = reg_read(ctrl, GPUNVME_REG_VS);
	ctrl->dstrd = (uint32_t)GPUNVME_FIELD_GET(GPUNVME_CAP_DSTRD, ctrl->cap);
	ctrl->max_depth = (uint32_t)GPUNVME_FIELD_GET(GPUNVME_CAP_MQES_0B, ctrl->cap) + 1;
	mpsmin = (uint32_t)GPUNVME_FIELD_GET(GPUNVME_CAP_MPSMIN, ctrl->cap);
	if (!ctrl->cap && csts & GPUNVME_CSTS_CFS)
		return gnv_fail(-EOPNOTSUPP,
				"the controller is offline, as a virtual function (SR-IOV) without queues is. Give it some from "
				"its physical function: nvme virt-mgmt with -c and its controller: -r 0 -n 2 -a 8, -r 1 -n 1 -a 8, "
				"then -a 9");
	if (!ctrl->cap)
		return gnv_fail(-EOPNOTSUPP,
				"the controller's capabilities read as 0 (CAP 0x0), as while a vfio-user server pauses. Look at "
				"the server, and open it again. A PCI drive needs a reset or new power");
	if (!(ctrl->cap & GPUNVME_CAP_CSS_NVM))
		return gnv_fail(-EOPNOTSUPP, "the controller does not offer the NVM command set%s (CAP 0x%llx)",
				ctrl->cap & GPUNVME_CAP_CSS_IO ? ", but others, such as that of key-value stores" : "",
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

/* No wait is longer than `most_ms`. */
static int disable(struct gnv_ctrl *ctrl, uint32_t most_ms)
{
	const uint32_t ms = (uint32_t)gnv_min(ctrl->disable_ms, most_ms);
	uint32_t cc = reg_read(ctrl, GPUNVME_REG_CC), csts;
	int ret = gnv_ctrl_status(ctrl, &csts);

	if (ret)
		return ret;
	if (cc & GPUNVME_CC_EN) {
		/* Clearing EN before RDY came up is undefined (3.1.3.5): give it its time, then clear all the same. */
		if (!(csts & (GPUNVME_CSTS_RDY | GPUNVME_CSTS_CFS)))
			wait_status(ctrl, GPUNVME_CSTS_RDY, GPUNVME_CSTS_RDY, (uint32_t)gnv_min(ctrl->ready_ms, most_ms), true);
		reg_write(ctrl, GPUNVME_REG_CC, cc & ~(GPUNVME_CC_EN | GPUNVME_CC_SHN));
	}
	if (ctrl->rest_ms && (cc & GPUNVME_CC_EN || !__atomic_load_n(&ctrl->rested, __ATOMIC_RELAXED)))
		gnv_sleep_ms(ctrl->rest_ms);
	ret = wait_status(ctrl, GPUNVME_CSTS_RDY, 0, ms, false);
	if (ret == -ETIMEDOUT)
		return gnv_fail(ret, "the controller did not stop (CSTS.RDY stays 1) within %u ms. Reset or power-cycle it", ms);
	return ret;
}

int gnv_ctrl_disable(struct gnv_ctrl *ctrl)
{
	int ret = disable(ctrl, UINT32_MAX);

	if (!ret) {
		ctrl->enabled = false;
		__atomic_store_n(&ctrl->rested, true, __ATOMIC_RELAXED);
	}
	return ret;
}

int gnv_ctrl_let_go(struct gnv_ctrl *ctrl)
{
	return disable(ctrl, GNV_CTRL_LET_GO_MS);
}

/* The lock orders it with gnv_ctrl_take(): after that nothing enables the controller. */
static int write_cc(struct gnv_ctrl *ctrl, uint32_t cc)
{
	bool taken;

	pthread_mutex_lock(&ctrl->lock);
	taken = ctrl->taken;
	if (!taken)
		reg_write(ctrl, GPUNVME_REG_CC, cc);
	pthread_mutex_unlock(&ctrl->lock);
	return taken ? gnv_ctrl_check(ctrl) : 0;
}

/* ---- Memory in the controller: Base Specification 3.1.3 (CMBLOC, CMBSZ, CMBMSC, CMBSTS), 8.2.1 ---- */

/* Data goes both ways. Any queue may use a list. */
static uint32_t cmb_holds(uint32_t loc, uint32_t sz)
{
	const uint32_t data = GPUNVME_CMBSZ_RDS | GPUNVME_CMBSZ_WDS;

	return (sz & GPUNVME_CMBSZ_SQS ? GPUNVME_CMB_QUEUES : 0u) | ((sz & data) == data ? GPUNVME_CMB_DATA : 0u) |
	       (sz & GPUNVME_CMBSZ_LISTS && loc & GPUNVME_CMBLOC_CDPCILS ? GPUNVME_CMB_LISTS : 0u);
}

int gnv_ctrl_cmb(struct gnv_ctrl *ctrl, struct gnv_ctrl_cmb *cmb)
{
	uint32_t loc, sz, unit_shift;

	if (ctrl->cap & GPUNVME_CAP_CMBS)
		reg_write64(ctrl, GPUNVME_REG_CMBMSC, GPUNVME_CMBMSC_CRE);
	loc = reg_read(ctrl, GPUNVME_REG_CMBLOC);
	sz = reg_read(ctrl, GPUNVME_REG_CMBSZ);
	if (!(sz & GPUNVME_CMBSZ_SZ) || sz == BAR_GONE)
		return gnv_fail(-ENOENT, "the controller has no memory buffer");
	cmb->holds = cmb_holds(loc, sz);
	if (!cmb->holds)
		return gnv_fail(-EOPNOTSUPP, "its memory buffer takes neither submission queues nor data (CMBSZ 0x%08x)", sz);
	unit_shift = 12 + 4 * GPUNVME_FIELD_GET(GPUNVME_CMBSZ_SZU, sz);
	if (unit_shift > 36)
		return gnv_fail(-EPROTO, "its memory buffer has units that do not exist (CMBSZ 0x%08x)", sz);
	cmb->bar = GPUNVME_FIELD_GET(GPUNVME_CMBLOC_BIR, loc);
	cmb->offset = (uint64_t)GPUNVME_FIELD_GET(GPUNVME_CMBLOC_OFST, loc) << unit_shift;
	cmb->size = (uint64_t)GPUNVME_FIELD_GET(GPUNVME_CMBSZ_SZ, sz) << unit_shift;
	if (cmb->bar == 1 || cmb->bar > 5)
		return gnv_fail(-EPROTO, "its memory buffer lies in a BAR that does not exist (CMBLOC 0x%08x)", loc);
	return 0;
}

/* Before NVMe 1.4 there was no such register. The half that switches it on comes last: controllers take the whole address then. */
static void write_cmb_base(struct gnv_ctrl *ctrl)
{
	const uint64_t value = ctrl->cmb_base | GPUNVME_CMBMSC_CRE | GPUNVME_CMBMSC_CMSE;

	if (!(ctrl->cap & GPUNVME_CAP_CMBS))
		return;
	reg_write(ctrl, GPUNVME_REG_CMBMSC + 4, (uint32_t)(value >> 32));
	reg_write(ctrl, GPUNVME_REG_CMBMSC, (uint32_t)value);
}

void gnv_ctrl_cmb_off(struct gnv_ctrl *ctrl)
{
	ctrl->cmb_base = 0;
	if (ctrl->cap & GPUNVME_CAP_CMBS)
		reg_write64(ctrl, GPUNVME_REG_CMBMSC, 0);
}

int gnv_ctrl_cmb_at(struct gnv_ctrl *ctrl, uint64_t base)
{
	ctrl->cmb_base = base;
	write_cmb_base(ctrl);
	if (!(ctrl->cap & GPUNVME_CAP_CMBS) || !(reg_read(ctrl, GPUNVME_REG_CMBSTS) & GPUNVME_CMBSTS_CBAI))
		return 0;
	gnv_ctrl_cmb_off(ctrl);
	return gnv_fail(-EINVAL, "the controller refuses address 0x%llx for its memory buffer", (unsigned long long)base);
}

int gnv_ctrl_enable(struct gnv_ctrl *ctrl, uint64_t asq, uint64_t acq, uint32_t entries)
{
	uint32_t cc = GPUNVME_CC_EN | GPUNVME_FIELD_PREP(GPUNVME_CC_MPS, gnv_log2(ctrl->page_size) - 12) |
		      GPUNVME_FIELD_PREP(GPUNVME_CC_IOSQES, IOSQES_64) | GPUNVME_FIELD_PREP(GPUNVME_CC_IOCQES, IOCQES_16);
	int ret;

	reg_write(ctrl, GPUNVME_REG_AQA,
		  GPUNVME_FIELD_PREP(GPUNVME_AQA_ASQS_0B, entries - 1) | GPUNVME_FIELD_PREP(GPUNVME_AQA_ACQS_0B, entries - 1));
	reg_write64(ctrl, GPUNVME_REG_ASQ, asq);
	reg_write64(ctrl, GPUNVME_REG_ACQ, acq);
	if (ctrl->cmb_base) /* a function reset forgets it */
		write_cmb_base(ctrl);
	ctrl->enabled = true;
	__atomic_store_n(&ctrl->rested, false, __ATOMIC_RELAXED);
	ret = write_cc(ctrl, cc);
	if (!ret)
		ret = wait_status(ctrl, GPUNVME_CSTS_RDY, GPUNVME_CSTS_RDY, ctrl->ready_ms, true);
	if (ret == -ETIMEDOUT)
		return gnv_fail(ret, "the controller did not become ready (CSTS.RDY stays 0) within %u ms. Reset or power-cycle it",
				ctrl->ready_ms);
	if (ret == -EIO)
		return gnv_fail(ret, "the controller reports a fatal error while it starts (CSTS.CFS). Reset or power-cycle it");
	return ret;
}

int gnv_ctrl_shutdown(struct gnv_ctrl *ctrl)
{
	uint32_t cc = reg_read(ctrl, GPUNVME_REG_CC);
	int ret = write_cc(ctrl, (cc & ~GPUNVME_CC_SHN) | GPUNVME_CC_SHN_NORMAL);

	if (!ret)
		ret = wait_status(ctrl, GPUNVME_CSTS_SHST, GPUNVME_CSTS_SHST_DONE, ctrl->shutdown_ms, true);
	if (ret == -ETIMEDOUT || ret == -EIO)
		return gnv_fail(-ETIMEDOUT, "the controller did not finish its shutdown within %u ms", ctrl->shutdown_ms);
	return ret;
}
