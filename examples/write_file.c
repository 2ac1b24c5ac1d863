/* SPDX-License-Identifier: MIT */
/*
 * write_file: copy a file onto an NVMe namespace, written by lanes.
 *
 * The host reads the file into a buffer, chunk by chunk. For each chunk it starts the lanes; each lane takes every
 * gpunvme_lanes()-th transfer and writes it through the queue its number selects. The controller fetches the data from the
 * buffer itself. At the end one lane flushes the volatile cache of the drive.
 */
#include "common.h"

#include <fcntl.h>

struct write_args {
	const struct gpunvme_dq *dq;
	struct gpunvme_dbuf dbuf;
	struct lane_result *result; /* one for each lane */
	uint64_t lba;		    /* of the chunk, in the view */
	uint64_t nblocks;	    /* in the chunk */
	uint32_t step;		    /* blocks of one transfer */
	uint32_t queues;
	uint32_t lba_size;
};

/* The kernel: what one lane does for one chunk. The same text compiles for CPU threads and for GPUs. */
static GPUNVME_DEVICE void write_chunk(void *arg)
{
	const struct write_args *a = (const struct write_args *)arg;
	uint32_t lane = gpunvme_lane();
	uint64_t stride = (uint64_t)gpunvme_lanes() * a->step;
	const struct gpunvme_dq *dq = &a->dq[lane % a->queues];

	for (uint64_t at = (uint64_t)lane * a->step; at < a->nblocks; at += stride) {
		uint32_t n = a->nblocks - at < a->step ? (uint32_t)(a->nblocks - at) : a->step;
		int status = gpunvme_write(dq, &a->dbuf, at * a->lba_size, a->lba + at, n);

		if (status) {
			a->result[lane].status = status;
			a->result[lane].lba = a->lba + at;
			a->result[lane].nblocks = n;
			break;
		}
	}
}

static GPUNVME_DEVICE void flush_once(void *arg)
{
	const struct write_args *a = (const struct write_args *)arg;

	if (gpunvme_lane() == 0)
		a->result[0].status = gpunvme_flush(&a->dq[0]);
}

/* Fills the buffer with the next bytes of the file and zeroes up to the end of the last block. */
static int load_chunk(const struct session *s, int fd, const char *file, uint64_t want, uint64_t *nblocks)
{
	char *buf = gpunvme_mem_ptr(s->mem);
	ssize_t got = read_full(fd, buf, (size_t)want);

	if (got < 0)
		return failed("cannot read '%s': %s", file, strerror((int)-got));
	if ((uint64_t)got < want)
		return failed("'%s' became shorter while it was read: run again when nobody changes it", file);
	*nblocks = (want + s->ns.lba_size - 1) / s->ns.lba_size;
	memset(buf + want, 0, (size_t)(*nblocks * s->ns.lba_size - want));
	return GO_ON;
}

static int flush(struct session *s, struct write_args *a)
{
	int ret;

	a->result[0].status = 0;
	ret = session_on_gpu(s) ? session_copy(s, GPUNVME_COPY_FLUSH, 0, 0, 0, a->result) : session_launch(s, 1, flush_once, a);
	if (ret == GO_ON && a->result[0].status)
		ret = failed("the flush failed, data may not survive a power cut: %s%s", gpunvme_strerror(a->result[0].status),
			     remedy(a->result[0].status));
	return ret;
}

/* Streams @bytes of @fd to the view. */
static int write_all(struct session *s, struct write_args *a, const struct session_opts *o, int fd, const char *file,
		     uint64_t bytes)
{
	struct progress bar;
	int ret = GO_ON;

	progress_start(&bar, bytes);
	for (uint64_t done = 0; done < bytes && ret == GO_ON;) {
		uint64_t want = bytes - done < CHUNK ? bytes - done : CHUNK;

		ret = load_chunk(s, fd, file, want, &a->nblocks);
		if (ret == GO_ON)
			ret = session_on_gpu(s) ? session_copy(s, GPUNVME_COPY_WRITE, a->lba, a->nblocks, a->step, a->result)
						: session_launch(s, s->lanes, write_chunk, a);
		if (ret == GO_ON)
			ret = report_lanes(a->result, s->lanes, "write", o->lba);
		if (ret == GO_ON && interrupted)
			ret = failed("interrupted; the blocks written so far stay written");
		a->lba += a->nblocks;
		done += want;
		progress_show(&bar, done);
	}
	progress_end(&bar);
	return ret == GO_ON ? flush(s, a) : ret;
}

