/* SPDX-License-Identifier: MIT */
/*
 * What the examples and the gpunvme command have in common and what is not their subject: options, sizes, a progress bar, error
 * lines, and the five calls that open a controller and its queues. Everything is `static inline`; nothing here is part of the
 * library.
 *
 * An error is one line on standard error, `program: sentence`; with --json a failure is an object on standard output, too. Exit
 * codes: 0 done, 1 failed, 2 wrong usage.
 */
#ifndef GPUNVME_EXAMPLES_COMMON_H
#define GPUNVME_EXAMPLES_COMMON_H

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <gpunvme/gpunvme.h>
#include <gpunvme/device.h>

enum { EXIT_DONE = 0, EXIT_FAILED = 1, EXIT_USAGE = 2 };
enum { GO_ON = -1 }; /* answer of functions that otherwise answer an exit code */

#define KIB 1024ull
#define MIB (1024 * KIB)
#define CHUNK (64 * MIB) /* of a file in memory at a time */

/* ---- Errors ---- */

static const char *program = "gpunvme";
static int json_wanted; /* --json was given */

static inline void print_error(const char *format, va_list args)
{
	fflush(stdout);
	fprintf(stderr, "%s: ", program);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
}

static inline void print_json_error(const char *format, va_list args);

__attribute__((format(printf, 1, 2))) static inline int failed(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	print_error(format, args);
	va_end(args);
	va_start(args, format);
	if (json_wanted)
		print_json_error(format, args);
	va_end(args);
	return EXIT_FAILED;
}

__attribute__((format(printf, 1, 2))) static inline int misused(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	print_error(format, args);
	va_end(args);
	return EXIT_USAGE;
}

/* The library's own sentence about its last failure on this thread, or the bare name of @ret where there is none. */
static inline const char *why(int ret)
{
	const char *text = gpunvme_errmsg();

	return *text ? text : gpunvme_strerror(ret);
}

/* ---- Options ---- */

enum option_kind { OPTION_FLAG, OPTION_TEXT, OPTION_U32, OPTION_U64, OPTION_SIZE };

/* One option, `--name value` or `--name=value`. @value points to an int, const char *, uint32_t or uint64_t. */
struct option_def {
	const char *name;
	enum option_kind kind;
	void *value;
	uint64_t min;
	const char *help; /* "VALUE  what it does"; of a flag just what it does */
};

/* Decimal digits and at most one of K, M, G, T (powers of 1024) when @suffix. Nothing else: no sign, no space, no overflow. */
static inline int parse_number(const char *text, int suffix, uint64_t *value)
{
	static const char units[] = "KMGT";
	const char *unit;
	uint64_t n = 0;

	if (*text < '0' || *text > '9')
		return -EINVAL;
	for (; *text >= '0' && *text <= '9'; text++)
		if (__builtin_mul_overflow(n, (uint64_t)10, &n) || __builtin_add_overflow(n, (uint64_t)(*text - '0'), &n))
			return -ERANGE;
	unit = *text ? strchr(units, *text >= 'a' && *text <= 'z' ? *text - 'a' + 'A' : *text) : NULL;
	if (suffix && unit) {
		uint64_t factor = (uint64_t)1 << (10 * (unit - units + 1));

		if (__builtin_mul_overflow(n, factor, &n))
			return -ERANGE;
		text++;
	}
	*value = n;
	return *text ? -EINVAL : 0;
}

static inline int set_number(const struct option_def *def, const char *text)
{
	uint64_t n = 0;
	int ret = parse_number(text, def->kind == OPTION_SIZE, &n);

	if (ret == -EINVAL)
		return misused("--%s takes %s, not '%s'", def->name,
			       def->kind == OPTION_SIZE ? "a size such as 4096, 64K, 2M or 1G" : "a number", text);
	if (ret || (def->kind == OPTION_U32 && n > UINT32_MAX))
		return misused("--%s %s is too large", def->name, text);
	if (n < def->min)
		return misused("--%s must be at least %" PRIu64, def->name, def->min);
	if (def->kind == OPTION_U32)
		*(uint32_t *)def->value = (uint32_t)n;
	else
		*(uint64_t *)def->value = n;
	return GO_ON;
}

static inline int print_help(const char *usage, const struct option_def *defs)
{
	printf("%s\n\nOptions:\n", usage);
	for (; defs->name; defs++)
		printf("  --%-10s %s\n", defs->name, defs->help);
	printf("  --%-10s %s\n", "help", "this text");
	return EXIT_DONE;
}

