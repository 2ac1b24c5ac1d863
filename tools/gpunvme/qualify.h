/* SPDX-License-Identifier: MIT */
/*
 * gpunvme qualify, in parts: qualify.c runs the rows, and the files qualify_*.c define them. A row is one function. It sets one
 * message with its result (qualify_say() or qualify_fail()) and puts figures into a->figures. It closes all queues but the standing
 * one, and returns a result.
 */
#ifndef GPUNVME_QUALIFY_H
#define GPUNVME_QUALIFY_H

#include "stamp.h"
#include "verbs.h"

#include "common/progress.h"

enum qualify_result { QUALIFY_PASSED, QUALIFY_LIMIT, QUALIFY_FAILED, QUALIFY_SKIPPED };

enum qualify_op { QUALIFY_READ, QUALIFY_WRITE, QUALIFY_FUA, QUALIFY_FLUSH, QUALIFY_ZEROES, QUALIFY_DEALLOCATE };

struct qualify {
	struct session s; /* controller, threads and buffer */
	struct session_opts o;
	struct gpunvme_queue *queue; /* the standing queue */
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
#define QUALIFY_PLACE (8 * MIB)
#define QUALIFY_BACK (8 * MIB)
#define QUALIFY_QUEUES 65535u /* requested. A drive may grant fewer */
#define QUALIFY_LARGEST (2 * MIB) /* transfer */

/* ---- For rows ---- */

/* Set the message of a row. Return the result of the row: QUALIFY_PASSED, QUALIFY_FAILED. */
__attribute__((format(printf, 2, 3))) int qualify_say(struct qualify *a, const char *format, ...);
__attribute__((format(printf, 2, 3))) int qualify_fail(struct qualify *a, const char *format, ...);

/* The standing queue, of @depth entries (0: the default). Return: 0 or the library's error. */
int qualify_open_queue(struct qualify *a, uint32_t depth);
void qualify_close_queue(struct qualify *a);

/* A view of the whole namespace through @queue, with the right to write if the run has it. */
int qualify_view(const struct qualify *a, struct gpunvme_queue *queue, struct gpunvme_dq *dq);

/* Open controller, threads, buffer and the standing queue. Return: GO_ON or an exit code; 0 or the library's error. */
int qualify_connect(struct qualify *a);
int qualify_prepare(struct qualify *a);

/* Both anew, as the drive is now. Return: 0; -ENODEV: it does not come back; or the library's error. */
int qualify_reconnect(struct qualify *a);

/*
 * Run operation @op on the blocks in one thread, @step blocks with each call. The data is at @offset of the buffer. Deallocate
 * needs 16 bytes there. Return: the status.
 */
int qualify_move(struct qualify *a, enum qualify_op op, uint64_t offset, uint64_t lba, uint32_t nblocks, uint32_t step);

/* Blocks of the largest transfer of a row: two commands of the drive, or fewer if that takes too long. */
uint32_t qualify_largest(const struct qualify *a);

/*
 * Write stamps to the blocks with one call, if the run may write. Read them back page by page, which is safe with every drive, and
 * with one call. The data is at @offset of the buffer. Return: a result. QUALIFY_FAILED comes with a message.
 */
int qualify_check(struct qualify *a, uint64_t lba, uint32_t nblocks, uint64_t offset);

/*
 * For the row of rates: test that the drive wakes up from its last power state as fast as it claims. If not, extend the message.
 * Add figures. No queue is open before the call. The standing queue may be open after it. Return: the result.
 */
int qualify_claim_wake(struct qualify *a);

/* A result, as lines and report have it. */
const char *qualify_word(int result);

/* The text of a status. */
const char *qualify_why(int status);

/* The stamp of block @lba in the generation of now. */
struct stamp qualify_stamp(const struct qualify *a, uint64_t lba);

/* Describe the drive in the report, without its serial number, because the report is for others. */
void qualify_describe(struct qualify *a);

/* Writes the report as it is to its file. Return: 0 or a negative errno. */
int qualify_save(struct qualify *a);

/* ---- The rows ---- */

int row_state(struct qualify *a);
int row_formats(struct qualify *a);
int row_lists(struct qualify *a);
int row_sizes(struct qualify *a);
int row_alignments(struct qualify *a);
int row_edges(struct qualify *a);
int row_commands(struct qualify *a);
int row_queues(struct qualify *a);
int row_depths(struct qualify *a);
int row_abort(struct qualify *a);
int row_recover(struct qualify *a);
int row_reset(struct qualify *a);
int row_rates(struct qualify *a);
int row_stamps(struct qualify *a);
int row_health(struct qualify *a);
int row_reformat(struct qualify *a);
int row_power(struct qualify *a);

/* `--after FILE`: verify the durable blocks after a loss of power. */
int row_after(struct qualify *a);

#endif
