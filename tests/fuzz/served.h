/* SPDX-License-Identifier: MIT */
/*
 * A controller in software for a fuzz target: the library's, with two threads that are emulated, each of which does one pass over
 * its queues on request, with memory that is mapped, a store of which an input says when and how its steps end, and a clock of its
 * own. What the controller does is judged here: commands are fetched between head and tail only; each is completed once, with its
 * identifier, and not before it is fetched; none is lost, but of a queue that is closed; no entry is overwritten that the host has
 * not consumed; segments lie in mapped memory and cover the data; a namespace that is read-only stays as it is; each reset ends,
 * and then nothing is held: no command, no reference, no queue.
 */
#ifndef FUZZ_SERVED_H
#define FUZZ_SERVED_H

#include <string.h>

#include "soft/engine/threads.h"

#define QUEUES 4u
#define ENTRIES 16u /* of a ring */
#define HONEST 3u   /* the queue of another kernel, which is honest, unless there is a guest */
#define HIS_SERVER (HONEST % SERVERS)
#define VECTORS 4u
#define SERVERS 2u
#define BLOCK 512u
#define AREA (2u << 20)
#define IMAGE 65536u
#define STILL 16384u /* namespace 2 */
#define RING_ROOM 8192u /* bytes for one, and what it is aligned to */
#define RINGS (2 * QUEUES * RING_ROOM)
#define OTHERS (3 * RING_ROOM) /* memory of the other: its rings, and what it reads */
#define DATA 65536u
#define ODD 10008u
#define ODD_AT 1040u /* in its page */
#define ODD_ROOM 16384u
#define ODD_IOVA 0x200000ull
#define MOST 1200u
#define FEW 64u /* turns within which everything has come to its end */

/* Bits of byte 0. */
enum manner { GUEST = 1, LATER = 2, READ_ONLY = 4, PICKY = 8, LIMITED = 16, PAGES_OF_8K = 32, BY_FUNCTION = 128 };

struct served_world {
	const uint8_t *at, *end;
	uint8_t manner;
	uint64_t now;
	bool on, twice, forgets; /* a rule may post again, or keep a command without limit */
	bool odd;		 /* is mapped */
	uint32_t tail[QUEUES + 1]; /* where the host writes its next command */
	uint32_t other_tail, other_head, other_phase; /* of the honest queue */
	unsigned writes;
	struct {
		unsigned after; /* so many looks of the controller */
		uint32_t *at;
		uint32_t value;
	} write[4];
	bool later, last_first; /* a step of the store ends later; the last one first */
	int refuses, answer;	/* submit() says that, a step ends so; 0: as it should */
	unsigned give;		/* so many steps may end */
	unsigned steps[SERVERS]; /* that have not ended, as follows */
	struct gnv_soft_cmd *step[SERVERS][GNV_SOFT_CMDS];
};

extern struct served_world m;

extern struct gnv_soft *soft;
extern char *rings, *data, *odd, *others; /* memory that is mapped, at these addresses; the odd one at ODD_IOVA */
extern uint64_t rings_iova, data_iova, others_iova;

static inline void check(int ok)
{
	if (!ok)
		__builtin_trap();
}

static inline uint32_t next(void)
{
	return m.at < m.end ? *m.at++ : 0;
}

static inline uint32_t next16(void)
{
	const uint32_t low = next();

	return low | next() << 8;
}

static inline uint32_t next32(void)
{
	const uint32_t low = next16();

	return low | next16() << 16;
}

static inline uint32_t *reg(unsigned offset)
{
	return (uint32_t *)(void *)(soft->bar + offset);
}

static inline void write_reg64(unsigned offset, uint64_t value)
{
	memcpy(soft->bar + offset, &value, sizeof(value));
}

/*
 * Of an input byte 0 enum manner, bytes 1 to 4 what the controller itself does wrong. A guest finds it enabled, with rings for admin
 * commands where ring_of_queue() says; else queue pairs 1 to 3 are there.
 */
void begin_served(const uint8_t *input, size_t size);
uint64_t ring_of_queue(unsigned qid, bool cq);

/* What an input says that the controller itself does wrong: a state, and a rule. Of both engines. */
void choose_faults(struct gnv_soft_config *config);

/* A thread has a turn; the thread that serves a queue has one. */
void turn(unsigned by);
void turn_for(unsigned qid);

/* Entries of a submission queue. Return: NULL there is none. */
char *entries_of(unsigned qid, uint32_t *size, size_t *stride);

/* Would a command of the honest queue be fetched? */
bool has_room_for_others(void);

/* The host has consumed what was completed to a queue. */
void consume(unsigned qid);

/* The memory that lies at an odd place goes, or comes back. */
void move_memory(void);

/* What namespace 2 has. */
const char *still_block(unsigned block);

/* Everybody is well-behaved again: what was fetched comes to its end; then the controller is reset. */
void end_served(void);

#endif