/* One option at argv[*i]; moves *i over its value. */
static inline int parse_option(int argc, char **argv, int *i, const struct option_def *defs)
{
	const char *name = argv[*i] + 2;
	size_t len = strcspn(name, "=");
	const char *value = name[len] ? name + len + 1 : NULL;

	for (; defs->name && (strlen(defs->name) != len || strncmp(defs->name, name, len) != 0); defs++)
		;
	if (!defs->name)
		return misused("unknown option '%s'; try --help", argv[*i]);
	if (defs->kind == OPTION_FLAG) {
		if (value)
			return misused("--%s takes no value", defs->name);
		*(int *)defs->value = 1;
		json_wanted |= strcmp(defs->name, "json") == 0;
		return GO_ON;
	}
	if (!value && *i + 1 < argc)
		value = argv[++*i];
	if (!value)
		return misused("--%s needs a value; try --help", defs->name);
	if (defs->kind != OPTION_TEXT)
		return set_number(defs, value);
	*(const char **)defs->value = value;
	return GO_ON;
}

/* Parses everything after argv[0]. Up to @room operands go to @operand; the caller checks for missing ones (they stay NULL). */
static inline int parse_options(int argc, char **argv, const char *usage, const struct option_def *defs, const char **operand,
				int room)
{
	int options = 1;
	int ret;

	for (int i = 1; i < argc; i++) {
		if (options && strcmp(argv[i], "--help") == 0)
			return print_help(usage, defs);
		if (options && strcmp(argv[i], "--") == 0) {
			options = 0;
		} else if (options && argv[i][0] == '-' && argv[i][1]) {
			if (argv[i][1] != '-')
				return misused("unknown option '%s'; try --help", argv[i]);
			ret = parse_option(argc, argv, &i, defs);
			if (ret != GO_ON)
				return ret;
		} else if (room-- > 0) {
			*operand++ = argv[i];
		} else {
			return misused("'%s' is one argument too many; try --help", argv[i]);
		}
	}
	return GO_ON;
}

/* ---- Output ---- */

static inline double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* @bytes in binary units, in one of four buffers that are used in turn. */
static inline const char *human(double bytes)
{
	static const char *const unit[] = { "B", "KiB", "MiB", "GiB", "TiB", "PiB" };
	static char text[4][32];
	static unsigned turn;
	char *out = text[turn++ % 4];
	unsigned i = 0;

	for (; bytes >= 1024 && i < 5; i++)
		bytes /= 1024;
	snprintf(out, sizeof(text[0]), "%.*f %s", i ? 1 : 0, bytes, unit[i]);
	return out;
}

/* A JSON string, quotes included; bytes that are not printable ASCII are escaped. */
static inline void json_string(const char *text)
{
	putchar('"');
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '"' || c == '\\')
			printf("\\%c", c);
		else if (c < 0x20 || c > 0x7e)
			printf("\\u%04x", c);
		else
			putchar(c);
	}
	putchar('"');
}

static inline void print_json_error(const char *format, va_list args)
{
	char text[2048];

	vsnprintf(text, sizeof(text), format, args);
	printf("{\"program\": \"%s\", \"error\": ", program);
	json_string(text);
	printf("}\n");
}

struct progress {
	uint64_t total;
	double start;
	double next; /* time of the next redraw */
	int on;
};

static inline void progress_start(struct progress *p, uint64_t total)
{
	p->total = total;
	p->start = now_s();
	p->next = p->start + 0.2;
	p->on = isatty(STDERR_FILENO);
}

static inline void progress_show(struct progress *p, uint64_t done)
{
	static const char bar[] = "##############################";
	double now = now_s();
	double share = p->total ? (double)done / (double)p->total : 0;

	if (!p->on || now < p->next || share > 1)
		return;
	p->next = now + 0.2;
	fprintf(stderr, "\r[%-30.*s] %3.0f %%  %s/s  ", (int)(share * 30), bar, share * 100,
		human((double)done / (now - p->start)));
}

static inline void progress_end(const struct progress *p)
{
	if (p->on)
		fprintf(stderr, "\r%60s\r", "");
}

/* ---- Files ---- */

