/* SPDX-License-Identifier: MIT */
/*
 * gpunvme soak, in parts: soak.c runs rounds and disturbs them, soak_thread.c has the work and the knowledge of one thread, and
 * soak_report.c reports it. Threads may be a GPU's, so the library executes their commands (gpunvme_run_commands()). CPU threads
 * prepare the commands and verify the results.
 *
 * Each thread has its own blocks, and knows for each which versions it may hold: the version that was acknowledged last, and those
 * of later writes that failed. Where Write Zeroes or Deallocate ran, also zeroes. Blocks are stamped (stamp.h), so that any other
 * data is noticed.
 */
#ifndef GPUNVME_SOAK_H
#define GPUNVME_SOAK_H

#include "stamp.h"
#include "verbs.h"

#define SOAK_BLOCKS 4096u     /* of a thread, at most */
#define SOAK_CHUNK (64 * KIB) /* of one command, at most */
#define SOAK_BUFFER (256 * MIB) /* of all that is under way, at most */
#define SOAK_EACH 16u	      /* commands of a thread in a round, at most */
#define SOAK_PAST 2048u	      /* commands of a thread that are remembered */
#define SOAK_STATUSES 32u     /* different ones that are counted */

enum soak_op { SOAK_READ, SOAK_WRITE, SOAK_FUA, SOAK_FLUSH, SOAK_ZEROES, SOAK_DEALLOCATE, SOAK_OPS };

struct soak_block {
	uint32_t first, last; /* versions it may hold, none if first > last */
	uint8_t zero, ones;   /* it may hold zeroes, or ones */
	uint8_t known;	      /* it was written, or set to zero, since the beginning */
};

struct soak_past {
	uint64_t n; /* number of the command in the thread */
	enum soak_op op;
	uint32_t at, nblocks;
	uint32_t version; /* 0: it writes no stamps */
	int status;
};

struct soak_thread {
	const struct soak *soak;
	uint32_t queue;
	uint64_t lba;	 /* of its first block */
	uint64_t offset; /* of its part of the buffer, a chunk for each command */
	uint32_t version; /* the last that it gave to a write */
	struct soak_block *block;
	struct soak_past *past;
	struct soak_past now[SOAK_EACH]; /* of this round */
	uint64_t seed;
	uint64_t commands, blocks, verified;
	uint64_t count[SOAK_OPS];
	uint64_t errors;    /* commands whose status was not 0 */
	uint32_t read_back; /* blocks that the last reading has seen */
	int status;	    /* by which the queue ended this round */
	struct {
		int status;
		uint64_t count;
	} statuses[SOAK_STATUSES]; /* other than 0 */
	int wrong;		   /* a block was */
	uint32_t where;		   /* it is, of its blocks */
	char found[96];
};

struct soak {
	struct session s;
	struct session_opts o;
	uint32_t seconds;
	uint64_t commands; /* in all, or 0: for `seconds` */
	int calm;
	uint32_t nblocks, most; /* of a thread, of a command */
	uint64_t run;
	struct soak_thread *thread;
	struct gpunvme_command *cmd; /* of this round, `each` of each thread */
	uint32_t each, deep;	       /* the latter: commands for which the buffer has room */
	int reads;		       /* the round reads back known blocks */
	uint32_t turn;		       /* atomic: the next thread that a CPU thread prepares or verifies */
	uint32_t rounds, vain; /* of the latter, the last in which no command succeeded */
	uint64_t stops, recoveries, resets;
	double start, took;
};

/* Return: 0, -ENOMEM. */
int soak_threads_open(struct soak *k);
void soak_threads_close(struct soak *k);

/* Draw the commands of a round, or the reads of known blocks, and fill the buffer. */
int soak_prepare(struct soak *k);

/* Count the results, update the known versions, and verify the data that was read. */
int soak_judge(struct soak *k);

/* The first thread that has read a wrong block, or NULL. */
const struct soak_thread *soak_wrong_thread(const struct soak *k);

/* Print the report, as text or JSON. Return: the exit code. */
int soak_report(struct soak *k);

extern const char *const soak_ops[SOAK_OPS];

#endif
