/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <sanitizer/asan_interface.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "mem/mem.h"
#include "soft/engine/threads.h"
#include "soft/soft.h"
#include "util/thread.h"

static int start_played(struct gnv_soft_server *server);
static void leaves(struct gnv_soft_cmd *cmd, bool posted);

/* Of a thread the target plays; and of a command it is told apart whether it is posted or discarded, which the caller's name says. */
#define gnv_thread_start(thread, run, server) ((void)(thread), (void)(run), start_played(server))
#include "soft/engine/server.c"
#define gnv_soft_leave(cmd) leaves(cmd, __func__[0] == 'p')
#include "soft/engine/complete.c"
#undef gnv_soft_leave

#include "served.h"

int __real_clock_gettime(clockid_t id, struct timespec *now);
int __wrap_clock_gettime(clockid_t id, struct timespec *now);
int __wrap_nanosleep(const struct timespec *pause, struct timespec *left);
int __real_gnv_sys_map(size_t len, size_t align, bool huge, void **ptr);
int __wrap_gnv_sys_map(size_t len, size_t align, bool huge, void **ptr);
void __wrap_gnv_sys_clear(void *ptr, size_t len);
void __real_gnv_soft_map_fence(const struct gnv_soft_map *map);
void __wrap_gnv_soft_map_fence(const struct gnv_soft_map *map);
uint16_t __real_gnv_soft_parse(const struct gpunvme_sqe *sqe, const struct gnv_soft_ns *ns, struct gnv_soft_op *op);
uint16_t __wrap_gnv_soft_parse(const struct gpunvme_sqe *sqe, const struct gnv_soft_ns *ns, struct gnv_soft_op *op);
int __real_gnv_soft_space_get(struct gnv_space *space, uint64_t iova, size_t len, const struct gnv_soft_map **map);
int __wrap_gnv_soft_space_get(struct gnv_space *space, uint64_t iova, size_t len, const struct gnv_soft_map **map);
uint16_t __real_gnv_soft_dptr(const struct gnv_soft_io *io, struct gnv_soft_dma *dma, const struct gpunvme_sqe *sqe,
			      uint64_t len, struct gnv_soft_segs *segs);
uint16_t __wrap_gnv_soft_dptr(const struct gnv_soft_io *io, struct gnv_soft_dma *dma, const struct gpunvme_sqe *sqe,
			      uint64_t len, struct gnv_soft_segs *segs);
uint16_t __real_gnv_soft_segs_read(const struct gnv_soft_dma *dma, const struct gnv_soft_segs *segs, void *to, size_t len);
uint16_t __wrap_gnv_soft_segs_read(const struct gnv_soft_dma *dma, const struct gnv_soft_segs *segs, void *to, size_t len);
bool __real_gnv_soft_enter(struct gnv_soft_cmd *cmd);
bool __wrap_gnv_soft_enter(struct gnv_soft_cmd *cmd);

enum life { FREE, FETCHED, POSTED };

struct served_world m;
struct gnv_soft *soft;
static struct gnv_soft_threads *threads; /* the same */
static struct gnv_space *space;
static struct gnv_soft_store_ops store_ops;
char *rings, *data, *odd, *others;
uint64_t rings_iova, data_iova, others_iova;
static struct {
	enum life life;
	uint16_t cid, qid;
} known[SERVERS][GNV_SOFT_CMDS];

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

int __wrap_nanosleep(const struct timespec *pause, struct timespec *left)
{
	(void)left;
	m.now += (uint64_t)pause->tv_sec * 1000000000u + (uint64_t)pause->tv_nsec;
	return 0;
}

/* Behind an image is nothing. */
int __wrap_gnv_sys_map(size_t len, size_t align, bool huge, void **ptr)
{
	if (len != AREA || areas == GNV_ARRAY_LEN(area))
		return __real_gnv_sys_map(len, align, huge, ptr);
	ASAN_POISON_MEMORY_REGION(area[areas] + (areas ? STILL : IMAGE), AREA - (areas ? STILL : IMAGE));
	*ptr = area[areas++];
	return 0;
}

void __wrap_gnv_sys_clear(void *ptr, size_t len)
{
	memset(ptr, 0, len);
}

static int start_played(struct gnv_soft_server *server)
{
	server->started = 1;
	return gnv_soft_attach(server);
}

static void raise_vector(void *ctx, unsigned vector)
{
	(void)ctx;
	check(vector < VECTORS);
}

/* ---- What happens while the controller looks ---- */