/* Reads until @len bytes or the end of the file. */
static inline ssize_t read_full(int fd, void *buf, size_t len)
{
	size_t done = 0;

	while (done < len) {
		ssize_t n = read(fd, (char *)buf + done, len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		done += (size_t)n;
	}
	return (ssize_t)done;
}

static inline int write_full(int fd, const void *buf, size_t len)
{
	for (size_t done = 0; done < len;) {
		ssize_t n = write(fd, (const char *)buf + done, len - done);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		done += (size_t)n;
	}
	return 0;
}

static volatile sig_atomic_t interrupted;

static inline void on_signal(int number)
{
	interrupted = number;
}

/* Ctrl-C and SIGTERM end the work at the next chunk, so that queues are deleted and half-written files removed. */
static inline void catch_signals(void)
{
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_handler = on_signal;
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGTERM, &action, NULL);
}

/* ---- Sessions: a controller, the lanes, queues and one data buffer ---- */

struct session_opts {
	const char *dev;
	const char *gpu;
	uint64_t lba;
	uint64_t xfer;
	uint32_t queues;
	uint32_t depth;
	uint32_t lanes;
	int yes;
	int json;
	int verbose;
	int forward; /* a CPU thread rings the doorbells */
	int copies; /* the program only copies, which lanes of any kind can do: session_copy() */
	uint32_t queue_flags; /* more of enum gpunvme_qp_flags */
};
#define SESSION_OPTS_INIT                                                                                                          \
	{                                                                                                                          \
		NULL, "cpu", 0, 256 * KIB, 0, 0, 0, 0, 0, 0, 0, 0, 0                                                                \
	}

#define OPTION_DEV(o)                                                                                                              \
	{                                                                                                                          \
		"dev", OPTION_TEXT, &(o)->dev, 0, "URI      controller: soft:PATH[?key=value&...] or a PCI address"                \
	}
#define OPTION_LBA(o)                                                                                                              \
	{                                                                                                                          \
		"lba", OPTION_U64, &(o)->lba, 0, "N        first block (default 0)"                                                \
	}
#define OPTION_XFER(o)                                                                                                             \
	{                                                                                                                          \
		"xfer", OPTION_SIZE, &(o)->xfer, 1, "SIZE     bytes a lane moves with one call (default 256K)"                     \
	}
#define OPTION_YES(o)                                                                                                              \
	{                                                                                                                          \
		"yes", OPTION_FLAG, &(o)->yes, 0, "         do write to a target that is not an image file"                        \
	}
#define OPTION_JSON(o)                                                                                                             \
	{                                                                                                                          \
		"json", OPTION_FLAG, &(o)->json, 0, "         the result as one JSON object"                                       \
	}
#define OPTION_GPU(o)                                                                                                              \
	{                                                                                                                          \
		"gpu", OPTION_TEXT, &(o)->gpu, 0, "G        where the lanes run: cpu[:WIDTH], hsa:N, hsa:ADDRESS, cuda:N, auto (cpu)"    \
	}
#define OPTION_VERBOSE(o)                                                                                                          \
	{                                                                                                                          \
		"verbose", OPTION_FLAG, &(o)->verbose, 0, "         show what the library logs"                                    \
	}
#define OPTIONS_LANES(o)                                                                                                           \
	OPTION_GPU(o),                                                                                                             \
		{ "queues", OPTION_U32, &(o)->queues, 1, "N        queue pairs (default 4, or what the controller has)" },         \
		{ "depth", OPTION_U32, &(o)->depth, 1, "N        entries of each queue, a power of two (default: up to 1024)" },   \
		{ "lanes", OPTION_U32, &(o)->lanes, 1, "N        lanes (default 4 for each queue)" },                 \
		{ "forward", OPTION_FLAG, &(o)->forward, 0, "         a CPU thread rings the doorbells, not the lanes" },         \
		OPTION_VERBOSE(o)
#define OPTIONS_END                                                                                                                \
	{                                                                                                                          \
		NULL, OPTION_FLAG, NULL, 0, NULL                                                                                   \
	}

struct session {
	const char *uri;
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *mem;
	struct gpunvme_qp **qp;
	struct gpunvme_dq *dq; /* one view for each queue */
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dev_info info;
	struct gpunvme_ns_info ns;
	struct gpunvme_gpu_info gpu_info;
	uint32_t queues;
	uint32_t lanes;
	double lane_seconds; /* how long lanes have run so far */
	char rung[16];
};

static inline void print_log(void *ctx, enum gpunvme_log_level level, const char *text)
{
	static const char *const name[] = { "error", "warning", "info", "debug" };

	(void)ctx;
	fprintf(stderr, "%s: [%s] %s\n", program, (unsigned)level < 4 ? name[level] : "log", text);
}

