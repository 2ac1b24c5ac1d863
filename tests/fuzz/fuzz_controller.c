/* SPDX-License-Identifier: MIT */
/*
 * Fuzz target: a controller that lies to the host library, in its registers and in what it returns.
 *
 * Input: byte 0 how it begins and ends (enum manner), byte 1 the size of BAR0, byte 2 what the program asks for, byte 3 how many
 * registers it has wrong, each of 5 bytes; then, for each command that it fetches, one byte of enum fate and what that needs. When there
 * is no more it is honest. The clock is its own: each look at it is a turn of the controller, and a wait that nothing ends is soon over.
 * Properties: every wait ends; doorbells are within their rings and BAR0; data pointers and rings lie in memory that is mapped, for
 * as many bytes as the command moves; what the library believes is within what it guarantees; sentences are printable; the port is
 * closed once, with nothing mapped, and after the controller has stopped.
 */
#include <errno.h>
#include <gpunvme/admin.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nvme/features.h"
#include "nvme/hmb.h"
#include "nvme/identify.h"
#include "nvme/lists.h"
#include "nvme/power.h"
#include "life/life.h"
#include "util/bits.h"

#define IOVA_TAG 0x5a00000000000000ull
#define IOVA_SHIFT 32u /* each map has its own addresses, the same in each run: those of the memory would differ */
#define LESS_ALIGNED 64u /* in byte 2: addresses are multiples of 4 KiB, and of no more */
#define QUEUES 4u
#define REGISTERS 256u /* bytes of them, before the doorbells, that may be wrong */
#define AREAS 2u /* of host memory that are kept from input to input */
#define AREA_BYTES (2u << 20) /* what an arena takes at a time */
#define PATTERN_WORDS (2 * GNV_ADMIN_MAX_DATA / 8)
#define MAPS 64u
#define CALLS 400000u /* of the clock, more than every wait of one input together */
#define CAP (63ull | 1ull << 24 | GPUNVME_CAP_CSS_NVM | GPUNVME_CAP_CQR)

/* Bits of byte 0. */
enum manner { NEVER_READY = 1, FATAL_AT_ENABLE = 2, GONE_AT_ENABLE = 4, NEVER_DISABLED = 8, ENABLED_AT_FIRST = 16, NO_RESET = 32 };

enum fate { STATUS = 8, PATCHED, RANDOM, WRONG, LOST, CSTS, TWICE, REGISTER, FATES };

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size);
int __real_clock_gettime(clockid_t id, struct timespec *now);
int __wrap_clock_gettime(clockid_t id, struct timespec *now);
int __wrap_nanosleep(const struct timespec *pause, struct timespec *left);
int __real_gnv_ctrl_enable(struct gnv_ctrl *ctrl, uint64_t asq, uint64_t acq, uint32_t entries);
int __wrap_gnv_ctrl_enable(struct gnv_ctrl *ctrl, uint64_t asq, uint64_t acq, uint32_t entries);
int __real_gnv_sys_map(size_t len, size_t align, bool huge, void **ptr);
int __wrap_gnv_sys_map(size_t len, size_t align, bool huge, void **ptr);
void __real_gnv_sys_unmap(void *ptr, size_t len);
void __wrap_gnv_sys_unmap(void *ptr, size_t len);
int __wrap_gnv_sys_lock(void *ptr, size_t len);
int __real_gnv_arena_alloc(struct gnv_arena *arena, size_t len, struct gpunvme_gpu *gpu, struct gnv_block *block);
int __wrap_gnv_arena_alloc(struct gnv_arena *arena, size_t len, struct gpunvme_gpu *gpu, struct gnv_block *block);

struct queue {
	uint64_t sq, cq; /* 0: there is none */
	uint32_t sq_entries, cq_entries, head, tail, phase;
};

