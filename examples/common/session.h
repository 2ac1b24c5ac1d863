/* SPDX-License-Identifier: MIT */
/*
 * A session: a controller, threads, queues and one data buffer, opened from options that all programs spell alike. The order is
 * session_open(), session_open_queues(), session_buffer(), work, session_close(), which undoes whatever was done.
 *
 * A function that fails prints the reason and returns an exit code. Otherwise it returns GO_ON.
 */
#ifndef GPUNVME_EXAMPLES_SESSION_H
#define GPUNVME_EXAMPLES_SESSION_H

#include <stddef.h>
#include <stdint.h>

#include <gpunvme/gpunvme.h>

#include "options.h"
#include "output.h"

struct stat;

#define CHUNK (64 * MIB) /* of a file in memory at a time */

struct session_opts {
	const char *dev;
	const char *gpu;
	uint64_t lba;
	uint64_t xfer;
	uint32_t queues;
	uint32_t depth;
	uint32_t threads;
	int yes;
	int force;
	int json;
	int verbose;
	int forward;	      /* a CPU thread rings the doorbells */
	int cmb;	      /* submission queues in the drive's memory */
	int invalidate;	      /* GPUNVME_QUEUE_INVALIDATE */
	int fua;	      /* what is written is on the media at once */
	int read_only;	      /* as ro=1 in the URI */
	int copies;	      /* the program has no kernel of its own, so that threads of any kind will do: session_copy() */
	uint32_t queue_flags; /* more of enum gpunvme_queue_flags */
	uint32_t timeout_ms;  /* of a command. 0: the library's */
};
#define SESSION_OPTS_INIT                                                                                                          \
	{                                                                                                                          \
				NULL, "cpu", 0, 256 * KIB, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                                                \
	}

/* Options for the table of parse_options(). @o is the struct session_opts. */
#define OPTION_DEV(o)                                                                                                              \
	{                                                                                                                          \
		"dev", OPTION_TEXT, &(o)->dev, 0, "URI",                                                                           \
			"controller: PCI address, soft:PATH[?key=value&...], soft:ram:SIZE or vfio-user:SOCKET"                    \
	}
#define OPTION_LBA(o)                                                                                                              \
	{                                                                                                                          \
		"lba", OPTION_U64, &(o)->lba, 0, "N", "first block (default 0)"                                                    \
	}
#define OPTION_XFER(o)                                                                                                             \
	{                                                                                                                          \
		"xfer", OPTION_SIZE, &(o)->xfer, 1, "SIZE", "bytes a thread moves with one call (default 256K)"                    \
	}
#define OPTION_YES_OUT(o)                                                                                                          \
	{                                                                                                                          \
		"yes", OPTION_FLAG, &(o)->yes, 0, NULL, "permit to write to FILE if that is a device"                               \
	}
#define OPTION_YES(o)                                                                                                              \
	{                                                                                                                          \
		"yes", OPTION_FLAG, &(o)->yes, 0, NULL, "permit to write to a target that is not an image file"                    \
	}
#define OPTION_FORCE(o)                                                                                                            \
	{                                                                                                                          \
		"force", OPTION_FLAG, &(o)->force, 0, NULL, "replace FILE if it exists"                                            \
	}
#define OPTION_JSON(o)                                                                                                             \
	{                                                                                                                          \
		"json", OPTION_FLAG, &(o)->json, 0, NULL, "the result as one JSON object"                                          \
	}
#define OPTION_GPU(o)                                                                                                              \
	{                                                                                                                          \
		"gpu", OPTION_TEXT, &(o)->gpu, 0, "G", "where threads run: cpu[:WIDTH], hsa:N, hsa:ADDRESS, cuda:N, auto (cpu)"    \
	}
#define OPTION_VERBOSE(o)                                                                                                          \
	{                                                                                                                          \
		"verbose", OPTION_FLAG, &(o)->verbose, 0, NULL, "show what the library logs"                                       \
	}
