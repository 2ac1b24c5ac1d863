/* SPDX-License-Identifier: MIT */
/* Base Specification 3.1.3 (CMBLOC, CMBSZ, CMBMSC, CMBSTS, PMRCAP), 8.2.1. */
#include "nvme/cmb.h"

#include <errno.h>

#include "util/bits.h"

#define LEAST ((size_t)64 << 10) /* less is not worth the trouble */

/* Threads of the port read it when they fence off GPU threads. */
static struct gnv_arena *exchange(struct gnv_nvme *nvme, struct gnv_arena *arena)
{
	struct gnv_arena *was;

	pthread_mutex_lock(&nvme->bar0_lock);
	was = nvme->cmb.arena;
	nvme->cmb.arena = arena;
	pthread_mutex_unlock(&nvme->bar0_lock);
	return was;
}

/* Accessible bytes, which may be fewer than the controller says. @page: of the arena. */
static int check_size(size_t len, size_t page)
{
	if (len >= gnv_max(LEAST, 2 * page))
		return 0;
	return gnv_fail(-EOPNOTSUPP, "its memory buffer has only %zu bytes that can be reached, and pages of %zu", len, page);
}

static int make_arena(struct gnv_nvme *nvme, const struct gnv_ctrl_cmb *cmb)
{
	const struct gnv_port_cmb where = { cmb->bar, cmb->offset, cmb->size };
	struct gnv_arena *arena;
	struct gpunvme_mem *mem;
	uint64_t iova;
	int ret;

	ret = nvme->port->ops->cmb(nvme->port, &where, &mem, &iova);
	if (ret)
		return ret;
	ret = check_size(mem->len, nvme->ctrl.page_size);
	if (!ret)
		ret = gnv_ctrl_cmb_at(&nvme->ctrl, iova);
	if (!ret) {
		ret = gnv_arena_over(mem, iova, nvme->ctrl.page_size, &nvme->log, &arena);
		if (ret)
			gnv_ctrl_cmb_off(&nvme->ctrl);
	}
	if (ret) {
		gnv_mem_release(mem);
		return ret;
	}
	nvme->info.cmb = mem->len;
	nvme->info.cmb_holds = cmb->holds;
	exchange(nvme, arena);
	return 0;
}

void gnv_cmb_open(struct gnv_nvme *nvme)
{
	struct gnv_ctrl_cmb cmb;
	int ret;

	nvme->info.pmr = !!(nvme->ctrl.cap & GPUNVME_CAP_PMRS);
	if (nvme->info.pmr)
		gnv_log(&nvme->log, GPUNVME_LOG_INFO, "the drive has a Persistent Memory Region, which is left alone");
	ret = gnv_ctrl_cmb(&nvme->ctrl, &cmb);
	if (!ret)
		ret = make_arena(nvme, &cmb);
	if (!ret) {
		gnv_log(&nvme->log, GPUNVME_LOG_DEBUG, "%llu KiB of memory in the drive can be used",
			(unsigned long long)nvme->info.cmb / 1024);
	} else {
		gnv_log(&nvme->log, ret == -ENOENT ? GPUNVME_LOG_DEBUG : GPUNVME_LOG_INFO, "no memory in the drive is used: %s",
			gpunvme_errmsg());
	}
}

int gnv_cmb_check(const struct gnv_nvme *nvme, enum gpunvme_cmb_holds what)
{
	static const char *const names[] = { "submission queues", "PRP lists of commands that lie elsewhere", "data of reads and writes" };

	if (!nvme->cmb.arena)
		return gnv_fail(-EOPNOTSUPP, "the controller has no memory of its own that can be used here (CMB). Leave the "
				"request for it out");
	if (!(nvme->info.cmb_holds & what))
		return gnv_fail(-EOPNOTSUPP, "the memory of the controller (CMB) takes no %s. Leave the request for it out",
				names[gnv_log2(what)]);
	return 0;
}

void gnv_cmb_close(struct gnv_nvme *nvme)
{
	struct gnv_arena *arena = exchange(nvme, NULL);

	if (arena && gnv_arena_destroy(arena))
		nvme->port->keep = true;
}
