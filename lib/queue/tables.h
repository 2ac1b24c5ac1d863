/* SPDX-License-Identifier: MIT */
/* Tables of descriptors in memory that is local to threads. Equal tables are one. None changes while it exists. Any thread. */
#ifndef GNV_QUEUE_TABLES_H
#define GNV_QUEUE_TABLES_H

#include <pthread.h>

#include "gpu/gpu.h"

enum gnv_table_kind { GNV_TABLE_VIEWS, GNV_TABLE_BUFFERS };

struct gnv_table {
	struct gnv_table *next;
	enum gnv_table_kind kind;
	struct gnv_gpu_range range;
	size_t bytes;
	_Alignas(8) unsigned char content[]; /* the descriptors */
};

struct gnv_tables {
	struct gpunvme_gpu *gpu;
	pthread_mutex_t lock; /* protects the fields below */
	struct gnv_table *first;
	unsigned count, most; /* most: when there are so many it is worth looking for old ones */
};

void gnv_tables_init(struct gnv_tables *tables, struct gpunvme_gpu *gpu);
void gnv_tables_fini(struct gnv_tables *tables);

/* Get the address, for threads, of a table with this content. Return: 0, -ENOMEM, what the GPU returns. */
int gnv_tables_place(struct gnv_tables *tables, enum gnv_table_kind kind, const void *content, size_t bytes, uint64_t *lane);

/* Are there twice as many as when old ones were dropped last? Then it is time to look for them. */
bool gnv_tables_are_many(struct gnv_tables *tables);

/* Drop the tables for which @is_old says so. */
void gnv_tables_drop(struct gnv_tables *tables, bool (*is_old)(const void *ctx, const struct gnv_table *table), const void *ctx);

#endif
