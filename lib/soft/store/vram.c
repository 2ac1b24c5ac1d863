/* SPDX-License-Identifier: MIT */
/*
 * Blocks in the memory of a GPU: vram:SIZE. This file has only the facts about them. The memory belongs to an engine on the GPU,
 * which also executes all steps. A step gets here only if an engine of threads has this store by mistake, and is refused.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "os/linux/sys.h"
#include "soft/store/idle.h"
#include "util/clock.h"
#include "util/size.h"

#define PREFIX "vram:"
#define MAX_BYTES (1u << 20) /* of one command: its pieces have room in the engine */

static bool vram_owns(const char *address)
{
	return !strncmp(address, PREFIX, strlen(PREFIX));
}

static int check_size(const struct gnv_soft_config *config, uint64_t *size)
{
	const char *text = config->path + strlen(PREFIX);
	int ret = gnv_size_parse(text, size);

	if (ret == -EINVAL)
		return gnv_fail(ret,
				"soft:vram:%.100s: memory of a GPU is named by its size, as in soft:vram:64G (K, M, G, T). A file of that "
				"name is soft:./vram:%.100s",
				text, text);
	if (ret || *size > PTRDIFF_MAX / 2)
		return gnv_fail(-ENOMEM, "soft:vram:%.100s is more than a GPU has. Use a smaller size", text);
	if (*size < config->lba_size || *size % config->lba_size)
		return gnv_fail(-EINVAL, "soft:vram:%.100s has no whole number of blocks of %u bytes. Change its size or the block size",
				text, config->lba_size);
	if (config->read_only && !config->image)
		return gnv_fail(-EINVAL, "soft:vram:%.100s begins with zeroes, and with ro=1 it would never hold data. Leave ro out, or use "
					 "image=FILE",
				text);
	return 0;
}

/* No two are one drive, as of memory of the host (ram.c). */
static int vram_open(const struct gnv_soft_config *config, const struct gnv_log *log, struct gnv_soft_store **out)
{
	struct gnv_soft_store *store;
	uint64_t size;
	int ret = check_size(config, &size);

	(void)log;
	if (ret)
		return ret;
	store = calloc(1, sizeof(*store));
	if (!store)
		return gnv_fail(-ENOMEM, "out of memory");
	*store = (struct gnv_soft_store){ .ops = &gnv_soft_store_vram,
					  .size = size,
					  .max_bytes = MAX_BYTES,
					  .medium = { .kind = GPUNVME_MEDIUM_GPU },
					  .read_only = config->read_only,
					  .id = { gnv_clock_ns(), (uintptr_t)store ^ (uint64_t)gnv_sys_process() << 48 } };
	*out = store;
	return 0;
}

static void vram_close(struct gnv_soft_store *store)
{
	free(store);
}

static int vram_explain(int error)
{
	return gnv_fail(error, "vram:SIZE can only be a namespace of a drive whose first namespace is that, too: soft:vram:SIZE");
}

static int vram_attach(struct gnv_soft_seat *seat)
{
	return strcmp(seat->soft->engine->name, "threads") ? 0 : -EINVAL;
}

static int vram_start(struct gnv_soft_seat *seat, struct gnv_soft_cmd *cmd)
{
	(void)seat;
	(void)cmd;
	return -EINVAL;
}

const struct gnv_soft_store_ops gnv_soft_store_vram = {
	.name = "vram",
	.owns = vram_owns,
	.open = vram_open,
	.close = vram_close,
	.explain = vram_explain,
	.attach = vram_attach,
	.detach = gnv_soft_idle_detach,
	.start = vram_start,
	.submit = gnv_soft_idle_submit,
	.take_back = gnv_soft_idle_take_back,
	.reap = gnv_soft_idle_reap,
	.wait = gnv_soft_idle_wait,
	.tidy = gnv_soft_idle_detach,
};
