/* SPDX-License-Identifier: MIT */
#include "served_host.h"

#include <sanitizer/asan_interface.h>
#include <stdlib.h>
#include <time.h>

#include "mem/mem.h"

int __real_clock_gettime(clockid_t id, struct timespec *now);
int __wrap_clock_gettime(clockid_t id, struct timespec *now);
int __real_gnv_sys_map(size_t len, size_t align, bool huge, void **ptr);
int __wrap_gnv_sys_map(size_t len, size_t align, bool huge, void **ptr);

struct served_world m;
struct gnv_soft *soft;
struct gnv_space *host_space;
char *rings, *data, *odd, *others;
uint64_t rings_iova, data_iova, others_iova;

static _Alignas(AREA) char area[2][AREA];
static unsigned areas;

/* ---- What the controller is given of the system ---- */

int __wrap_clock_gettime(clockid_t id, struct timespec *now)
{
	if (!m.on)
		return __real_clock_gettime(id, now);
	m.now += 100;
	*now = (struct timespec){ (time_t)(m.now / 1000000000u), (long)(m.now % 1000000000u) };
	return 0;
}

/* Past the end of blocks is nothing. */
int __wrap_gnv_sys_map(size_t len, size_t align, bool huge, void **ptr)
{
	if (len != AREA || areas == GNV_ARRAY_LEN(area))
		return __real_gnv_sys_map(len, align, huge, ptr);
	ASAN_POISON_MEMORY_REGION(area[areas] + (areas ? STILL : IMAGE), AREA - (areas ? STILL : IMAGE));
	*ptr = area[areas++];
	return 0;
}

static void raise_vector(void *ctx, unsigned vector)
{
	(void)ctx;
	check(vector < VECTORS);
}

/* ---- Memory ---- */

static void map_memory(char *cpu, size_t len, uint64_t *iova)
{
	const struct gpunvme_mem mem = { .len = len, .cpu = cpu };

	check(!host_space->ops->map(host_space, &mem, iova));
}

void make_memory(void)
{
	rings = aligned_alloc(RING_ROOM, RINGS);
	data = aligned_alloc(4096, DATA);
	odd = aligned_alloc(4096, ODD_ROOM);
	others = aligned_alloc(RING_ROOM, OTHERS);
	check(rings && data && odd && others && !gnv_soft_space_create(&host_space));
	ASAN_POISON_MEMORY_REGION(odd, ODD_ROOM);
	odd += ODD_AT;
	ASAN_UNPOISON_MEMORY_REGION(odd, ODD);
}

void map_all(void)
{
	map_memory(rings, RINGS, &rings_iova);
	map_memory(data, DATA, &data_iova);
	map_memory(others, OTHERS, &others_iova);
}

void place_odd(void)
{
	m.odd = true; /* workers have turns meanwhile */
	check(!gnv_soft_space_place(host_space, ODD_IOVA, ODD, odd));
}

void served_look(void)
{
	unsigned i;

	for (i = 0; m.on && i < m.writes; i++)
		if (!m.write[i].after--) {
			__atomic_store_n(m.write[i].at, m.write[i].value, __ATOMIC_RELAXED);
			m.write[i--] = m.write[--m.writes];
		}
}

static bool within(const char *at, size_t len, const char *part, size_t size)
{
	return at >= part && at < part + size && len <= (size_t)(part + size - at);
}

bool is_mapped(const void *at, size_t len)
{
	return within(at, len, rings, RINGS) || within(at, len, data, DATA) || within(at, len, others, OTHERS) ||
	       (m.odd && within(at, len, odd, ODD));
}

bool is_block(const void *at, size_t len, bool to_write)
{
	return within(at, len, area[0], IMAGE) || (!to_write && within(at, len, area[1], STILL));
}

/* ---- The controller ---- */

void configure(struct gnv_soft_config *config, const char *path, const char *path2)
{
	config->path = path;
	config->more[0].path = path2;
	config->queues = QUEUES;
	config->depth = 64;
	config->threads = SERVERS;
	config->irq = (struct gnv_soft_irq){ raise_vector, NULL, VECTORS };
}

void fill_still(void)
{
	unsigned i;

	soft->part[1].ns.read_only = true;
	for (i = 0; i < STILL; i++)
		area[1][i] = (char)(i * 7 + i / BLOCK);
}

const char *still_block(unsigned block)
{
	return area[1] + (size_t)block * BLOCK;
}

