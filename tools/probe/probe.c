/* SPDX-License-Identifier: MIT */
/*
 * gpunvme-probe: the helper program of lib/gpu/probe.h. The library starts it, with one end of a connection and a DMA-BUF of BAR0
 * as descriptors 3 and 4. It is of no use elsewhere.
 *
 * Usage: gpunvme-probe GPU WAYS LEN DOORBELL
 * WAYS are bits of ways to BAR0 that are left out, LEN bytes of the DMA-BUF, DOORBELL the offset of the doorbell.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpunvme/gpunvme.h>

#include "gpu/probe.h"
#include "os/linux/dmabuf.h"

#define KERNEL_MS 10000u

struct session {
	struct gpunvme_gpu *gpu;
	struct gnv_gpu_range bar0, own; /* own: GPU memory of its kernels */
	size_t len;
	uint64_t doorbell;
};

static int report(enum gnv_probe_step step, int result, const uint32_t *word)
{
	struct gnv_probe_report r = { .version = GNV_PROBE_VERSION, .step = step, .result = result };

	if (word)
		memcpy(r.word, word, sizeof(r.word));
	if (result)
		snprintf(r.why, sizeof(r.why), "%s", gpunvme_errmsg());
	return gnv_child_say(&r, sizeof(r));
}

/* KFD imports a DMA-BUF once only. The library made this one for this process alone. */
static int give(void *ctx, int *fd, uint64_t *offset)
{
	(void)ctx;
	*offset = 0;
	return gnv_dmabuf_dup(GNV_CHILD_GIVEN, fd);
}

static int map(struct session *s, const char *gpu, unsigned ways)
{
	const struct gnv_gpu_foreign foreign = { NULL, s->len, give, NULL, false };
	int ret = gpunvme_gpu_open(gpu, NULL, &s->gpu);

	if (ret)
		return ret;
	s->gpu->distrust = ways;
	ret = s->gpu->ops->mmio_attach(s->gpu, &foreign, &s->bar0);
	if (!ret)
		ret = s->gpu->ops->local_alloc(s->gpu, 4096, &s->own);
	return ret;
}

static int load(struct session *s, uint32_t *word)
{
	const struct gnv_peek_args args = { .from = s->bar0.lane, .to = s->own.lane, .words = GNV_PROBE_WORDS };
	const struct gnv_launch launch = { GNV_KERNEL_PEEK, &args, sizeof(args), 1, KERNEL_MS, NULL, NULL };
	int ret = s->gpu->ops->launch(s->gpu, &launch);

	if (ret)
		return ret;
	return s->gpu->ops->peek(s->gpu, word, s->own.lane, GNV_PROBE_WORDS * sizeof(*word));
}

/* Use the kernel that tests doorbells. Its word `go` is set before it starts, so it rings at once. */
static int ring(struct session *s)
{
	const uint32_t go[2] = { 1, 0 };
	const struct gnv_ring_args args = { .doorbell = s->bar0.lane + s->doorbell,
					    .go = s->own.lane,
					    .rung = s->own.lane + sizeof(go[0]),
					    .timeout = (uint64_t)KERNEL_MS * s->gpu->info.ticks_per_ms,
					    .rings = 1,
					    .mask = ~0u };
	const struct gnv_launch launch = { GNV_KERNEL_RING, &args, sizeof(args), 1, 2 * KERNEL_MS, NULL, NULL };
	int ret = s->gpu->ops->poke(s->gpu, s->own.lane, go, sizeof(go));

	if (ret)
		return ret;
	return s->gpu->ops->launch(s->gpu, &launch);
}

/* Return: the parent may go on, and this program is of further use. */
static bool probe(struct session *s)
{
	uint32_t word[GNV_PROBE_WORDS] = { 0 };
	int ret = load(s, word);

	if (report(GNV_PROBE_LOADED, ret, word) || ret || gnv_child_await())
		return !ret;
	ret = ring(s);
	return !report(GNV_PROBE_RUNG, ret, NULL) && !ret;
}

int main(int argc, char **argv)
{
	struct session s = { .gpu = NULL };
	int ret;

	if (argc != 5) {
		fprintf(stderr, "gpunvme-probe: libgpunvme starts this program by itself, to try out doorbells of a GPU\n");
		return 2;
	}
	s.len = strtoul(argv[3], NULL, 10);
	s.doorbell = strtoul(argv[4], NULL, 10);
	ret = map(&s, argv[1], (unsigned)strtoul(argv[2], NULL, 10));
	if (report(GNV_PROBE_MAPPED, ret, NULL) || ret)
		return 1;
	if (!probe(&s))
		_Exit(1); /* the GPU no longer works, so leave the clean-up to the kernel */
	s.gpu->ops->local_free(s.gpu, &s.own, 4096);
	s.gpu->ops->mmio_detach(s.gpu, &s.bar0);
	gpunvme_gpu_close(s.gpu);
	return 0;
}
