/* SPDX-License-Identifier: MIT */
/* Access to memory of a device by the CPU. The CPU combines its writes there, and a GPU may hold them back until a flush. */
#include <errno.h>
#include <string.h>

#include "mem/mem.h"
#include "util/mmio.h"

/* A function of SR-IOV has no register (Linux nbio_v7_9.c, nbio_v7_9_set_reg_remap): a read completes after earlier writes. */
static void flush_writes(const struct gpunvme_mem *mem, size_t last)
{
	gnv_mmio_drain();
	if (mem->gpu->ops->coherence(mem->gpu, GPUNVME_COHERENCE_HDP) && mem->cpu)
		(void)*((const volatile char *)mem->cpu + last);
}

void gnv_mem_far_fence(const struct gpunvme_mem *mem)
{
	flush_writes(mem, mem->len - 1);
}

bool gnv_mem_is_there(const struct gpunvme_mem *mem)
{
	const struct gnv_alloc alloc = { .tag = mem->tag, .tagged = mem->tagged };

	if (!mem->borrowed)
		return true;
	if (mem->tag)
		return mem->gpu->ops->mem_same(mem->gpu, (void *)(uintptr_t)mem->lane, &alloc);
	return !mem->gpu->ops->mem_check(mem->gpu, mem->lane, mem->len);
}

/* An address of freed memory must not be followed, not by the runtime either, which would end the process. */
int gnv_mem_check_there(const struct gpunvme_mem *mem)
{
	if (gnv_mem_is_there(mem))
		return 0;
	return gnv_fail(-EFAULT, "memory of the GPU at 0x%llx was freed while it was registered. Call gpunvme_mem_free() first",
			(unsigned long long)mem->lane);
}

int gnv_mem_far_get(const struct gpunvme_mem *mem, size_t offset, void *to, size_t len)
{
	uint64_t lane = mem->lane + offset;
	int ret = gnv_mem_check_there(mem);

	if (ret || !mem->cpu)
		return ret ? ret : mem->gpu->ops->peek(mem->gpu, to, lane, len);
	gnv_mem_far_fence(mem);
	memcpy(to, (const char *)mem->cpu + offset, len);
	return 0;
}

int gnv_mem_far_put(const struct gpunvme_mem *mem, size_t offset, const void *from, size_t len)
{
	uint64_t lane = mem->lane + offset;
	int ret = gnv_mem_check_there(mem);

	if (ret || !mem->cpu)
		return ret ? ret : mem->gpu->ops->poke(mem->gpu, lane, from, len);
	memcpy((char *)mem->cpu + offset, from, len);
	flush_writes(mem, offset + len - 1);
	return 0;
}