static struct {
	const uint8_t *at, *end;
	uint8_t manner;
	bool on, running, allowed, unaligned; /* running: it would make DMA; allowed: and may */
	bool said_off; /* CC.EN was read as 0 since it was switched on: the host may have believed that */
	uint64_t now;
	unsigned calls, idle, closed, maps;
	char *bar;
	size_t bar_len, page, block; /* a block has at least so many bytes */
	uint32_t cc, dstrd;
	struct queue queue[QUEUES + 1];
	uint16_t events[GNV_ADMIN_AERS]; /* identifiers of requests, and how many */
	unsigned waiting;
	struct {
		uint64_t iova;
		size_t len;
		char *cpu;
	} map[MAPS];
	struct gnv_port port;
	struct gnv_space space;
	struct gpunvme_mem bar0;
	struct {
		bool told;
		uint32_t wrong, written;
	} lie[REGISTERS / 4];
} m;

/* Of one command; what of it is moved was written for that command. Block b of the honest drive is the words from 512 * b. */
static _Alignas(8) uint8_t data[GNV_ADMIN_MAX_DATA];
static uint64_t pattern[PATTERN_WORDS];

static void check(int ok)
{
	if (!ok)
		__builtin_trap();
}

static uint32_t next(void)
{
	return m.at < m.end ? *m.at++ : 0;
}

static uint32_t next32(void)
{
	const uint32_t a = next(), b = next(), c = next();

	return a | b << 8 | c << 16 | next() << 24;
}

static uint32_t *reg(size_t offset)
{
	check(offset + 4 <= m.bar_len);
	return (uint32_t *)(void *)(m.bar + offset);
}

/* A register in error. What no machine has the memory for, pages above 16 KiB, is left out. */
static void wrong_register(void)
{
	const size_t offset = next() * 4 % REGISTERS;

	*reg(offset) = next32();
	*reg(GPUNVME_REG_CAP + 4) &= ~(12u << 16);
}

/* What the host has written there, whatever the register says. A controller that works by what it made up is nobody's to survive. */
static uint32_t written(size_t offset)
{
	const uint32_t value = *reg(offset);

	return m.lie[offset / 4].told && value == m.lie[offset / 4].wrong ? m.lie[offset / 4].written : value;
}

static void lie_in_register(void)
{
	const size_t offset = m.at < m.end ? *m.at * 4u % REGISTERS : 0;
	const uint32_t before = written(offset);

	wrong_register();
	m.lie[offset / 4].told = true;
	m.lie[offset / 4].written = before;
	m.lie[offset / 4].wrong = *reg(offset);
	m.said_off |= !(*reg(GPUNVME_REG_CC) & GPUNVME_CC_EN);
}

/* ---- Memory ---- */

/* It is this library's to give addresses that are mapped. */
static void *dma(uint64_t iova, size_t len)
{
	unsigned i;

	for (i = 0; i < MAPS; i++)
		if (iova - m.map[i].iova < m.map[i].len && len <= m.map[i].len - (iova - m.map[i].iova))
			return m.map[i].cpu + (iova - m.map[i].iova);
	check(0);
	return NULL;
}

static int space_map(struct gnv_space *space, const struct gpunvme_mem *mem, uint64_t *iova)
{
	unsigned i;

	(void)space;
	for (i = 0; i < MAPS && m.map[i].len; i++)
		;
	check(i < MAPS);
	*iova = m.map[i].iova = IOVA_TAG | (i + 1ull) << IOVA_SHIFT | (m.unaligned ? 4096 : 0);
	m.map[i].len = mem->len;
	m.map[i].cpu = mem->cpu;
	m.maps++;
	return 0;
}

static int space_unmap(struct gnv_space *space, uint64_t iova, size_t len)
{
	unsigned i;

	(void)space;
	for (i = 0; i < MAPS && (m.map[i].iova != iova || !m.map[i].len); i++)
		;
	check(i < MAPS && m.map[i].len == len);
	m.map[i].len = 0;
	m.maps--;
	return 0;
}

static void space_cut(struct gnv_space *space, uint64_t iova, size_t len)
{
	(void)space, (void)iova, (void)len;
}

static void space_close(struct gnv_space *space)
{
	(void)space;
}

