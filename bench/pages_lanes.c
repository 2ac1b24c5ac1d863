/* SPDX-License-Identifier: MIT */
/*
 * bench/pages_lanes: what an array larger than memory costs CPU threads, compared with the same accesses without a cache in the
 * same run: what bench/pages.cu measures on a GPU.
 *
 *   whole pages   each thread has a page after the other, all there, and copies it; compared with the same copy from plain memory
 *   elements      each thread loads 8 bytes anywhere, all there; compared with plain loads
 *   misses        each thread has pages that are not there; compared with gpunvme_read() of the same blocks
 *
 *   pages_lanes 'soft:ram:1G?threads=4' [LANES [MIB of memory for pages]]    # the namespace four times as large at least
 *
 * Prints a line of JSON for each figure, the middle of five turns of both ways.
 */
#define BENCH_NAME "pages_lanes"
#include "gpu/machine.h"

#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

#define PAGE 4096u
#define WORDS (PAGE / 8)
#define TURNS 5
#define QUEUES 64u
#define PAGE_ROUNDS 65536u
#define MISS_ROUNDS 16384u
#define ELEMENT_ROUNDS 4194304u

struct work {
	const struct gpunvme_dq *dq;
	uint32_t queues;
	struct gpunvme_dpages pages;
	struct gpunvme_dbuf buf; /* a page for each thread */
	const uint64_t *plain;
	uint64_t *to;		/* a page for each thread */
	uint64_t frames, rounds; /* `rounds` of each thread */
	uint64_t all, first; /* pages; of those after the frames the first that is asked for */
	int failed;
};

static uint64_t mix(uint64_t v)
{
	v = (v ^ v >> 31) * 0x9e3779b97f4a7c15ull;
	return v ^ v >> 29;
}

static void fail(struct work *w, int ret)
{
	if (ret)
		__atomic_store_n(&w->failed, ret, __ATOMIC_RELAXED);
}

static const struct gpunvme_dq *own_dq(const struct work *w)
{
	return &w->dq[gpunvme_thread_id() % w->queues];
}

static uint64_t any(const struct work *w, uint64_t round, uint64_t of)
{
	return mix(gpunvme_thread_id() * w->rounds + round) % of;
}

static void pages_by_cache(void *arg)
{
	const struct gpunvme_dq *dq = own_dq(arg);
	struct gpunvme_page page;
	struct work *w = arg;
	uint64_t i;
	int ret;
	const struct gpunvme_cached_queue src = { dq, &w->pages };

	for (i = 0; i < w->rounds; i++) {
		ret = gpunvme_page_get(&src, any(w, i, w->frames), &page);
		if (!ret) {
			memcpy(w->to + gpunvme_thread_id() * WORDS, (const void *)(uintptr_t)page.base, PAGE);
			ret = gpunvme_page_put(&src, &page);
		}
		fail(w, ret);
	}
}

static void pages_plain(void *arg)
{
	struct work *w = arg;
	uint64_t i;

	for (i = 0; i < w->rounds; i++)
		memcpy(w->to + gpunvme_thread_id() * WORDS, w->plain + any(w, i, w->frames) * WORDS, PAGE);
}

static void elements_by_cache(void *arg)
{
	const struct gpunvme_dq *dq = own_dq(arg);
	uint64_t i, sum = 0, value = 0;
	struct work *w = arg;
	const struct gpunvme_cached_queue src = { dq, &w->pages };

	for (i = 0; i < w->rounds; i++) {
		fail(w, gpunvme_array_load(&src, any(w, i, w->frames * WORDS), 8, &value));
		sum += value;
	}
	w->to[gpunvme_thread_id() * WORDS] = sum;
}

static void elements_plain(void *arg)
{
	struct work *w = arg;
	uint64_t i, sum = 0;

	for (i = 0; i < w->rounds; i++)
		sum += w->plain[any(w, i, w->frames * WORDS)];
	w->to[gpunvme_thread_id() * WORDS] = sum;
}

/* Pages that no other thread has, each time others than before. */
static uint64_t missed_page(const struct work *w, uint64_t round)
{
	return w->frames + (w->first + round * gpunvme_thread_count() + gpunvme_thread_id()) % (w->all - w->frames);
}

static void misses_by_cache(void *arg)
{
	const struct gpunvme_dq *dq = own_dq(arg);
	struct gpunvme_page page;
	struct work *w = arg;
	uint64_t i;
	int ret;
	const struct gpunvme_cached_queue src = { dq, &w->pages };

	for (i = 0; i < w->rounds; i++) {
		ret = gpunvme_page_get(&src, missed_page(w, i), &page);
		fail(w, ret ? ret : gpunvme_page_put(&src, &page));
	}
}

static void misses_plain(void *arg)
{
	const struct gpunvme_dq *dq = own_dq(arg);
	struct work *w = arg;
	uint64_t i;

	for (i = 0; i < w->rounds; i++)
		fail(w, gpunvme_read(dq, &w->buf, (uint64_t)gpunvme_thread_id() * PAGE, missed_page(w, i) * PAGE, PAGE));
}

static void warm(void *arg)
{
	const struct gpunvme_dq *dq = own_dq(arg);
	struct gpunvme_page page;
	struct work *w = arg;
	uint64_t i;
	int ret;
	const struct gpunvme_cached_queue src = { dq, &w->pages };

	for (i = gpunvme_thread_id(); i < w->frames; i += gpunvme_thread_count()) {
		ret = gpunvme_page_get(&src, i, &page);
		fail(w, ret ? ret : gpunvme_page_put(&src, &page));
	}
}

/* ---- The host ---- */

static void must(int ret)
{
	if (ret)
		die("%s", *gpunvme_errmsg() ? gpunvme_errmsg() : gpunvme_strerror(ret));
}

