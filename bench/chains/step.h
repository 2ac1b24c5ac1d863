/* SPDX-License-Identifier: MIT */
/*
 * A step of a search in a graph (examples/search/search.h) by a whole wave. A query has a list of the best nodes so far, by the
 * codes that their neighbours have of them, nearest first. The nearest nodes of the list that were not read yet are the beam. When
 * they have arrived, their neighbours join the list, and their own exact distances the result.
 *
 * A query begins with the nearest of some entries, whose codes are in memory.
 *
 * List, neighbours and result lie in shared memory. Every place of a node in the list is computed at once: by a binary search in
 * the list, and by counting the other new nodes that are nearer.
 */
#ifndef BENCH_CHAINS_STEP_H
#define BENCH_CHAINS_STEP_H

#include "../../examples/search/search.h"
#include "wave.h"

#define STEP_LIST 128u	/* longest list */
#define STEP_BEAM 4u	/* nodes of a step */
#define STEP_NOBODY (~0ull)
#define STEP_NONE ((1ull << 40) - 1) /* in place of a node that is wanted */

/* Of a node: its distance, its number, and in bit 0 of a list whether it was wanted. */
#define STEP_KEY(far, node) ((uint64_t)(far) << 33 | (uint64_t)(node) << 1)

template <uint32_t BYTES> struct step_shape;
template <> struct step_shape<512> {
	static const uint32_t degree = 24, words = 3, at_once = 3;
};
template <> struct step_shape<1024> {
	static const uint32_t degree = 32, words = 6, at_once = 4;
};
template <> struct step_shape<4096> {
	static const uint32_t degree = 32, words = 30, at_once = 2;
};

/* What all queries have in common, in memory of the threads. */
struct step_graph {
	const struct search_query *query;
	const struct search_entry *entry;
	uint32_t queries, entries;
	uint32_t length; /* of a list: 10 to STEP_LIST */
};

/* A query that a wave works on. */
struct step {
	uint64_t list[STEP_LIST];
	uint64_t found[STEP_BEAM * SEARCH_DEGREE]; /* nodes that may join a list */
	uint64_t top[SEARCH_TOP];		   /* the result so far, by exact distances */
	uint32_t vector[SEARCH_WORDS], code[SEARCH_WORDS];
	uint32_t count; /* of found */
};

/* Where the key lies in a list, or would. */
WAVE_BOTH uint32_t step_place(const uint64_t *list, uint32_t length, uint64_t key)
{
	uint32_t at = 0, end = length;

	while (at < end) {
		uint32_t middle = (at + end) / 2;

		if ((list[middle] & ~1ull) < key)
			at = middle + 1;
		else
			end = middle;
	}
	return at;
}

WAVE_BOTH void step_offer(struct step *s, const uint64_t *list, uint32_t length, uint64_t key)
{
	uint32_t at = step_place(list, length, key);

	if (at < length && (list[at] & ~1ull) != key)
		s->found[wave_take(&s->count)] = key;
}

WAVE_BOTH uint32_t step_nearer(const struct step *s, uint32_t count, uint64_t key)
{
	uint32_t n = 0;

	for (uint32_t j = 0; j < count; j++)
		n += s->found[j] < key;
	return n;
}

/* A node that was found twice is found once. */
WAVE_BOTH void step_drop_doubles(struct step *s, uint32_t count)
{
	for (uint32_t i = wave_lane(); i < count; i += WAVE)
		for (uint32_t j = 0; j < i; j++)
			if (s->found[j] == s->found[i])
				s->found[i] = STEP_NOBODY;
	wave_sync();
}

struct step_move {
	uint64_t key;
	uint32_t to;
};

/* What was found joins a list of @length keys, at most LENGTH. The farthest are dropped. */
template <uint32_t LENGTH> WAVE_BOTH void step_merge(struct step *s, uint64_t *list, uint32_t length)
{
	const uint32_t olds = (LENGTH + WAVE - 1) / WAVE, news = STEP_BEAM * SEARCH_DEGREE / WAVE, count = s->count;
	struct step_move move[olds + news];
	uint32_t i, at;

	step_drop_doubles(s, count);
	WAVE_UNROLL
	for (i = 0, at = wave_lane(); i < olds; i++, at += WAVE) {
		move[i].key = at < length ? list[at] : STEP_NOBODY;
		move[i].to = at < length ? at + step_nearer(s, count, move[i].key & ~1ull) : length;
	}
	WAVE_UNROLL
	for (i = olds, at = wave_lane(); i < olds + news; i++, at += WAVE) {
		move[i].key = at < count ? s->found[at] : STEP_NOBODY;
		move[i].to = at < count ? step_place(list, length, move[i].key) + step_nearer(s, count, move[i].key) : length;
	}
	wave_sync();
	WAVE_UNROLL
	for (i = 0; i < olds + news; i++)
		if (move[i].to < length)
			list[move[i].to] = move[i].key;
	if (wave_lane() == 0)
		s->count = 0;
	wave_sync();
}

/* The exact distance of each node that has arrived. */
template <uint32_t BYTES> WAVE_BOTH void step_answer(struct step *s, const uint32_t *data, uint32_t nodes)
{
	uint32_t sum[STEP_BEAM] = {}, number[STEP_BEAM] = {}, b;

	WAVE_UNROLL
	for (b = 0; b < STEP_BEAM; b++) {
		const uint32_t *node = data + b * (BYTES / 4);

		for (uint32_t w = wave_lane(); b < nodes && w < SEARCH_WORDS; w += WAVE)
			sum[b] = wave_square(s->vector[w], wave_load(&node[2 + w]), sum[b]);
		number[b] = b < nodes ? wave_load(&node[0]) : 0;
	}
	WAVE_UNROLL
	for (b = 0; b < STEP_BEAM; b++) {
		uint32_t far = wave_sum(sum[b]);

		if (b < nodes && wave_lane() == 0)
			step_offer(s, s->top, SEARCH_TOP, STEP_KEY(far, number[b]));
	}
	wave_sync();
	step_merge<SEARCH_TOP>(s, s->top, SEARCH_TOP);
}

