/* SPDX-License-Identifier: MIT */
/*
 * gpunvme extents: the places of a file of a mounted file system. unlease: remove the leftovers of a lease. ls, cat: a directory
 * and a file's bytes from a file system that is not mounted. cat reads with one thread, as a kernel on a GPU would.
 */
#include "verbs.h"

#include "common/progress.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <gpunvme/device.h>

#define PIECE (1 * MIB)
#define BOUNCE (64 * KIB) /* the largest block that a namespace can have */

int verb_extents(int argc, char **argv)
{
	const struct option_def defs[] = { OPTIONS_END };
	const char *path = NULL;
	char *text;
	int ret = parse_options(argc, argv,
				"usage: gpunvme extents FILE\nPrints where a file lies on its drive, for gpunvme_file_open(). "
				"Its file system must be mounted read-only.",
				defs, &path, 1);

	if (ret != GO_ON)
		return ret;
	if (!path)
		return misused("which file? Give its path");
	ret = gpunvme_file_map_make(path, &text);
	if (ret)
		return failed("%s", why(ret));
	fputs(text, stdout);
	free(text);
	return EXIT_DONE;
}

int verb_unlease(int argc, char **argv)
{
	const struct option_def defs[] = { OPTIONS_END };
	const char *path = NULL;
	int ret = parse_options(argc, argv,
				"usage: gpunvme unlease FILE\nEnds the lease that a dead process left on a file, so that the file can be "
				"written again.",
				defs, &path, 1);

	if (ret != GO_ON)
		return ret;
	if (!path)
		return misused("which file? Give its path");
	ret = gpunvme_file_lease_remove(path);
	if (ret)
		return failed("%s", why(ret));
	printf("%s may be written again\n", path);
	return EXIT_DONE;
}

/* ---- On a drive ---- */

struct files {
	struct session_opts o;
	const char *path, *map;
	uint32_t partition;
	int recursive;
	struct session s;
};

#define FILES_OPTIONS(f)                                                                                                           \
	OPTION_DEV(&(f)->o), OPTION_VERBOSE(&(f)->o),                                                                              \
	{                                                                                                                          \
		"partition", OPTION_U32, &(f)->partition, 1, "N",                                                                  \
			"the partition that has the file system (default: none, the namespace has)"                                \
	}

static int open_files(int argc, char **argv, const char *usage, const struct option_def *defs, struct files *f)
{
	int ret = session_options(argc, argv, usage, defs, &f->o, &f->path);

	if (ret != GO_ON)
		return ret;
	if (!f->path && !f->map)
		return misused("which path in the file system? Give it after the URI, for example /. Or use --map FILE with cat");
	if (f->path && f->map)
		return misused("a map is of one file: give no path with it");
	f->o.queues = 1;
	catch_signals();
	return session_open(&f->s, &f->o);
}

/*
 * A name may have any bytes, but a terminal must not obey them: those below a space, DEL, and 80h to 9fh, also as U+0080 to U+009F.
 * In the UTF-8 of other characters these bytes stay.
 */
static void print_name(const char *name)
{
	unsigned left = 0; /* bytes that belong to the character */

	for (const unsigned char *c = (const unsigned char *)name; *c; c++) {
		const bool inner = *c >= 0x80 && *c < 0xc0;

		if (c[0] == 0xc2 && c[1] >= 0x80 && c[1] < 0xa0)
			c++;
		else if (*c >= ' ' && *c != 127 && (!inner || left)) {
			putchar(*c);
			left = inner ? left - 1 : *c >= 0xf0 ? 3 : *c >= 0xe0 ? 2 : *c >= 0xc0;
			continue;
		}
		putchar('?');
		left = 0;
	}
}

static void print_entry(const struct gpunvme_dirent *entry)
{
	const time_t mtime = (time_t)entry->mtime;
	char when[32] = "?";
	struct tm tm;

	if (gmtime_r(&mtime, &tm))
		strftime(when, sizeof(when), "%Y-%m-%d %H:%M", &tm);
	printf("%c %12llu %s ", "?-dl"[entry->type & 3], (unsigned long long)entry->bytes, when);
	print_name(entry->name);
	putchar('\n');
}

static int list_directory(struct files *f)
{
	const struct gpunvme_file_opts opts = { .size = sizeof(opts), .partition = f->partition };
	struct gpunvme_dirent *entries = NULL, *larger;
	uint32_t room = 0, count = 256;
	int ret = 0;

	while (!ret && room < count && !interrupted) {
		larger = realloc(entries, count * sizeof(*entries));
		if (!larger) {
			ret = -ENOMEM;
			break;
		}
		entries = larger;
		room = count;
		ret = gpunvme_file_list(f->s.dev, f->path, &opts, entries, &count);
	}
	for (uint32_t i = 0; i < count && !ret && !interrupted; i++)
		print_entry(&entries[i]);
	ret = !ret && interrupted ? -EINTR : ret;
	free(entries);
	return ret;
}

/* ---- ls --recursive: the table that kernels would have ---- */

static int show_step(void *ctx, uint64_t done, uint64_t total)
{
	struct progress *bar = ctx;

	if (total && bar->total != total) {
		progress_end(bar);
		progress_start(bar, total, "files");
	}
	progress_show(bar, done);
	return interrupted ? -EINTR : 0;
}

static int print_table(const struct gpunvme_file *files)
{
	struct gpunvme_file_info info = { .size = sizeof(info) };
	struct gpunvme_file_entry e = { .size = sizeof(e) };
	int ret = gpunvme_file_get_info(files, &info);

	for (uint32_t i = 0; i < info.files && !ret && !interrupted; i++) {
		ret = gpunvme_file_get_entry(files, i, &e);
		if (ret)
			break;
		printf("%8u %12llu %6u ", i, (unsigned long long)e.bytes, e.extents);
		print_name(e.name);
		putchar('\n');
	}
	if (info.skipped)
		fprintf(stderr, "gpunvme: %u files were left out: they are encrypted, compressed or stored in their inodes\n", info.skipped);
	return ret;
}

