/* SPDX-License-Identifier: MIT */
/*
 * bench/cache: what gpunvme_mem_get() and gpunvme_mem_put() cost when the memory is mapped already, against how many ranges the cache
 * holds, and what registering and mapping it costs instead.
 */
#include "bench.h"

#include <gpunvme/mem.h>

#define RANGE 65536u
#define TURNS 20000u
#define BATCHES 100u /* of which the fastest counts, as others use the machine, too */
#define MAPPED 200u

/* What it takes for one get and put of some of `ranges`, in ns; the next one is `stride` further. */
static int hits(struct session *s, char *base, uint32_t ranges, uint32_t stride, double *ns)
{
	struct gpunvme_mem_use use;
	uint64_t start, took, least = UINT64_MAX;
	uint32_t i, batch, at = 0;
	int ret = 0;

	for (i = 0; i < ranges && !ret; i++) {
		ret = gpunvme_mem_get(s->gpu, s->dev, base + (size_t)i * 2 * RANGE, RANGE, GPUNVME_GET_KEEP, &use);
		ret = ret ? ret : gpunvme_mem_put(&use);
	}
	for (batch = 0; batch < BATCHES && !ret; batch++) {
		start = now_ns();
		for (i = 0; i < TURNS && !ret; i++) {
			ret = gpunvme_mem_get(s->gpu, s->dev, base + (size_t)at * 2 * RANGE, 4096, 0, &use);
			ret = ret ? ret : gpunvme_mem_put(&use);
			at = (at + stride) & (ranges - 1);
		}
		took = now_ns() - start;
		least = took < least ? took : least;
	}
	*ns = (double)least / TURNS;
	return ret;
}

static int mappings(struct session *s, char *base, double *ns)
{
	uint64_t start = now_ns();
	struct gpunvme_mem_use use;
	uint32_t i;
	int ret = gpunvme_mem_cache_forget(s->dev, NULL, 0);

	for (i = 0; i < MAPPED && !ret; i++) {
		ret = gpunvme_mem_get(s->gpu, s->dev, base, RANGE, 0, &use);
		ret = ret ? ret : gpunvme_mem_put(&use);
	}
	*ns = (double)(now_ns() - start) / MAPPED;
	return ret;
}

static int measure(struct session *s, uint32_t ranges, struct json_object *json)
{
	char *base = aligned_alloc(RANGE, (size_t)ranges * 2 * RANGE);
	double one, many, mapped;
	int ret = base ? gpunvme_mem_cache_set_limit(s->dev, UINT64_MAX) : -ENOMEM;

	if (!ret)
		ret = hits(s, base, 1, 0, &one);
	if (!ret)
		ret = hits(s, base, ranges, 37, &many);
	if (!ret)
		ret = mappings(s, base, &mapped);
	if (ret) {
		free(base);
		return failed("%s", why(ret));
	}
	free(base);
	if (json) {
		put_count(json, "ranges", ranges);
		put_real(json, "hit_ns_same", one, 1);
		put_real(json, "hit_ns_many", many, 1);
		put_real(json, "map_ns", mapped, 0);
		print_object(json);
	} else {
		printf("  get and put, mapped, the same range again  %.0f ns\n", one);
		printf("  the same, another one of %-6u ranges      %.0f ns\n", ranges, many);
		printf("  get and put, not mapped, 64 KiB            %.0f ns\n", mapped);
	}
	return EXIT_DONE;
}

int main(int argc, char **argv)
{
	struct session_opts o = SESSION_OPTS_INIT;
	struct session s;
	uint32_t ranges = 1024;
	const struct option_def defs[] = {
		OPTION_DEV(&o),
		{ "ranges", OPTION_U32, &ranges, 1, "N", "that the cache holds, a power of two (default 1024)" },
		OPTION_JSON(&o),
		OPTIONS_END,
	};
	int ret;

	program = "cache";
	ret = parse_options(argc, argv, "usage: cache --dev soft:PATH [options]", defs, NULL, 0);
	if (ret != GO_ON)
		return ret;
	if (!o.dev)
		return misused("a controller is missing: --dev soft:PATH");
	if (ranges & (ranges - 1) || ranges > 65536)
		return misused("--ranges must be a power of two, and at most 65536");
	ret = session_open(&s, &o);
	if (ret == GO_ON)
		ret = session_open_gpu(&s, &o);
	if (ret == GO_ON)
		ret = measure(&s, ranges, print_setup(o.json, &s));
	session_close(&s);
	return finish(ret);
}
