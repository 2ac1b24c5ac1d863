/* SPDX-License-Identifier: MIT */
/*
 * The search itself. A list has the best nodes so far, the nearest first. The nearest of them that were not read yet, the beam,
 * are read together, and their neighbours join the list, until all of the list were read. One wave works on one query.
 *
 * search_whole() does all of that in one launch, with its reads. search_hop() does one step for each of many queries, for the
 * baseline, whose CPU threads have read the nodes.
 */
#ifndef GPUNVME_EXAMPLES_SEARCH_KERNEL_H
#define GPUNVME_EXAMPLES_SEARCH_KERNEL_H

#include "../front/front.h"
#include "search.h"

#define SEARCH_LIST 128u /* longest list */
#define SEARCH_BEAM 32u	 /* widest beam */

/* Of a node in the list: its distance, its number, and in bit 0 whether it was read. Nothing in the place: all ones. */
#define SEARCH_KEY(far, node) ((uint64_t)(far) << 33 | (uint64_t)(node) << 1)

/* A place for one query at a time: of a wave, or in the baseline of what is kept from step to step. */
struct search_slot {
	uint32_t query;
	uint32_t hops;
	uint32_t wanted; /* nodes to be read next. 0: the query is done */
	int status;
	uint32_t want[SEARCH_BEAM];
};

struct search_job {
	struct front front;
	unsigned char *blocks;	       /* `beam` nodes for each slot: where the reads go */
	struct search_slot *slot;
	uint64_t *list;		       /* SEARCH_LIST for each slot */
	uint64_t *found;	       /* and neighbours of a beam */
	const struct search_query *query;
	uint32_t count, start, beam, length;
	uint32_t (*answer)[SEARCH_TOP]; /* results, for each query */
	uint32_t *reads;
	int *status; /* of the whole */
	const uint32_t *batch; /* search_hop(): which slots */
	uint32_t batched;
};

FRONT_FN uint32_t search_square(uint32_t a, uint32_t b)
{
	uint32_t sum = 0, i;

	for (i = 0; i < 32; i += 8) {
		uint32_t x = a >> i & 255, y = b >> i & 255, d = x > y ? x - y : y - x;

		sum += d * d;
	}
	return sum;
}

/* Neighbours that a thread does at a time: those of a whole node where it is alone. */
#define SEARCH_EACH (FRONT_WIDTH < SEARCH_DEGREE ? SEARCH_DEGREE / FRONT_WIDTH : 1)

/* How far the neighbours of @count nodes are from the query. */
FRONT_FN void search_measure(const struct search_node *node, uint32_t count, const uint32_t *query, uint64_t *found)
{
	uint32_t sum[SEARCH_EACH], first, word, i;

	for (first = front_lane(); first < count * SEARCH_DEGREE; first += FRONT_WIDTH * SEARCH_EACH) {
		const struct search_node *n = &node[first / SEARCH_DEGREE];
		uint32_t at = first % SEARCH_DEGREE;

		for (i = 0; i < SEARCH_EACH; i++)
			sum[i] = 0;
		for (word = 0; word < SEARCH_WORDS; word++)
			for (i = 0; i < SEARCH_EACH; i++)
				sum[i] += search_square(query[word], n->vectors[word][at + i * FRONT_WIDTH]);
		for (i = 0; i < SEARCH_EACH; i++) {
			uint32_t next = n->next[at + i * FRONT_WIDTH];

			found[first + i * FRONT_WIDTH] = next == SEARCH_NOBODY ? ~0ull : SEARCH_KEY(sum[i], next);
		}
	}
	front_together();
}

/* One node joins the list, unless it is there or all are nearer. The wave moves the later ones. */
FRONT_FN void search_insert(uint64_t *list, uint32_t length, uint64_t key)
{
	uint32_t at = 0, end = length, top;

	if (key >= (list[length - 1] & ~1ull))
		return;
	while (at < end) {
		uint32_t middle = (at + end) / 2;

		if ((list[middle] & ~1ull) < key)
			at = middle + 1;
		else
			end = middle;
	}
	if ((list[at] & ~1ull) == key)
		return;
	for (top = length - 1; top > at; top -= top - at < FRONT_WIDTH ? top - at : FRONT_WIDTH) {
		uint32_t place = top - front_lane();
		int moves = front_lane() < top - at;
		uint64_t moved = moves ? list[place - 1] : 0;

		front_together();
		if (moves)
			list[place] = moved;
	}
	front_together();
	if (!front_lane())
		list[at] = key;
	front_together();
}