static const struct gnv_space_ops space_ops = { "fuzz", space_map, space_cut, space_unmap, space_close };

/*
 * The system needs longer to give pages than the library to use them. Those that were written to are zero again before they are given
 * again: an arena's blocks, up to the last one. Others a drive may write to (hmb), and this one does not.
 */
static struct {
	_Alignas(AREA_BYTES) char bytes[AREA_BYTES];
	size_t used;
	bool taken;
} area[AREAS];

int __wrap_gnv_sys_map(size_t len, size_t align, bool huge, void **ptr)
{
	for (unsigned i = 0; i < AREAS && len <= AREA_BYTES && !huge; i++)
		if (!area[i].taken) {
			area[i].taken = true;
			*ptr = area[i].bytes;
			return 0;
		}
	return __real_gnv_sys_map(len, align, huge, ptr);
}

void __wrap_gnv_sys_unmap(void *ptr, size_t len)
{
	for (unsigned i = 0; i < AREAS; i++)
		if (ptr == area[i].bytes) {
			memset(ptr, 0, area[i].used);
			area[i].used = 0;
			area[i].taken = false;
			return;
		}
	__real_gnv_sys_unmap(ptr, len);
}

int __wrap_gnv_sys_lock(void *ptr, size_t len)
{
	(void)ptr, (void)len;
	return 0;
}

int __wrap_gnv_arena_alloc(struct gnv_arena *arena, size_t len, struct gpunvme_gpu *gpu, struct gnv_block *block)
{
	const int ret = __real_gnv_arena_alloc(arena, len, gpu, block);

	for (unsigned i = 0; i < AREAS && !ret; i++)
		if ((uintptr_t)block->cpu - (uintptr_t)area[i].bytes < AREA_BYTES)
			area[i].used = gnv_max(area[i].used, (uintptr_t)block->cpu - (uintptr_t)area[i].bytes + block->len);
	return ret;
}

/* ---- The port ---- */

static int port_halt(struct gnv_port *port)
{
	(void)port;
	m.running = false;
	memset(m.queue, 0, sizeof(m.queue));
	return 0;
}

static int port_reset(struct gnv_port *port)
{
	if (m.manner & NO_RESET)
		return gnv_fail(-EOPNOTSUPP, "no reset");
	port_halt(port);
	m.waiting = 0;
	m.manner &= (uint8_t)~NEVER_DISABLED;
	memset(m.lie, 0, sizeof(m.lie));
	*reg(GPUNVME_REG_CC) = *reg(GPUNVME_REG_CSTS) = m.cc = 0;
	return 0;
}

static int port_export(struct gnv_port *port, uint64_t offset, size_t len, int *fd)
{
	(void)port, (void)offset, (void)len, (void)fd;
	return -EOPNOTSUPP;
}

static void port_watch(struct gnv_port *port, gnv_port_lost_fn *lost, void *ctx)
{
	(void)port, (void)lost, (void)ctx;
}

/* It works, and has not said otherwise: one that does DMA while CC.EN and CSTS.RDY are 0 (3.5.3) is beyond anybody's knowledge. */
static bool at_work(void)
{
	const uint32_t enabled = *reg(GPUNVME_REG_CC) & written(GPUNVME_REG_CC) & GPUNVME_CC_EN;

	return m.running && ((enabled && !m.said_off) || *reg(GPUNVME_REG_CSTS) & GPUNVME_CSTS_RDY);
}

static int port_allow_dma(struct gnv_port *port)
{
	(void)port;
	check(!at_work());
	m.allowed = true;
	return 0;
}

static int port_cmb(struct gnv_port *port, const struct gnv_port_cmb *where, struct gpunvme_mem **mem, uint64_t *iova)
{
	(void)port, (void)mem, (void)iova;
	check(where->bar <= 5 && where->bar != 1 && where->size);
	return gnv_fail(-EOPNOTSUPP, "no memory in it");
}

static void port_close(struct gnv_port *port)
{
	(void)port;
	check(!(at_work() && m.allowed) && !m.maps);
	m.closed++;
}