/* Stops DMA before memory goes: queues, buffer, controller, lanes. */
static inline void session_close(struct session *s)
{
	for (uint32_t i = 0; s->qp && i < s->queues; i++)
		gpunvme_qp_destroy(s->qp[i]);
	gpunvme_mem_free(s->mem);
	gpunvme_dev_close(s->dev);
	gpunvme_gpu_close(s->gpu);
	free(s->qp);
	free(s->dq);
	memset(s, 0, sizeof(*s));
}

/* Opens the controller and asks what it is. On failure everything is closed again. */
static inline int session_open(struct session *s, const struct session_opts *o)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	int ret;

	memset(s, 0, sizeof(*s));
	s->uri = o->dev;
	s->info.size = sizeof(s->info);
	s->ns.size = sizeof(s->ns);
	opts.log = o->verbose ? print_log : NULL;
	opts.queues = o->queues;
	ret = gpunvme_dev_open(o->dev, &opts, &s->dev);
	if (!ret)
		ret = gpunvme_dev_info(s->dev, &s->info);
	if (!ret)
		ret = gpunvme_ns_info(s->dev, 0, &s->ns);
	if (!ret)
		return GO_ON;
	failed("%s", why(ret));
	session_close(s);
	return EXIT_FAILED;
}

/* The path of a soft: URI without its keys, percent signs decoded; -EINVAL for any other URI. */
static inline int soft_path(const char *uri, char *path, size_t room)
{
	size_t n = 0;

	if (strncmp(uri, "soft:", 5) != 0)
		return -EINVAL;
	for (uri += 5; *uri && *uri != '?'; uri++) {
		unsigned byte = (unsigned char)*uri;

		if (*uri == '%' && sscanf(uri + 1, "%2x", &byte) == 1)
			uri += 2;
		if (n + 1 >= room)
			return -EINVAL;
		path[n++] = (char)byte;
	}
	path[n] = '\0';
	return 0;
}

/* What lies under a soft: URI; -EINVAL when @uri is no such thing. */
static inline int soft_stat(const char *uri, struct stat *st)
{
	char path[4096];

	if (soft_path(uri, path, sizeof(path)) || stat(path, st) < 0)
		return -EINVAL;
	return 0;
}

/*
 * May this session write? An image file: yes, that is what it is for. Anything else could hold somebody's data: only with
 * --yes, and the refusal names the drive so that the user can tell which one it is.
 */
static inline int session_may_write(const struct session *s, const struct session_opts *o)
{
	struct stat st;

	if (s->ns.read_only || s->info.read_only)
		return failed("%s is read-only: make the image writable or leave ro=1 out of the URI", s->uri);
	if (o->yes || (soft_stat(s->uri, &st) == 0 && S_ISREG(st.st_mode)))
		return GO_ON;
	return failed("this would overwrite data on %s, serial %s, %s: add --yes if that is the drive you mean", s->info.model,
		      s->info.serial, human((double)s->ns.nblocks * s->ns.lba_size));
}

static inline int session_open_queue(struct session *s, const struct session_opts *o, const struct gpunvme_view *view, uint32_t i)
{
	struct gpunvme_qp_opts opts = GPUNVME_QP_OPTS_INIT;
	int ret;

	opts.depth = o->depth;
	opts.flags = GPUNVME_QP_STATS | o->queue_flags | (o->forward ? GPUNVME_QP_FORWARD : 0);
	ret = gpunvme_qp_create(s->dev, s->gpu, &opts, &s->qp[i]);
	return ret ? ret : gpunvme_qp_view(s->qp[i], view, &s->dq[i]);
}

static inline int session_settle_counts(struct session *s, const struct session_opts *o)
{
	uint32_t width = s->gpu_info.width ? s->gpu_info.width : 1;

	if (o->queues > s->info.queues)
		return failed("asked for %u queues, but the controller granted %u: use --queues %u or less", o->queues,
			      s->info.queues, s->info.queues);
	s->queues = o->queues ? o->queues : s->info.queues < 4 ? s->info.queues : 4;
	if (o->lanes > 1u << 16)
		return failed("%u lanes are too many for this program: use --lanes %u or less", o->lanes, 1u << 16);
	s->lanes = o->lanes ? o->lanes : 4 * s->queues;
	s->lanes += (width - s->lanes % width) % width;
	return GO_ON;
}

