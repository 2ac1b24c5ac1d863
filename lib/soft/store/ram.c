/* SPDX-License-Identifier: MIT */
/*
 * Blocks in memory of this process: soft:ram:SIZE. They are zeroes at first and gone when the controller is closed. There is no
 * guarantee about a loss of power, as with a drive whose cache is volatile and never written back. The system provides pages at the
 * first write. Every step is done at once.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "os/linux/sys.h"
#include "soft/store/idle.h"
#include "util/bits.h"
#include "util/clock.h"
#include "util/size.h"

#define PREFIX "ram:"
#define HUGE_PAGE (2u << 20)

struct store_ram {
	struct gnv_soft_store store;
	char *bytes;
	size_t len; /* mapped */
};

static struct store_ram *ram_of(struct gnv_soft_store *store)
{
	return gnv_container_of(store, struct store_ram, store);
}

/* ---- Opening ---- */

static bool ram_owns(const char *address)
{
	return !strncmp(address, PREFIX, strlen(PREFIX));
}

static int check_size(const struct gnv_soft_config *config, uint64_t *size)
{
	const char *text = config->path + strlen(PREFIX);
	int ret = gnv_size_parse(text, size);

	if (ret == -EINVAL)
		return gnv_fail(ret,
				"soft:ram:%.100s: memory is named by its size, as in soft:ram:64M (K, M, G, T). A file of that name is "
				"soft:./ram:%.100s",
				text, text);
	if (ret || *size > PTRDIFF_MAX - HUGE_PAGE)
		return gnv_fail(-ENOMEM, "soft:ram:%.100s is more than an address space holds. Use a smaller size", text);
	if (*size < config->lba_size || *size % config->lba_size)
		return gnv_fail(-EINVAL, "soft:ram:%.100s has no whole number of blocks of %u bytes. Change its size or the block size",
				text, config->lba_size);
	if (config->read_only)
		return gnv_fail(-EINVAL, "soft:ram:%.100s begins with zeroes, and with ro=1 it would never hold data. Leave ro out, or use a "
					 "file",
				text);
	return 0;
}

/* No two are one drive, now or in another process: their names come from the time and the address. */
static struct gnv_soft_store *new_store(void *bytes, size_t len, uint64_t size)
{
	struct store_ram *ram = calloc(1, sizeof(*ram));

	if (!ram)
		return NULL;
	ram->bytes = bytes;
	ram->len = len;
	ram->store.ops = &gnv_soft_store_ram;
	ram->store.size = size;
	ram->store.medium.kind = GPUNVME_MEDIUM_MEMORY;
	ram->store.id[0] = gnv_clock_ns();
	ram->store.id[1] = (uintptr_t)bytes ^ (uint64_t)gnv_sys_process() << 48;
	ram->store.reaches_far = true;
	return &ram->store; /* quiet -Wanalyzer-malloc-leak: ram_close() frees the structure, of which it is the first member */
}

static int ram_open(const struct gnv_soft_config *config, const struct gnv_log *log, struct gnv_soft_store **store)
{
	struct gnv_soft_store *made;
	uint64_t size;
	size_t len;
	void *bytes;
	int ret = check_size(config, &size);

	(void)log;
	if (ret)
		return ret;
	len = (size_t)gnv_align_up(size, HUGE_PAGE);
	if (gnv_sys_map(len, HUGE_PAGE, false, &bytes))
		return gnv_fail(-ENOMEM, "the system has no %llu MiB of memory for %.100s. Use a smaller size, or a file",
				(unsigned long long)(size >> 20), config->path);
	made = new_store(bytes, len, size);
	if (!made) {
		gnv_sys_unmap(bytes, len);
		return gnv_fail(-ENOMEM, "out of memory");
	}
	*store = made;
	return 0;
}

static void ram_close(struct gnv_soft_store *store)
{
	gnv_sys_unmap(ram_of(store)->bytes, ram_of(store)->len);
	free(ram_of(store));
}

/* ---- Steps ---- */

/* A transfer through private memory may be done in parts (GNV_SOFT_SHORT), another never is. */
static int move(struct gnv_soft_seat *seat, struct gnv_soft_cmd *cmd, char *at)
{
	const struct gnv_soft_dma *dma = seat->dma;
	const size_t len = (size_t)(cmd->op.len - cmd->done);
	const bool write = cmd->op.opc == GPUNVME_IO_WRITE;

	if (cmd->data->bounce && write)
		memcpy(at, cmd->data->bounce + cmd->done, len);
	else if (cmd->data->bounce)
		memcpy(cmd->data->bounce + cmd->done, at, len);
	else if (write ? gnv_soft_segs_read(dma, &cmd->data->segs, at, len) : gnv_soft_segs_write(dma, &cmd->data->segs, at, len))
		return -EFAULT;
	return (int)gnv_min(len, INT_MAX);
}

/* Return deallocated blocks to the system. Do the same for zeroes if that is faster than writing them. */
static void zero(char *at, uint64_t len, bool deallocate)
{
	if (deallocate || len >= HUGE_PAGE)
		gnv_sys_clear(at, (size_t)len);
	else
		memset(at, 0, (size_t)len);
}

static void deallocate(const struct gnv_soft_cmd *cmd, char *bytes)
{
	const struct gpunvme_dsm_range *range = (const struct gpunvme_dsm_range *)(const void *)cmd->data->bounce + cmd->done;
	const unsigned shift = cmd->part->ns.lba_shift;
	const uint64_t len = (uint64_t)range->nlb << shift;

	if (gnv_soft_has(cmd->io->quirks, GNV_SOFT_UNSAID))
		memset(bytes + (range->slba << shift), 0xff, (size_t)gnv_min(len, GNV_SOFT_FILL));
	else
		zero(bytes + (range->slba << shift), len, true);
}

static int ram_start(struct gnv_soft_seat *seat, struct gnv_soft_cmd *cmd)
{
	char *bytes = ram_of(seat->store)->bytes;

	switch (cmd->stage) {
	case GNV_SOFT_STAGE_RW:
	case GNV_SOFT_STAGE_COMPARE:
		return move(seat, cmd, bytes + cmd->op.offset + cmd->done);
	case GNV_SOFT_STAGE_ZERO:
	case GNV_SOFT_STAGE_FILL:
		zero(bytes + cmd->op.offset, cmd->op.len, cmd->op.deallocate);
		return (int)gnv_min(cmd->op.len, INT_MAX);
	case GNV_SOFT_STAGE_DSM:
		deallocate(cmd, bytes);
		return 0;
	case GNV_SOFT_STAGE_WHOLE: /* that is for a drive */
		break;
	case GNV_SOFT_STAGE_SYNC:
		return 0;
	}
	return -EINVAL;
}

static int ram_explain(int error)
{
	(void)error;
	return 0;
}

const struct gnv_soft_store_ops gnv_soft_store_ram = {
	.name = "ram",
	.owns = ram_owns,
	.open = ram_open,
	.close = ram_close,
	.attach = gnv_soft_idle_submit,
	.explain = ram_explain,
	.detach = gnv_soft_idle_detach,
	.start = ram_start,
	.submit = gnv_soft_idle_submit,
	.take_back = gnv_soft_idle_take_back,
	.reap = gnv_soft_idle_reap,
	.wait = gnv_soft_idle_wait,
	.tidy = gnv_soft_idle_detach,
};
