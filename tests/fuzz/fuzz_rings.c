/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: a hostile kernel, or a hostile guest, that the controller in software serves.
 *
 * The controller is the library's, with two threads that are emulated: an input says when which of them has a turn. A kernel has
 * the rings and doorbells of two queue pairs and all memory that is mapped; a third pair belongs to another kernel, which is
 * honest. A guest has registers and admin queue as well. Both write to memory also while the controller looks at it: wherever the
 * controller calls for an address, a check or a copy, a write that was announced may come in between. Blocks are in memory; the
 * store does a step at once, or later, in any order, badly, or not at all, as the input says. The clock is its own.
 *
 * Input: what served.h says of its first bytes, then steps (enum step).
 * Properties: those of served.h; and the other's queue is served, with the right data, whatever the kernel does.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "served.h"
#include "util/bits.h"

/* How an input goes on: a byte of these, and what that needs. */
enum step { SEND, RING, DOORBELL, CONSUME, TURN, WRITE, LIST, REGISTER, WHILE, TIME, STORE, MEMORY, RESET, OTHER, ADMIN, RAW, STEPS };

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);

/* ---- The host ---- */

/* Addresses are often right: those with this first byte name a place in what is mapped. */
static uint64_t aim(uint64_t address)
{
	const uint64_t offset = address & 0xffff;

	if (address >> 56 != 0x7f)
		return address;
	switch (address >> 16 & 3) {
	case 0:
		return data_iova + offset;
	case 1:
		return rings_iova + offset % RINGS;
	case 2:
		return ODD_IOVA + offset % (2 * ODD);
	default:
		return data_iova + (offset & ~(uint64_t)4095);
	}
}

static uint64_t next_address(void)
{
	const uint64_t place = next16(), where = next();

	return where == 0xff ? next32() | (uint64_t)next32() << 32 : aim(0x7full << 56 | where << 16 | place);
}

/* Where the host writes: whole words of memory that is its own. */
static char *next_place(size_t *room)
{
	const unsigned where = next(), at = next16() & ~7u;

	if (where & 1) {
		*room = ODD - at % ODD;
		return odd + at % ODD;
	}
	if (where & 2) {
		*room = RINGS - at % RINGS;
		return rings + at % RINGS;
	}
	*room = DATA - at;
	return data + at;
}

/* A queue whose doorbells are the host's. */
static unsigned next_queue(void)
{
	const unsigned which = next();

	return m.manner & GUEST ? which % (QUEUES + 1) : which & 1 ? 1 : 2;
}

static void put_command(unsigned qid, const struct gpunvme_sqe *sqe)
{
	uint32_t size;
	size_t stride;
	char *entries = entries_of(qid, &size, &stride);

	if (!entries)
		return;
	m.tail[qid] %= size;
	memcpy(entries + m.tail[qid] * stride, sqe, sizeof(*sqe));
	m.tail[qid] = (m.tail[qid] + 1) % size;
}

static void send(void)
{
	static const uint8_t opc[] = { GPUNVME_IO_READ, GPUNVME_IO_WRITE, GPUNVME_IO_COMPARE, GPUNVME_IO_WRITE_ZEROES, GPUNVME_IO_DSM,
				       GPUNVME_IO_FLUSH };
	const unsigned qid = next_queue(), kind = next(), flags = next();
	struct gpunvme_sqe sqe = { .opc = kind < 0xf0 ? opc[kind % GNV_ARRAY_LEN(opc)] : (uint8_t)kind };

	sqe.cid = (uint16_t)next();
	sqe.flags = (uint8_t)((flags & 1 ? flags & 0x3f : 0) | (flags & 0x80 ? GPUNVME_PSDT_SGL : 0));
	sqe.nsid = flags & 2 ? 2 : flags & 4 ? next32() : 1;
	sqe.prp1 = next_address();
	sqe.prp2 = next_address();
	sqe.cdw10 = next();
	sqe.cdw11 = flags & 8 ? next32() : sqe.opc == GPUNVME_IO_DSM ? GPUNVME_DSM_AD : 0;
	sqe.cdw12 = next() | (flags & 16 ? next() << 24 : 0);
	put_command(qid, &sqe);
}

static void send_raw(void)
{
	const unsigned qid = next_queue();
	struct gpunvme_sqe sqe;

	for (unsigned i = 0; i < sizeof(sqe); i++)
		((uint8_t *)&sqe)[i] = (uint8_t)next();
	sqe.prp1 = aim(sqe.prp1);
	sqe.prp2 = aim(sqe.prp2);
	put_command(qid, &sqe);
}

static void send_admin(void)
{
	struct gpunvme_sqe sqe = { .opc = (uint8_t)next(), .cid = (uint16_t)next() };

	sqe.nsid = next() & 3;
	sqe.prp1 = next_address();
	sqe.prp2 = next_address();
	sqe.cdw10 = next16();
	sqe.cdw10 |= next16() << 16;
	sqe.cdw11 = next16();
	sqe.cdw11 |= next16() << 16;
	sqe.cdw12 = next();
	if (sqe.opc == GPUNVME_ADMIN_SET_FEATURES) {
		const uint64_t list = next_address();

		sqe.cdw13 = (uint32_t)list;
		sqe.cdw14 = (uint32_t)(list >> 32);
		sqe.cdw15 = next();
	}
	if (m.manner & GUEST)
		put_command(0, &sqe);
}

