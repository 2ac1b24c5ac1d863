/* SPDX-License-Identifier: MIT */
/* Queues in registered memory, a mini controller for each, and completions that arrive in pieces. */
#ifndef TESTS_GFX_WORLD_H
#define TESTS_GFX_WORLD_H

#include "common/mini.h"
#include "gfx/gfx.h"

#define WORLD_QUEUES 3
#define WORLD_BLOCK 512u

struct world_queue {
	struct gpunvme_dq_state *state;
	uint64_t *ready, *result, *cid_map;
	uint32_t *sq, *cq, *doorbell; /* as lanes see them; the controller completes into a copy of cq */
	struct mini ctrl;
	uint64_t arrived;  /* completions that lanes can see whole */
	uint32_t dwords;   /* of the next one */
	struct world *world;
};

struct world {
	struct gfx *m;
	struct world_queue queue[WORLD_QUEUES];
	struct gpunvme_dq *dq;
	struct gpunvme_dbuf *dbuf;
	uint32_t *stop, *seen, lanes, stamps;
	uint8_t *data;
	unsigned queues;
	bool check_writes;
	uint32_t flags;
	uint32_t bad_write, alien; /* commands that carried wrong data; commands nobody gave */
};

/* flags: those of struct gpunvme_dq beyond the usual; with GPUNVME_DQ_CQE16 completions arrive whole. */
struct world *world_new(struct gfx *m, unsigned queues, unsigned sq_shift, uint64_t start, uint32_t lanes, uint32_t stamps,
			uint32_t flags);
void world_free(struct world *w);
void world_turn(void *world);
uint16_t world_status(uint64_t stamp);
/* What must hold after any run; idle: nothing is in flight. Returns NULL or what is wrong. */
const char *world_check(struct world *w, bool idle);

/* Where the queues stand. */
void world_show(const struct world *w);

#endif
