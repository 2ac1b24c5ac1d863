/* SPDX-License-Identifier: MIT */
#include "copy.h"
#include "copy_file.h"
#include "permission.h"
#include "progress.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpunvme/device.h>

/* What a kernel gets. */
struct copy_args {
	const struct gpunvme_dq *dq;
	struct gpunvme_dbuf dbuf;
	struct thread_result *result; /* one for each thread */
	uint64_t lba;		    /* of the chunk, in the view */
	uint64_t nblocks;	    /* in the chunk */
	uint32_t step;		    /* blocks of one transfer */
	uint32_t queues;
	uint32_t lba_size;
	int write;
	int fua;
};

/* The kernel: what one thread does for one chunk. The same text compiles for CPU threads and for GPUs. */
static GPUNVME_DEVICE void copy_chunk(void *arg)
{
	const struct copy_args *a = (const struct copy_args *)arg;
	uint32_t thread = gpunvme_thread_id();
	uint64_t stride = (uint64_t)gpunvme_thread_count() * a->step;
	const struct gpunvme_dq *dq = &a->dq[thread % a->queues];

	for (uint64_t at = (uint64_t)thread * a->step; at < a->nblocks; at += stride) {
		uint32_t n = a->nblocks - at < a->step ? (uint32_t)(a->nblocks - at) : a->step;
		uint64_t offset = at * a->lba_size, pos = (a->lba + at) * a->lba_size, len = (uint64_t)n * a->lba_size;
		int status = a->write ? gpunvme_write(dq, &a->dbuf, offset, pos, len, a->fua ? GPUNVME_FUA : 0)
				      : gpunvme_read(dq, &a->dbuf, offset, pos, len);

		if (status) {
			a->result[thread].status = status;
			a->result[thread].lba = a->lba + at;
			a->result[thread].nblocks = n;
			break;
		}
	}
}

static GPUNVME_DEVICE void copy_flush(void *arg)
{
	const struct copy_args *a = (const struct copy_args *)arg;

	if (gpunvme_thread_id() == 0)
		a->result[0].status = gpunvme_flush(&a->dq[0]);
}

/* One copy. */
struct copy {
	const struct session_opts *o;
	struct copy_file f;
	struct session s;
	struct copy_args a;
	struct progress bar;
	uint64_t bytes; /* to copy */
	uint64_t done;
	double start;
	int endless; /* the input ends where it ends, at @bytes at the latest */
};

static uint64_t blocks_of(const struct copy *c, uint64_t bytes)
{
	return bytes / c->s.ns.lba_size + (bytes % c->s.ns.lba_size != 0);
}

/* Buffer, queues and results. All bad requests for blocks are refused here. */
static int prepare(struct copy *c)
{
	struct session *s = &c->s;
	uint64_t nblocks = c->endless ? 0 : blocks_of(c, c->bytes);
	uint64_t room = nblocks && nblocks <= CHUNK / s->ns.lba_size ? nblocks : CHUNK / s->ns.lba_size;
	int ret = session_step(s, c->o, &c->a.step);

	if (ret == GO_ON)
		ret = session_fits(s, c->a.write ? c->f.name : "the read", c->o->lba, nblocks ? nblocks : 1);
	if (ret == GO_ON)
		ret = session_open_queues(s, c->o, c->a.write ? GPUNVME_VIEW_WRITE : 0, c->o->lba, nblocks);
	if (ret == GO_ON)
		ret = session_buffer(s, room * s->ns.lba_size);
	if (ret != GO_ON)
		return ret;
	c->a.lba_size = s->ns.lba_size;
	c->a.dq = s->dq;
	c->a.dbuf = s->dbuf;
	c->a.queues = s->queues;
	c->a.result = calloc(s->threads, sizeof(*c->a.result));
	return c->a.result ? GO_ON : failed("no memory for %u threads", s->threads);
}