static void look(void)
{
	unsigned i;

	for (i = 0; m.on && i < m.writes; i++)
		if (!m.write[i].after--) {
			__atomic_store_n(m.write[i].at, m.write[i].value, __ATOMIC_RELAXED);
			m.write[i--] = m.write[--m.writes];
		}
}

void __wrap_gnv_soft_map_fence(const struct gnv_soft_map *map)
{
	look();
	__real_gnv_soft_map_fence(map);
}

uint16_t __wrap_gnv_soft_parse(const struct gpunvme_sqe *sqe, const struct gnv_soft_ns *ns, struct gnv_soft_op *op)
{
	uint16_t status;

	look();
	status = __real_gnv_soft_parse(sqe, ns, op);
	check(status || (op->opc == sqe->opc && op->offset + op->len <= ns->blocks << ns->lba_shift));
	return status;
}

int __wrap_gnv_soft_space_get(struct gnv_space *in, uint64_t iova, size_t len, const struct gnv_soft_map **map)
{
	look();
	return __real_gnv_soft_space_get(in, iova, len, map);
}

static bool within(const char *at, size_t len, const char *part, size_t size)
{
	return at >= part && at < part + size && len <= (size_t)(part + size - at);
}

uint16_t __wrap_gnv_soft_dptr(const struct gnv_soft_io *io, struct gnv_soft_dma *dma, const struct gpunvme_sqe *sqe,
			      uint64_t len, struct gnv_soft_segs *segs)
{
	const uint16_t status = (look(), __real_gnv_soft_dptr(io, dma, sqe, len, segs));
	const struct iovec *iov = segs->iov;
	uint64_t total = 0;
	unsigned i;

	check(!status || !segs->count);
	for (i = 0; i < segs->count; i++) {
		check(within(iov[i].iov_base, iov[i].iov_len, rings, RINGS) ||
		      within(iov[i].iov_base, iov[i].iov_len, data, DATA) ||
		      within(iov[i].iov_base, iov[i].iov_len, others, OTHERS) ||
		      (m.odd && within(iov[i].iov_base, iov[i].iov_len, odd, ODD)));
		check(iov[i].iov_len && dma->entry[segs->slot[i]].refs);
		total += iov[i].iov_len;
	}
	check(status || total == len);
	look();
	return status;
}

uint16_t __wrap_gnv_soft_segs_read(const struct gnv_soft_dma *dma, const struct gnv_soft_segs *segs, void *to, size_t len)
{
	const uint16_t status = __real_gnv_soft_segs_read(dma, segs, to, len);

	look();
	return status;
}

/* ---- The life of a command ---- */

static unsigned number_of(const struct gnv_soft_cmd *cmd)
{
	return (unsigned)((const struct gnv_soft_slot *)(const void *)cmd - cmd->sq->server->slots);
}

bool __wrap_gnv_soft_enter(struct gnv_soft_cmd *cmd)
{
	const struct gnv_soft_sq *sq = cmd->sq;
	const unsigned i = number_of(cmd), by = sq->server->index;

	check(known[by][i].life == FREE && sq->head < sq->size && sq->tail < sq->size && !sq->closed && !sq->cq->held);
	known[by][i].life = FETCHED;
	known[by][i].cid = cmd->sqe.cid;
	known[by][i].qid = sq->qid;
	return __real_gnv_soft_enter(cmd);
}

static void leaves(struct gnv_soft_cmd *cmd, bool posted)
{
	const struct gnv_soft_sq *sq = cmd->sq;
	const unsigned i = number_of(cmd), by = sq->server->index;

	if (posted) {
		check(known[by][i].life == FETCHED || (m.twice && known[by][i].life == POSTED));
		check(known[by][i].cid == cmd->sqe.cid && known[by][i].qid == sq->qid && !sq->dead);
		check((sq->cq->tail + 1) % sq->cq->size != sq->cq->head);
		known[by][i].life = POSTED;
	} else {
		check(sq == &threads->own || known[by][i].life == POSTED || sq->closed || (m.twice && known[by][i].life == FETCHED));
		check(sq == &threads->own || known[by][i].life != FREE);
		known[by][i].life = FREE;
	}
	gnv_soft_leave(cmd);
}

/* ---- The store ---- */

static int step_starts(struct gnv_soft_seat *seat, struct gnv_soft_cmd *cmd)
{
	const unsigned by = seat->thread;

	if (seat->store != soft->part[0].store || !m.later || m.steps[by] == GNV_SOFT_CMDS)
		return gnv_soft_store_ram.start(seat, cmd);
	m.step[by][m.steps[by]++] = cmd;
	return GNV_SOFT_LATER;
}

static struct gnv_soft_cmd *take_step(unsigned by, bool last)
{
	struct gnv_soft_cmd **step = m.step[by], *cmd = last ? step[m.steps[by] - 1] : step[0];

