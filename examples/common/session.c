/* SPDX-License-Identifier: MIT */
#include "session.h"
#include "progress.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <gpunvme/device.h>

void session_log(void *ctx, enum gpunvme_log_level level, const char *text)
{
	static const char *const name[] = { "error", "warning", "info", "debug" };
	const struct session_opts *o = ctx;

	if (!o || o->verbose || level <= GPUNVME_LOG_WARN)
		fprintf(stderr, "%s: [%s] %s\n", program, (unsigned)level < 4 ? name[level] : "log", text);
}

int session_options(int argc, char **argv, const char *usage, const struct option_def *defs, struct session_opts *o,
		    const char **file)
{
	const char *operand[2] = { NULL, NULL };
	const char **next = operand;
	int ret = parse_options(argc, argv, usage, defs, operand, file ? 2 : 1);

	if (ret != GO_ON)
		return ret;
	if (!o->dev)
		o->dev = *next++;
	if (!o->dev)
		return misused("which controller? Give a URI, for example --dev soft:disk.img");
	if (file && next < operand + 2)
		*file = *next++;
	if (next < operand + 2 && *next)
		return misused("'%s' is one argument too many. Try --help", *next);
	return GO_ON;
}

void session_close(struct session *s)
{
	int held;

	for (uint32_t i = 0; s->queue && i < s->queues; i++)
		gpunvme_queue_destroy(s->queue[i]);
	held = gpunvme_mem_free(s->mem);
	gpunvme_dev_close(s->dev);
	if (held)
		gpunvme_mem_free(s->mem); /* a queue that could not be deleted went with the controller */
	gpunvme_gpu_close(s->gpu);
	free(s->queue);
	free(s->dq);
	memset(s, 0, sizeof(*s));
}

int session_open(struct session *s, const struct session_opts *o)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	int ret;

	memset(s, 0, sizeof(*s));
	s->uri = o->dev;
	s->info.size = sizeof(s->info);
	s->ns.size = sizeof(s->ns);
	opts.log = o->verbose ? session_log : NULL;
	opts.queues = o->queues;
	opts.flags = o->read_only ? GPUNVME_DEV_READ_ONLY : 0;
	ret = gpunvme_dev_open(o->dev, &opts, &s->dev);
	if (!ret)
		ret = gpunvme_dev_get_info(s->dev, &s->info);
	if (!ret)
		ret = gpunvme_ns_get_info(s->dev, 0, &s->ns);
	if (!ret)
		return GO_ON;
	failed("%s", why(ret));
	session_close(s);
	return EXIT_FAILED;
}

int session_has(const struct session *s, const struct stat *file)
{
	const int node = S_ISBLK(file->st_mode) || S_ISCHR(file->st_mode);
	uint32_t nsids[64], count = sizeof(nsids) / sizeof(nsids[0]), i;
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };

	if (gpunvme_ns_list(s->dev, nsids, &count))
		return 0;
	for (i = 0; i < count && i < sizeof(nsids) / sizeof(nsids[0]); i++)
		if (!gpunvme_ns_get_info(s->dev, nsids[i], &ns) && ns.medium_dev &&
		    ns.medium_dev == (uint64_t)(node ? file->st_rdev : file->st_dev) && ns.medium_ino == (node ? 0 : file->st_ino))
			return 1;
	return 0;
}

static int session_open_queue(struct session *s, const struct session_opts *o, const struct gpunvme_view *view, uint32_t i)
{
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	int ret;

	opts.depth = o->depth;
	opts.flags = GPUNVME_QUEUE_STATS | o->queue_flags | (o->forward ? GPUNVME_QUEUE_FORWARD : 0) |
		     (o->cmb ? GPUNVME_QUEUE_CMB : 0) | (o->invalidate ? GPUNVME_QUEUE_INVALIDATE : 0);
	opts.cmd_timeout_ms = o->timeout_ms;
	ret = gpunvme_queue_create(s->dev, s->gpu, &opts, &s->queue[i]);
	return ret ? ret : gpunvme_queue_view(s->queue[i], view, &s->dq[i]);
}

static int session_settle_counts(struct session *s, const struct session_opts *o)
{
	uint32_t width = s->gpu_info.width ? s->gpu_info.width : 1;

	if (o->queues > s->info.queues)
		return failed("asked for %u queues, but the controller granted %u: use --queues %u or less", o->queues,
			      s->info.queues, s->info.queues);
	s->queues = o->queues ? o->queues : s->info.queues < 4 ? s->info.queues : 4;
	if (o->threads > 1u << 16)
		return failed("%u threads are too many for this program: use --threads %u or less", o->threads, 1u << 16);
	s->threads = o->threads ? o->threads : 4 * s->queues;
	s->threads += (width - s->threads % width) % width;
	return GO_ON;
}

int session_open_gpu(struct session *s, const struct session_opts *o)
{
	struct gpunvme_gpu_opts opts = GPUNVME_GPU_OPTS_INIT;
	int ret;

	opts.log = o->verbose ? session_log : NULL;
	ret = gpunvme_gpu_open(o->gpu, &opts, &s->gpu);
	s->gpu_info.size = sizeof(s->gpu_info);
	if (!ret)
		ret = gpunvme_gpu_get_info(s->gpu, &s->gpu_info);
	return ret ? failed("%s", why(ret)) : GO_ON;
}

int session_on_gpu(const struct session *s)
{
	return s->gpu_info.kind != GPUNVME_GPU_CPU;
}

