/* SPDX-License-Identifier: MIT */
/*
 * Base Specification 5.17.2.1 (HMPRE, HMMIN, HMMINDS, HMMAXD), 5.27.1.10 (Host Memory Buffer), 8.9.
 * Invariant: memory that was given once stays as it is, and mapped, until DMA has been stopped. The drive's word that it has left
 * the memory is not trusted.
 */
#include "nvme/hmb.h"

#include <errno.h>
#include <string.h>

#include "util/bits.h"

#define ENABLE 1u
#define RETURNED 2u

static unsigned mib(uint64_t bytes)
{
	return (unsigned)(bytes >> 20);
}

/* ---- Memory ---- */

int gnv_hmb_drop(struct gnv_nvme *nvme)
{
	struct gnv_space *space = nvme->port->space;
	int ret = nvme->hmb.size ? space->ops->unmap(space, nvme->hmb.iova, nvme->hmb.mem->len) : 0;

	if (ret && ret != -EOWNERDEAD)
		return gnv_fail(-EBUSY,
				"%s: the memory that the drive works in (hmb) is still mapped and stays. Close it again, or end "
				"the process",
				nvme->port->address);
	if (ret)
		gnv_log(&nvme->log, GPUNVME_LOG_ERROR, "%zu bytes are leaked: %s", nvme->hmb.mem->len, gpunvme_errmsg());
	else if (nvme->hmb.mem)
		gnv_mem_release(nvme->hmb.mem);
	gnv_arena_free(nvme->arena, &nvme->hmb.list);
	nvme->hmb.mem = NULL;
	nvme->hmb.size = 0;
	return 0;
}

/*
 * So many bytes, in one piece: one descriptor is not too many for any drive (HMMAXD). After a failure gnv_hmb_drop() frees the
 * rest.
 */
static int take(struct gnv_nvme *nvme, uint64_t size)
{
	struct gnv_hmb_entry entry = { .pages = (uint32_t)(size / nvme->ctrl.page_size) };
	int ret = gnv_arena_alloc(nvme->arena, sizeof(entry), NULL, &nvme->hmb.list);

	if (ret)
		return ret;
	ret = gnv_mem_host_alloc((size_t)size, gnv_mem_flags_for(nvme->port->space), &nvme->log, &nvme->hmb.mem);
	if (ret)
		return ret;
	ret = gnv_mem_map(nvme->hmb.mem, nvme->port->space, &nvme->log, &nvme->hmb.iova);
	if (ret)
		return ret;
	entry.iova = nvme->hmb.iova;
	memcpy(nvme->hmb.list.cpu, &entry, sizeof(entry));
	nvme->hmb.size = size;
	if (entry.iova & (nvme->ctrl.page_size - 1))
		return gnv_fail(-EOPNOTSUPP, "the address space aligns to less than its pages");
	return 0;
}

/* The next smaller size that the drive could use. 0: there is none. */
static uint64_t fit(const struct gnv_nvme *nvme, uint64_t size)
{
	size -= size % nvme->ctrl.page_size;
	return size < nvme->hmb.least || size < nvme->hmb.step ? 0 : size;
}

/* As much as there is. Return: 0, also where there is none; -EBUSY. */
static int find(struct gnv_nvme *nvme, uint64_t size)
{
	for (size = fit(nvme, size); size; size = fit(nvme, size / 2)) {
		int ret;

		if (!take(nvme, size))
			return 0;
		gnv_log(&nvme->log, GPUNVME_LOG_INFO, "no %u MiB of host memory (HMB) for the drive: %s", mib(size), gpunvme_errmsg());
		ret = gnv_hmb_drop(nvme);
		if (ret)
			return ret;
	}
	gnv_log(&nvme->log, GPUNVME_LOG_WARN,
		"the drive asks for %u MiB of host memory (HMB), at least %llu KiB, and gets none, so it may be slow. Raise hmb= "
		"in the URI or the locked-memory limit",
		mib(nvme->hmb.asked), (unsigned long long)nvme->hmb.least / 1024);
	return 0;
}

/* ---- The drive ---- */

static int set(struct gnv_nvme *nvme, uint32_t how)
{
	struct gpunvme_sqe cmd = { .opc = GPUNVME_ADMIN_SET_FEATURES, .cdw10 = GPUNVME_FID_HMB, .cdw11 = how };
	int ret;

	if (how) {
		cmd.cdw12 = (uint32_t)(nvme->hmb.size / nvme->ctrl.page_size);
		cmd.cdw13 = (uint32_t)nvme->hmb.list.iova;
		cmd.cdw14 = (uint32_t)(nvme->hmb.list.iova >> 32);
		cmd.cdw15 = 1;
	}
	ret = gnv_admin_run(&nvme->admin, &cmd, NULL, 0, true, NULL);
	if (how || !ret)
		__atomic_store_n(&nvme->hmb.on, how && !ret, __ATOMIC_RELAXED);
	return ret;
}