static const struct gnv_port_ops port_ops = { "fuzz",	    port_halt,	    port_reset, port_export,
					      port_watch, port_allow_dma, port_cmb, port_close };
static const struct gnv_mem_ops bar_ops = { "bar", NULL, gnv_mem_attach_host, gnv_mem_detach_host };

/* ---- Commands ---- */

/* The bytes of a command, from and to where PRP1, PRP2 or one SGL data block says. Every piece is looked up. */
static void transfer(const struct gpunvme_sqe *cmd, size_t len, bool to_host)
{
	const uint64_t *list = NULL;
	size_t done, part, entry = 0;
	uint64_t at = cmd->prp1;

	check(len <= sizeof(data));
	if ((cmd->flags & 0xc0) == GPUNVME_PSDT_SGL) {
		check((uint32_t)cmd->prp2 == len || (m.block < 4096 && (uint32_t)cmd->prp2 > len));
		dma(cmd->prp1, (uint32_t)cmd->prp2);
		part = len;
	} else {
		part = gnv_min(len, m.page - (at & (m.page - 1)));
		if (len - part > m.page) {
			check((cmd->prp2 & (m.page - 1)) / 8 + (len - part + m.page - 1) / m.page <= m.page / 8);
			list = dma(cmd->prp2, (len - part + m.page - 1) / m.page * 8);
		}
	}
	for (done = 0; done < len; done += part) {
		if (done) {
			at = list ? list[entry++] : cmd->prp2;
			part = gnv_min(len - done, m.page);
			check(!(at & (m.page - 1)));
		}
		if (to_host)
			memcpy(dma(at, part), data + done, part);
		else
			memcpy(data + done, dma(at, part), part);
	}
}

static size_t identify(const struct gpunvme_sqe *cmd)
{
	struct gpunvme_id_ctrl *id = (void *)data;
	struct gpunvme_id_ns *ns = (void *)data;

	switch (cmd->cdw10 & 0xff) {
	case GPUNVME_CNS_CTRL:
		*id = (struct gpunvme_id_ctrl){ .sqes = 0x66, .cqes = 0x44, .nn = 4, .mdts = 2, .aerl_0b = 3, .hmpre = 16, .apsta = 1,
						.npss_0b = 1, .oncs = 0xc, .sgls = 1, .vwc = 1, .lpa = 2, .mn = "Fuzz", .sn = "1" };
		break;
	case GPUNVME_CNS_NS:
		*ns = (struct gpunvme_id_ns){ .nsze = 64, .lbaf = { { .lbads = 12 }, { .lbads = 9, .rp = 1 } }, .nlbaf_0b = 1 };
		break;
	case GPUNVME_CNS_ACTIVE_NS_LIST:
		for (uint32_t i = cmd->nsid + 1; i <= 4; i++)
			((uint32_t *)(void *)data)[i - cmd->nsid - 1] = i;
		break;
	default:;
	}
	return 4096;
}

static void note_queue(const struct gpunvme_sqe *cmd)
{
	const uint32_t qid = cmd->cdw10 & 0xffff, entries = (cmd->cdw10 >> 16) + 1;
	struct queue *q = &m.queue[qid <= QUEUES ? qid : 0];

	check(qid);
	if (qid > QUEUES)
		return;
	if (cmd->opc == GPUNVME_ADMIN_CREATE_CQ) {
		*q = (struct queue){ .cq = cmd->prp1, .cq_entries = entries, .phase = 1 };
		dma(q->cq, entries * sizeof(struct gpunvme_cqe));
	} else if (cmd->opc == GPUNVME_ADMIN_CREATE_SQ) {
		q->sq = cmd->prp1;
		q->sq_entries = entries;
		dma(q->sq, entries * sizeof(*cmd));
		*reg(GPUNVME_REG_DOORBELLS + 2 * (size_t)qid * (4u << m.dstrd)) = 0;
	} else {
		q->sq = 0;
	}
}

