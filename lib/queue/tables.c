/* SPDX-License-Identifier: MIT */
#include "queue/tables.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "util/bits.h"
#include "util/log.h"

#define FEW 16u

void gnv_tables_init(struct gnv_tables *tables, struct gpunvme_gpu *gpu)
{
	tables->gpu = gpu;
	tables->most = FEW;
	pthread_mutex_init(&tables->lock, NULL);
}

static void drop(struct gnv_tables *tables, struct gnv_table **link)
{
	struct gnv_table *table = *link;

	*link = table->next;
	tables->count--;
	tables->gpu->ops->local_free(tables->gpu, &table->range, table->bytes);
	free(table);
}

void gnv_tables_fini(struct gnv_tables *tables)
{
	while (tables->first)
		drop(tables, &tables->first);
	pthread_mutex_destroy(&tables->lock);
}

static struct gnv_table **find(struct gnv_tables *tables, enum gnv_table_kind kind, const void *content, size_t bytes)
{
	struct gnv_table **link = &tables->first;

	while (*link && ((*link)->kind != kind || (*link)->bytes != bytes || memcmp((*link)->content, content, bytes) != 0))
		link = &(*link)->next;
	return link;
}

static int add(struct gnv_tables *tables, enum gnv_table_kind kind, const void *content, size_t bytes, struct gnv_table **link)
{
	struct gnv_table *table = calloc(1, sizeof(*table) + bytes);
	int ret;

	if (!table)
		return gnv_fail(-ENOMEM, "out of memory");
	table->kind = kind;
	table->bytes = bytes;
	memcpy(table->content, content, bytes);
	ret = tables->gpu->ops->local_alloc(tables->gpu, bytes, &table->range);
	if (ret) {
		free(table);
		return ret;
	}
	*link = table;
	tables->count++;
	ret = tables->gpu->ops->poke(tables->gpu, table->range.lane, content, bytes);
	if (ret)
		drop(tables, link);
	return ret;
}

int gnv_tables_place(struct gnv_tables *tables, enum gnv_table_kind kind, const void *content, size_t bytes, uint64_t *lane)
{
	struct gnv_table **link;
	int ret = 0;

	pthread_mutex_lock(&tables->lock);
	link = find(tables, kind, content, bytes);
	if (!*link)
		ret = add(tables, kind, content, bytes, link);
	if (!ret)
		*lane = (*link)->range.lane;
	pthread_mutex_unlock(&tables->lock);
	return ret;
}

bool gnv_tables_are_many(struct gnv_tables *tables)
{
	bool many;

	pthread_mutex_lock(&tables->lock);
	many = tables->count >= tables->most;
	pthread_mutex_unlock(&tables->lock);
	return many;
}

void gnv_tables_drop(struct gnv_tables *tables, bool (*is_old)(const void *ctx, const struct gnv_table *table), const void *ctx)
{
	struct gnv_table **link;

	pthread_mutex_lock(&tables->lock);
	for (link = &tables->first; *link;) {
		if (is_old(ctx, *link))
			drop(tables, link);
		else
			link = &(*link)->next;
	}
	tables->most = (unsigned)gnv_max(FEW, 2ull * tables->count);
	pthread_mutex_unlock(&tables->lock);
}
