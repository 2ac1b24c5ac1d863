/* SPDX-License-Identifier: MIT */
/*
 * gpunvme write: a file or standard input to blocks of a namespace.
 *
 * The rule that protects data: an image file (a regular file under soft:) may be written; everything else needs --yes.
 * The length of standard input is not known beforehand, so each chunk is checked against the end of the namespace.
 */
#include "verbs.h"

#include <fcntl.h>

/* Up to one chunk of input, its last block filled up with zeroes. *got is 0 at the end of the input. */
static int load(const struct session *s, const struct copy_args *a, int fd, const char *name, uint64_t want, uint64_t *got)
{
	char *buf = gpunvme_mem_ptr(s->mem);
	ssize_t n = read_full(fd, buf, (size_t)want);

	if (n < 0)
		return failed("cannot read %s: %s", name, strerror((int)-n));
	*got = (uint64_t)n;
	if (*got % a->lba_size)
		memset(buf + *got, 0, a->lba_size - *got % a->lba_size);
	return GO_ON;
}

/* Copies @limit bytes, or fewer where the input ends. Answers how many in *bytes. */
static int write_all(struct session *s, struct copy_args *a, const struct session_opts *o, int fd, const char *name, uint64_t limit,
		     uint64_t *bytes)
{
	uint64_t room = gpunvme_mem_len(s->mem) / a->lba_size * a->lba_size;
	uint64_t got = 1;
	struct progress bar;
	int ret = GO_ON;

	progress_start(&bar, limit == UINT64_MAX ? 0 : limit);
	for (*bytes = 0; ret == GO_ON && *bytes < limit;) {
		ret = load(s, a, fd, name, limit - *bytes < room ? limit - *bytes : room, &got);
		if (ret != GO_ON || !got)
			break;
		a->nblocks = (got + a->lba_size - 1) / a->lba_size;
		ret = session_fits(s, "the input", o->lba + a->lba, a->nblocks);
		if (ret == GO_ON)
			ret = copy_launch(s, a);
		if (ret == GO_ON)
			ret = report_lanes(a->result, s->lanes, "write", o->lba);
		if (ret == GO_ON && interrupted)
			ret = failed("interrupted; the blocks written so far stay written");
		a->lba += a->nblocks;
		*bytes += got;
		progress_show(&bar, *bytes);
	}
	progress_end(&bar);
	return ret;
}

static int flush(struct session *s, struct copy_args *a)
{
	int ret;

	a->result[0].status = 0;
	ret = session_on_gpu(s) ? session_copy(s, GPUNVME_COPY_FLUSH, 0, 0, 0, a->result) : session_launch(s, 1, copy_flush, a);
	if (ret == GO_ON && a->result[0].status)
		ret = failed("the flush failed, data may not survive a power cut: %s", gpunvme_strerror(a->result[0].status));
	return ret;
}

static int run(struct session *s, const struct session_opts *o, int fd, const char *name, uint64_t limit)
{
	uint64_t nblocks = limit == UINT64_MAX ? 0 : limit / s->ns.lba_size + (limit % s->ns.lba_size != 0);
	struct copy_args a = { .write = 1 };
	uint64_t bytes = 0;
	double start;
	int ret = session_may_write(s, o);

	if (ret == GO_ON)
		ret = copy_prepare(s, o, &a, nblocks);
	start = now_s();
	if (ret == GO_ON)
		ret = write_all(s, &a, o, fd, name, limit, &bytes);
	if (ret == GO_ON)
		ret = flush(s, &a);
	if (ret == GO_ON)
		report_copy(s, o, "wrote", name, bytes, now_s() - start);
	free(a.result);
	return ret == GO_ON ? EXIT_DONE : ret;
}

/* Finds out how much there is to write: --bytes, the size of a regular file, or no limit. */
static int open_input(const char *file, int *fd, uint64_t *limit)
{
	struct stat st;

	*fd = STDIN_FILENO;
	if (file && strcmp(file, "-") != 0)
		*fd = open(file, O_RDONLY | O_CLOEXEC);
	if (*fd < 0 || fstat(*fd, &st) < 0)
		return failed("cannot open '%s': %s", file ? file : "standard input", strerror(errno));
	if (S_ISDIR(st.st_mode))
		return failed("'%s' is a directory: name a file", file ? file : "standard input");
	if (S_ISREG(st.st_mode) && *fd != STDIN_FILENO) {
		if (st.st_size == 0)
			return failed("'%s' is empty: there is nothing to write", file);
		if (*limit > (uint64_t)st.st_size)
			*limit = (uint64_t)st.st_size;
	}
	return GO_ON;
}

int verb_write(int argc, char **argv)
{
	struct session_opts o = SESSION_OPTS_INIT;
	uint64_t limit = UINT64_MAX;
	const struct option_def defs[] = {
		{ "bytes", OPTION_SIZE, &limit, 1, "SIZE     write no more than this" },
		OPTION_LBA(&o),
		OPTION_XFER(&o),
		OPTIONS_LANES(&o),
		OPTION_YES(&o),
		OPTION_JSON(&o),
		OPTIONS_END,
	};
	const char *file = NULL;
	struct session s;
	int fd = -1;
	int ret = parse_verb(argc, argv,
			     "usage: gpunvme write URI [options] [FILE]\nWithout FILE the data comes from standard input.", defs,
			     &o, &file);

	if (ret != GO_ON)
		return ret;
	o.copies = 1;
	catch_signals();
	ret = open_input(file, &fd, &limit);
	if (ret == GO_ON)
		ret = session_open(&s, &o);
	if (ret == GO_ON) {
		ret = run(&s, &o, fd, file && strcmp(file, "-") != 0 ? file : "standard input", limit);
		session_close(&s);
	}
	if (fd > STDIN_FILENO)
		close(fd);
	return ret;
}
