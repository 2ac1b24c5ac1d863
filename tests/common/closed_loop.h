/* SPDX-License-Identifier: MIT */
/*
 * A host that keeps `depth` commands in flight, with a time model, in virtual time. The clock is a number that goes
 * to the end of the next command. The host takes no time of its own. Results are the same on each machine.
 */
#ifndef GNV_TEST_CLOSED_LOOP_H
#define GNV_TEST_CLOSED_LOOP_H

#include <stdint.h>
#include <stdlib.h>

#include "soft/core/timing.h"

#define CLOSED_LOOP_DEPTH 1024u
#define CLOSED_LOOP_START 1000000000ull /* ns */
#define CLOSED_LOOP_SPAN (64ull << 30) /* bytes of the drive that are used */

struct closed_loop {
	unsigned depth;	  /* commands in flight, up to CLOSED_LOOP_DEPTH */
	uint32_t bytes;	  /* of each */
	unsigned writes;  /* in a hundred */
	unsigned count;	  /* commands that are measured; half as many go before */
};

struct closed_loop_result {
	double iops, mean_us, p50_us, p99_us;
};

static inline int closed_loop_by_size(const void *a, const void *b)
{
	const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

/* A random command begins. Return: when it ends. */
static inline uint64_t closed_loop_begin(struct gnv_soft_timing *timing, const struct closed_loop *load, uint64_t now,
					 uint64_t number)
{
	const uint64_t random = gnv_mix(number * 0xd1342543de82ef95ull + 1);
	const struct gnv_soft_op op = {
		.opc = (random >> 32) % 100 < load->writes ? GPUNVME_IO_WRITE : GPUNVME_IO_READ,
		.data_len = load->bytes,
		.len = load->bytes,
		.offset = random % (CLOSED_LOOP_SPAN / load->bytes) * load->bytes,
	};

	return gnv_soft_timing_due(timing, now, now, &op, gnv_soft_timing_draw(timing, 1, number));
}

static inline unsigned closed_loop_first(const uint64_t *due, unsigned depth)
{
	unsigned i, first = 0;

	for (i = 1; i < depth; i++)
		first = due[i] < due[first] ? i : first;
	return first;
}

/* What became of `count` commands of one run. */
static inline void closed_loop_judge(uint64_t *took, unsigned count, uint64_t span, struct closed_loop_result *result)
{
	uint64_t sum = 0;
	unsigned i;

	for (i = 0; i < count; i++)
		sum += took[i];
	qsort(took, count, sizeof(*took), closed_loop_by_size);
	*result = (struct closed_loop_result){ count * 1e9 / (double)span, (double)sum / count / 1e3, (double)took[count / 2] / 1e3,
					       (double)took[count / 100 * 99] / 1e3 };
}

/* Return: ns from the first measured end to the last. */
static inline uint64_t closed_loop_turn(struct gnv_soft_timing *timing, const struct closed_loop *load, uint64_t *took)
{
	uint64_t due[CLOSED_LOOP_DEPTH], began[CLOSED_LOOP_DEPTH], now = CLOSED_LOOP_START, since = now, n;
	const uint64_t before = load->count / 2;
	unsigned i;

	for (i = 0; i < load->depth; i++) {
		began[i] = now;
		due[i] = closed_loop_begin(timing, load, now, i);
	}
	for (n = 0; n < before + load->count; n++) {
		i = closed_loop_first(due, load->depth);
		now = due[i];
		if (n < before)
			since = now;
		else
			took[n - before] = now - began[i];
		began[i] = now;
		due[i] = closed_loop_begin(timing, load, now, n + load->depth);
	}
	return now - since;
}

/* Return: 0; -1 no memory. */
static inline int closed_loop_run(const struct gnv_soft_model *model, const struct closed_loop *load,
				  struct closed_loop_result *result)
{
	struct gnv_soft_timing *timing = malloc(sizeof(*timing));
	uint64_t *took = calloc(load->count, sizeof(*took));
	const int ret = timing && took ? 0 : -1;

	if (!ret) {
		gnv_soft_timing_init(timing, model, CLOSED_LOOP_START);
		closed_loop_judge(took, load->count, closed_loop_turn(timing, load, took), result);
	}
	free(timing);
	free(took);
	return ret;
}

#endif