#define OPTIONS_THREADS(o)                                                                                                         \
	OPTION_GPU(o), { "queues", OPTION_U32, &(o)->queues, 1, "N", "queue pairs (default 4, or what the controller has)" },      \
		{ "depth", OPTION_U32, &(o)->depth, 1, "N", "entries of each queue, a power of two (default: up to 1024)" },       \
		{ "threads", OPTION_U32, &(o)->threads, 1, "N", "threads (default 4 for each queue)" },                              \
		{ "forward", OPTION_FLAG, &(o)->forward, 0, NULL, "one CPU thread rings the doorbells of all threads" },             \
		{ "cmb", OPTION_FLAG, &(o)->cmb, 0, NULL, "submission queues in the drive's own memory (CMB)" },                    \
		{ "invalidate", OPTION_FLAG, &(o)->invalidate, 0, NULL, "empty the caches of an AMD GPU that sees old data (root)" },    \
		OPTION_VERBOSE(o)
#define OPTION_VRAM(to)                                                                                                            \
	{                                                                                                                          \
		"vram", OPTION_FLAG, to, 0, NULL, "queues in the GPU's memory, and in no other"                                    \
	}

/*
 * parse_options() for a program that wants a controller, by --dev or as the first operand, and, if @file is not NULL, one more
 * operand. *file stays NULL if it is not there.
 */
int session_options(int argc, char **argv, const char *usage, const struct option_def *defs, struct session_opts *o,
		    const char **file);

struct session {
	const char *uri;
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *mem;
	struct gpunvme_queue **queue;
	struct gpunvme_dq *dq; /* one view for each queue */
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dev_info info;
	struct gpunvme_ns_info ns;
	struct gpunvme_gpu_info gpu_info;
	uint32_t queues;
	uint32_t threads;
	int host_data;	     /* the buffer is memory of the host, wherever queues lie */
	double thread_seconds; /* how long threads have run so far */
	char placement[16];
};

/* What the library logs, as lines of standard error. Only errors and warnings if @ctx has options without --verbose. */
void session_log(void *ctx, enum gpunvme_log_level level, const char *text);

/* Opens the controller and asks what it is. On failure everything is closed again. */
int session_open(struct session *s, const struct session_opts *o);

/* Opens the threads alone. session_open_queues() does that, too. */
int session_open_gpu(struct session *s, const struct session_opts *o);

/* Opens the threads and the queues. Kernels see blocks @lba to @lba + @nblocks - 1 from 0 on (@nblocks 0: to the end). */
int session_open_queues(struct session *s, const struct session_opts *o, uint32_t flags, uint64_t lba, uint64_t nblocks);

/* A data buffer that threads and controller both reach: s->mem and s->dbuf. session_alloc() prints nothing: 0, or an errno. */
int session_alloc(struct session *s, uint64_t bytes);
int session_buffer(struct session *s, uint64_t bytes);

/* Stops DMA before memory goes: queues, buffer, controller, threads. */
void session_close(struct session *s);

/* Checks --xfer and returns it in blocks. */
int session_step(const struct session *s, const struct session_opts *o, uint32_t *step);

/* Do @nblocks from @lba on lie in the namespace? @what is the subject of the sentence. */
int session_fits(const struct session *s, const char *what, uint64_t lba, uint64_t nblocks);

/* Kernels of a program are compiled for CPU threads. Elsewhere the library's own kernels run. */
int session_on_gpu(const struct session *s);

/* Runs @kernel on @threads threads and waits until all have returned. */
int session_launch(struct session *s, uint32_t threads, void (*kernel)(void *arg), void *arg);

/* What a thread reports: its first failure, as it stops there. */
struct thread_result {
	uint64_t lba; /* in the view */
	uint32_t nblocks;
	int status; /* 0: everything it did succeeded */
};

/* Has threads of a GPU move @nblocks from @lba of the views on. The first failure goes to @result. */
int session_copy(struct session *s, uint32_t flags, uint64_t lba, uint64_t nblocks, uint32_t step, struct thread_result *result);

/* Says in words which failure comes first in block order. @lba is the first block of the view. */
int report_threads(const struct thread_result *result, uint32_t threads, const char *verb, uint64_t lba);

/* Is @file what one of its namespaces lies on? */
int session_has(const struct session *s, const struct stat *file);

#endif
