/* SPDX-License-Identifier: MIT */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "soft/engine/threads.h"
#include "soft/soft.h"
#include "util/thread.h"

static int start_mock(struct gnv_soft_server *server);
static void leaves(struct gnv_soft_cmd *cmd, bool posted);

/*
 * Of a thread the target plays; and of a command it is distinguished whether it is posted or discarded, which the caller's name
 * says.
 */
#define gnv_thread_start(thread, run, server) ((void)(thread), (void)(run), start_mock(server))
#include "soft/engine/server.c"
#define gnv_soft_leave(cmd) leaves(cmd, __func__[0] == 'p')
#include "soft/engine/complete.c"
#undef gnv_soft_leave

#include "served_host.h"

int __wrap_nanosleep(const struct timespec *pause, struct timespec *left);
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

static struct gnv_soft_threads *threads; /* the same */
static struct gnv_soft_store_ops store_ops;
static struct {
	enum life life;
	uint16_t cid, qid;
} known[SERVERS][GNV_SOFT_CMDS];

/* ---- What the controller is given of the system ---- */

int __wrap_nanosleep(const struct timespec *pause, struct timespec *left)
{
	(void)left;
	m.now += (uint64_t)pause->tv_sec * 1000000000u + (uint64_t)pause->tv_nsec;
	return 0;
}

void __wrap_gnv_sys_clear(void *ptr, size_t len)
{
	memset(ptr, 0, len);
}

static int start_mock(struct gnv_soft_server *server)
{
	server->started = 1;
	return gnv_soft_attach(server);
}

/* ---- What happens while the controller looks ---- */

void __wrap_gnv_soft_map_fence(const struct gnv_soft_map *map)
{
	served_look();
	__real_gnv_soft_map_fence(map);
}

uint16_t __wrap_gnv_soft_parse(const struct gpunvme_sqe *sqe, const struct gnv_soft_ns *ns, struct gnv_soft_op *op)
{
	uint16_t status;

	served_look();
	status = __real_gnv_soft_parse(sqe, ns, op);
	check(status || (op->opc == sqe->opc && op->offset + op->len <= ns->blocks << ns->lba_shift));
	return status;
}

int __wrap_gnv_soft_space_get(struct gnv_space *in, uint64_t iova, size_t len, const struct gnv_soft_map **map)
{
	served_look();
	return __real_gnv_soft_space_get(in, iova, len, map);
}

uint16_t __wrap_gnv_soft_dptr(const struct gnv_soft_io *io, struct gnv_soft_dma *dma, const struct gpunvme_sqe *sqe,
			      uint64_t len, struct gnv_soft_segs *segs)
{
	const uint16_t status = (served_look(), __real_gnv_soft_dptr(io, dma, sqe, len, segs));
	const struct iovec *iov = segs->iov;
	uint64_t total = 0;
	unsigned i;

	check(!status || !segs->count);
	for (i = 0; i < segs->count; i++) {
		check(is_mapped(iov[i].iov_base, iov[i].iov_len));
		check(iov[i].iov_len && dma->entry[segs->slot[i]].refs);
		total += iov[i].iov_len;
	}
	check(status || total == len);
	served_look();
	return status;
}

uint16_t __wrap_gnv_soft_segs_read(const struct gnv_soft_dma *dma, const struct gnv_soft_segs *segs, void *to, size_t len)
{
	const uint16_t status = __real_gnv_soft_segs_read(dma, segs, to, len);

	served_look();
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

static void create(void)
{
	struct gnv_soft_config config = GNV_SOFT_CONFIG_INIT;
	unsigned i;

	make_memory();
	map_all();
	configure(&config, "ram:64K", "ram:16K");
	check(!gnv_soft_create(&config, host_space, NULL, &soft));
	threads = gnv_soft_threads(soft);
	store_ops = gnv_soft_store_ram;
	store_ops.start = step_starts;
	store_ops.reap = steps_end;
	store_ops.submit = steps_begin;
	store_ops.take_back = steps_back;
	for (i = 0; i < soft->parts; i++)
		soft->part[i].store->ops = &store_ops;
	fill_still();
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

static void be_bad(void)
{
	const struct gnv_soft_quirks *own = &soft->config.quirks;
	enum gnv_soft_action action;

	choose_faults(&soft->config);
	action = soft->config.rules.rule[0].action;
	soft->faulty = action != GNV_SOFT_GO;
	m.twice = action == GNV_SOFT_TWICE || action == GNV_SOFT_EARLY;
	m.forgets = gnv_soft_has(own, GNV_SOFT_LISTS_HANG) || action == GNV_SOFT_DROP || action == GNV_SOFT_STUCK ||
		    action == GNV_SOFT_CFS || gnv_soft_has(own, GNV_SOFT_ONE_COMMAND) || gnv_soft_has(own, GNV_SOFT_SHARED_TAGS) ||
		    gnv_soft_has(own, GNV_SOFT_FEW_CIDS);
}

/* As new. */
static void forget(void)
{
	forget_registers();
	memset(&threads->errors.log, 0, sizeof(threads->errors.log));
	memset(soft->io.tags, 0, sizeof(soft->io.tags));
	for (unsigned i = 0; i < SERVERS; i++) {
		memset(&threads->server[i]->counters, 0, sizeof(threads->server[i]->counters));
		threads->server[i]->dma.last = 0;
		threads->server[i]->dma.lost_said = threads->server[i]->refusal_said = threads->server[i]->posted = false;
		for (unsigned p = 0; p < soft->parts; p++)
			threads->server[i]->seat[p].refused_since = 0;
	}
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
	begin_world(input, size);
	m.later = m.manner & LATER;
	forget();
	be_bad();
	begin_blocks();
	store = soft->part[0].store;
	store->mem_align = store->len_align = m.manner & PICKY ? 512 : 0;
	soft->part[0].no_zero_range = false;
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
	else if (!gnv_soft_space_displace(host_space, ODD_IOVA, 0))
		m.odd = false;
	else
		check(threads->server[0]->in_store || threads->server[1]->in_store || threads->server[0]->parked_count || threads->server[1]->parked_count ||
		      m.manner & GUEST);
}

/* ---- The end ---- */

static void finish_served(void)
{
	unsigned qid;

	m.writes = 0;
	m.later = m.refuses = m.answer = 0;
	m.give = UINT32_MAX;
	soft->faulty = false;
	finish_commands();
	for (qid = 1; qid <= QUEUES && soft->state == GNV_SOFT_READY && !m.forgets; qid++)
		check(!threads->sqs[qid] || (!threads->sqs[qid]->inflight && !threads->sqs[qid]->cq->held));
}

static void end_all(void)
{
	unsigned i;

	ask_for_reset();
	for (i = 0; i < SERVERS; i++) {
		const struct gnv_soft_server *server = threads->server[i];

		check(!server->sqs && !server->cqs && server->free_count == GNV_SOFT_CMDS && !server->parked_count && !server->in_store);
	}
	check(!soft->io.flying);
	check_off();
}

void end_served(void)
{
	finish_served();
	end_all();
	end_world();
}