static inline int session_open_gpu(struct session *s, const struct session_opts *o)
{
	struct gpunvme_gpu_opts opts = GPUNVME_GPU_OPTS_INIT;
	int ret;

	opts.log = o->verbose ? print_log : NULL;
	ret = gpunvme_gpu_open(o->gpu, &opts, &s->gpu);
	s->gpu_info.size = sizeof(s->gpu_info);
	if (!ret)
		ret = gpunvme_gpu_info(s->gpu, &s->gpu_info);
	return ret ? failed("%s", why(ret)) : GO_ON;
}

/* Kernels of this program are compiled for CPU lanes; on others the library's own have to do. */
static inline int session_on_gpu(const struct session *s)
{
	return s->gpu_info.kind != GPUNVME_GPU_CPU;
}

/* Opens the lanes and the queues; kernels see blocks @lba to @lba + @nblocks - 1 as 0 to @nblocks - 1 (@nblocks 0: to the end). */
static inline int session_open_queues(struct session *s, const struct session_opts *o, uint32_t flags, uint64_t lba,
				      uint64_t nblocks)
{
	struct gpunvme_view view = { sizeof(view), flags, 0, lba, nblocks };
	struct gpunvme_qp_info info = { .size = sizeof(info) };
	int ret = session_open_gpu(s, o);

	if (ret != GO_ON)
		return ret;
	if (session_on_gpu(s) && !o->copies)
		return failed("this program is compiled for CPU lanes: use --gpu cpu");
	ret = session_settle_counts(s, o);
	if (ret != GO_ON)
		return ret;
	s->qp = calloc(s->queues, sizeof(*s->qp));
	s->dq = calloc(s->queues, sizeof(*s->dq));
	if (!s->qp || !s->dq)
		return failed("no memory for %u queues", s->queues);
	for (uint32_t i = 0; i < s->queues; i++) {
		ret = session_open_queue(s, o, &view, i);
		if (ret)
			return failed("%s", why(ret));
	}
	ret = gpunvme_qp_info(s->qp[0], &info);
	if (ret)
		return failed("%s", why(ret));
	memcpy(s->rung, info.rung, sizeof(s->rung));
	return GO_ON;
}

/* A data buffer that lanes and controller both reach: s->mem and s->dbuf. */
static inline int session_buffer(struct session *s, uint64_t bytes)
{
	int ret = gpunvme_mem_alloc(s->gpu, (size_t)bytes, NULL, &s->mem);

	if (!ret)
		ret = gpunvme_mem_map(s->mem, s->dev);
	if (!ret)
		ret = gpunvme_mem_dbuf(s->mem, s->dev, &s->dbuf);
	return ret ? failed("%s", why(ret)) : GO_ON;
}

/* Runs @kernel on @lanes lanes and waits until all have returned. */
static inline int session_launch(struct session *s, uint32_t lanes, void (*kernel)(void *arg), void *arg)
{
	uint32_t width = s->gpu_info.width ? s->gpu_info.width : 1;
	double start = now_s();
	int ret = gpunvme_cpu_launch(lanes, lanes < width ? 1 : width, kernel, arg);

	s->lane_seconds += now_s() - start;
	return ret ? failed("cannot run %u lanes: %s; use fewer (--lanes)", lanes, gpunvme_strerror(ret)) : GO_ON;
}

/* Checks --xfer and answers it in blocks. */
static inline int session_step(const struct session *s, const struct session_opts *o, uint32_t *step)
{
	if (o->xfer % s->ns.lba_size)
		return failed("--xfer %" PRIu64 " is not a multiple of the block size, %u bytes", o->xfer, s->ns.lba_size);
	if (o->xfer > CHUNK)
		return failed("--xfer %" PRIu64 " is too large: use %" PRIu64 " or less", o->xfer, (uint64_t)CHUNK);
	*step = (uint32_t)(o->xfer / s->ns.lba_size);
	return GO_ON;
}

/* Do @nblocks from @lba on lie in the namespace? @what is the subject of the sentence. */
static inline int session_fits(const struct session *s, const char *what, uint64_t lba, uint64_t nblocks)
{
	if (lba < s->ns.nblocks && nblocks <= s->ns.nblocks - lba)
		return GO_ON;
	return failed("%s needs blocks %" PRIu64 " to %" PRIu64 ", but the namespace ends with block %" PRIu64 " of %u bytes", what,
		      lba, lba + nblocks - 1, s->ns.nblocks - 1, s->ns.lba_size);
}