/* The neighbours of the nodes that have arrived. A thread has at_once of them, and all their loads are in flight together. */
template <uint32_t BYTES> WAVE_BOTH void step_neighbours(struct step *s, const uint32_t *data, uint32_t nodes, uint32_t length)
{
	typedef struct step_shape<BYTES> shape;
	const uint32_t degree = shape::degree, words = shape::words, at_once = shape::at_once;
	uint32_t next[at_once], code[at_once][words], i, w, j;

	for (uint32_t first = wave_lane(); first < nodes * degree; first += at_once * WAVE) {
		WAVE_UNROLL
		for (i = 0; i < at_once; i++) {
			const uint32_t *node;

			j = first + i * WAVE < nodes * degree ? first + i * WAVE : first;
			node = data + j / degree * (BYTES / 4) + SEARCH_VECTOR;
			next[i] = wave_load(&node[j % degree]);
			WAVE_UNROLL
			for (w = 0; w < words; w++)
				code[i][w] = wave_load(&node[(w + 1) * degree + j % degree]);
		}
		WAVE_UNROLL
		for (i = 0; i < at_once; i++) {
			uint32_t far = 0;

			WAVE_UNROLL
			for (w = 0; w < words; w++)
				far = wave_square(s->code[w], code[i][w], far);
			if (first + i * WAVE < nodes * degree && next[i] != SEARCH_NOBODY)
				step_offer(s, s->list, length, STEP_KEY(far, next[i]));
		}
	}
	wave_sync();
	step_merge<STEP_LIST>(s, s->list, length);
}

/* The nearest of the list that were not wanted yet, and STEP_NONE. Return: how many; 0: the query is done. */
WAVE_BOTH uint32_t step_choose(struct step *s, uint32_t length, uint64_t *want)
{
	uint32_t n = 0;

	want[0] = want[1] = want[2] = want[3] = STEP_NONE;
	for (uint32_t first = 0; first < length && n < STEP_BEAM; first += WAVE) {
		uint32_t at = first + wave_lane();
		uint32_t fresh = wave_ballot(at < length && !(s->list[at < length ? at : 0] & 1));

		for (; fresh && n < STEP_BEAM; fresh &= fresh - 1, n++) {
			uint32_t place = first + wave_lowest(fresh), b;

			WAVE_UNROLL
			for (b = 0; b < STEP_BEAM; b++) /* an index that the compiler knows: the array stays in registers */
				want[b] = b == n ? (uint32_t)(s->list[place] >> 1) : want[b];
			wave_sync();
			if (wave_lane() == 0)
				s->list[place] |= 1;
		}
	}
	wave_sync();
	return n;
}

/* Of each 32nd entry the nearest joins the list, whatever the width of a wave. */
template <uint32_t BYTES> WAVE_BOTH void step_enter(struct step *s, const struct search_entry *entry, uint32_t entries, uint32_t length)
{
	const uint32_t words = step_shape<BYTES>::words;

	for (uint32_t first = wave_lane(); first < 32; first += WAVE) {
		uint64_t nearest = STEP_NOBODY;

		for (uint32_t e = first; e < entries; e += 32) {
			uint32_t far = 0;

			WAVE_UNROLL
			for (uint32_t w = 0; w < words; w++)
				far = wave_square(s->code[w], entry[e].code[w], far);
			nearest = STEP_KEY(far, e) < nearest ? STEP_KEY(far, e) : nearest;
		}
		if (nearest != STEP_NOBODY)
			step_offer(s, s->list, length, nearest);
	}
	wave_sync();
	step_merge<STEP_LIST>(s, s->list, length);
}

/* Return: how many nodes the query wants first. */
template <uint32_t BYTES>
WAVE_BOTH uint32_t step_begin(struct step *s, const struct step_graph *g, const struct search_query *query, uint64_t *want)
{
	for (uint32_t i = wave_lane(); i < STEP_LIST; i += WAVE)
		s->list[i] = STEP_NOBODY;
	for (uint32_t i = wave_lane(); i < SEARCH_TOP; i += WAVE)
		s->top[i] = STEP_NOBODY;
	for (uint32_t i = wave_lane(); i < SEARCH_WORDS; i += WAVE) {
		s->vector[i] = query->vector[i];
		s->code[i] = query->code[i];
	}
	if (wave_lane() == 0)
		s->count = 0;
	wave_sync();
	step_enter<BYTES>(s, g->entry, g->entries, g->length);
	return step_choose(s, g->length, want);
}

/* The @nodes that were wanted lie at @data. Return: how many the query wants next. */
template <uint32_t BYTES>
WAVE_BOTH uint32_t step_take(struct step *s, const struct step_graph *g, const uint32_t *data, uint32_t nodes, uint64_t *want)
{
	step_answer<BYTES>(s, data, nodes);
	step_neighbours<BYTES>(s, data, nodes, g->length);
	return step_choose(s, g->length, want);
}

/* Of the result: both ways, and a search in memory, have the same. */
WAVE_BOTH uint64_t step_hash(const struct step *s)
{
	uint64_t hash = 0;

	for (uint32_t i = 0; i < SEARCH_TOP; i++)
		hash = (hash ^ s->top[i]) * 0x9e3779b97f4a7c15ull;
	return hash;
}

#endif
