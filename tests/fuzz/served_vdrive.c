/* SPDX-License-Identifier: MIT */
/*
 * What served.h says, of the engine whose kernel serves I/O queues (soft:vram:, on=cpu): server 0 has the admin queue and the
 * attendant, and each server a worker of the kernel, one pass at a turn. While the host waits for workers, these have passes.
 */
#include <errno.h>
#include <sanitizer/asan_interface.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mem/mem.h"
#include "soft/engine/threads.h"
#include "soft/soft.h"
#include "util/thread.h"
#include "vdrive/drive.h"
#include "vdrive/vdrive.h"

static int start_played(struct gnv_soft_server *server);

/* Threads that the target plays. */
#define gnv_thread_start(thread, run, server) ((void)(thread), (void)(run), start_played(server))
#include "soft/engine/server.c"
#undef gnv_thread_start
#define gnv_thread_start(thread, run, drive) ((void)(thread), (void)(run), (void)(drive), 0)
#include "vdrive/attend.c"
#undef gnv_thread_start

#include "served.h"
#include "served_kernel.h"

int __real_clock_gettime(clockid_t id, struct timespec *now);
int __wrap_clock_gettime(clockid_t id, struct timespec *now);
int __wrap_nanosleep(const struct timespec *pause, struct timespec *left);
int __real_gnv_sys_map(size_t len, size_t align, bool huge, void **ptr);
int __wrap_gnv_sys_map(size_t len, size_t align, bool huge, void **ptr);
int __real_gnv_vd_exec_open(struct gnv_vd_wish wish, const struct gnv_log *log, uint32_t *workers, struct gnv_vd_exec **exec);
int __wrap_gnv_vd_exec_open(struct gnv_vd_wish wish, const struct gnv_log *log, uint32_t *workers, struct gnv_vd_exec **exec);

struct served_world m;
struct gnv_soft *soft;
char *rings, *data, *odd, *others;
uint64_t rings_iova, data_iova, others_iova;
static struct gnv_vdrive *drive; /* the same as soft */
static struct gnv_space *space;
static struct gnv_vd_exec_ops played;
static struct gnv_vd_args args; /* of the kernel, once it was started */

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

static void kernel_turn(unsigned by)
{
	if (args.vd)
		gnv_vd_kernel_cpu(&args, by);
}