static size_t read_blocks(const struct gpunvme_sqe *cmd)
{
	const size_t len = ((cmd->cdw12 & 0xffff) + 1) * m.block;
	const uint32_t first = cmd->cdw10 * 512u;

	check(len <= sizeof(data) && cmd->opc == GPUNVME_IO_READ);
	if (first < PATTERN_WORDS / 2) {
		memcpy(data, pattern + first, len);
		return len;
	}
	for (size_t i = 0; i < len / 8; i++)
		((uint64_t *)(void *)data)[i] = first + i;
	return len;
}

/* What an honest one does. Return: bytes for the host, in data. */
static size_t execute(const struct gpunvme_sqe *cmd, bool admin, uint32_t *result)
{
	size_t len = 0;

	*result = 0;
	if (!admin)
		return read_blocks(cmd);
	memset(data, 0, 4096);
	switch (cmd->opc) {
	case GPUNVME_ADMIN_CREATE_CQ:
	case GPUNVME_ADMIN_CREATE_SQ:
	case GPUNVME_ADMIN_DELETE_CQ:
	case GPUNVME_ADMIN_DELETE_SQ:
		note_queue(cmd);
		return 0;
	case GPUNVME_ADMIN_IDENTIFY:
		return identify(cmd);
	case GPUNVME_ADMIN_SET_FEATURES:
	case GPUNVME_ADMIN_GET_FEATURES:
		*result = (cmd->cdw10 & 0xff) == GPUNVME_FID_NUM_QUEUES ? (QUEUES - 1) * 0x10001u : cmd->cdw11;
		return (cmd->cdw10 & 0xff) == GPUNVME_FID_APST && cmd->opc == GPUNVME_ADMIN_GET_FEATURES ? 256 : 0;
	case GPUNVME_ADMIN_GET_LOG_PAGE:
		len = 4 * ((size_t)(cmd->cdw10 >> 16) + 1);
		memset(data, 0, len);
		return len;
	default:
		return 0;
	}
}

static void post(struct queue *q, struct gpunvme_cqe cqe)
{
	struct gpunvme_cqe *ring = dma(q->cq, q->cq_entries * sizeof(cqe));

	cqe.status = (uint16_t)((cqe.status & ~1u) ^ q->phase);
	ring[q->tail] = cqe;
	q->tail = (q->tail + 1) % q->cq_entries;
	q->phase ^= !q->tail;
}

/* Spoil the data, or some bytes of it. */
static void spoil(enum fate fate, size_t len)
{
	uint32_t n = 1 + next() % 8, x = n;

	for (size_t i = 0; fate == RANDOM && i < len; i++)
		data[i] = (uint8_t)(x = x * 1664525u + 1013904223u);
	for (; fate == PATCHED && n; n--) {
		const uint32_t at = next() | next() << 8;

		for (uint32_t left = next() % 9; left && len; left--)
			data[(at + left) % len] = (uint8_t)next();
	}
}

static void serve(struct queue *q, const struct gpunvme_sqe *cmd)
{
	const uint32_t byte = next();
	const enum fate fate = byte % FATES;
	struct gpunvme_cqe cqe = { .sqid = (uint16_t)(q - m.queue), .sqhd = (uint16_t)q->head, .cid = cmd->cid };
	size_t len;

	if (byte >= 0xf0 && m.waiting) /* and an event, before */
		post(&m.queue[0], (struct gpunvme_cqe){ .dw0 = next32(), .cid = m.events[--m.waiting] });
	if (cmd->opc == GPUNVME_ADMIN_ASYNC_EVENT_REQUEST && q == m.queue) {
		check(m.waiting < GNV_ADMIN_AERS);
		m.events[m.waiting++] = cmd->cid;
		return;
	}
	len = execute(cmd, q == m.queue, &cqe.dw0);
	if (fate == STATUS)
		cqe.status = (uint16_t)((next() | next() << 8) << 1);
	if (fate == PATCHED || fate == RANDOM)
		spoil(fate, len);
	if ((fate == PATCHED || fate == RANDOM) && cmd->opc == GPUNVME_ADMIN_IDENTIFY && q == m.queue)
		m.block = 512; /* whatever it has said by now, and been believed */
	if (fate == PATCHED && !len)
		cqe.dw0 = next32();
	if (len && fate != STATUS)
		transfer(cmd, len, true);
	if (fate == CSTS)
		*reg(GPUNVME_REG_CSTS) = next() % 4 ? next32() : UINT32_MAX;
	if (fate == REGISTER)
		lie_in_register();
	if (fate == WRONG) {
		cqe.cid ^= (uint16_t)next();
		cqe.sqid ^= (uint16_t)(next() % 4);
		cqe.sqhd ^= (uint16_t)(next() << 4);
		cqe.status ^= (uint16_t)(next() % 2);
	}
	if (fate != LOST)
		post(q, cqe);
	if (fate == TWICE)
		post(q, cqe);
}

