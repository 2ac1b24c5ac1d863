/* SPDX-License-Identifier: MIT */
/*
 * Memory for the views of a queue over all its devices: mapped to each, and described by a table.
 * Invariant: the table that a description points to never changes while it exists. Equal tables are one.
 */
#include <string.h>

#include "dma/mem_map.h"
#include "queue/queue.h"
#include "util/entry.h"

/* Descriptions for all devices. -EINVAL: one of them does not have it mapped. */
static int describe(const struct gpunvme_queue *queue, const struct gpunvme_mem *mem, struct gpunvme_dbuf *dbuf)
{
	uint32_t m;
	int ret = 0;

	for (m = 0; m < queue->devices && !ret; m++)
		ret = gpunvme_mem_dbuf(mem, queue->dev[m], &dbuf[m]);
	return ret;
}

/* Of memory that was unmapped or freed without gpunvme_mem_unmap_queue(). The first device shows that. */
static bool is_of_nothing(const void *ctx, const struct gnv_table *table)
{
	const struct gpunvme_queue *queue = ctx;

	return table->kind == GNV_TABLE_BUFFERS && !gnv_map_knows(queue->dev[0], (const void *)table->content);
}

GPUNVME_API int gpunvme_mem_map_queue(struct gpunvme_mem *mem, struct gpunvme_queue *queue, struct gpunvme_dvbuf *dvbuf)
{
	struct gpunvme_dbuf dbuf[GPUNVME_QUEUE_DEVICES];
	uint64_t table = 0;
	uint32_t m;
	int ret = gnv_enter(queue->gpu, mem && queue && dvbuf, "mem, queue and dvbuf");

	if (ret)
		return ret;
	for (m = 0; m < queue->devices; m++) {
		ret = gpunvme_mem_map(mem, queue->dev[m]);
		if (ret)
			return ret;
	}
	ret = describe(queue, mem, dbuf);
	if (ret)
		return ret;
	if (gnv_tables_are_many(&queue->tables))
		gnv_tables_drop(&queue->tables, is_of_nothing, queue);
	ret = gnv_tables_place(&queue->tables, GNV_TABLE_BUFFERS, dbuf, queue->devices * sizeof(dbuf[0]), &table);
	if (ret)
		return ret;
	*dvbuf = (struct gpunvme_dvbuf){ dbuf[0].base, dbuf[0].len, table, 0 };
	return 0;
}

/* Descriptions of a memory for all devices. They differ, so the first identifies the memory. */
static bool is_of_buffer(const void *dbuf, const struct gnv_table *table)
{
	return table->kind == GNV_TABLE_BUFFERS && !memcmp(table->content, dbuf, sizeof(struct gpunvme_dbuf));
}

GPUNVME_API int gpunvme_mem_unmap_queue(struct gpunvme_mem *mem, struct gpunvme_queue *queue)
{
	struct gpunvme_dbuf dbuf[GPUNVME_QUEUE_DEVICES];
	struct gnv_message cause = { .text = "" };
	int ret = gnv_enter(queue->gpu, mem && queue, "mem and queue"), err;
	uint32_t m;

	if (ret)
		return ret;
	if (!describe(queue, mem, dbuf))
		gnv_tables_drop(&queue->tables, is_of_buffer, dbuf);
	for (m = 0; m < queue->devices; m++) {
		err = gpunvme_mem_unmap(mem, queue->dev[m]);
		if (err && !ret)
			cause = gnv_message();
		ret = ret ? ret : err;
	}
	return ret ? gnv_fail_again(ret, &cause) : 0;
}
