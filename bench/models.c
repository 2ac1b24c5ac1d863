/* SPDX-License-Identifier: MIT */
/*
 * What the models of drives do in virtual time, and what others measured of these drives: data of docs/results/emulated-drives.md.
 *
 *   models > docs/results/drive-models.json && bench/plot docs/results/drive-models.json
 */
#include <stdio.h>

#include "common/closed_loop.h"
#include "common/published.h"

static int run(const char *name, unsigned depth, uint32_t bytes, struct closed_loop_result *got)
{
	const struct closed_loop load = { .depth = depth, .bytes = bytes, .count = published_count(bytes) };
	const struct gnv_soft_named *named = gnv_soft_named_find(name);
	const struct gnv_soft_model model = { .link = named->link, .parts = named->parts };

	return closed_loop_run(&model, &load, got);
}

static void put(const char *what, const struct closed_loop_result *got)
{
	printf("\"%s\": {\"iops\": %.0f, \"mean_us\": %.1f, \"p50_us\": %.1f, \"p99_us\": %.1f}", what, got->iops, got->mean_us, got->p50_us,
	       got->p99_us);
}

static int put_published(void)
{
	const struct published *p;
	struct closed_loop_result got;

	printf("{\"models\": [\n");
	for (p = published; p < published + GNV_ARRAY_LEN(published); p++) {
		if (run(p->model, p->depth, p->bytes, &got))
			return -1;
		printf("%s {\"name\": \"%s\", \"source\": \"%s\", \"depth\": %u, \"bytes\": %u,\n  ", p == published ? "" : ",\n", p->model, p->source,
		       p->depth, p->bytes);
		put("model", &got);
		printf(",\n  \"published\": {\"iops\": %.0f, \"mean_us\": %.1f, \"p99_us\": %.1f}}", p->iops, p->mean_us, p->p99_us);
	}
	printf("],\n");
	return 0;
}

/* IOPS of 4 KiB over the depth. */
static int put_curves(void)
{
	struct closed_loop_result got;
	const char *name;
	unsigned i, depth;

	printf("\"curves\": [");
	for (i = 0; (name = gnv_soft_named_nth(i)); i++)
		for (depth = 1; depth <= 256; depth *= 2) {
			if (run(name, depth, 4096, &got))
				return -1;
			printf("%s\n {\"name\": \"%s\", \"depth\": %u, ", i || depth > 1 ? "," : "", name, depth);
			put("model", &got);
			printf("}");
		}
	printf("]}\n");
	return 0;
}

int main(void)
{
	if (put_published() || put_curves()) {
		fprintf(stderr, "models: out of memory\n");
		return 1;
	}
	return 0;
}
