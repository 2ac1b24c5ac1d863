/* SPDX-License-Identifier: MIT */
/*
 * gpunvme accept, in parts: accept.c runs the rows, and the files accept_*.c define them. A row is one function. It sets one
 * message with its result (accept_say() or accept_fail()) and puts figures into a->figures. It closes all queues but the standing
 * one, and returns a verdict.
 */
#ifndef GPUNVME_ACCEPT_H
#define GPUNVME_ACCEPT_H

#include "stamp.h"
#include "verbs.h"

#include "common/progress.h"

enum accept_verdict { ACCEPT_PASSED, ACCEPT_LIMIT, ACCEPT_FAILED, ACCEPT_SKIPPED };

enum accept_op { ACCEPT_READ, ACCEPT_WRITE, ACCEPT_FUA, ACCEPT_FLUSH, ACCEPT_ZEROES, ACCEPT_DEALLOCATE };

struct accept {
	struct session s; /* controller, threads and buffer */
	struct session_opts o;
	struct gpunvme_queue *qp; /* the standing queue */
	struct gpunvme_dq dq;
	char *data;    /* the buffer, all of which rows use */
	uint64_t area; /* blocks from 0 on that rows read and write */
	uint32_t lba_size;
	uint32_t page_blocks; /* that a command without a PRP list moves */
	int write;
	uint64_t run; /* names the stamps */
	uint64_t generation;
	double start, seconds; /* of the whole */
	const char *output, *after;
	int replace, overwrite, read_only, power, formats;
	uint64_t moved[2];		 /* bytes that the row of rates has read and written */
	struct gpunvme_smart_log before; /* as it was at the start */
	int has_smart;
	struct json_object *report, *figures; /* the whole report, and the figures of the current row */
	char text[2048]; /* a row may say more than a line */
};

/* The buffer: where rows put transfers, and where the same blocks are read to in the safest way, for comparison. */
#define ACCEPT_PLACE (8 * MIB)
#define ACCEPT_BACK (8 * MIB)
#define ACCEPT_QUEUES 65535u /* requested. A drive may grant fewer */
#define ACCEPT_LARGEST (2 * MIB) /* transfer */

/* ---- For rows ---- */

/* Set the message of a row. Return the verdict of the row: ACCEPT_PASSED, ACCEPT_FAILED. */
__attribute__((format(printf, 2, 3))) int accept_say(struct accept *a, const char *format, ...);
__attribute__((format(printf, 2, 3))) int accept_fail(struct accept *a, const char *format, ...);

/* The standing queue, of @depth entries (0: the default). Return: 0 or the library's error. */
int accept_open_queue(struct accept *a, uint32_t depth);
void accept_close_queue(struct accept *a);

/* A view of the whole namespace through @qp, with the right to write if the run has it. */
int accept_view(const struct accept *a, struct gpunvme_queue *qp, struct gpunvme_dq *dq);

/* Open controller, threads, buffer and the standing queue. Return: GO_ON or an exit code; 0 or the library's error. */
int accept_connect(struct accept *a);
int accept_prepare(struct accept *a);

/* Both anew, as the drive is now. Return: 0; -ENODEV: it does not come back; or the library's error. */
int accept_reconnect(struct accept *a);

/*
 * Run operation @op on the blocks in one thread, @step blocks with each call. The data is at @offset of the buffer. Deallocate
 * needs 16 bytes there. Return: the status.
 */
int accept_move(struct accept *a, enum accept_op op, uint64_t offset, uint64_t lba, uint32_t nblocks, uint32_t step);

/* Blocks of the largest transfer of a row: two commands of the drive, or fewer if that takes too long. */
uint32_t accept_largest(const struct accept *a);

/*
 * Write stamps to the blocks with one call, if the run may write. Read them back page by page, which is safe with every drive, and
 * with one call. The data is at @offset of the buffer. Return: a verdict. ACCEPT_FAILED comes with a message.
 */
int accept_check(struct accept *a, uint64_t lba, uint32_t nblocks, uint64_t offset);

/*
 * For the row of rates: test that the drive wakes up from its last power state as fast as it claims. If not, extend the message.
 * Add figures. No queue is open before the call. The standing queue may be open after it. Return: the verdict.
 */
int accept_claim_wake(struct accept *a);

/* A verdict, as lines and report have it. */
const char *accept_word(int verdict);

/* The text of a status. */
const char *accept_why(int status);

/* The stamp of block @lba in the generation of now. */
struct stamp accept_stamp(const struct accept *a, uint64_t lba);

/* Describe the drive in the report, without its serial number, because the report is for others. */
void accept_describe(struct accept *a);

/* Writes the report as it is to its file. Return: 0 or a negative errno. */
int accept_save(struct accept *a);

/* ---- The rows ---- */

int row_state(struct accept *a);
int row_formats(struct accept *a);
int row_lists(struct accept *a);
int row_sizes(struct accept *a);
int row_alignments(struct accept *a);
int row_edges(struct accept *a);
int row_commands(struct accept *a);
int row_queues(struct accept *a);
int row_depths(struct accept *a);
int row_abort(struct accept *a);
int row_recover(struct accept *a);
int row_reset(struct accept *a);
int row_rates(struct accept *a);
int row_stamps(struct accept *a);
int row_health(struct accept *a);
int row_reformat(struct accept *a);
int row_power(struct accept *a);

/* `--after FILE`: verify the durable blocks after a loss of power. */
int row_after(struct accept *a);

#endif