static int list_all(struct files *f)
{
	struct progress bar;
	const struct gpunvme_file_opts opts = { .size = sizeof(opts),
					       .flags = GPUNVME_FILE_SKIP,
					       .partition = f->partition,
					       .progress = show_step,
					       .ctx = &bar };
	struct gpunvme_file *files;
	int ret;

	progress_start(&bar, 0, "names");
	ret = gpunvme_file_open_set(f->s.dev, &f->path, 1, &opts, &files);
	progress_end(&bar);
	if (ret)
		return ret;
	ret = print_table(files);
	gpunvme_file_close(files);
	return ret ? ret : interrupted ? -EINTR : 0;
}

int verb_ls(int argc, char **argv)
{
	struct files f = { .o = SESSION_OPTS_INIT };
	const struct option_def defs[] = {
		FILES_OPTIONS(&f),
		{ "recursive", OPTION_FLAG, &f.recursive, 0, NULL, "all files below PATH: index, bytes, extents, name" },
		OPTIONS_END,
	};
	int ret = open_files(argc, argv, "usage: gpunvme ls URI PATH [options]\n"
					 "Lists a directory of an unmounted ext4. Times are UTC.", defs,
			     &f);

	if (ret != GO_ON)
		return ret;
	ret = f.recursive ? list_all(&f) : list_directory(&f);
	if (ret == -EINTR)
		ret = failed("interrupted");
	else
		ret = ret ? failed("%s", why(ret)) : EXIT_DONE;
	session_close(&f.s);
	return ret;
}

/* ---- cat ---- */

struct cat {
	struct session *s;
	struct gpunvme_dfile file;
	struct gpunvme_cursor cur;
	uint64_t pos;
	int status;
};

static GPUNVME_DEVICE void read_piece(void *arg)
{
	struct cat *c = (struct cat *)arg;

	c->status = gpunvme_read(&c->cur, &c->s->dbuf, 0, c->pos, PIECE);
}

static int cat_all(struct cat *c)
{
	int ret = GO_ON;

	c->cur = (struct gpunvme_cursor){ .dq = c->s->dq, .file = &c->file, .bounce = PIECE };
	while (ret == GO_ON && c->pos < c->file.bytes) {
		ret = session_launch(c->s, 1, read_piece, c);
		if (ret == GO_ON && fwrite(gpunvme_mem_ptr(c->s->mem), 1, c->cur.done, stdout) != c->cur.done)
			ret = failed("standard output: %s", strerror(errno));
		c->pos += c->cur.done;
		if (ret == GO_ON && c->status)
			ret = failed("byte %llu cannot be read: %s%s", (unsigned long long)c->pos, gpunvme_strerror(c->status),
				     remedy(c->status));
		if (ret == GO_ON && interrupted)
			ret = failed("interrupted");
	}
	return ret == GO_ON ? EXIT_DONE : ret;
}

static int cat_file(struct files *f, struct gpunvme_file *file)
{
	struct cat c = { .s = &f->s };
	int ret;

	ret = session_open_queues(&f->s, &f->o, 0, 0, 0);
	if (ret == GO_ON)
		ret = session_buffer(&f->s, PIECE + BOUNCE);
	if (ret != GO_ON)
		return ret;
	ret = gpunvme_file_view(file, f->s.gpu, &c.file);
	return ret ? failed("%s", why(ret)) : cat_all(&c);
}

static int read_map(const char *path, char **text)
{
	FILE *in = fopen(path, "r");
	size_t room = 0;
	ssize_t len;

	*text = NULL;
	if (!in)
		return failed("%s: %s", path, strerror(errno));
	len = getdelim(text, &room, '\0', in);
	fclose(in);
	return len < 0 ? failed("%s is empty, or no file: give a file with the output of `gpunvme extents`", path) : GO_ON;
}

/* By its map, or by its name. */
static int find_file(struct files *f, struct gpunvme_file **file)
{
	struct gpunvme_file_opts opts = GPUNVME_FILE_OPTS_INIT;
	char *text = NULL;
	int ret = f->map ? read_map(f->map, &text) : GO_ON;

	opts.partition = f->partition;
	opts.how = f->map ? GPUNVME_FILE_MAP : GPUNVME_FILE_UNMOUNTED;
	if (ret == GO_ON) {
		ret = gpunvme_file_open(f->s.dev, f->map ? text : f->path, &opts, file);
		ret = ret ? failed("%s", why(ret)) : GO_ON;
	}
	free(text);
	return ret;
}

int verb_cat(int argc, char **argv)
{
	struct files f = { .o = SESSION_OPTS_INIT };
	const struct option_def defs[] = {
		FILES_OPTIONS(&f),
		{ "map", OPTION_TEXT, &f.map, 0, "FILE", "the output of `gpunvme extents`, instead of a path" },
		OPTIONS_END,
	};
	struct gpunvme_file *file;
	int ret = open_files(argc, argv,
			     "usage: gpunvme cat URI PATH|--map FILE [options]\nWrites a file of an unmounted ext4, or of a map, to standard output.",
			     defs, &f);

	if (ret != GO_ON)
		return ret;
	ret = find_file(&f, &file);
	if (ret == GO_ON) {
		ret = cat_file(&f, file);
		gpunvme_file_close(file);
	}
	session_close(&f.s);
	return ret;
}