/* ---- Turns ---- */

static void enable(void)
{
	const uint32_t aqa = written(GPUNVME_REG_AQA);

	m.running = true;
	m.said_off = false;
	m.waiting = 0;
	m.page = 4096u << (m.cc >> 7 & 15);
	memset(m.queue, 0, sizeof(m.queue));
	m.queue[0] = (struct queue){ .sq_entries = (aqa & 0xfff) + 1, .cq_entries = (aqa >> 16 & 0xfff) + 1, .phase = 1 };
	m.queue[0].sq = written(GPUNVME_REG_ASQ) | (uint64_t)written(GPUNVME_REG_ASQ + 4) << 32;
	m.queue[0].cq = written(GPUNVME_REG_ACQ) | (uint64_t)written(GPUNVME_REG_ACQ + 4) << 32;
	*reg(GPUNVME_REG_DOORBELLS) = 0;
	if (m.manner & GONE_AT_ENABLE)
		*reg(GPUNVME_REG_CSTS) = UINT32_MAX;
	else if (m.manner & FATAL_AT_ENABLE)
		*reg(GPUNVME_REG_CSTS) |= GPUNVME_CSTS_CFS;
	else if (!(m.manner & NEVER_READY))
		*reg(GPUNVME_REG_CSTS) = GPUNVME_CSTS_RDY;
}

/* One that says that it is off is: without more questions the host believes it. */
static void stand_by_lie(void)
{
	if (!m.running || at_work())
		return;
	m.running = false;
	memset(m.queue, 0, sizeof(m.queue));
	memset(m.lie, 0, sizeof(m.lie));
	m.cc = *reg(GPUNVME_REG_CC);
}

static void look_at_cc(void)
{
	uint32_t cc, changed;

	stand_by_lie();
	cc = written(GPUNVME_REG_CC);
	changed = cc ^ m.cc;
	m.cc = cc;
	if (changed & cc & GPUNVME_CC_EN)
		enable();
	if (changed & ~cc & GPUNVME_CC_EN && !(m.manner & NEVER_DISABLED && *reg(GPUNVME_REG_CSTS) & GPUNVME_CSTS_RDY)) {
		m.running = false;
		memset(m.queue, 0, sizeof(m.queue));
		if (*reg(GPUNVME_REG_CSTS) != UINT32_MAX)
			*reg(GPUNVME_REG_CSTS) = 0;
	}
	if (changed & GPUNVME_CC_SHN && cc & GPUNVME_CC_SHN)
		*reg(GPUNVME_REG_CSTS) |= GPUNVME_CSTS_SHST_DONE;
}

static bool look_at_queue(struct queue *q)
{
	const uint32_t tail = *reg(GPUNVME_REG_DOORBELLS + 2 * (size_t)(q - m.queue) * (4u << m.dstrd));
	struct gpunvme_sqe cmd;

	if (!q->sq || !m.running)
		return false;
	check(tail < q->sq_entries);
	if (q->head == tail)
		return false;
	memcpy(&cmd, (char *)dma(q->sq, q->sq_entries * sizeof(cmd)) + q->head * sizeof(cmd), sizeof(cmd));
	q->head = (q->head + 1) % q->sq_entries;
	serve(q, &cmd);
	return true;
}

