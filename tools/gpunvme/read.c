/* SPDX-License-Identifier: MIT */
/*
 * gpunvme read: blocks of a namespace to a file or to standard output. What it says about itself goes to standard error then.
 */
#include "verbs.h"

#include <fcntl.h>

static int read_all(struct session *s, struct copy_args *a, const struct session_opts *o, int fd, const char *file, uint64_t bytes)
{
	struct progress bar;
	int ret = GO_ON;

	progress_start(&bar, bytes);
	for (uint64_t done = 0; done < bytes && ret == GO_ON;) {
		uint64_t want = bytes - done < CHUNK ? bytes - done : CHUNK;
		int err = 0;

		a->nblocks = (want + a->lba_size - 1) / a->lba_size;
		ret = copy_launch(s, a);
		if (ret == GO_ON)
			ret = report_lanes(a->result, s->lanes, "read", o->lba);
		if (ret == GO_ON)
			err = write_full(fd, gpunvme_mem_ptr(s->mem), (size_t)want);
		if (err)
			ret = failed("cannot write '%s': %s", file, strerror(-err));
		if (ret == GO_ON && interrupted)
			ret = failed("interrupted");
		a->lba += a->nblocks;
		done += want;
		progress_show(&bar, done);
	}
	progress_end(&bar);
	return ret;
}

/* The output; *created says whether a failed run has to remove it. */
static int open_output(const char *file, const char *uri, int *created)
{
	struct stat st;
	struct stat image;
	int fd = open(file, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);

	*created = fd >= 0;
	if (fd >= 0 || errno != EEXIST)
		return fd;
	if (stat(file, &st) == 0 && soft_stat(uri, &image) == 0 && image.st_dev == st.st_dev && image.st_ino == st.st_ino) {
		errno = ETXTBSY; /* the file is in use: it is the image */
		return -1;
	}
	return open(file, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
}

static int run(struct session *s, const struct session_opts *o, const char *file, uint64_t bytes)
{
	uint64_t nblocks = bytes / s->ns.lba_size + (bytes % s->ns.lba_size != 0);
	struct copy_args a = { .write = 0 };
	int to_file = file && strcmp(file, "-") != 0;
	const char *name = to_file ? file : "standard output";
	int fd = STDOUT_FILENO;
	int created = 0;
	double start;
	int ret = copy_prepare(s, o, &a, nblocks);

	if (ret == GO_ON && to_file)
		fd = open_output(file, o->dev, &created);
	if (fd < 0)
		ret = failed("cannot create '%s': %s", file, strerror(errno));
	if (ret == GO_ON) {
		start = now_s();
		ret = read_all(s, &a, o, fd, name, bytes);
		if (to_file && close(fd) < 0 && ret == GO_ON)
			ret = failed("cannot write '%s': %s", file, strerror(errno));
		if (ret == GO_ON && to_file)
			report_copy(s, o, "read", file, bytes, now_s() - start);
		else if (ret != GO_ON && created)
			unlink(file);
	}
	free(a.result);
	return ret == GO_ON ? EXIT_DONE : ret;
}

int verb_read(int argc, char **argv)
{
	struct session_opts o = SESSION_OPTS_INIT;
	uint64_t bytes = 0;
	const struct option_def defs[] = {
		{ "bytes", OPTION_SIZE, &bytes, 1, "SIZE     how much to read; K, M, G are powers of 1024 (default one block)" },
		OPTION_LBA(&o),
		OPTION_XFER(&o),
		OPTIONS_LANES(&o),
		OPTION_JSON(&o),
		OPTIONS_END,
	};
	const char *file = NULL;
	struct session s;
	int ret = parse_verb(argc, argv, "usage: gpunvme read URI [options] [FILE]\nWithout FILE the blocks go to standard output.",
			     defs, &o, &file);

	if (ret != GO_ON)
		return ret;
	o.copies = 1;
	if (!file && isatty(STDOUT_FILENO))
		return misused("standard output is a terminal: give a FILE, or - to have the blocks there");
	if (o.json && (!file || strcmp(file, "-") == 0))
		return misused("--json needs a FILE, as standard output carries the blocks");
	catch_signals();
	ret = session_open(&s, &o);
	if (ret == GO_ON) {
		ret = run(&s, &o, file, bytes ? bytes : s.ns.lba_size);
		session_close(&s);
	}
	return ret;
}