	m.steps[by]--;
	if (!last)
		memmove(step, step + 1, m.steps[by] * sizeof(*step));
	return cmd;
}

/* Half of what is not in private memory is nothing that this store does. */
static bool ends_so(const struct gnv_soft_cmd *cmd)
{
	return m.answer < 0 || (m.answer && cmd->data->bounce && cmd->stage != GNV_SOFT_STAGE_DSM);
}

static unsigned steps_end(struct gnv_soft_seat *seat, struct gnv_uring_done *done, unsigned max)
{
	const unsigned by = seat->thread;
	unsigned n;

	for (n = 0; n < max && m.give && m.steps[by] && seat->store == soft->part[0].store; n++, m.give--) {
		done[n].tag = take_step(by, m.last_first);
		done[n].res = ends_so(done[n].tag) ? m.answer : gnv_soft_store_ram.start(seat, done[n].tag);
	}
	return n;
}

static int steps_begin(struct gnv_soft_seat *seat)
{
	return m.steps[seat->thread] && seat->store == soft->part[0].store ? m.refuses : 0;
}

static unsigned steps_back(struct gnv_soft_seat *seat, void **cmd, unsigned max)
{
	const unsigned by = seat->thread;
	unsigned n;

	for (n = 0; n < max && m.steps[by] && seat->store == soft->part[0].store; n++)
		cmd[n] = take_step(by, false);
	return n;
}

/* ---- The controller ---- */

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
	map_memory(rings, RINGS, &rings_iova);
	map_memory(data, DATA, &data_iova);
	map_memory(others, OTHERS, &others_iova);
	config.path = "ram:64K";
	config.more[0].path = "ram:16K";
	config.queues = QUEUES;
	config.depth = 64;
	config.threads = SERVERS;
	config.irq = (struct gnv_soft_irq){ raise_vector, NULL, VECTORS };
	check(!gnv_soft_create(&config, space, NULL, &soft));
	threads = gnv_soft_threads(soft);
	store_ops = gnv_soft_store_ram;
	store_ops.start = step_starts;
	store_ops.reap = steps_end;
	store_ops.submit = steps_begin;
	store_ops.take_back = steps_back;
	for (i = 0; i < soft->parts; i++)
		soft->part[i].store->ops = &store_ops;
	soft->part[1].ns.read_only = true;
	for (i = 0; i < STILL; i++)
		area[1][i] = (char)(i * 7 + i / BLOCK);
}

void turn(unsigned by)
{
	struct gnv_soft_pace pace = { 0 };
	const struct gnv_soft_server *server = threads->server[by];
	const struct gnv_soft_sq *sq;
	const struct gnv_soft_cq *cq;
	unsigned flying;

	pass(threads->server[by], &pace);
	flying = by ? 0 : threads->own.inflight;
	for (sq = server->sqs; sq; sq = sq->next) {
		check(sq->head < sq->size && sq->cq->server == server);
		flying += sq->inflight;
	}
	for (cq = server->cqs; cq; cq = cq->next)
		check(cq->head < cq->size && cq->tail < cq->size && cq->phase <= 1);
	check(server->free_count + flying == GNV_SOFT_CMDS && server->parked_count <= flying && server->in_store <= flying);
	check(!server->dma.passing && !server->dma.kept_count);
}

void turn_for(unsigned qid)
{
	turn(qid % SERVERS);
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
	m.odd = !gnv_soft_space_place(space, ODD_IOVA, ODD, odd);
	check(m.odd);
}

/* Rings of a queue: submission first. */
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

static void be_bad(void)
{
	const struct gnv_soft_traits *own = &soft->config.traits;
	enum gnv_soft_verdict verdict;

	choose_faults(&soft->config);
	verdict = soft->config.rules.rule[0].verdict;
	soft->faulty = verdict != GNV_SOFT_GO;
	m.twice = verdict == GNV_SOFT_TWICE || verdict == GNV_SOFT_EARLY;
	m.forgets = gnv_soft_has(own, GNV_SOFT_LISTS_HANG) || verdict == GNV_SOFT_DROP || verdict == GNV_SOFT_STUCK ||
		    verdict == GNV_SOFT_CFS || gnv_soft_has(own, GNV_SOFT_ONE_COMMAND) || gnv_soft_has(own, GNV_SOFT_SHARED_TAGS) ||
		    gnv_soft_has(own, GNV_SOFT_FEW_CIDS);
}

