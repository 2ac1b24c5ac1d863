/* SPDX-License-Identifier: MIT */
/* Memory of a device as the CPU reaches it: it combines what it writes there, and a GPU may hold that back until it is flushed. */
#include <errno.h>
#include <string.h>

#include "mem/mem.h"
#include "util/mmio.h"

void gnv_mem_far_fence(const struct gpunvme_mem *mem)
{
	gnv_mmio_drain();
	mem->gpu->ops->coherence(mem->gpu, GPUNVME_COHERENCE_HDP); /* where there is no such register nothing is held back */
}

/* An address of freed memory must not be followed, not by the runtime either, which would end the process. */
static int check(const struct gpunvme_mem *mem, uint64_t lane, size_t len)
{
	if (!mem->borrowed || !mem->gpu->ops->mem_check(mem->gpu, lane, len))
		return 0;
	return gnv_fail(-EFAULT, "memory of the GPU at 0x%llx was freed while it was mapped; call gpunvme_mem_free() before",
			(unsigned long long)lane);
}

int gnv_mem_far_get(const struct gpunvme_mem *mem, size_t offset, void *to, size_t len)
{
	uint64_t lane = mem->lane + offset;
	int ret = check(mem, lane, len);

	if (ret || !mem->cpu)
		return ret ? ret : mem->gpu->ops->peek(mem->gpu, to, lane, len);
	gnv_mem_far_fence(mem);
	memcpy(to, (const char *)mem->cpu + offset, len);
	return 0;
}

int gnv_mem_far_put(const struct gpunvme_mem *mem, size_t offset, const void *from, size_t len)
{
	uint64_t lane = mem->lane + offset;
	int ret = check(mem, lane, len);

	if (ret || !mem->cpu)
		return ret ? ret : mem->gpu->ops->poke(mem->gpu, lane, from, len);
	memcpy((char *)mem->cpu + offset, from, len);
	gnv_mem_far_fence(mem);
	return 0;
}
