/* SPDX-License-Identifier: MIT */
/* Where the fragments of kvcache lie, on the drive and in the pages. */
#ifndef GPUNVME_EXAMPLES_KVCACHE_PLACES_H
#define GPUNVME_EXAMPLES_KVCACHE_PLACES_H

#include "kernel.h"

static inline uint64_t mix(uint64_t v)
{
	v = (v ^ v >> 30) * 0xbf58476d1ce4e5b9ull;
	v = (v ^ v >> 27) * 0x94d049bb133111ebull;
	return v ^ v >> 31;
}

static inline void shuffle(uint32_t *v, uint32_t count)
{
	uint32_t i;

	for (i = count; i > 1; i--) {
		uint32_t other = (uint32_t)(mix(i) % i), was = v[i - 1];

		v[i - 1] = v[other];
		v[other] = was;
	}
}

/* Numbers from @first on, of @count, in any order. */
static inline uint32_t *places(uint32_t first, uint32_t count)
{
	uint32_t *v = (uint32_t *)calloc(count + 1, sizeof(*v)), i;

	if (!v)
		die("out of memory");
	for (i = 0; i < count; i++)
		v[i] = first + i;
	shuffle(v, count);
	return v;
}

/* Where everything lies: three quarters of the drive are read, and what is new goes to the rest. Return: the CPU's copy. */
static inline uint32_t *place_all(struct kv_job *job, uint64_t size)
{
	uint64_t edge = size / 4 * 3; /* the same for fragments of any size */
	uint32_t slots = (uint32_t)(size / job->bytes), layers = job->requests * job->layers, request, l, i;
	uint32_t olds = (uint32_t)(edge / job->bytes), first = (uint32_t)((edge + job->bytes - 1) / job->bytes);
	uint32_t *old = places(0, olds), *added = places(first, slots - first);
	uint32_t each = job->fragments + job->added, pages = job->layers * job->fragments;
	uint32_t *place = (uint32_t *)calloc((size_t)layers * each, sizeof(*place)), *local;

	if ((uint64_t)layers * job->fragments > olds || (uint64_t)layers * job->added > slots - first)
		die("the image is too small for all fragments: a larger --make, or fewer --requests");
	for (l = 0; l < layers; l++)
		for (i = 0; i < each; i++)
			place[(size_t)l * each + i] = i < job->fragments ? old[l * job->fragments + i] :
									   added[l * job->added + i - job->fragments];
	local = (uint32_t *)front_local((size_t)layers * each * sizeof(*local));
	front_put(local, place, (size_t)layers * each * sizeof(*local));
	job->place = local;
	local = (uint32_t *)front_local((size_t)job->requests * pages * sizeof(*local));
	free(old);
	old = places(0, pages);
	for (request = 0; request < job->requests; request++)
		front_put(local + (size_t)request * pages, old, pages * sizeof(*old));
	job->page = local;
	free(old);
	free(added);
	return place;
}

#endif