/* Moves the chunk of @bytes in the buffer, on whatever threads the session has. */
static int move_chunk(struct copy *c, uint64_t bytes)
{
	struct copy_args *a = &c->a;
	int ret;

	a->nblocks = blocks_of(c, bytes);
	if (session_on_gpu(&c->s))
		ret = session_copy(&c->s, (a->write ? GPUNVME_COPY_WRITE : 0) | (a->fua ? GPUNVME_COPY_FUA : 0), a->lba, a->nblocks,
				   a->step, a->result);
	else
		ret = session_launch(&c->s, c->s.threads, copy_chunk, a);
	if (ret == GO_ON)
		ret = report_threads(a->result, c->s.threads, a->write ? "write" : "read", c->o->lba);
	a->lba += a->nblocks;
	return ret;
}

static void count_chunk(struct copy *c, uint64_t bytes)
{
	c->done += bytes;
	progress_show(&c->bar, c->done);
}

/* The closing line: the whole copy, files included, and what the threads did in the time they ran. */
static void report(const struct copy *c, const char *verb)
{
	double seconds = now_s() - c->start, thread_seconds = c->s.thread_seconds;
	double rate = seconds > 0 ? (double)c->done / seconds : 0;
	double thread_rate = thread_seconds > 0 ? (double)c->done / thread_seconds : 0;
	struct json_object *json;

	if (!c->o->json) {
		printf("%s %s in %.2f s: %s/s, threads alone %s/s, %u queues, %u threads on %s, placement %s\n", verb,
		       human((double)c->done), seconds, human(rate), human(thread_rate), c->s.queues, c->s.threads, c->s.gpu_info.name,
		       c->s.placement);
		return;
	}
	json = json_object_new_object();
	put_text(json, "program", program);
	put_text(json, "device", c->o->dev);
	put_text(json, "file", c->f.name);
	put_count(json, "lba", c->o->lba);
	put_count(json, "bytes", c->done);
	put_real(json, "seconds", seconds, 6);
	put_real(json, "thread_seconds", thread_seconds, 6);
	put_real(json, "bytes_per_second", rate, 0);
	put_count(json, "queues", c->s.queues);
	put_count(json, "threads", c->s.threads);
	put_text(json, "placement", c->s.placement);
	print_object(json);
}

/* ---- Blocks to a file ---- */

static int read_all(struct copy *c)
{
	int ret = GO_ON;

	progress_start(&c->bar, c->bytes, NULL);
	while (c->done < c->bytes && ret == GO_ON) {
		uint64_t want = c->bytes - c->done < CHUNK ? c->bytes - c->done : CHUNK;
		int err = 0;

		ret = move_chunk(c, want);
		if (ret == GO_ON)
			err = copy_file_write(&c->f, gpunvme_mem_ptr(c->s.mem), (size_t)want);
		if (err)
			ret = failed("cannot write '%s': %s", c->f.name, strerror(-err));
		if (ret == GO_ON && interrupted)
			ret = failed("interrupted");
		count_chunk(c, want);
	}
	progress_end(&c->bar);
	return ret;
}

static int to_file(struct copy *c)
{
	int ret;

	c->bytes = c->bytes ? c->bytes : c->s.ns.lba_size;
	ret = prepare(c);
	if (ret == GO_ON)
		ret = copy_file_create(&c->f, &c->s);
	c->start = now_s();
	if (ret == GO_ON)
		ret = read_all(c);
	ret = copy_file_finish(&c->f, ret);
	if (ret == GO_ON && c->f.path)
		report(c, "read");
	return ret == GO_ON ? EXIT_DONE : ret;
}

/* ---- A file to blocks ---- */

