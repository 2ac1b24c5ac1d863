/* SPDX-License-Identifier: MIT */
/*
 * Invariant: what is in `marked` was unmapped before the queues were marked, and goes when no command from before the marks is in
 * flight. What was unmapped since waits for the next marks: so lists come back although there are always commands in flight.
 */
#include "queue/late.h"

#include <stdlib.h>

#include "queue/qp.h"

static void mark_queues(struct gpunvme_dev *dev)
{
	struct gpunvme_qp *qp;

	for (qp = dev->qps; qp; qp = qp->next)
		qp->mark = gnv_qp_position(qp);
}

static bool is_waited_for(const struct gpunvme_dev *dev)
{
	const struct gpunvme_qp *qp;

	for (qp = dev->qps; qp; qp = qp->next)
		if (gnv_qp_may_reach(qp) && gnv_qp_oldest(qp) < qp->mark)
			return true;
	return false;
}

static void give_back(struct gnv_mapping *map)
{
	struct gnv_mapping *next;

	for (; map; map = next) {
		next = map->next_of_dev;
		gnv_arena_free(map->table_of, &map->table);
		free(map);
	}
}

void gnv_late_add(struct gpunvme_dev *dev, struct gnv_mapping *map)
{
	map->next_of_dev = dev->late.fresh;
	dev->late.fresh = map;
}

/* With dev->lock held. Return: what can be given back now. */
static struct gnv_mapping *take(struct gpunvme_dev *dev)
{
	struct gnv_mapping *first = dev->late.marked;

	if (!first && dev->late.fresh) {
		first = dev->late.marked = dev->late.fresh;
		dev->late.fresh = NULL;
		mark_queues(dev);
	}
	if (!first || is_waited_for(dev))
		return NULL;
	dev->late.marked = NULL;
	return first;
}

void gnv_late_sweep(struct gpunvme_dev *dev)
{
	struct gnv_mapping *map;

	do {
		pthread_mutex_lock(&dev->lock);
		map = take(dev);
		pthread_mutex_unlock(&dev->lock);
		give_back(map);
	} while (map);
}

void gnv_late_drop(struct gpunvme_dev *dev)
{
	give_back(dev->late.marked);
	give_back(dev->late.fresh);
	dev->late.marked = dev->late.fresh = NULL;
}