static int refuse(struct gnv_nvme *nvme)
{
	const bool bare = nvme->port->space->bare;

	if (nvme->hmb.named && bare)
		return gnv_fail(-EINVAL,
				"without an IOMMU other devices could access the host memory (HMB) of %s, and the drive could "
				"access that memory after its release. Leave hmb= out",
				nvme->port->address);
	if (nvme->hmb.named)
		return gnv_fail(-EINVAL,
				"devices that share the address space of %s could access its host memory (HMB). Leave hmb= out, "
				"or open it without sharing",
				nvme->port->address);
	gnv_log(&nvme->log, GPUNVME_LOG_WARN,
		"the drive asks for %u MiB of host memory (HMB) and gets none, because %s. It may be slow", mib(nvme->hmb.asked),
		bare ? "there is no IOMMU" : "it shares its address space");
	return 0;
}

int gnv_hmb_give(struct gnv_nvme *nvme, uint32_t most, bool alone)
{
	int ret;

	nvme->hmb.named = most != GNV_HMB_UNSAID;
	most = nvme->hmb.named ? most : GNV_HMB_MIB;
	if (!alone || nvme->port->space->bare)
		__atomic_store_n(&nvme->hmb.shared, true, __ATOMIC_RELAXED);
	if (!nvme->hmb.asked || !most)
		return 0;
	if (gnv_hmb_denied(nvme))
		return refuse(nvme);
	ret = find(nvme, gnv_min(nvme->hmb.asked, (uint64_t)most << 20));
	if (ret || !nvme->hmb.size)
		return ret;
	ret = set(nvme, ENABLE);
	if (ret < 0)
		return ret;
	if (ret) {
		gnv_log(&nvme->log, GPUNVME_LOG_WARN, "the drive asks for memory of this machine and refuses it: %s", gpunvme_errmsg());
		return 0; /* so it says: the memory stays */
	}
	gnv_log(&nvme->log, GPUNVME_LOG_INFO, "the drive works in %u MiB of this machine's memory, and asks for %u",
		mib(nvme->hmb.size),
		mib(nvme->hmb.asked));
	return 0;
}

int gnv_hmb_return(struct gnv_nvme *nvme)
{
	uint32_t how;
	int ret;

	if (!nvme->hmb.size || gnv_hmb_denied(nvme))
		return 0;
	how = gnv_hmb_used(nvme) ? ENABLE | RETURNED : ENABLE;
	ret = set(nvme, how);
	if (ret > 0 && how & RETURNED) /* it does not know it any more, as after a function reset */
		ret = set(nvme, ENABLE);
	if (ret > 0)
		gnv_log(&nvme->log, GPUNVME_LOG_WARN, "after its reset the drive does not take the memory that it asks for: %s",
			gpunvme_errmsg());
	return ret < 0 ? ret : 0;
}

static int leave(struct gnv_nvme *nvme)
{
	int ret;

	if (nvme->hmb.named)
		return gnv_fail(-EBUSY,
				"%s uses host memory (HMB), which a device that shares its address space could access. Open it "
				"without hmb=, or do not share",
				nvme->port->address);
	ret = gnv_hmb_used(nvme) ? set(nvme, 0) : 0;
	if (ret > 0)
		return gnv_fail(-EBUSY, "%s does not leave the memory that it works in (hmb), and cannot share its address space: %s",
				nvme->port->address, gpunvme_strerror(ret));
	if (!ret)
		gnv_log(&nvme->log, GPUNVME_LOG_WARN,
			"the drive gives its host memory (HMB) back, because its address space is shared, and may be slow");
	return ret;
}

int gnv_hmb_make_way(struct gnv_nvme *nvme)
{
	int ret = nvme->hmb.size && !gnv_hmb_denied(nvme) ? leave(nvme) : 0;

	if (!ret)
		__atomic_store_n(&nvme->hmb.shared, true, __ATOMIC_RELAXED);
	return ret;
}

void gnv_hmb_take_back(struct gnv_nvme *nvme)
{
	if (gnv_hmb_used(nvme) && !gnv_ctrl_dead(&nvme->ctrl) && set(nvme, 0))
		gnv_log(&nvme->log, GPUNVME_LOG_WARN, "the drive does not leave the memory that it works in before it is stopped: %s",
			gpunvme_errmsg());
}

uint64_t gnv_hmb_used(const struct gnv_nvme *nvme)
{
	return __atomic_load_n(&nvme->hmb.on, __ATOMIC_RELAXED) ? nvme->hmb.size : 0;
}

bool gnv_hmb_denied(const struct gnv_nvme *nvme)
{
	return __atomic_load_n(&nvme->hmb.shared, __ATOMIC_RELAXED);
}