int session_open_queues(struct session *s, const struct session_opts *o, uint32_t flags, uint64_t lba, uint64_t nblocks)
{
	struct gpunvme_view view = { sizeof(view), flags, 0, lba, nblocks };
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	int ret = session_open_gpu(s, o);

	if (ret != GO_ON)
		return ret;
	if (session_on_gpu(s) && !o->copies)
		return failed("this program is compiled for CPU threads: use --gpu cpu");
	ret = session_settle_counts(s, o);
	if (ret != GO_ON)
		return ret;
	s->queue = calloc(s->queues, sizeof(*s->queue));
	s->dq = calloc(s->queues, sizeof(*s->dq));
	if (!s->queue || !s->dq)
		return failed("no memory for %u queues", s->queues);
	for (uint32_t i = 0; i < s->queues; i++) {
		ret = session_open_queue(s, o, &view, i);
		if (ret)
			return failed("%s", why(ret));
	}
	ret = gpunvme_queue_get_info(s->queue[0], &info);
	if (ret)
		return failed("%s", why(ret));
	memcpy(s->placement, info.placement, sizeof(s->placement));
	return GO_ON;
}

int session_alloc(struct session *s, uint64_t bytes)
{
	struct gpunvme_mem_opts opts = GPUNVME_MEM_OPTS_INIT;
	int ret;

	/* Another process maps it by its descriptor, and there may be no queue yet that says so. */
	opts.flags = strcmp(s->info.transport, "vfio-user") == 0 ? GPUNVME_MEM_SHARED : s->host_data ? GPUNVME_MEM_HOST : 0;
	ret = gpunvme_mem_alloc(s->gpu, s->queue ? s->queue[0] : NULL, (size_t)bytes, &opts, &s->mem);
	if (!ret)
		ret = gpunvme_mem_map(s->mem, s->dev);
	return ret ? ret : gpunvme_mem_dbuf(s->mem, s->dev, &s->dbuf);
}

int session_buffer(struct session *s, uint64_t bytes)
{
	int ret = session_alloc(s, bytes);

	return ret ? failed("%s", why(ret)) : GO_ON;
}

int session_launch(struct session *s, uint32_t threads, void (*kernel)(void *arg), void *arg)
{
	uint32_t width = s->gpu_info.width ? s->gpu_info.width : 1;
	double start = now_s();
	int ret = gpunvme_cpu_launch(threads, threads < width ? 1 : width, kernel, arg);

	s->thread_seconds += now_s() - start;
	if (ret == -EAGAIN) /* of pthread_create(). Of a queue it means something else */
		return failed("cannot run %u threads: no more threads can be started (ulimit -u, ulimit -v). Use fewer (--threads)",
			      threads);
	return ret ? failed("cannot run %u threads: %s. Use fewer (--threads)", threads, strerror(-ret)) : GO_ON;
}

int session_step(const struct session *s, const struct session_opts *o, uint32_t *step)
{
	if (o->xfer % s->ns.lba_size)
		return failed("--xfer %" PRIu64 " is not a multiple of the block size, %u bytes", o->xfer, s->ns.lba_size);
	if (o->xfer > CHUNK)
		return failed("--xfer %" PRIu64 " is too large: use %" PRIu64 " or less", o->xfer, (uint64_t)CHUNK);
	*step = (uint32_t)(o->xfer / s->ns.lba_size);
	return GO_ON;
}

int session_fits(const struct session *s, const char *what, uint64_t lba, uint64_t nblocks)
{
	if (lba < s->ns.nblocks && nblocks <= s->ns.nblocks - lba)
		return GO_ON;
	if (lba >= s->ns.nblocks)
		return failed("%s needs blocks from %" PRIu64 " on, but the namespace ends with block %" PRIu64
			      ": use a lower --lba, or fewer bytes",
			      what, lba, s->ns.nblocks - 1);
	return failed("%s needs blocks %" PRIu64 " to %" PRIu64 ", but the namespace ends with block %" PRIu64
		      " of %u bytes: %s fit there at most",
		      what, lba, lba + nblocks - 1, s->ns.nblocks - 1, s->ns.lba_size,
		      human((double)(s->ns.nblocks - lba) * s->ns.lba_size));
}

int session_copy(struct session *s, uint32_t flags, uint64_t lba, uint64_t nblocks, uint32_t step, struct thread_result *result)
{
	struct gpunvme_copy copy = GPUNVME_COPY_INIT;
	double start = now_s();

	copy.flags = flags;
	copy.threads = s->threads;
	copy.step = step;
	copy.lba = lba;
	copy.nblocks = nblocks;
	result->status = gpunvme_run_copy(s->gpu, s->dq, s->queues, &s->dbuf, &copy);
	result->lba = copy.failed_lba;
	result->nblocks = copy.failed_nblocks;
	s->thread_seconds += now_s() - start;
	return result->status && !copy.failed_nblocks && !(flags & GPUNVME_COPY_FLUSH) ? failed("%s", why(result->status)) : GO_ON;
}

int report_threads(const struct thread_result *result, uint32_t threads, const char *verb, uint64_t lba)
{
	const struct thread_result *first = NULL;

	for (uint32_t i = 0; i < threads; i++)
		if (result[i].status && (!first || result[i].lba < first->lba))
			first = &result[i];
	if (!first)
		return GO_ON;
	return failed("%s of blocks %" PRIu64 " to %" PRIu64 " failed: %s%s", verb, lba + first->lba,
		      lba + first->lba + first->nblocks - 1, gpunvme_strerror(first->status), remedy(first->status));
}