static int run(struct session *s, const struct session_opts *o, int fd, const char *file, uint64_t bytes)
{
	struct write_args a = { .lba_size = s->ns.lba_size };
	uint64_t nblocks = (bytes + s->ns.lba_size - 1) / s->ns.lba_size;
	double start;
	int ret = session_step(s, o, &a.step);

	if (ret == GO_ON)
		ret = session_may_write(s, o);
	if (ret == GO_ON)
		ret = session_fits(s, file, o->lba, nblocks);
	if (ret == GO_ON)
		ret = session_open_queues(s, o, GPUNVME_VIEW_WRITE, o->lba, nblocks);
	if (ret == GO_ON)
		ret = session_buffer(s, nblocks * s->ns.lba_size < CHUNK ? nblocks * s->ns.lba_size : CHUNK);
	if (ret != GO_ON)
		return ret;
	a.dq = s->dq;
	a.dbuf = s->dbuf;
	a.queues = s->queues;
	a.result = calloc(s->lanes, sizeof(*a.result));
	if (!a.result)
		return failed("no memory for %u lanes", s->lanes);
	start = now_s();
	ret = write_all(s, &a, o, fd, file, bytes);
	free(a.result);
	if (ret != GO_ON)
		return ret;
	if (bytes % s->ns.lba_size && !o->json)
		printf("the last block holds %" PRIu64 " bytes of the file and is filled up with zeroes\n", bytes % s->ns.lba_size);
	report_copy(s, o, "wrote", file, bytes, now_s() - start);
	return EXIT_DONE;
}

/* Opens the file to copy and finds its size. */
static int open_source(const char *file, const char *uri, int *fd, uint64_t *bytes)
{
	struct stat st;
	struct stat image;

	*fd = open(file, O_RDONLY | O_CLOEXEC);
	if (*fd < 0)
		return failed("cannot open '%s': %s", file, strerror(errno));
	if (fstat(*fd, &st) < 0 || !S_ISREG(st.st_mode))
		return failed("'%s' is not a regular file: write_file needs to know its size beforehand", file);
	if (st.st_size == 0)
		return failed("'%s' is empty: there is nothing to write", file);
	if (soft_stat(uri, &image) == 0 && image.st_dev == st.st_dev && image.st_ino == st.st_ino)
		return failed("'%s' is the image itself: name another file", file);
	*bytes = (uint64_t)st.st_size;
	return GO_ON;
}

int main(int argc, char **argv)
{
	static const char usage[] =
		"usage: write_file --dev URI [options] FILE\nWrites a file to an NVMe namespace with lanes that "
		"submit for themselves.";
	struct session_opts o = SESSION_OPTS_INIT;
	const struct option_def defs[] = {
		OPTION_DEV(&o), OPTION_LBA(&o), OPTION_XFER(&o), OPTIONS_LANES(&o), OPTION_YES(&o), OPTION_JSON(&o), OPTIONS_END,
	};
	const char *file = NULL;
	uint64_t bytes = 0;
	struct session s;
	int fd = -1;
	int ret;

	program = "write_file";
	o.copies = 1;
	ret = parse_options(argc, argv, usage, defs, &file, 1);
	if (ret != GO_ON)
		return ret;
	if (!o.dev || !file)
		return misused("%s is missing; try --help", o.dev ? "FILE" : "--dev");
	catch_signals();
	ret = open_source(file, o.dev, &fd, &bytes);
	if (ret == GO_ON)
		ret = session_open(&s, &o);
	if (ret == GO_ON) {
		ret = run(&s, &o, fd, file, bytes);
		session_close(&s);
	}
	if (fd >= 0)
		close(fd);
	return finish(ret);
}
