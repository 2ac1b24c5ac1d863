/* SPDX-License-Identifier: MIT */
/*
 * Memory as threads see it.
 * Invariant: a memory is attached to a GPU while it has users there, and holds a reference to that GPU as long.
 */
#include <errno.h>
#include <stdlib.h>

#include "mem/mem.h"
#include "os/linux/dmabuf.h"

/* Users that have a blind one keep it. New users do not get it. */
static struct gnv_sight **find(struct gpunvme_mem *mem, const struct gpunvme_gpu *gpu)
{
	struct gnv_sight **link;

	for (link = &mem->sights; *link && ((*link)->gpu != gpu || (*link)->range.blind); link = &(*link)->next)
		;
	return link;
}

struct gnv_sight *gnv_mem_sight(struct gpunvme_mem *mem, const struct gpunvme_gpu *gpu)
{
	return *find(mem, gpu);
}

int gnv_mem_show(struct gpunvme_mem *mem, struct gpunvme_gpu *gpu, size_t offset, size_t len, uint64_t *lane)
{
	struct gnv_sight **link = find(mem, gpu), *sight = *link;
	int ret;

	if (!sight) {
		sight = calloc(1, sizeof(*sight));
		if (!sight)
			return gnv_fail(-ENOMEM, "out of memory");
		ret = mem->ops->attach(mem, gpu, offset, len, &sight->range);
		if (ret) {
			free(sight);
			return ret;
		}
		sight->gpu = gnv_gpu_get(gpu);
		*link = sight;
	}
	sight->users++;
	*lane = sight->range.lane;
	return 0;
}

static int detach(struct gpunvme_mem *mem, struct gnv_sight **link)
{
	struct gnv_sight *sight = *link;
	int ret = mem->ops->detach(mem, sight->gpu, &sight->range);

	*link = sight->next;
	if (!ret)
		gnv_gpu_put(sight->gpu); /* else the GPU stays as well */
	free(sight);
	return ret;
}

static int leave(struct gpunvme_mem *mem, struct gnv_sight *sight)
{
	struct gnv_sight **link;

	if (--sight->users)
		return 0;
	for (link = &mem->sights; *link != sight; link = &(*link)->next)
		;
	return detach(mem, link);
}

int gnv_mem_hide(struct gpunvme_mem *mem, struct gpunvme_gpu *gpu)
{
	return leave(mem, *find(mem, gpu));
}

int gnv_mem_hide_at(struct gpunvme_mem *mem, const struct gpunvme_gpu *gpu, uint64_t lane)
{
	struct gnv_sight *sight;

	for (sight = mem->sights; sight->gpu != gpu || sight->range.lane != lane; sight = sight->next)
		;
	return leave(mem, sight);
}

int gnv_mem_blind(struct gpunvme_mem *mem, bool reset)
{
	struct gnv_sight *sight;
	int ret = 0, failed;

	for (sight = mem->sights; sight; sight = sight->next) {
		failed = sight->gpu->ops->mmio_blind(sight->gpu, &sight->range, reset);
		ret = ret ? ret : failed;
	}
	return ret;
}

int gnv_mem_renew(struct gpunvme_mem *mem)
{
	const struct gnv_sight *sight;
	int ret = 0;

	for (sight = mem->ops->attach == gnv_mem_attach_host ? mem->sights : NULL; sight && !ret; sight = sight->next)
		if (sight->gpu->ops->host_renew)
			ret = sight->gpu->ops->host_renew(sight->gpu, &sight->range);
	return ret;
}

int gnv_mem_attach_host(struct gpunvme_mem *mem, struct gpunvme_gpu *gpu, size_t offset, size_t len, struct gnv_gpu_range *range)
{
	return gpu->ops->host_attach(gpu, (char *)mem->cpu + offset, len, range);
}

int gnv_mem_detach_host(struct gpunvme_mem *mem, struct gpunvme_gpu *gpu, struct gnv_gpu_range *range)
{
	(void)mem;
	return gpu->ops->host_detach(gpu, range);
}

struct part {
	const struct gpunvme_mem *mem;
	size_t offset;
};

static int export_part(void *ctx, int *fd, uint64_t *offset)
{
	const struct part *part = ctx;
	int ret;

	if (part->mem->dmabuf < 0)
		return gnv_fail(-EOPNOTSUPP, "there is no DMA-BUF of that memory");
	ret = gnv_dmabuf_dup(part->mem->dmabuf, fd);
	if (ret)
		return gnv_fail(ret, "no descriptor for the DMA-BUF. Raise RLIMIT_NOFILE (ulimit -n)");
	*offset = part->mem->dmabuf_offset + part->offset;
	return 0;
}

int gnv_mem_attach_foreign(struct gpunvme_mem *mem, struct gpunvme_gpu *gpu, size_t offset, size_t len, struct gnv_gpu_range *range)
{
	struct part part = { mem, offset };
	const struct gnv_gpu_foreign foreign = { mem->cpu ? (char *)mem->cpu + offset : NULL, len, export_part, &part, true };

	return gpu->ops->mmio_attach(gpu, &foreign, range);
}

int gnv_mem_detach_foreign(struct gpunvme_mem *mem, struct gpunvme_gpu *gpu, struct gnv_gpu_range *range)
{
	(void)mem;
	return gpu->ops->mmio_detach(gpu, range);
}