static double run(kernel_fn kernel, uint32_t lanes, struct work *w)
{
	double start = now_seconds();

	must(gpunvme_cpu_launch(lanes, 1, kernel, w));
	if (w->failed)
		die("a lane failed: %s", gpunvme_strerror(w->failed));
	w->first += w->rounds * lanes;
	return now_seconds() - start;
}

static int by_value(const void *a, const void *b)
{
	return (*(const double *)a > *(const double *)b) - (*(const double *)a < *(const double *)b);
}

/* By turns, for what else the machine does is not steady. */
static void figure(const char *name, const char *unit, double amount, kernel_fn cached, kernel_fn plain, uint32_t lanes,
		   struct work *w)
{
	double with[TURNS], without[TURNS];
	int i;

	(void)run(plain, lanes, w);
	for (i = 0; i < TURNS; i++) {
		with[i] = amount * (double)w->rounds * lanes / run(cached, lanes, w);
		without[i] = amount * (double)w->rounds * lanes / run(plain, lanes, w);
	}
	qsort(with, TURNS, sizeof(with[0]), by_value);
	qsort(without, TURNS, sizeof(without[0]), by_value);
	printf("{\"figure\": \"%s\", \"lanes\": %u, \"unit\": \"%s\", \"cached\": %.3f, \"plain\": %.3f, \"ratio\": %.3f, "
	       "\"cached_range\": [%.3f, %.3f], \"plain_range\": [%.3f, %.3f]}\n",
	       name, lanes, unit, with[TURNS / 2], without[TURNS / 2], with[TURNS / 2] / without[TURNS / 2], with[0], with[TURNS - 1],
	       without[0], without[TURNS - 1]);
	fflush(stdout);
}

static void measure(uint32_t lanes, struct work *w)
{
	(void)run(warm, lanes, w);
	w->rounds = PAGE_ROUNDS / lanes + 1;
	figure("whole pages", "GB/s", 1e-9 * PAGE, pages_by_cache, pages_plain, lanes, w);
	w->rounds = ELEMENT_ROUNDS / lanes + 1;
	figure("elements of 8 bytes", "million/s", 1e-6, elements_by_cache, elements_plain, lanes, w);
	w->rounds = MISS_ROUNDS / lanes + 1;
	w->rounds = w->rounds * lanes > w->frames ? w->rounds : w->frames / lanes + 1; /* more than the cache keeps */
	figure("misses", "thousand/s", 1e-3, misses_by_cache, misses_plain, lanes, w);
}

static void open_queues(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, struct gpunvme_queue **queue, struct gpunvme_dq *dq,
			uint32_t queues)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	uint32_t i;

	for (i = 0; i < queues; i++) {
		must(gpunvme_queue_create(dev, gpu, NULL, &queue[i]));
		must(gpunvme_queue_view(queue[i], &view, &dq[i]));
	}
}

static struct gpunvme_mem *buffer(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, struct gpunvme_queue *queue, uint64_t bytes,
				  struct gpunvme_dbuf *buf)
{
	struct gpunvme_mem *mem;

	must(gpunvme_mem_alloc(gpu, queue, bytes, NULL, &mem));
	must(gpunvme_mem_map(mem, dev));
	must(gpunvme_mem_dbuf(mem, dev, buf));
	return mem;
}

int main(int argc, char **argv)
{
	struct gpunvme_cache_opts opts = GPUNVME_CACHE_OPTS_INIT;
	uint32_t lanes = argc > 2 ? (uint32_t)strtoul(argv[2], NULL, 10) : 4, i;
	uint64_t mib = argc > 3 ? strtoull(argv[3], NULL, 10) : 64;
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	struct gpunvme_queue *queue[QUEUES];
	struct gpunvme_dq dq[QUEUES];
	struct gpunvme_cache *cache;
	struct gpunvme_mem *mem;
	struct gpunvme_gpu *gpu;
	struct gpunvme_dev *dev;
	struct work w = { .dq = dq };

	if (argc < 2 || argc > 4 || !lanes || lanes > QUEUES || !mib)
		die("usage: pages_lanes URI [LANES, at most %u [MIB]]", QUEUES);
	must(gpunvme_gpu_open("cpu", NULL, &gpu));
	must(gpunvme_dev_open(argv[1], NULL, &dev));
	must(gpunvme_ns_get_info(dev, 0, &ns));
	w.all = ns.nblocks * ns.lba_size / PAGE;
	w.frames = (mib << 20) / PAGE;
	w.queues = lanes;
	if (w.all < 4 * w.frames)
		die("the namespace must be four times as large as the memory for pages");
	open_queues(dev, gpu, queue, dq, w.queues);
	mem = buffer(dev, gpu, queue[0], (uint64_t)lanes * PAGE, &w.buf);
	w.plain = calloc(w.frames, PAGE);
	w.to = calloc(lanes, PAGE);
	if (!w.plain || !w.to)
		die("out of memory");
	memset((void *)(uintptr_t)w.plain, 1, w.frames * PAGE);
	opts.page_size = PAGE;
	opts.frames = (uint32_t)w.frames;
	must(gpunvme_cache_create(queue[0], &opts, &cache));
	must(gpunvme_cache_view(cache, &w.pages));
	measure(lanes, &w);
	must(gpunvme_cache_destroy(cache));
	for (i = 0; i < w.queues; i++)
		must(gpunvme_queue_destroy(queue[i]));
	must(gpunvme_dev_close(dev));
	must(gpunvme_mem_free(mem));
	gpunvme_gpu_close(gpu);
	free(w.to);
	free((void *)(uintptr_t)w.plain);
	return 0;
}