/* Up to one chunk of input, its last block filled up with zeroes. *got is 0 at the end of the input. */
static int load_chunk(struct copy *c, uint64_t *got)
{
	uint64_t room = gpunvme_mem_len(c->s.mem) / c->a.lba_size * c->a.lba_size;
	char *buf = gpunvme_mem_ptr(c->s.mem);
	ssize_t n = copy_file_read(&c->f, buf, (size_t)(c->bytes - c->done < room ? c->bytes - c->done : room));

	if (n < 0)
		return failed("cannot read '%s': %s", c->f.name, strerror((int)-n));
	if (interrupted)
		return failed("interrupted. The blocks written so far stay written");
	if (n == 0 && !c->done)
		return failed("'%s' is empty: there is nothing to write", c->f.name);
	*got = (uint64_t)n;
	if (*got % c->a.lba_size)
		memset(buf + *got, 0, c->a.lba_size - *got % c->a.lba_size);
	return GO_ON;
}

static int write_all(struct copy *c)
{
	uint64_t got = 1;
	int ret = GO_ON;

	progress_start(&c->bar, c->endless ? 0 : c->bytes, NULL);
	while (ret == GO_ON && c->done < c->bytes) {
		ret = load_chunk(c, &got);
		if (ret != GO_ON || !got)
			break;
		ret = session_fits(&c->s, "the input", c->o->lba + c->a.lba, blocks_of(c, got));
		if (ret == GO_ON)
			ret = move_chunk(c, got);
		count_chunk(c, got);
	}
	progress_end(&c->bar);
	return ret;
}

static int flush(struct copy *c)
{
	struct thread_result *result = c->a.result;
	int ret;

	result[0].status = 0;
	ret = session_on_gpu(&c->s) ? session_copy(&c->s, GPUNVME_COPY_FLUSH, 0, 0, 0, result)
				    : session_launch(&c->s, 1, copy_flush, &c->a);
	if (ret == GO_ON && result[0].status)
		ret = failed("the flush failed, data may not survive a power cut: %s%s", gpunvme_strerror(result[0].status),
			     remedy(result[0].status));
	return ret;
}

static int from_file(struct copy *c)
{
	uint64_t rest;
	int ret = copy_file_check(&c->f, &c->s);

	if (ret == GO_ON)
		ret = session_may_write(&c->s, c->o);
	if (ret == GO_ON)
		ret = prepare(c);
	c->start = now_s();
	if (ret == GO_ON)
		ret = write_all(c);
	if (ret == GO_ON && !c->a.fua)
		ret = flush(c);
	if (ret != GO_ON)
		return ret;
	rest = c->done % c->s.ns.lba_size;
	if (rest && !c->o->json)
		printf("the last block holds %" PRIu64 " bytes of the file and is filled up with zeroes\n", rest);
	report(c, "wrote");
	return EXIT_DONE;
}

/* ---- Both ---- */

static void start(struct copy *c, const struct session_opts *opts, const char *file, const char *stream, uint64_t bytes)
{
	memset(c, 0, sizeof(*c));
	c->o = opts;
	c->bytes = bytes;
	copy_file_name(&c->f, opts, file, stream);
}

static int with_session(struct copy *c, int (*run)(struct copy *c))
{
	int ret = session_open(&c->s, c->o);

	if (ret != GO_ON)
		return ret;
	ret = session_lasts(&c->s, c->a.write);
	if (ret == GO_ON)
		ret = run(c);
	free(c->a.result);
	session_close(&c->s);
	return ret;
}

int copy_to_file(const struct session_opts *opts, const char *file, uint64_t bytes)
{
	struct copy c;

	start(&c, opts, file, "standard output", bytes);
	return with_session(&c, to_file);
}

int copy_from_file(const struct session_opts *opts, const char *file, uint64_t limit)
{
	struct copy c;
	int ret;

	start(&c, opts, file, "standard input", limit);
	c.a.write = 1;
	c.a.fua = opts->fua;
	ret = copy_file_open(&c.f, &c.bytes, &c.endless);
	if (ret == GO_ON)
		ret = with_session(&c, from_file);
	copy_file_close(&c.f);
	return ret;
}