void turns(unsigned n)
{
	while (n--) {
		turn(0);
		turn(1);
	}
}

uint64_t ring_of_queue(unsigned qid, bool cq)
{
	return qid == HONEST && !(m.manner & GUEST) ? others_iova + RING_ROOM * cq : rings_iova + (uint64_t)RING_ROOM * (2 * qid + cq);
}

static void make_pair(uint16_t qid)
{
	struct gnv_soft_ring ring = {
		.iova = ring_of_queue(qid, true), .entries = ENTRIES, .qid = qid, .interrupts = true, .vector = qid
	};

	check(!gnv_soft_cq_new(soft, &ring));
	ring.iova = ring_of_queue(qid, false);
	check(!gnv_soft_sq_new(soft, &ring, qid));
}

void begin_world(const uint8_t *input, size_t size)
{
	memset(&m, 0, offsetof(struct served_world, step));
	m.at = input;
	m.end = input + size;
	m.on = true;
	m.now = 1000000000u;
	m.manner = (uint8_t)next();
	m.other_phase = 1;
}

void forget_registers(void)
{
	memset(soft->bar, 0, soft->bar_len);
	memset(&soft->hmb, 0, sizeof(soft->hmb));
	soft->scan = soft->shn_seen = soft->io.doom = soft->io.asleep = soft->io.flying = 0;
	soft->stubborn = GNV_SOFT_WILLING;
	soft->was_enabled = false;
	soft->born_ns = soft->off_ns = 0;
}

void begin_blocks(void)
{
	memset(rings, 0, RINGS);
	memset(others, 0, OTHERS);
	memset(data, 0, DATA);
	memset(odd, 0, ODD);
	memset(area[0], 0x5a, IMAGE);
	place_odd();
	soft->part[0].ns.read_only = m.manner & READ_ONLY;
	soft->part[0].ns.max_transfer = m.manner & LIMITED ? 4096 : 32768;
	soft->part[0].ns.max_range = soft->part[0].ns.max_zeroes = m.manner & LIMITED ? 16 * BLOCK : 0;
}

void enable_controller(void)
{
	*reg(GPUNVME_REG_AQA) = (ENTRIES - 1) | (ENTRIES - 1) << 16;
	write_reg64(GPUNVME_REG_ASQ, ring_of_queue(0, false));
	write_reg64(GPUNVME_REG_ACQ, ring_of_queue(0, true));
	*reg(GPUNVME_REG_CC) = GPUNVME_CC_EN | 6u << 16 | 4u << 20 | (m.manner & PAGES_OF_8K ? 1u << 7 : 0);
	turn(0);
	if (m.manner & GUEST)
		return;
	check(soft->state == GNV_SOFT_READY);
	for (uint16_t qid = 1; qid < QUEUES; qid++)
		make_pair(qid);
}

/* ---- The end ---- */

void finish_commands(void)
{
	unsigned i, qid;

	for (i = 0; i < FEW; i++) {
		m.now += 1ull << (i ? 30 : 41);
		for (qid = 0; qid <= QUEUES; qid++)
			consume(qid);
		turns(1);
	}
	check(soft->state != GNV_SOFT_READY || !soft->deleting);
}

void ask_for_reset(void)
{
	soft->config.rules.count = 0;
	soft->stubborn = GNV_SOFT_WILLING;
	if (m.manner & (GUEST | BY_FUNCTION))
		soft->function_reset = GNV_SOFT_ASKED;
	else
		*reg(GPUNVME_REG_CC) = 0;
	turns(FEW / 8);
}

void check_off(void)
{
	unsigned i;

	check(soft->state == GNV_SOFT_OFF && !soft->function_reset && !*reg(GPUNVME_REG_CSTS) && !soft->io_queues && !soft->aers);
	check(!m.odd || !gnv_soft_space_displace(host_space, ODD_IOVA, 0));
	for (i = 0; i < STILL; i++)
		check(area[1][i] == (char)(i * 7 + i / BLOCK));
}

/* Nothing refers to it any more, or it could not be unmapped. */
static void release(uint64_t *iova, char *cpu, size_t len)
{
	check(!host_space->ops->unmap(host_space, *iova, len));
	map_memory(cpu, len, iova);
}

void end_world(void)
{
	release(&rings_iova, rings, RINGS);
	release(&data_iova, data, DATA);
	release(&others_iova, others, OTHERS);
	m.on = false;
}
