/* SPDX-License-Identifier: MIT */
/*
 * A controller for tests of the device header: one thread that fetches commands and completes them without I/O, in the order and
 * with the manners a test asks for. It knows rings and doorbells only; no admin queue, no address space.
 *
 * Every command's SLBA is a stamp. The controller keeps the stamps it has seen, destroys each SQE after fetching it (so that a
 * doorbell rung too early is noticed), and derives the status from the stamp by the test's function.
 */
#ifndef TESTS_COMMON_MINI_H
#define TESTS_COMMON_MINI_H

#include <gpunvme/dq.h>
#include <pthread.h>
#include <stdbool.h>

#define MINI_MAX_HELD 4096

struct mini_queue {
	uint32_t *sq, *cq;       /* rings as dwords */
	uint32_t *sq_db, *cq_db;
	uint32_t sq_depth, cq_depth;
	uint16_t qid;
	uint64_t start; /* commands before the first one; presets head, tail and phase */
};

enum mini_fate {
	MINI_COMPLETE, /* now or, with opts.window, some time soon */
	MINI_HOLD      /* not before mini_release() */
};

/* What a hostile controller does to a completion it is about to post; see mini_post in mini.c. */
enum mini_crime { MINI_HONEST, MINI_BAD_CID, MINI_IDLE_CID, MINI_TWICE, MINI_LATE, MINI_BAD_SQID, MINI_SQHD_AHEAD, MINI_SQHD_BIG, MINI_TORN };

struct mini_opts {
	uint32_t seed;
	uint32_t window;  /* completions are taken at random from so many held commands; 0 or 1: in order */
	uint32_t idle;    /* per cent of turns in which nothing is completed */
	uint32_t naps;    /* per mille of turns that sleep for up to 200 us */
	enum mini_crime crime;
	uint64_t crime_stamp;
	uint16_t (*status)(uint64_t stamp);      /* NULL: success */
	enum mini_fate (*fate)(uint64_t stamp);  /* NULL: MINI_COMPLETE */
};

struct mini {
	struct mini_queue q;
	struct mini_opts opts;
	pthread_t thread;
	uint32_t stop, frozen, release; /* atomic */
	/* The controller's own, read by tests after mini_stop() or through atomics. */
	uint64_t fetched, completed, garbage, full, doorbells;
	uint32_t cq_tail, last_tail;
	uint32_t late_cid, late_status; /* of MINI_LATE, when `late`: a copy comes once another command is there */
	bool late;
	uint64_t random;
	unsigned held_count;
	struct gpunvme_sqe held[MINI_MAX_HELD];
	void (*seen)(void *ctx, const struct gpunvme_sqe *cmd); /* on the controller's thread */
	void *seen_ctx;
};

void mini_start(struct mini *m);
/* Without a thread: mini_begin() once, then each mini_turn() fetches and completes a little. */
void mini_begin(struct mini *m);
void mini_turn(struct mini *m);
void mini_stop(struct mini *m);
/* Frozen: fetches nothing and completes nothing. */
void mini_freeze(struct mini *m, bool on);
/* Complete what MINI_HOLD held back, and hold nothing from now on. */
void mini_release(struct mini *m);

#endif
