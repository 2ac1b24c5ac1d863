/* SPDX-License-Identifier: MIT */
/*
 * bench/vfio: a controller through VFIO. Where the time from opening to the first read goes, and what one thread reads with rings
 * and data in host memory and, given --vram, in the BAR of that device. bench/vm runs it in a guest, in turn with fio on the
 * kernel's driver.
 */
#include "bench.h"

#include "mem/mem_bar.h"
#include "life/life.h"
#include "queue/qp.h"

#define MAX_STEPS 16u
#define MAX_DEPTH 32u
#define BLOCK 4096u
#define RINGS (4u << 20)
#define VRAM_BAR 2u

/* What the library says about its progress, and when. */
struct steps {
	double at[MAX_STEPS + 1];
	char text[MAX_STEPS + 1][120];
	unsigned count;
};

static void note(void *ctx, enum gpunvme_log_level level, const char *text)
{
	struct steps *steps = ctx;

	if (level < GPUNVME_LOG_DEBUG)
		fprintf(stderr, "%s\n", text);
	if (steps->count == MAX_STEPS)
		return;
	snprintf(steps->text[++steps->count], sizeof(steps->text[0]), "%s", text);
	steps->at[steps->count] = now_s();
}

struct bench {
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_bar *vram;
	struct gpunvme_queue *queue;
	struct gpunvme_mem *data;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dq dq;
	struct steps steps;
	uint32_t nblocks, depth;
	uint64_t slots, ios;
	double seconds;
	int status;
};

/* Reads one after the other, or `depth` at once. */
static void lane(void *arg)
{
	struct gpunvme_req req[MAX_DEPTH];
	struct bench *b = arg;
	uint64_t seed = now_ns() | 1, n;
	double end = now_s() + b->seconds;

	for (n = 0; !b->status; n++) {
		uint32_t i = (uint32_t)(n % b->depth);

		if (n >= b->depth)
			b->status = gpunvme_wait(&b->dq, &req[i], 0);
		if (b->status || (n % 64 == 0 && now_s() >= end))
			break;
		seed = seed * 6364136223846793005u + 1442695040888963407u;
		b->status = gpunvme_submit_read(&b->dq, &b->dbuf, i * BLOCK,
						(uint64_t)((seed >> 20) % b->slots * b->nblocks) << b->dq.lba_shift,
						(uint64_t)b->nblocks << b->dq.lba_shift, &req[i]);
	}
	b->ios = n;
	for (uint32_t i = 1; i < b->depth && i <= n && !b->status; i++) /* the one that was looked at last was taken */
		b->status = gpunvme_wait(&b->dq, &req[(n + i) % b->depth], 0);
}

static int measure(struct bench *b, const char *where)
{
	static const uint32_t depths[] = { 1, MAX_DEPTH };

	for (unsigned i = 0; i < 2; i++) {
		double start = now_s();
		int ret;

		b->depth = depths[i];
		ret = gpunvme_cpu_launch(1, 1, lane, b);
		if (ret || b->status)
			return ret ? ret : b->status;
		printf("reads %s %u %.0f\n", where, b->depth, (double)b->ios / (now_s() - start));
	}
	return 0;
}

static int open_queue(struct bench *b)
{
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	int ret = gpunvme_queue_create(b->dev, b->gpu, NULL, &b->queue);

	ret = ret ? ret : gpunvme_queue_view(b->queue, NULL, &b->dq);
	ret = ret ? ret : gpunvme_ns_get_info(b->dev, 0, &ns);
	if (ret)
		return ret;
	b->nblocks = BLOCK / ns.lba_size;
	b->slots = ns.nblocks / b->nblocks;
	return 0;
}

static int map_data(struct bench *b)
{
	int ret = gpunvme_mem_map(b->data, b->dev);

	return ret ? ret : gpunvme_mem_dbuf(b->data, b->dev, &b->dbuf);
}

/* Until the first block has been read. */
static int host_memory(struct bench *b, const char *uri)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	int ret;

	opts.log = note;
	opts.log_ctx = &b->steps;
	b->steps.at[0] = now_s();
	ret = gpunvme_dev_open(uri, &opts, &b->dev);
	ret = ret ? ret : gpunvme_gpu_open("cpu", NULL, &b->gpu);
	ret = ret ? ret : open_queue(b);
	ret = ret ? ret : gpunvme_mem_alloc(b->gpu, b->queue, MAX_DEPTH * BLOCK, NULL, &b->data);
	ret = ret ? ret : map_data(b);
	ret = ret ? ret : gpunvme_read(&b->dq, &b->dbuf, 0, 0, (uint64_t)b->nblocks << b->dq.lba_shift);
	if (ret)
		return ret;
	note(&b->steps, GPUNVME_LOG_DEBUG, "buffer mapped, first block read");
	for (unsigned i = 1; i <= b->steps.count; i++)
		printf("open %.3f %s\n", (b->steps.at[i] - b->steps.at[i - 1]) * 1e3, b->steps.text[i]);
	return measure(b, "host");
}

static void close_queue(struct bench *b)
{
	gpunvme_queue_destroy(b->queue);
	gpunvme_mem_free(b->data);
	b->queue = NULL;
	b->data = NULL;
}

static int bar_memory(struct bench *b, const char *vram)
{
	struct gpunvme_mem *rings;
	int ret = gpunvme_bar_open(vram, NULL, &b->vram);

	ret = ret ? ret : gnv_mem_bar(b->vram, NULL, VRAM_BAR, 0, RINGS, &rings);
	ret = ret ? ret : gnv_dev_lend(b->dev, rings);
	ret = ret ? ret : gnv_mem_bar(b->vram, b->gpu, VRAM_BAR, RINGS, MAX_DEPTH * BLOCK, &b->data);
	ret = ret ? ret : map_data(b);
	ret = ret ? ret : open_queue(b);
	return ret ? ret : measure(b, "bar");
}

int main(int argc, char **argv)
{
	const char *dev = NULL, *vram = NULL;
	static struct bench b;
	uint64_t ms = 2000;
	const struct option_def defs[] = {
		{ "dev", OPTION_TEXT, &dev, 0, "URI", "pci: controller" },
		{ "vram", OPTION_TEXT, &vram, 0, "ADDRESS", "device bound to vfio-pci whose BAR 2 is memory" },
		{ "ms", OPTION_U64, &ms, 1, "N", "milliseconds of each measurement (default 2000)" },
		OPTIONS_END,
	};
	int ret;

	program = "vfio";
	ret = parse_options(argc, argv, "usage: vfio --dev URI [--vram ADDRESS] [--ms N]\nReads only.", defs, NULL, 0);
	if (ret != GO_ON)
		return ret;
	if (!dev)
		return misused("a controller is missing: --dev URI");
	b.seconds = (double)ms / 1000;
	ret = host_memory(&b, dev);
	close_queue(&b);
	if (!ret && vram)
		ret = bar_memory(&b, vram);
	close_queue(&b);
	gpunvme_dev_close(b.dev);
	if (b.vram)
		gpunvme_bar_close(b.vram);
	gpunvme_gpu_close(b.gpu);
	return finish(ret ? failed("%s", why(ret)) : EXIT_DONE);
}