/* What a lane reports: its first failure, as it stops there. */
struct lane_result {
	uint64_t lba; /* in the view */
	uint32_t nblocks;
	int status; /* 0: everything it did succeeded */
};

/* Has lanes of a GPU move @nblocks from @lba of the views on; the failure that comes first goes to @result. */
static inline int session_copy(struct session *s, uint32_t flags, uint64_t lba, uint64_t nblocks, uint32_t step,
			       struct lane_result *result)
{
	struct gpunvme_copy copy = GPUNVME_COPY_INIT;
	double start = now_s();

	copy.flags = flags;
	copy.lanes = s->lanes;
	copy.step = step;
	copy.lba = lba;
	copy.nblocks = nblocks;
	result->status = gpunvme_copy(s->gpu, s->dq, s->queues, &s->dbuf, &copy);
	result->lba = copy.failed_lba;
	result->nblocks = copy.failed_nblocks;
	s->lane_seconds += now_s() - start;
	return result->status && !copy.failed_nblocks && !(flags & GPUNVME_COPY_FLUSH) ? failed("%s", why(result->status)) : GO_ON;
}

/* What the user can do about @status. */
static inline const char *remedy(int status)
{
	switch (status > 0 ? status & (int)GPUNVME_ST_CODE : status) {
	case GPUNVME_SC_CAPACITY_EXCEEDED:
	case GPUNVME_SC_WRITE_FAULT:
		return "; with a soft: image, check that the disk under it is not full (df)";
	case GPUNVME_SC_UNRECOVERED_READ:
	case GPUNVME_SC_INTERNAL:
	case GPUNVME_SC_DATA_TRANSFER:
		return "; look at the health of the drive (gpunvme identify)";
	case -GPUNVME_ETIMEDOUT:
		return "; the controller does not answer, reset it or use another one";
	case -GPUNVME_EROFS:
	case GPUNVME_SC_NS_WRITE_PROTECTED:
	case GPUNVME_SC_READ_ONLY_RANGE:
		return "; the namespace is read-only";
	default:
		return "";
	}
}

/* Says in words which failure comes first in block order. @lba is the first block of the view. */
static inline int report_lanes(const struct lane_result *result, uint32_t lanes, const char *verb, uint64_t lba)
{
	const struct lane_result *first = NULL;

	for (uint32_t i = 0; i < lanes; i++)
		if (result[i].status && (!first || result[i].lba < first->lba))
			first = &result[i];
	if (!first)
		return GO_ON;
	return failed("%s of blocks %" PRIu64 " to %" PRIu64 " failed: %s%s", verb, lba + first->lba,
		      lba + first->lba + first->nblocks - 1, gpunvme_strerror(first->status), remedy(first->status));
}

/* The closing line of a copy: the whole copy, files included, and what the lanes did in the time they ran. */
static inline void report_copy(const struct session *s, const struct session_opts *o, const char *verb, const char *file,
			       uint64_t bytes, double seconds)
{
	double rate = seconds > 0 ? (double)bytes / seconds : 0;
	double lane_rate = s->lane_seconds > 0 ? (double)bytes / s->lane_seconds : 0;

	if (!o->json) {
		printf("%s %s in %.2f s: %s/s, lanes alone %s/s; %u queues, %u lanes on %s, rung %s\n", verb, human((double)bytes),
		       seconds, human(rate), human(lane_rate), s->queues, s->lanes, s->gpu_info.name, s->rung);
		return;
	}
	printf("{\"program\": \"%s\", \"device\": ", program);
	json_string(o->dev);
	printf(", \"file\": ");
	json_string(file);
	printf(", \"lba\": %" PRIu64 ", \"bytes\": %" PRIu64 ", \"seconds\": %.6f, \"lane_seconds\": %.6f", o->lba, bytes, seconds,
	       s->lane_seconds);
	printf(", \"bytes_per_second\": %.0f, \"queues\": %u, \"lanes\": %u, \"rung\": \"%s\"}\n", rate, s->queues, s->lanes,
	       s->rung);
}

/* Standard output may be a full disk or a closed pipe: only a clean close means that the result was delivered. */
static inline int finish(int code)
{
	if (fflush(stdout) == 0 && !ferror(stdout))
		return code;
	return failed("cannot write to standard output: %s", strerror(errno));
}

#endif
