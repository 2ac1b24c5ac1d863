/* SPDX-License-Identifier: MIT */
/*
 * What served.h says, of the engine whose kernel serves I/O queues (soft:vram:, on=cpu): server 0 has the admin queue and the
 * attendant, and each server a worker of the kernel, one pass at a turn. While the host waits for workers, these have passes.
 */
#include <errno.h>
#include <string.h>
#include <time.h>

#include "soft/engine/threads.h"
#include "soft/soft.h"
#include "util/thread.h"
#include "vdrive/drive.h"
#include "vdrive/vdrive.h"

static int start_mock(struct gnv_soft_server *server);

/* Threads that the target plays. */
#define gnv_thread_start(thread, run, server) ((void)(thread), (void)(run), start_mock(server))
#include "soft/engine/server.c"
#undef gnv_thread_start
#define gnv_thread_start(thread, run, drive) ((void)(thread), (void)(run), (void)(drive), 0)
#include "vdrive/attend.c"
#undef gnv_thread_start

#include "../common/exec_table.h"
#include "served_host.h"
#include "served_kernel.h"

int __wrap_nanosleep(const struct timespec *pause, struct timespec *left);

static struct gnv_vdrive *drive; /* the same as soft */
static struct gnv_vd_args args; /* of the kernel, once it was started */

/* ---- What the controller is given of the system ---- */

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

static int start_mock(struct gnv_soft_server *server)
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

static void exec_change(struct gnv_vd_exec_ops *ops)
{
	ops->start = start_kernel;
}

bool served_is_mapped(const void *at, size_t len, bool to_write)
{
	return is_mapped(at, len) || is_block(at, len, to_write);
}

/* ---- The controller ---- */

static struct gnv_vd *shared(void)
{
	return (struct gnv_vd *)(uintptr_t)drive->vd;
}

static void create(void)
{
	struct gnv_soft_config config = GNV_SOFT_CONFIG_INIT;

	make_memory();
	configure(&config, "vram:64K", "vram:16K");
	config.engine = &gnv_vdrive_engine;
	check(!gnv_soft_create(&config, host_space, NULL, &soft));
	drive = gnv_vdrive_of(soft);
	check(drive->workers == SERVERS);
	map_all();
	fill_still();
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

/* What the controller itself does wrong, as far as this engine can. */
static void be_bad(void)
{
	struct gnv_soft_config *config = &soft->config;
	enum gnv_soft_action action;

	choose_faults(config);
	if (gnv_vdrive_check_faults(config)) {
		config->quirks = (struct gnv_soft_quirks){ 0 };
		config->rules = (struct gnv_soft_rules){ 0 };
	}
	action = config->rules.count ? config->rules.rule[0].action : GNV_SOFT_GO;
	soft->faulty = config->rules.count;
	shared()->rules = config->rules;
	shared()->judged = gnv_vdrive_judged(config);
	m.forgets = gnv_soft_has(&config->quirks, GNV_SOFT_LISTS_HANG) || action == GNV_SOFT_DROP || action == GNV_SOFT_STUCK ||
		    action == GNV_SOFT_CFS;
}

/* As new. */
static void forget(void)
{
	struct gnv_vd *vd = shared();
	unsigned by;

	forget_registers();
	memset(&drive->t.errors.log, 0, sizeof(drive->t.errors.log));
	drive->t.server[0]->dma.last = 0;
	drive->t.server[0]->dma.lost_said = drive->t.server[0]->posted = false;
	vd->errors = drive->errors = 0;
	memset(vd->raised, 0, sizeof(vd->raised));
	memset(drive->raised, 0, sizeof(drive->raised));
	for (by = 0; by < SERVERS; by++)
		vd->worker[by].looked = 0;
	served_close(0);
}

void begin_served(const uint8_t *input, size_t size)
{
	if (!soft)
		create();
	begin_world(input, size);
	forget();
	be_bad();
	begin_blocks();
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
	else if (!gnv_soft_space_displace(host_space, ODD_IOVA, 0))
		m.odd = false;
	else
		check(m.manner & GUEST);
}

/* ---- The end ---- */

static void finish_served(void)
{
	unsigned qid;

	m.writes = 0;
	soft->faulty = false;
	shared()->judged = 0;
	finish_commands();
	for (qid = 1; qid <= QUEUES && soft->state == GNV_SOFT_READY && !m.forgets; qid++)
		check(!drive->sq[qid].map || (!shared()->sq[qid].state.parked && !served_open(qid)));
}

static void end_all(void)
{
	const struct gnv_soft_server *server = drive->t.server[0];
	unsigned i;

	ask_for_reset();
	check(!server->sqs && !server->cqs && server->free_count == GNV_SOFT_CMDS && !server->parked_count);
	for (i = 0; i < SERVERS; i++)
		check(!drive->first[i] && !shared()->worker[i].first);
	check_off();
}

void end_served(void)
{
	finish_served();
	end_all();
	end_world();
}