static void write_memory(bool list)
{
	size_t room;
	char *at = next_place(&room);

	for (unsigned n = next() % 32; n && room >= 8; n--, at += 8, room -= 8) {
		const uint64_t word = list ? next_address() : next32() | (uint64_t)next32() << 32;

		memcpy(at, &word, sizeof(word));
	}
}

static void write_register(void)
{
	static const uint16_t at[] = { GPUNVME_REG_CC, GPUNVME_REG_AQA, GPUNVME_REG_ASQ, GPUNVME_REG_ACQ, GPUNVME_REG_CMBMSC };
	const uint32_t which = next(), value = next32();

	if (!(m.manner & GUEST))
		return;
	if (which < 0x40)
		*reg(GPUNVME_REG_CC) = (*reg(GPUNVME_REG_CC) & 0xffff0000u) | (value & 0xffff);
	else if (which < 0x80)
		*reg(at[which % GNV_ARRAY_LEN(at)]) = value;
	else if (which < 0xa0)
		write_reg64(at[2 + which % 2], aim(0x7full << 56 | (value & 0x3ffff)));
	else
		*reg(value % GPUNVME_REG_DOORBELLS & ~3u) = value;
}

/* In a while, while the controller looks: memory, or a doorbell. */
static void write_meanwhile(void)
{
	const unsigned after = next();
	uint32_t *where;
	size_t room;

	if (m.writes == GNV_ARRAY_LEN(m.write))
		return;
	if (after & 1)
		where = gnv_soft_doorbell(soft, next_queue() % (QUEUES + 1), after & 2);
	else
		where = (void *)(next_place(&room) + (after & 2) * 2);
	m.write[m.writes].at = where;
	m.write[m.writes].after = after >> 2;
	m.write[m.writes++].value = next32();
}

static void write_doorbell(void)
{
	const unsigned qid = next_queue(), how = next();

	*gnv_soft_doorbell(soft, qid, how & 1) = how & 2 ? next32() : next();
}

static void ring(unsigned qid)
{
	*gnv_soft_doorbell(soft, qid, false) = m.tail[qid];
}

static void choose_store(void)
{
	static const int answers[] = { 0, -EIO, -EAGAIN, -ENOSPC, -EINVAL, -EOPNOTSUPP, -EFAULT, -EINTR, -ENOMEM, -EROFS, 512,
				       GNV_SOFT_ANSWER + 5 };
	const unsigned how = next();

	m.later = how & 1;
	m.last_first = how & 2;
	m.refuses = how & 4 ? how & 8 ? -EAGAIN : -EIO : 0;
	m.give = how >> 4;
	m.answer = answers[next() % GNV_ARRAY_LEN(answers)];
}

/* ---- The other kernel, which is honest ---- */

static const uint32_t *others_entry(void)
{
	return (const uint32_t *)(const void *)(others + RING_ROOM) + (size_t)4 * m.other_head;
}

/* A read of what cannot change, into memory that nobody else names. Return: its status. */
static uint32_t others_read(unsigned block)
{
	const struct gpunvme_sqe sqe = { .opc = GPUNVME_IO_READ,
					 .cid = (uint16_t)(0x100 + block),
					 .nsid = 2,
					 .cdw10 = block,
					 .prp1 = others_iova + 2 * RING_ROOM };
	const uint32_t *entry = others_entry();
	unsigned i;

	memcpy(others + (size_t)64 * m.other_tail, &sqe, sizeof(sqe));
	m.other_tail = (m.other_tail + 1) % ENTRIES;
	*gnv_soft_doorbell(soft, HONEST, false) = m.other_tail;
	for (i = 0; i < 4 && (entry[3] >> 16 & 1) != m.other_phase; i++)
		turn_for(HONEST);
	check(i < 4 && (entry[3] & 0xffff) == sqe.cid && entry[2] == (HONEST << 16 | m.other_tail));
	m.other_head = (m.other_head + 1) % ENTRIES;
	m.other_phase ^= !m.other_head;
	*gnv_soft_doorbell(soft, HONEST, true) = m.other_head;
	return entry[3] >> 17;
}

static void other_goes_on(void)
{
	const unsigned block = next() % (STILL / BLOCK);

	/* A queue waits if it shares a thread with commands that the storage keeps. */
	if (!has_room_for_others())
		return;
	if (m.manner & GUEST || soft->io.doom || soft->state != GNV_SOFT_READY || soft->faulty || soft->config.quirks.set)
		return;
	check(!others_read(block) && !memcmp(others + 2 * RING_ROOM, still_block(block), BLOCK));
}

/* ---- The input ---- */

static void step(void)
{
	const unsigned what = next() % STEPS;

	switch (what) {
	case SEND:
		return send();
	case RING:
		return ring(next_queue());
	case DOORBELL:
		return write_doorbell();
	case CONSUME:
		return consume(next_queue());
	case TURN:
		return turn(next() & 1 ? 0 : 1);
	case WRITE:
	case LIST:
		return write_memory(what == LIST);
	case REGISTER:
		return write_register();
	case WHILE:
		return write_meanwhile();
	case TIME:
		m.now += 1ull << next() % 40;
		return;
	case STORE:
		return choose_store();
	case MEMORY:
		return move_memory();
	case RESET:
		if (m.manner & GUEST)
			soft->function_reset = GNV_SOFT_ASKED;
		return;
	case OTHER:
		return other_goes_on();
	case ADMIN:
		return send_admin();
	default:
		return send_raw();
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	if (size < 5 || size > MOST)
		return 0;
	begin_served(input, size);
	while (m.at < m.end)
		step();
	end_served();
	return 0;
}
