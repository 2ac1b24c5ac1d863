/* SPDX-License-Identifier: MIT */
/*
 * read_file: copy blocks of an NVMe namespace into a file, read by lanes. The counterpart of write_file.
 *
 * Lanes fill a buffer chunk by chunk, each taking every gpunvme_lanes()-th transfer; the host writes the buffer to the file. The
 * file gets exactly --bytes bytes, also when the last block is longer. A run that fails removes the file it created.
 */
#include "common.h"

#include <fcntl.h>

struct read_args {
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
static GPUNVME_DEVICE void read_chunk(void *arg)
{
	const struct read_args *a = (const struct read_args *)arg;
	uint32_t lane = gpunvme_lane();
	uint64_t stride = (uint64_t)gpunvme_lanes() * a->step;
	const struct gpunvme_dq *dq = &a->dq[lane % a->queues];

	for (uint64_t at = (uint64_t)lane * a->step; at < a->nblocks; at += stride) {
		uint32_t n = a->nblocks - at < a->step ? (uint32_t)(a->nblocks - at) : a->step;
		int status = gpunvme_read(dq, &a->dbuf, at * a->lba_size, a->lba + at, n);

		if (status) {
			a->result[lane].status = status;
			a->result[lane].lba = a->lba + at;
			a->result[lane].nblocks = n;
			break;
		}
	}
}

static int store_chunk(const struct session *s, int fd, const char *file, uint64_t bytes)
{
	int ret = write_full(fd, gpunvme_mem_ptr(s->mem), (size_t)bytes);

	return ret ? failed("cannot write '%s': %s", file, strerror(-ret)) : GO_ON;
}

/* Streams @bytes of the view to @fd. */
static int read_all(struct session *s, struct read_args *a, const struct session_opts *o, int fd, const char *file, uint64_t bytes)
{
	struct progress bar;
	int ret = GO_ON;

	progress_start(&bar, bytes);
	for (uint64_t done = 0; done < bytes && ret == GO_ON;) {
		uint64_t want = bytes - done < CHUNK ? bytes - done : CHUNK;

		a->nblocks = (want + a->lba_size - 1) / a->lba_size;
		ret = session_on_gpu(s) ? session_copy(s, 0, a->lba, a->nblocks, a->step, a->result)
					: session_launch(s, s->lanes, read_chunk, a);
		if (ret == GO_ON)
			ret = report_lanes(a->result, s->lanes, "read", o->lba);
		if (ret == GO_ON)
			ret = store_chunk(s, fd, file, want);
		if (ret == GO_ON && interrupted)
			ret = failed("interrupted");
		a->lba += a->nblocks;
		done += want;
		progress_show(&bar, done);
	}
	progress_end(&bar);
	return ret;
}

/* Everything that can be refused is refused here, before the file is touched. */
static int prepare(struct session *s, const struct session_opts *o, struct read_args *a, uint64_t bytes)
{
	uint64_t nblocks = bytes / s->ns.lba_size + (bytes % s->ns.lba_size != 0);
	int ret = session_step(s, o, &a->step);

	if (ret == GO_ON)
		ret = session_fits(s, "the read", o->lba, nblocks);
	if (ret == GO_ON)
		ret = session_open_queues(s, o, 0, o->lba, nblocks);
	if (ret == GO_ON)
		ret = session_buffer(s, nblocks * s->ns.lba_size < CHUNK ? nblocks * s->ns.lba_size : CHUNK);
	if (ret != GO_ON)
		return ret;
	a->lba_size = s->ns.lba_size;
	a->dq = s->dq;
	a->dbuf = s->dbuf;
	a->queues = s->queues;
	a->result = calloc(s->lanes, sizeof(*a->result));
	return a->result ? GO_ON : failed("no memory for %u lanes", s->lanes);
}

/* Opens the file to write; *created says whether it did not exist before. */
static int open_target(const char *file, const char *uri, int *fd, int *created)
{
	struct stat st;
	struct stat image;

	*created = 0;
	*fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
	if (*fd >= 0) {
		*created = 1;
		return GO_ON;
	}
	if (errno == EEXIST && stat(file, &st) == 0 && soft_stat(uri, &image) == 0 && image.st_dev == st.st_dev &&
	    image.st_ino == st.st_ino)
		return failed("'%s' is the image itself: name another file", file);
	if (errno == EEXIST)
		*fd = open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
	return *fd < 0 ? failed("cannot create '%s': %s", file, strerror(errno)) : GO_ON;
}

static int run(struct session *s, const struct session_opts *o, const char *file, uint64_t bytes)
{
	struct read_args a = { .lba_size = 0 };
	int created = 0;
	int fd = -1;
	double start;
	int ret = prepare(s, o, &a, bytes);

	if (ret == GO_ON)
		ret = open_target(file, o->dev, &fd, &created);
	if (ret == GO_ON) {
		start = now_s();
		ret = read_all(s, &a, o, fd, file, bytes);
		if (close(fd) < 0 && ret == GO_ON)
			ret = failed("cannot write '%s': %s", file, strerror(errno));
		if (ret == GO_ON)
			report_copy(s, o, "read", file, bytes, now_s() - start);
		else if (created)
			unlink(file);
	}
	free(a.result);
	return ret == GO_ON ? EXIT_DONE : ret;
}

int main(int argc, char **argv)
{
	static const char usage[] =
		"usage: read_file --dev URI --bytes SIZE [options] FILE\nReads an NVMe namespace into a file with lanes "
		"that submit for themselves.";
	struct session_opts o = SESSION_OPTS_INIT;
	uint64_t bytes = 0;
	const struct option_def defs[] = {
		OPTION_DEV(&o),	   { "bytes", OPTION_SIZE, &bytes, 1, "SIZE     how much to read; K, M, G are powers of 1024" },
		OPTION_LBA(&o),	   OPTION_XFER(&o),
		OPTIONS_LANES(&o), OPTION_JSON(&o),
		OPTIONS_END,
	};
	const char *file = NULL;
	struct session s;
	int ret;

	program = "read_file";
	o.copies = 1;
	ret = parse_options(argc, argv, usage, defs, &file, 1);
	if (ret != GO_ON)
		return ret;
	if (!o.dev || !file || !bytes)
		return misused("%s is missing; try --help", !o.dev ? "--dev" : !bytes ? "--bytes" : "FILE");
	catch_signals();
	ret = session_open(&s, &o);
	if (ret == GO_ON) {
		ret = run(&s, &o, file, bytes);
		session_close(&s);
	}
	return finish(ret);
}