int __wrap_nanosleep(const struct timespec *pause, struct timespec *left)
{
	unsigned by;

	(void)left;
	m.now += (uint64_t)pause->tv_sec * 1000000000u + (uint64_t)pause->tv_nsec;
	for (by = 0; by < SERVERS; by++)
		kernel_turn(by);
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

static int start_played(struct gnv_soft_server *server)
{
	server->started = 1;
	return gnv_soft_attach(server);
}

/* A launch is one pass. */
static int start_kernel(struct gnv_vd_exec *exec, uint64_t vd, uint64_t slice_ns)
{
	(void)exec;
	(void)slice_ns;
	args = (struct gnv_vd_args){ .vd = vd, .slice_ns = 1 };
	return 0;
}

int __wrap_gnv_vd_exec_open(struct gnv_vd_wish wish, const struct gnv_log *log, uint32_t *workers, struct gnv_vd_exec **exec)
{
	const int ret = __real_gnv_vd_exec_open(wish, log, workers, exec);

	check(!ret && *workers == SERVERS);
	played = *(*exec)->ops;
	played.start = start_kernel;
	(*exec)->ops = &played;
	return ret;
}

static void raise_vector(void *ctx, unsigned vector)
{
	(void)ctx;
	check(vector < VECTORS);
}

/* ---- What happens while the kernel looks ---- */

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

bool served_is_mapped(const void *at, size_t len, bool to_write)
{
	return within(at, len, rings, RINGS) || within(at, len, data, DATA) || within(at, len, others, OTHERS) ||
	       (m.odd && within(at, len, odd, ODD)) || within(at, len, area[0], IMAGE) ||
	       (!to_write && within(at, len, area[1], STILL));
}

/* ---- The controller ---- */

static struct gnv_vd *shared(void)
{
	return (struct gnv_vd *)(uintptr_t)drive->vd;
}

static void map_memory(char *cpu, size_t len, uint64_t *iova)
{
	const struct gpunvme_mem mem = { .len = len, .cpu = cpu };

	check(!space->ops->map(space, &mem, iova));
}

static void create(void)
{
	struct gnv_soft_config config = GNV_SOFT_CONFIG_INIT;
	unsigned i;

	rings = aligned_alloc(RING_ROOM, RINGS);
	data = aligned_alloc(4096, DATA);
	odd = aligned_alloc(4096, ODD_ROOM);
	others = aligned_alloc(RING_ROOM, OTHERS);
	check(rings && data && odd && others && !gnv_soft_space_create(&space));
	ASAN_POISON_MEMORY_REGION(odd, ODD_ROOM);
	odd += ODD_AT;
	ASAN_UNPOISON_MEMORY_REGION(odd, ODD);
	config.path = "vram:64K";
	config.more[0].path = "vram:16K";
	config.engine = &gnv_vdrive_engine;
	config.queues = QUEUES;
	config.depth = 64;
	config.threads = SERVERS;
	config.irq = (struct gnv_soft_irq){ raise_vector, NULL, VECTORS };
	check(!gnv_soft_create(&config, space, NULL, &soft));
	drive = gnv_vdrive_of(soft);
	map_memory(rings, RINGS, &rings_iova);
	map_memory(data, DATA, &data_iova);
	map_memory(others, OTHERS, &others_iova);
	soft->part[1].ns.read_only = true;
	for (i = 0; i < STILL; i++)
		area[1][i] = (char)(i * 7 + i / BLOCK);
}

/* Looks of the attendant. */
static void attend_once(void)
{
	hand_on_silence(drive);
	report_events(drive);
	raise_interrupts(drive);
}

static void check_queues(void)
{
	const struct gnv_vd *vd = shared();
	unsigned qid;

	for (qid = 1; qid <= QUEUES; qid++) {
		if (drive->sq[qid].map && !drive->sq[qid].flags)
			check(vd->sq[qid].state.head < vd->sq[qid].size && vd->sq[qid].state.parked <= vd->sq[qid].parked_max);
		if (drive->cq[qid].map)
			check(vd->cq[qid].state.head < vd->cq[qid].size && vd->cq[qid].state.tail < vd->cq[qid].size &&
			      vd->cq[qid].state.phase <= 1);
	}
}

void turn(unsigned by)
{
	struct gnv_soft_pace pace = { 0 };

	if (!by) {
		pass(drive->t.server[0], &pace);
		attend_once();
	}
	kernel_turn(by);
	check_queues();
}

void turn_for(unsigned qid)
{
	turn((qid - 1) % SERVERS); /* queues.c, worker_of() */
}

static void turns(unsigned n)
{
	while (n--) {
		turn(0);
		turn(1);
	}
}

static void place_odd(void)
{
	m.odd = true; /* workers have turns meanwhile */
	check(!gnv_soft_space_place(space, ODD_IOVA, ODD, odd));
}

uint64_t ring_of_queue(unsigned qid, bool cq)
{
	return qid == HONEST && !(m.manner & GUEST) ? others_iova + RING_ROOM * cq : rings_iova + (uint64_t)RING_ROOM * (2 * qid + cq);
}

char *entries_of(unsigned qid, uint32_t *size, size_t *stride)
{
	const struct gnv_vd_sq *sq = &shared()->sq[qid];
	const struct gnv_soft_sq *admin = drive->t.sqs[0];

	if (qid ? !drive->sq[qid].map : !admin)
		return NULL;
	*size = qid ? sq->size : admin->size;
	*stride = qid ? sq->stride : admin->words * 8;
	return (char *)(uintptr_t)(qid ? sq->ring : (uintptr_t)admin->ring);
}

bool has_room_for_others(void)
{
	return true; /* nothing that other queues have in flight is in the way */
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

/* What the controller itself does wrong, as far as this engine can. */
static void be_bad(void)
{
	struct gnv_soft_config *config = &soft->config;
	enum gnv_soft_verdict verdict;

	choose_faults(config);
	if (gnv_vdrive_check_faults(config)) {
		config->traits = (struct gnv_soft_traits){ 0 };
		config->rules = (struct gnv_soft_rules){ 0 };
	}
	verdict = config->rules.count ? config->rules.rule[0].verdict : GNV_SOFT_GO;
	soft->faulty = config->rules.count;
	shared()->rules = config->rules;
	shared()->judged = soft->faulty;
	m.forgets = gnv_soft_has(&config->traits, GNV_SOFT_LISTS_HANG) || verdict == GNV_SOFT_DROP || verdict == GNV_SOFT_STUCK ||
		    verdict == GNV_SOFT_CFS;
}

/* As new. */
static void forget(void)
{
	struct gnv_vd *vd = shared();
	unsigned by;

	memset(soft->bar, 0, soft->bar_len);
	memset(&drive->t.errors.log, 0, sizeof(drive->t.errors.log));
	memset(&soft->hmb, 0, sizeof(soft->hmb));
	soft->scan = soft->shn_seen = soft->io.doom = soft->io.asleep = soft->io.flying = 0;
	soft->stubborn = GNV_SOFT_WILLING;
	soft->was_enabled = false;
	soft->born_ns = soft->off_ns = 0;
	drive->t.server[0]->dma.last = 0;
	drive->t.server[0]->dma.lost_said = drive->t.server[0]->posted = false;
	vd->errors = drive->errors = 0;
	memset(vd->raised, 0, sizeof(vd->raised));
	memset(drive->raised, 0, sizeof(drive->raised));
	for (by = 0; by < SERVERS; by++)
		vd->worker[by].looked = 0;
	served_close(0);
}

static void enable_controller(void)
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

void begin_served(const uint8_t *input, size_t size)
{
	if (!soft)
		create();
	memset(&m, 0, offsetof(struct served_world, step));
	m.at = input;
	m.end = input + size;
	m.on = true;
	m.now = 1000000000u;
	m.manner = (uint8_t)next();
	m.other_phase = 1;
	forget();
	be_bad();
	memset(rings, 0, RINGS);
	memset(others, 0, OTHERS);
	memset(data, 0, DATA);
	memset(odd, 0, ODD);
	memset(area[0], 0x5a, IMAGE);
	place_odd();
	soft->part[0].ns.read_only = m.manner & READ_ONLY;
	soft->part[0].ns.max_transfer = m.manner & LIMITED ? 4096 : 32768;
	soft->part[0].ns.max_range = soft->part[0].ns.max_zeroes = m.manner & LIMITED ? 16 * BLOCK : 0;
	enable_controller();
}

void consume(unsigned qid)
{
	if (qid && drive->cq[qid].map)
		*gnv_soft_doorbell(soft, qid, true) = shared()->cq[qid].state.tail;
	else if (!qid && drive->t.cqs[0])
		*gnv_soft_doorbell(soft, 0, true) = drive->t.cqs[0]->tail;
}

/* A command that waits for a time does not hold memory, and a ring of a guest does. */
void move_memory(void)
{
	if (!m.odd)
		place_odd();
	else if (!gnv_soft_space_displace(space, ODD_IOVA, 0))
		m.odd = false;
	else
		check(m.manner & GUEST);
}

const char *still_block(unsigned block)
{
	return area[1] + (size_t)block * BLOCK;
}

/* ---- The end ---- */

static void settle(void)
{
	unsigned i, qid;

	m.writes = 0;
	soft->faulty = false;
	shared()->judged = 0;
	for (i = 0; i < FEW; i++) {
		m.now += 1ull << (i ? 30 : 41);
		for (qid = 0; qid <= QUEUES; qid++)
			consume(qid);
		turns(1);
	}
	check(soft->state != GNV_SOFT_READY || !soft->deleting);
	for (qid = 1; qid <= QUEUES && soft->state == GNV_SOFT_READY && !m.forgets; qid++)
		check(!drive->sq[qid].map || (!shared()->sq[qid].state.parked && !served_open(qid)));
}

static void end_all(void)
{
	const struct gnv_soft_server *server = drive->t.server[0];
	unsigned i;

	soft->config.rules.count = 0;
	soft->stubborn = GNV_SOFT_WILLING;
	if (m.manner & (GUEST | BY_FUNCTION))
		soft->function_reset = GNV_SOFT_ASKED;
	else
		*reg(GPUNVME_REG_CC) = 0;
	turns(FEW / 8);
	check(soft->state == GNV_SOFT_OFF && !soft->function_reset && !*reg(GPUNVME_REG_CSTS) && !soft->io_queues && !soft->aers);
	check(!server->sqs && !server->cqs && server->free_count == GNV_SOFT_CMDS && !server->parked_count);
	for (i = 0; i < SERVERS; i++)
		check(!drive->first[i] && !shared()->worker[i].first);
	check(!m.odd || !gnv_soft_space_displace(space, ODD_IOVA, 0));
	for (i = 0; i < STILL; i++)
		check(area[1][i] == (char)(i * 7 + i / BLOCK));
}

/* Nobody has it any more, or it could not be taken away. */
static void release(uint64_t *iova, char *cpu, size_t len)
{
	check(!space->ops->unmap(space, *iova, len));
	map_memory(cpu, len, iova);
}

void end_served(void)
{
	settle();
	end_all();
	release(&rings_iova, rings, RINGS);
	release(&data_iova, data, DATA);
	release(&others_iova, others, OTHERS);
	m.on = false;
}