/* Time flies while nothing happens. */
static void turn(void)
{
	bool busy = false;

	check(++m.calls < CALLS);
	look_at_cc();
	for (unsigned i = 0; i <= QUEUES && GPUNVME_REG_DOORBELLS + (2 * (size_t)i + 1) * (4u << m.dstrd) <= m.bar_len; i++)
		busy |= look_at_queue(&m.queue[i]);
	m.idle = busy ? 0 : m.idle + 1;
	m.now += 10000ull << gnv_min(m.idle / 8, 20);
}

int __wrap_clock_gettime(clockid_t id, struct timespec *now)
{
	if (!m.on || id != CLOCK_MONOTONIC)
		return __real_clock_gettime(id, now);
	turn();
	*now = (struct timespec){ (time_t)(m.now / 1000000000u), (long)(m.now % 1000000000u) };
	return 0;
}

int __wrap_nanosleep(const struct timespec *pause, struct timespec *left)
{
	(void)left;
	m.now += (uint64_t)pause->tv_sec * 1000000000u + (uint64_t)pause->tv_nsec;
	return 0;
}

/* It sees each write of CC, also those between which nobody looks at the clock. */
int __wrap_gnv_ctrl_enable(struct gnv_ctrl *ctrl, uint64_t asq, uint64_t acq, uint32_t entries)
{
	look_at_cc();
	return __real_gnv_ctrl_enable(ctrl, asq, acq, entries);
}

/* ---- The program ---- */

static void check_text(const char *text, size_t size)
{
	check(memchr(text, 0, size) != NULL);
	for (; *text; text++)
		check((unsigned char)*text >= ' ' && (unsigned char)*text < 127);
}

static void said(int ret)
{
	if (ret < 0)
		check_text(gpunvme_errmsg(), 512);
	check(ret > -200 && ret <= 0x7fff);
}

static void check_info(const struct gpunvme_dev *dev)
{
	struct gpunvme_dev_info info = { .size = sizeof(info) };

	check(!gpunvme_dev_get_info(dev, &info));
	check_text(info.model, sizeof(info.model));
	check_text(info.serial, sizeof(info.serial));
	check_text(info.firmware, sizeof(info.firmware));
	check(info.page_size >= 4096 && !(info.page_size & (info.page_size - 1)));
	check(info.max_depth >= 2 && info.max_depth <= 65536);
	check(info.queues >= 1 && info.queues <= gnv_ctrl_max_queues(&dev->nvme.ctrl));
	check(gnv_ctrl_cq_doorbell(&dev->nvme.ctrl, info.queues) + 4 <= m.bar_len);
	check(!info.max_transfer || info.max_transfer >= info.page_size);
}

static void check_namespaces(struct gpunvme_dev *dev)
{
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	uint32_t nsids[4], count = GNV_ARRAY_LEN(nsids);
	int ret = gpunvme_ns_list(dev, nsids, &count);

	said(ret);
	for (uint32_t i = 0; !ret && i < count && i < GNV_ARRAY_LEN(nsids); i++)
		check(nsids[i] && nsids[i] <= dev->nvme.info.nn && (!i || nsids[i] > nsids[i - 1]));
	ret = gpunvme_ns_get_info(dev, next() % 5, &ns);
	said(ret);
	if (ret)
		return;
	check(ns.lba_size >= 512 && ns.lba_size <= 65536 && !(ns.lba_size & (ns.lba_size - 1)));
	check(ns.nblocks && ns.nblocks <= UINT64_MAX / ns.lba_size && ns.atomic);
}

static void check_doctor(struct gpunvme_dev *dev)
{
	struct gpunvme_check checks[GPUNVME_MAX_CHECKS];
	unsigned count = GPUNVME_MAX_CHECKS;

	gpunvme_doctor_drive_v(dev, checks, &count, sizeof(checks[0]));
	check(count && count <= GPUNVME_MAX_CHECKS);
	for (unsigned i = 0; i < count; i++) {
		check_text(checks[i].reason, sizeof(checks[i].reason));
		check_text(checks[i].remedy, sizeof(checks[i].remedy));
	}
}

