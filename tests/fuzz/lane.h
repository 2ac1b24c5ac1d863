/* SPDX-License-Identifier: MIT */
/*
 * A queue for one CPU thread of a fuzz target: its descriptor, of which an input says what is wrong with it, its memory, and a controller
 * that has a turn at each pause of the thread, or, a slow one, only at its looks at the clock, by which time passes.
 * What names memory in the descriptor is left true, and the shifts within what dq.h allows: with others the thread reaches what is
 * not its own, and no word tells it so. Where the descriptor says of itself that it is none, its shifts are any: nobody may use
 * them. Included instead of the device header.
 */
#ifndef FUZZ_LANE_H
#define FUZZ_LANE_H

#define __builtin_ia32_pause pause_of_lane
void pause_of_lane(void);

#include <gpunvme/device.h>
#include <stdbool.h>
#include <stdint.h>

#define BYTES (256u << 10)
#define HELD 1024u
#define LOOKS 10000u	/* at the clock, in one call; a command takes four */
#define QUEUE_BYTES 5	/* of input, and what pieces and buffer have */

/* Bits of byte 3. */
enum manner { SILENT = 1, FAILS = 2, STOPS = 4, LIES = 8, SLOW = 16 };

struct lane_world {
	struct gpunvme_dq dq;
	struct gpunvme_dbuf buf;
	uint32_t *sq, *cq, doorbell[2], stop;
	uint64_t fetched, completed, now;
	uint32_t idle, looks;
	uint8_t manner;
	bool on;
	uint32_t commands; /* of the call that is made */
	uint32_t held_count;
	uint16_t held[HELD];
};

extern struct lane_world w;

/* Of the buffer, poisoned after its end; a target that has something written there makes it zero again after the call. */
extern uint8_t bytes[BYTES];

/* Of the target: a command that the thread has sent, in the call that is made. */
void check_command(const struct gpunvme_sqe *cmd);

static inline void check(int ok)
{
	if (!ok)
		__builtin_trap();
}

/*
 * Input: byte 0 and 1 the depths, byte 2 the identifiers, byte 3 how the controller behaves, then pieces of 8 bytes that stand anywhere
 * in struct gpunvme_dq, before them one byte that says where, as many as byte 4 says; then the buffer, 33 bytes.
 * Return: what follows in the input.
 */
const uint8_t *begin_queue(const uint8_t *in, const uint8_t *end);
void end_queue(void);

/* @pieces times: a byte that says which of the words of @len bytes at @what, and the word. Return: what follows. */
const uint8_t *spoil_words(void *what, size_t len, const uint8_t *at, const uint8_t *end, unsigned pieces);

void begin_call(void);

/* What was rung is fetched while the call is known. Return: false when a command may still come. */
bool end_call(void);

/* Is the result one that device.h documents, and has what was refused sent nothing? */
void check_error(int ret);

/* Data of a command lie in the buffer, from there on, and PRPs or SGL say so. */
void check_data(const struct gpunvme_sqe *cmd, uint64_t at, uint64_t len);

#endif