/* The next beam, or the result when all of the list were read. */
FRONT_FN void search_choose(const struct search_job *job, struct search_slot *slot, uint64_t *list)
{
	uint32_t n = 0, i;

	for (i = 0; i < job->length && n < job->beam; i++)
		if (!(list[i] & 1)) {
			slot->want[n++] = (uint32_t)(list[i] >> 1);
			list[i] |= 1;
		}
	slot->wanted = n;
	slot->hops++;
	job->reads[slot->query] += n;
	for (i = 0; !n && i < SEARCH_TOP; i++)
		job->answer[slot->query][i] = (uint32_t)(list[i] >> 1);
}

/* What was wanted lies in the slot's blocks. */
FRONT_FN void search_take(const struct search_job *job, uint32_t s)
{
	uint64_t *list = job->list + (uint64_t)s * SEARCH_LIST, *found = job->found + (uint64_t)s * SEARCH_BEAM * SEARCH_DEGREE;
	const unsigned char *blocks = job->blocks + (uint64_t)s * job->beam * SEARCH_NODE;
	struct search_slot *slot = &job->slot[s];
	uint32_t nodes = slot->wanted, i;

	for (i = front_lane(); !slot->hops && i < job->length; i += FRONT_WIDTH)
		list[i] = ~0ull;
	search_measure((const struct search_node *)blocks, nodes, job->query[slot->query].vector, found);
	for (i = 0; i < nodes * SEARCH_DEGREE; i++)
		search_insert(list, job->length, found[i]);
	if (!front_lane())
		search_choose(job, slot, list);
	front_together();
}

FRONT_FN void search_begin(const struct search_job *job, struct search_slot *slot, uint32_t query)
{
	if (!front_lane()) {
		slot->query = query;
		slot->hops = 0;
		slot->want[0] = job->start;
		slot->wanted = 1;
		job->reads[query] = 1;
	}
	front_together();
}

/* A wave reads its beam: all commands are on their way before it waits for the first. */
FRONT_FN void search_read(const struct search_job *job, uint32_t s)
{
	const struct gpunvme_dq *dq = &job->front.dq[s % job->front.queues];
	uint32_t b, sent = 0, i;
	struct gpunvme_req req[(SEARCH_BEAM + FRONT_WIDTH - 1) / FRONT_WIDTH];
	struct search_slot *slot = &job->slot[s];
	int ret = 0, err;

	for (b = front_lane(); b < slot->wanted && !ret; b += FRONT_WIDTH) {
		ret = gpunvme_submit_read(dq, &job->front.dbuf, ((uint64_t)s * job->beam + b) * SEARCH_NODE,
					  ((uint64_t)slot->want[b] + 1) * SEARCH_NODE, SEARCH_NODE, &req[sent]);
		sent += !ret;
	}
	for (i = 0; i < sent; i++) {
		err = gpunvme_wait(dq, &req[i], 0);
		ret = ret ? ret : err;
	}
	if (ret) {
		front_fail(&slot->status, ret);
		front_fail(job->status, ret);
	}
	front_together();
}

FRONT_FN void search_whole(const struct search_job *job)
{
	uint32_t s = front_wave(), query;
	struct search_slot *slot = &job->slot[s];

	for (query = s; query < job->count && !slot->status; query += front_waves()) {
		search_begin(job, slot, query);
		while (slot->wanted && !slot->status) {
			search_read(job, s);
			if (!slot->status)
				search_take(job, s);
		}
		front_together(); /* all have seen that it is over before one begins the next */
	}
}

FRONT_FN void search_hop(const struct search_job *job)
{
	uint32_t i;

	for (i = front_wave(); i < job->batched; i += front_waves())
		search_take(job, job->batch[i]);
}

FRONT_KERNEL(search_whole, search_job)
FRONT_KERNEL(search_hop, search_job)

#endif
