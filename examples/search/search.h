/* SPDX-License-Identifier: MIT */
/*
 * The data set of the search, in one file or at the start of one drive: a head of 4 KiB, a graph of nodes of one size, queries
 * with their exact results. Vectors are bytes, and distances are whole numbers, so that all processors agree.
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
	uint32_t bytes; /* of a node */
	uint32_t entries; /* nodes 0 to this one are in all parts of the graph. Their codes lie after the queries */
	uint32_t spare[(SEARCH_NODE - 32) / 4];
};

/*
 * A node has SEARCH_VECTOR words, the numbers of its neighbours, and a code for each of them. All words of a node are in use. The
 * code is the neighbour's vector where it fits, as in struct search_node, else its part along the main axes of the data set.
 */
#define SEARCH_VECTOR (2 + SEARCH_WORDS) /* words: its number, 0, its vector */

struct search_shape {
	uint32_t bytes;	 /* of a node */
	uint32_t degree; /* neighbours */
	uint32_t words;	 /* of a code */
};

#define SEARCH_SHAPES { { 512, 24, 3 }, { 1024, 32, 6 }, { SEARCH_NODE, SEARCH_DEGREE, SEARCH_WORDS } }

/*
 * A node of 4 KiB. With the codes of its neighbours a reader knows which of them to read next. They are stored word by word, so
 * that the threads of a wave, each with a neighbour, load words that lie together. Node i lies at 4 KiB + i * its size.
 */
struct search_node {
	uint32_t number, spare;
	uint32_t vector[SEARCH_WORDS];
	uint32_t next[SEARCH_DEGREE]; /* SEARCH_NOBODY: it has not so many */
	uint32_t vectors[SEARCH_WORDS][SEARCH_DEGREE];
};

struct search_query {
	uint32_t vector[SEARCH_WORDS];
	uint32_t code[SEARCH_WORDS];
	uint32_t answer[SEARCH_TOP]; /* the nearest first */
};

struct search_entry {
	uint32_t code[SEARCH_WORDS];
};

/* Where the queries lie in the file. */
static inline uint64_t search_queries_at(const struct search_head *head)
{
	return SEARCH_NODE + (uint64_t)head->nodes * head->bytes;
}

#endif