static void use(struct gpunvme_dev *dev, uint32_t wants)
{
	uint32_t events[GNV_ADMIN_AERS], value;
	uint8_t uuid[16], page[512];

	check_info(dev);
	said(gnv_power_apply(&dev->nvme, wants & 1 ? GNV_POWER_PERFORMANCE : GNV_POWER_LEAVE));
	if (wants & 2)
		said(gnv_lists_prove(&dev->nvme));
	said(gnv_features_arbitration(&dev->nvme, dev->nvme.limits.burst));
	said(gnv_hmb_give(&dev->nvme, wants & 4 ? 1 : GNV_HMB_UNSAID, true));
	if (wants & 8)
		gnv_admin_request_events(&dev->nvme.admin, dev->nvme.asks.aers);
	check_namespaces(dev);
	said(gnv_identify_uuid(&dev->nvme, 1, uuid));
	if (wants & 16)
		check_doctor(dev);
	said(gpunvme_dev_log_page(dev, (uint8_t)next(), GPUNVME_NSID_ALL, page, sizeof(page)));
	said(gpunvme_dev_get_feature(dev, (uint8_t)next(), &value));
	check(gnv_admin_take_events(&dev->nvme.admin, events) <= GNV_ADMIN_AERS);
	if (wants & 32) {
		said(gpunvme_dev_reset(dev));
		check_namespaces(dev);
	}
}

static void begin(const uint8_t *input, size_t size)
{
	memset(&m, 0, sizeof(m));
	for (size_t i = 0; i < PATTERN_WORDS && !pattern[PATTERN_WORDS - 1]; i++)
		pattern[i] = i;
	m.at = input;
	m.end = input + size;
	m.manner = (uint8_t)next();
	m.bar_len = GPUNVME_REG_DOORBELLS + 16u + next() * 16u;
	m.bar = aligned_alloc(16, m.bar_len);
	check(m.bar != NULL);
	memset(m.bar, 0, m.bar_len);
	*reg(GPUNVME_REG_CAP) = (uint32_t)CAP;
	*reg(GPUNVME_REG_CAP + 4) = (uint32_t)(CAP >> 32);
	*reg(GPUNVME_REG_VS) = 0x00020000;
	m.page = m.block = 4096;
	m.running = m.manner & ENABLED_AT_FIRST;
	m.cc = *reg(GPUNVME_REG_CC) = m.running ? GPUNVME_CC_EN : 0;
	*reg(GPUNVME_REG_CSTS) = m.running ? GPUNVME_CSTS_RDY : 0;
	m.space = (struct gnv_space){ .ops = &space_ops, .refs = 1 };
	m.bar0 = (struct gpunvme_mem){ .cpu = m.bar, .len = m.bar_len, .page = 4096, .ops = &bar_ops };
	m.port = (struct gnv_port){ .ops = &port_ops, .bar0 = &m.bar0, .space = &m.space, .placement = "fuzz", .address = "fuzz",
				    .reset_name = "none" };
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	struct gpunvme_dev *dev = NULL;
	uint32_t wants;
	int ret;

	if (size < 4 || size > 4096)
		return 0;
	begin(input, size);
	wants = next();
	m.unaligned = wants & LESS_ALIGNED;
	for (uint32_t n = next() % 16; n; n--)
		wrong_register();
	m.cc = *reg(GPUNVME_REG_CC);
	m.dstrd = *reg(GPUNVME_REG_CAP + 4) & 15;
	opts.admin_timeout_ms = 1000;
	m.on = true;
	ret = gnv_dev_create(&m.port, &opts, 1, &dev);
	said(ret);
	check(!ret == !!dev && !!ret == m.closed);
	if (dev) {
		use(dev, wants);
		check(!gpunvme_dev_close(dev));
	}
	m.on = false;
	check(m.closed == 1 && !m.maps);
	free(m.bar);
	return 0;
}
