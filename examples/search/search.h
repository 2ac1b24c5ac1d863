/* SPDX-License-Identifier: MIT */
/*
 * The data set of the search, in one file or at the start of one drive: a head, then a graph with a node in each 4 KiB, then
 * queries with their exact results. Vectors are bytes and distances whole numbers, so that all processors agree.
 */
#ifndef GPUNVME_EXAMPLES_SEARCH_H
#define GPUNVME_EXAMPLES_SEARCH_H

#include <stdint.h>

#define SEARCH_MAGIC 0x4850415247454d56ull
#define SEARCH_NODE 4096u
#define SEARCH_WORDS 30u  /* of four dimensions each */
#define SEARCH_DEGREE 32u /* neighbours of a node */
#define SEARCH_TOP 10u	  /* results of a query */
#define SEARCH_NOBODY 0xffffffffu

struct search_head {
	uint64_t magic;
	uint32_t nodes, queries;
	uint32_t start; /* the node where every search begins */
	uint32_t spare[(SEARCH_NODE - 20) / 4];
};

/*
 * A node has the numbers and the vectors of its neighbours, so a thread that has read it knows which of them to read next. The
 * vectors are stored word by word: the threads of a wave, each with a neighbour, load neighbouring words. Node i is at
 * (i + 1) * 4 KiB.
 */
struct search_node {
	uint32_t number, spare;
	uint32_t vector[SEARCH_WORDS];
	uint32_t next[SEARCH_DEGREE]; /* SEARCH_NOBODY: it has not so many */
	uint32_t vectors[SEARCH_WORDS][SEARCH_DEGREE];
};

struct search_query {
	uint32_t vector[SEARCH_WORDS];
	uint32_t answer[SEARCH_TOP]; /* the nearest first */
};

/* Room of the queries in the file. */
static inline uint64_t search_bytes(const struct search_head *head)
{
	return ((uint64_t)head->nodes + 1) * SEARCH_NODE + (uint64_t)head->queries * sizeof(struct search_query);
}

#endif