/* As new. */
static void forget(void)
{
	memset(soft->bar, 0, soft->bar_len);
	memset(&threads->errors.log, 0, sizeof(threads->errors.log));
	memset(&soft->hmb, 0, sizeof(soft->hmb));
	memset(soft->io.tags, 0, sizeof(soft->io.tags));
	soft->scan = soft->shn_seen = soft->io.doom = soft->io.asleep = soft->io.flying = 0;
	soft->stubborn = GNV_SOFT_WILLING;
	soft->was_enabled = false;
	soft->born_ns = soft->off_ns = 0;
	for (unsigned i = 0; i < SERVERS; i++) {
		memset(&threads->server[i]->counters, 0, sizeof(threads->server[i]->counters));
		threads->server[i]->dma.last = 0;
		threads->server[i]->dma.lost_said = threads->server[i]->refusal_said = threads->server[i]->posted = false;
		for (unsigned p = 0; p < soft->parts; p++)
			threads->server[i]->seat[p].refused_since = 0;
	}
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

char *entries_of(unsigned qid, uint32_t *size, size_t *stride)
{
	const struct gnv_soft_sq *sq = threads->sqs[qid];

	if (!sq)
		return NULL;
	*size = sq->size;
	*stride = sq->words * 8;
	return (char *)(uintptr_t)sq->ring;
}

bool has_room_for_others(void)
{
	return threads->server[HIS_SERVER]->free_count > GNV_SOFT_CMDS_ADMIN + ENTRIES;
}

void begin_served(const uint8_t *input, size_t size)
{
	struct gnv_soft_store *store;

	if (!soft)
		create();
	memset(&m, 0, offsetof(struct served_world, step));
	m.at = input;
	m.end = input + size;
	m.on = true;
	m.now = 1000000000u;
	m.manner = (uint8_t)next();
	m.later = m.manner & LATER;
	m.other_phase = 1;
	forget();
	be_bad();
	memset(rings, 0, RINGS);
	memset(others, 0, OTHERS);
	memset(data, 0, DATA);
	memset(odd, 0, ODD);
	memset(area[0], 0x5a, IMAGE);
	place_odd();
	store = soft->part[0].store;
	store->mem_align = store->len_align = m.manner & PICKY ? 512 : 0;
	soft->part[0].ns.read_only = m.manner & READ_ONLY;
	soft->part[0].no_zero_range = false;
	soft->part[0].ns.max_transfer = m.manner & LIMITED ? 4096 : 32768;
	soft->part[0].ns.max_range = soft->part[0].ns.max_zeroes = m.manner & LIMITED ? 16 * BLOCK : 0;
	enable_controller();
}

void consume(unsigned qid)
{
	if (threads->cqs[qid])
		*gnv_soft_doorbell(soft, qid, true) = threads->cqs[qid]->tail;
}

void move_memory(void)
{
	if (!m.odd)
		place_odd();
	else if (!gnv_soft_space_displace(space, ODD_IOVA, 0))
		m.odd = false;
	else
		check(threads->server[0]->in_store || threads->server[1]->in_store || threads->server[0]->parked_count || threads->server[1]->parked_count ||
		      m.manner & GUEST);
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
	m.later = m.refuses = m.answer = 0;
	m.give = UINT32_MAX;
	soft->faulty = false;
	for (i = 0; i < FEW; i++) {
		m.now += 1ull << (i ? 30 : 41);
		for (qid = 0; qid <= QUEUES; qid++)
			consume(qid);
		turns(1);
	}
	check(soft->state != GNV_SOFT_READY || !soft->deleting);
	for (qid = 1; qid <= QUEUES && soft->state == GNV_SOFT_READY && !m.forgets; qid++)
		check(!threads->sqs[qid] || (!threads->sqs[qid]->inflight && !threads->sqs[qid]->cq->held));
}

static void end_all(void)
{
	unsigned i;

	soft->config.rules.count = 0;
	soft->stubborn = GNV_SOFT_WILLING;
	if (m.manner & (GUEST | BY_FUNCTION))
		soft->function_reset = GNV_SOFT_ASKED;
	else
		*reg(GPUNVME_REG_CC) = 0;
	turns(FEW / 8);
	check(soft->state == GNV_SOFT_OFF && !soft->function_reset && !*reg(GPUNVME_REG_CSTS) && !soft->io_queues && !soft->aers);
	for (i = 0; i < SERVERS; i++) {
		const struct gnv_soft_server *server = threads->server[i];

		check(!server->sqs && !server->cqs && server->free_count == GNV_SOFT_CMDS && !server->parked_count && !server->in_store);
	}
	check(!m.odd || !gnv_soft_space_displace(space, ODD_IOVA, 0));
	check(!soft->io.flying);
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
