/* SPDX-License-Identifier: MIT */
/*
 * Invariant: mappings in `marked` were unmapped before the queues were marked, and go when no command from before the marks is in
 * flight. Mappings that were unmapped since wait for the next marks. So lists come back although there are always commands in
 * flight.
 */
#include "dma/deferred_free.h"

#include <stdlib.h>

static void give_back(struct gnv_mapping *map)
{
	struct gnv_mapping *next;

	for (; map; map = next) {
		next = map->next_of_dev;
		gnv_arena_free(map->table_of, &map->table);
		free(map);
	}
}

void gnv_deferred_free(struct gpunvme_dev *dev, struct gnv_mapping *map)
{
	map->next_of_dev = dev->dma.late.fresh;
	dev->dma.late.fresh = map;
}

/* With dev->lock held. Return: the mappings that can be given back now. */
static struct gnv_mapping *take(struct gpunvme_dev *dev)
{
	struct gnv_mapping *first = dev->dma.late.marked;

	if (!first && dev->dma.late.fresh) {
		first = dev->dma.late.marked = dev->dma.late.fresh;
		dev->dma.late.fresh = NULL;
		gnv_queues_mark(dev);
	}
	if (!first || gnv_queues_before_mark(dev))
		return NULL;
	dev->dma.late.marked = NULL;
	return first;
}

void gnv_deferred_free_unused(struct gpunvme_dev *dev)
{
	struct gnv_mapping *map;

	do {
		pthread_mutex_lock(&dev->lock);
		map = take(dev);
		pthread_mutex_unlock(&dev->lock);
		give_back(map);
	} while (map);
}

int gnv_deferred_free_explain(struct gpunvme_dev *dev, int ret)
{
	uint32_t qid;

	pthread_mutex_lock(&dev->lock);
	qid = dev->dma.late.marked ? gnv_queues_before_mark(dev) : 0;
	if (qid)
		gnv_fail(ret, "%s. PRP lists of unmapped memory wait for commands of queue %u that were in flight: let them end, "
			      "or recover it",
			 gpunvme_errmsg(), qid);
	pthread_mutex_unlock(&dev->lock);
	return ret;
}

void gnv_deferred_free_all(struct gpunvme_dev *dev)
{
	give_back(dev->dma.late.marked);
	give_back(dev->dma.late.fresh);
	dev->dma.late.marked = dev->dma.late.fresh = NULL;
}
