/* SPDX-License-Identifier: MIT */
/*
 * Memory as threads see it.
 * Invariant: a memory is attached to a GPU while it has users there, and holds a reference to that GPU as long.
 */
#include <errno.h>
#include <stdlib.h>

#include "mem/mem.h"
#include "os/linux/dmabuf.h"

/* Users that have one that is fenced off keep it. New users do not get it. */
static struct gnv_visibility **find(struct gpunvme_mem *mem, const struct gpunvme_gpu *gpu)
{
	struct gnv_visibility **link;

	for (link = &mem->visible_to; *link && ((*link)->gpu != gpu || (*link)->range.fenced_off); link = &(*link)->next)
		;
	return link;
}

struct gnv_visibility *gnv_mem_visibility(struct gpunvme_mem *mem, const struct gpunvme_gpu *gpu)
{
	return *find(mem, gpu);
}

int gnv_mem_show(struct gpunvme_mem *mem, struct gpunvme_gpu *gpu, size_t offset, size_t len, uint64_t *lane)
{
	struct gnv_visibility **link = find(mem, gpu), *visible = *link;
	int ret;

	if (!visible) {
		visible = calloc(1, sizeof(*visible));
		if (!visible)
			return gnv_fail(-ENOMEM, "out of memory");
		ret = mem->ops->attach(mem, gpu, offset, len, &visible->range);
		if (ret) {
			free(visible);
			return ret;
		}
		visible->gpu = gnv_gpu_get(gpu);
		*link = visible;
	}
	visible->users++;
	*lane = visible->range.lane;
	return 0;
}

static int detach(struct gpunvme_mem *mem, struct gnv_visibility **link)
{
	struct gnv_visibility *visible = *link;
	int ret = mem->ops->detach(mem, visible->gpu, &visible->range);

	*link = visible->next;
	if (!ret)
		gnv_gpu_put(visible->gpu); /* else the GPU stays as well */
	free(visible);
	return ret;
}

static int leave(struct gpunvme_mem *mem, struct gnv_visibility *visible)
{
	struct gnv_visibility **link;

	if (--visible->users)
		return 0;
	for (link = &mem->visible_to; *link != visible; link = &(*link)->next)
		;
	return detach(mem, link);
}

int gnv_mem_hide(struct gpunvme_mem *mem, struct gpunvme_gpu *gpu)
{
	return leave(mem, *find(mem, gpu));
}

int gnv_mem_hide_at(struct gpunvme_mem *mem, const struct gpunvme_gpu *gpu, uint64_t lane)
{
	struct gnv_visibility *visible;

	for (visible = mem->visible_to; visible->gpu != gpu || visible->range.lane != lane; visible = visible->next)
		;
	return leave(mem, visible);
}

int gnv_mem_fence_off(struct gpunvme_mem *mem, bool reset)
{
	struct gnv_visibility *visible;
	int ret = 0, failed;

	for (visible = mem->visible_to; visible; visible = visible->next) {
		failed = visible->gpu->ops->mmio_fence_off(visible->gpu, &visible->range, reset);
		ret = ret ? ret : failed;
	}
	return ret;
}

int gnv_mem_renew(struct gpunvme_mem *mem)
{
	const struct gnv_visibility *visible;
	int ret = 0;

	for (visible = mem->ops->attach == gnv_mem_attach_host ? mem->visible_to : NULL; visible && !ret; visible = visible->next)
		if (visible->gpu->ops->host_renew)
			ret = visible->gpu->ops->host_renew(visible->gpu, &visible->range);
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
