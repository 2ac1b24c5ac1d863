/* SPDX-License-Identifier: MIT */
/*
 * The engine that runs on a GPU, its kernel on CPU threads: regions, slices, commands that wait, interrupts, what it refuses.
 * That it is a controller as the others are, the tests of the controller say, which run over it, too
 * (tests/soft/CMakeLists.txt).
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <gpunvme/dev.h>
#include <gpunvme/status.h>

#include "common/exec_table.h"
#include "common/rawhost.h"
#include "vdrive/drive.h"
#include "vdrive/vdrive.h"

#define MANY 300u /* commands: more than a batch, and than one pass sees */

static struct gnv_soft_config config_of(const char *fault)
{
	struct gnv_soft_config config = GNV_SOFT_CONFIG_INIT;

	config.path = RAWHOST_VRAM;
	config.engine = &gnv_vdrive_engine;
	if (fault)
		assert_int_equal(gnv_soft_fault_parse(fault, &config.quirks, &config.rules), 0);
	return config;
}

static uint16_t rw(uint8_t opc, uint64_t lba, uint32_t blocks, uint32_t at)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, opc, lba, blocks, at);

	return rawhost_io(&sqe);
}

/* A pair of MANY and more entries, in memory of its own. */
static void make_long_pair(struct rawhost_queue *q, char **rings, struct gpunvme_mem *mem)
{
	const uint32_t entries = 512;
	struct gpunvme_sqe cq = { .opc = GPUNVME_ADMIN_CREATE_CQ, .cdw10 = (entries - 1) << 16 | 2, .cdw11 = 1 };
	struct gpunvme_sqe sq = { .opc = GPUNVME_ADMIN_CREATE_SQ, .cdw10 = (entries - 1) << 16 | 2, .cdw11 = 2u << 16 | 1 };
	uint64_t iova;

	*rings = aligned_alloc(4096, 65536);
	assert_non_null(*rings);
	memset(*rings, 0, 65536);
	*mem = (struct gpunvme_mem){ .cpu = *rings, .len = 65536 };
	assert_int_equal(host.space->ops->map(host.space, mem, &iova), 0);
	*q = (struct rawhost_queue){ .qid = 2, .sq_size = entries, .cq_size = entries, .sq = (void *)*rings,
				     .cq = (void *)(*rings + 32768), .phase = 1, .sq_iova = iova, .cq_iova = iova + 32768 };
	cq.prp1 = q->cq_iova;
	sq.prp1 = q->sq_iova;
	assert_int_equal(rawhost_admin(&cq, NULL), 0);
	assert_int_equal(rawhost_admin(&sq, NULL), 0);
}

/* Command i reads block i to its own place, and all of them begin at once. */
static void read_many(struct rawhost_queue *q)
{
	struct gpunvme_sqe sqe;
	unsigned i;

	for (i = 0; i < MANY; i++) {
		sqe = rawhost_rw(&host, GPUNVME_IO_READ, i, 1, i * 512);
		rawhost_put(q, &sqe);
	}
	rawhost_ring_sq(&host, q, q->tail);
}

/* ---- Commands in flight live in the drive's memory: slices end whatever is in flight ---- */

/* Of the worker that knows the longest one. */
static uint64_t lead(void)
{
	const struct gnv_vdrive *d = gnv_vdrive_of(host.soft);
	const struct gnv_vd *vd = (const struct gnv_vd *)(uintptr_t)d->vd;
	uint64_t longest = 0;
	uint32_t i;

	for (i = 0; i < d->workers; i++)
		longest = gnv_max(longest, __atomic_load_n(&vd->worker[i].lead, __ATOMIC_RELAXED));
	return longest;
}

/*
 * Delays of 3 ms and slices of 100 us: each command waits over many launches. Those of one delay end in the order of the queue, and a
 * worker learns how long it takes to post them.
 */
static void commands_outlive_slices(void **state)
{
	struct gnv_soft_config config = config_of("delay:3000:op=read");
	struct rawhost_queue q;
	struct gpunvme_mem mem;
	struct gpunvme_cqe cqe;
	char *rings;
	unsigned i;

	(void)state;
	config.slice_us = 100;
	rawhost_start(&host, &config);
	make_long_pair(&q, &rings, &mem);
	for (i = 0; i < MANY; i++) {
		rawhost_fill(&host, 0, 512, i);
		assert_int_equal(rw(GPUNVME_IO_WRITE, i, 1, 0), 0);
	}
	assert_int_equal(lead(), 0);
	read_many(&q);
	for (i = 0; i < MANY; i++) {
		assert_true(rawhost_reap(&host, &q, &cqe, RAWHOST_SOON, true));
		assert_int_equal(cqe.cid, i);
		assert_int_equal(cqe.status >> 1, 0);
		assert_true(rawhost_is_filled(&host, i * 512, 512, i));
	}
	assert_in_range(lead(), 1, 16000);
	assert_int_equal(rawhost_admin(&(struct gpunvme_sqe){ .opc = GPUNVME_ADMIN_DELETE_SQ, .cdw10 = 2 }, NULL), 0);
	assert_int_equal(rawhost_admin(&(struct gpunvme_sqe){ .opc = GPUNVME_ADMIN_DELETE_CQ, .cdw10 = 2 }, NULL), 0);
	assert_int_equal(host.space->ops->unmap(host.space, q.sq_iova, 65536), 0);
	rawhost_close(&host);
	free(rings);
}

/* Any order: of those that wait, the due ones are taken from the middle, and none is lost or comes twice. */
static void commands_that_overtake_are_all_there(void **state)
{
	struct gnv_soft_config config = config_of("shuffle:1000000,seed:3");
	struct rawhost_queue q;
	struct gpunvme_mem mem;
	struct gpunvme_cqe cqe;
	uint8_t seen[MANY] = { 0 };
	unsigned i, overtaken = 0;
	char *rings;

	(void)state;
	rawhost_start(&host, &config);
	make_long_pair(&q, &rings, &mem);
	read_many(&q);
	for (i = 0; i < MANY; i++) {
		assert_true(rawhost_reap(&host, &q, &cqe, RAWHOST_SOON, true));
		assert_in_range(cqe.cid, 0, MANY - 1);
		assert_int_equal(seen[cqe.cid]++, 0);
		overtaken += cqe.cid != i;
	}
	assert_true(overtaken > 0);
	rawhost_close(&host);
	free(rings);
}

/* Rules hit those commands that they would hit one after the other, in the order of the queue, though many are judged at once. */
static void commands_are_judged_in_order(void **state)
{
	struct gnv_soft_config config =
		config_of("status:0x281:p=0.3:after=5:count=40,status:0x182:lba=100-279:p=0.4,delay:100:p=0.5,seed:7");
	struct gnv_soft_rules rules = config.rules;
	struct rawhost_queue q;
	uint16_t expected[MANY];
	struct gpunvme_sqe sqe;
	struct gpunvme_mem mem;
	struct gpunvme_cqe cqe;
	uint32_t number;
	char *rings;
	unsigned i;

	(void)state;
	assert_int_equal(gnv_vdrive_judged(&config), GNV_VD_TOGETHER);
	rawhost_start(&host, &config);
	for (i = 0; i < MANY; i++) {
		sqe = rawhost_rw(&host, GPUNVME_IO_READ, i, 1, i * 512);
		expected[i] = 0;
		if (gnv_soft_fault_judge(&rules, 2, &sqe, &expected[i], &number) != GNV_SOFT_FAIL)
			expected[i] = 0;
	}
	make_long_pair(&q, &rings, &mem);
	read_many(&q);
	for (i = 0; i < MANY; i++) {
		assert_true(rawhost_reap(&host, &q, &cqe, RAWHOST_SOON, true));
		assert_in_range(cqe.cid, 0, MANY - 1);
		assert_int_equal(cqe.status >> 1 & GPUNVME_ST_CODE, expected[cqe.cid]);
		expected[cqe.cid] = UINT16_MAX; /* it does not come twice */
	}
	rawhost_close(&host);
	free(rings);
}

/* Those after which nothing of the queue is taken are judged alone. */
static void a_rule_that_ends_a_queue_judges_alone(void **state)
{
	static const char *const alone[] = { "stuck", "cfs:p=0.5", "delay:5,ones" };
	struct gnv_soft_config config;
	unsigned i;

	(void)state;
	for (i = 0; i < GNV_ARRAY_LEN(alone); i++) {
		config = config_of(alone[i]);
		assert_int_equal(gnv_vdrive_judged(&config), GNV_VD_ONE_BY_ONE);
	}
	config = config_of("hot");
	assert_int_equal(gnv_vdrive_judged(&config), GNV_VD_UNJUDGED);
}

/*
 * A reset while commands wait leaves nothing of them: no completion comes afterwards, and memory can be unmapped
 * (rawhost_close()).
 */
static void a_reset_ends_what_waits(void **state)
{
	struct gnv_soft_config config = config_of("lose:op=read");
	struct gpunvme_sqe sqe;
	struct gpunvme_cqe cqe;
	unsigned i;

	(void)state;
	rawhost_start(&host, &config);
	for (i = 0; i < RAWHOST_ENTRIES - 2; i++) {
		sqe = rawhost_rw(&host, GPUNVME_IO_READ, i, 1, 0);
		rawhost_submit(&host, &host.io, &sqe);
	}
	sqe = (struct gpunvme_sqe){ .opc = GPUNVME_IO_FLUSH, .nsid = 1 };
	rawhost_submit(&host, &host.io, &sqe);
	assert_true(rawhost_reap(&host, &host.io, &cqe, RAWHOST_SOON, true)); /* all before it were fetched */
	assert_int_equal(cqe.cid, i);
	assert_true(rawhost_disable(&host));
	assert_int_equal(rawhost_enable(&host), GPUNVME_CSTS_RDY);
	assert_int_equal(rawhost_create_pair(&host, &host.io, 1, RAWHOST_ENTRIES, RAWHOST_ENTRIES), 0);
	assert_int_equal(rw(GPUNVME_IO_WRITE, 0, 1, 0), 0);
	rawhost_close(&host);
}

/* ---- Deallocate and compare ---- */

static uint16_t deallocate(const struct gpunvme_dsm_range *ranges, unsigned count)
{
	const struct gpunvme_sqe sqe = { .opc = GPUNVME_IO_DSM, .nsid = 1, .prp1 = rawhost_iova(&host, 65536), .cdw10 = count - 1,
					 .cdw11 = 4 };

	memcpy(rawhost_data(&host, 65536), ranges, count * sizeof(*ranges));
	return rawhost_io(&sqe);
}

static bool is_zero(uint64_t lba)
{
	rawhost_fill(&host, 4096, 512, 3);
	assert_int_equal(rw(GPUNVME_IO_READ, lba, 1, 4096), 0);
	return !rawhost_data(&host, 4096)[0] && !memcmp(rawhost_data(&host, 4096), rawhost_data(&host, 4096) + 1, 511);
}

/* Deallocate clears up to 32 MiB of a command, in all its ranges, and the next command as much. */
static void deallocate_is_bounded(void **state)
{
	static const uint64_t lba[] = { 0, 65535, 65536, 131071, 131072 };
	const struct gpunvme_dsm_range half = { 0, 32768, 0 }, rest = { 0, 98305, 32768 }, all[] = { half, rest };
	struct gnv_soft_config config = config_of(NULL);
	unsigned i;

	(void)state;
	config.path = "vram:128M";
	rawhost_start(&host, &config);
	rawhost_fill(&host, 0, 512, 7);
	for (i = 0; i < 5; i++)
		assert_int_equal(rw(GPUNVME_IO_WRITE, lba[i], 1, 0), 0);
	assert_int_equal(deallocate(all, 2), 0);
	for (i = 0; i < 5; i++)
		assert_int_equal(is_zero(lba[i]), lba[i] < 65536);
	assert_int_equal(deallocate(&(struct gpunvme_dsm_range){ 0, 65537, 65536 }, 1), 0);
	for (i = 0; i < 5; i++)
		assert_int_equal(is_zero(lba[i]), lba[i] < 131072);
	rawhost_close(&host);
}

/* Each byte counts, wherever it lies in a vector, and in memory that is aligned to 4 bytes only. */
static void compare_sees_each_byte(void **state)
{
	static const uint32_t places[] = { 0, 4 };
	struct gnv_soft_config config = config_of(NULL);
	struct gpunvme_sqe sqe;
	unsigned i, at;

	(void)state;
	rawhost_start(&host, &config);
	rawhost_fill(&host, 0, 1024, 7);
	assert_int_equal(rw(GPUNVME_IO_WRITE, 0, 2, 0), 0);
	for (i = 0; i < 2; i++) {
		unsigned char *bytes = (unsigned char *)rawhost_data(&host, 8192 + places[i]);

		memcpy(bytes, rawhost_data(&host, 0), 1024);
		sqe = rawhost_rw(&host, GPUNVME_IO_COMPARE, 0, 2, 8192);
		sqe.prp1 += places[i];
		assert_int_equal(rawhost_io(&sqe), 0);
		for (at = 0; at < 1024; at++) {
			bytes[at] ^= 1;
			assert_int_equal(rawhost_io(&sqe), GPUNVME_SC_COMPARE_FAILURE);
			bytes[at] ^= 1;
		}
	}
	rawhost_close(&host);
}

/* ---- Regions ---- */

/* A host in another process chooses addresses: regions are found by search, in whatever order they came and went. */
static void placed_regions_are_found(void **state)
{
	static const uint64_t places[] = { 0x7000000, 0x1000000, 0x9000000, 0x3000000, 0x5000000 };
	struct gnv_soft_config config = config_of(NULL);
	struct gpunvme_sqe sqe;
	char *memory = aligned_alloc(4096, 5 * 8192);
	unsigned i, gone;

	(void)state;
	assert_non_null(memory);
	rawhost_start(&host, &config);
	rawhost_fill(&host, 0, 4096, 5);
	assert_int_equal(rw(GPUNVME_IO_WRITE, 0, 8, 0), 0);
	for (i = 0; i < 5; i++)
		assert_int_equal(gnv_soft_space_place(host.space, places[i], 8192, memory + i * 8192), 0);
	for (gone = 0; gone <= 5; gone++) {
		for (i = 0; i < 5; i++) {
			memset(memory + i * 8192, 0, 8192);
			sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 8, 0);
			sqe.prp1 = places[i] + 4096;
			assert_int_equal(rawhost_io(&sqe), i < gone ? GPUNVME_SC_DATA_TRANSFER : 0);
			assert_int_equal(memcmp(memory + i * 8192 + 4096, rawhost_data(&host, 0), 4096) == 0, i >= gone);
			sqe.prp1 = places[i] + 4096 + 512; /* runs over the end */
			sqe.prp2 = 0;
			assert_int_equal(rawhost_io(&sqe) != 0, true);
		}
		if (gone < 5)
			assert_int_equal(gnv_soft_space_displace(host.space, places[gone], RAWHOST_SOON), 0);
	}
	rawhost_close(&host);
	free(memory);
}

static struct {
	struct gpunvme_mem mem;
	uint32_t stop;
	unsigned rounds, stray;
} swap;

static void *map_and_unmap(void *arg)
{
	uint64_t *iova = arg, at;
	unsigned i;

	while (!__atomic_load_n(&swap.stop, __ATOMIC_ACQUIRE)) {
		if (host.space->ops->map(host.space, &swap.mem, &at))
			continue;
		__atomic_store_n(iova, at, __ATOMIC_RELEASE);
		sched_yield();
		while (host.space->ops->unmap(host.space, at, swap.mem.len) == -EBUSY)
			;
		memset(swap.mem.cpu, 0x5a, 4096); /* it is the host's again: nobody else writes there */
		sched_yield();
		for (i = 0; i < 4096; i++)
			swap.stray += ((volatile char *)swap.mem.cpu)[i] != 0x5a;
		swap.rounds++;
	}
	return NULL;
}

/*
 * Memory comes and goes under the drive's hands: a read of it succeeds or fails, and what was unmapped is not written to any
 * more.
 */
static void memory_goes_under_load(void **state)
{
	struct gnv_soft_config config = config_of(NULL);
	uint64_t iova = 0;
	struct gpunvme_sqe sqe;
	pthread_t thread;
	unsigned i, good = 0;
	uint16_t status;

	(void)state;
	rawhost_start(&host, &config);
	swap.mem.cpu = aligned_alloc(4096, 65536);
	assert_non_null(swap.mem.cpu);
	swap.mem.len = 65536;
	assert_int_equal(pthread_create(&thread, NULL, map_and_unmap, &iova), 0);
	while (!__atomic_load_n(&iova, __ATOMIC_ACQUIRE))
		sched_yield();
	for (i = 0; i < 1000 || !good; i++) {
		sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 8, 0);
		sqe.prp1 = __atomic_load_n(&iova, __ATOMIC_ACQUIRE);
		status = rawhost_io(&sqe);
		assert_true(!status || status == GPUNVME_SC_DATA_TRANSFER);
		good += !status;
	}
	__atomic_store_n(&swap.stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
	assert_true(swap.rounds > 0);
	assert_int_equal(swap.stray, 0);
	rawhost_close(&host);
	free(swap.mem.cpu);
}

/* A command that only waits for its time does not hold its memory, and does not touch it when it ends. */
static void a_delayed_command_lets_go(void **state)
{
	struct gnv_soft_config config = config_of("delay:300000:op=read");
	char *memory = aligned_alloc(4096, 8192);
	struct gpunvme_sqe sqe;
	struct gpunvme_cqe cqe;
	unsigned i;

	(void)state;
	assert_non_null(memory);
	rawhost_start(&host, &config);
	assert_int_equal(gnv_soft_space_place(host.space, 0x7000000, 8192, memory), 0);
	memset(memory, 0x5a, 8192);
	sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 8, 0);
	sqe.prp1 = 0x7000000;
	rawhost_submit(&host, &host.io, &sqe);
	while (__atomic_load_n(&memory[0], __ATOMIC_ACQUIRE)) /* its data is there, and its completion is not due */
		sched_yield();
	assert_int_equal(gnv_soft_space_displace(host.space, 0x7000000, RAWHOST_SOON), 0);
	memset(memory, 0x5a, 8192);
	assert_true(rawhost_reap(&host, &host.io, &cqe, RAWHOST_SOON, true));
	assert_int_equal(cqe.status >> 1, 0);
	for (i = 0; i < 8192; i++)
		assert_int_equal(memory[i], 0x5a);
	rawhost_close(&host);
	free(memory);
}

/* ---- What the CPU side does for the kernel ---- */

static uint32_t interrupts[2];

static void raise_vector(void *ctx, unsigned vector)
{
	(void)ctx;
	assert_in_range(vector, 0, 1);
	__atomic_fetch_add(&interrupts[vector], 1, __ATOMIC_RELEASE);
}

static void interrupts_come_after_their_entries(void **state)
{
	struct gpunvme_sqe cq = { .opc = GPUNVME_ADMIN_CREATE_CQ, .cdw10 = 15u << 16 | 1, .cdw11 = 1u << 16 | 3 };
	struct gpunvme_sqe sq = { .opc = GPUNVME_ADMIN_CREATE_SQ, .cdw10 = 15u << 16 | 1, .cdw11 = 1u << 16 | 1 };
	struct gnv_soft_config config = config_of(NULL);
	struct gpunvme_sqe sqe;
	struct gpunvme_cqe cqe;
	unsigned i;

	(void)state;
	config.irq = (struct gnv_soft_irq){ raise_vector, NULL, 2 };
	rawhost_start(&host, &config);
	assert_int_equal(rawhost_admin(&(struct gpunvme_sqe){ .opc = GPUNVME_ADMIN_DELETE_SQ, .cdw10 = 1 }, NULL), 0);
	assert_int_equal(rawhost_admin(&(struct gpunvme_sqe){ .opc = GPUNVME_ADMIN_DELETE_CQ, .cdw10 = 1 }, NULL), 0);
	memset(host.io.cq, 0, 256);
	host.io.tail = host.io.head = 0;
	host.io.phase = 1;
	cq.prp1 = host.io.cq_iova;
	sq.prp1 = host.io.sq_iova;
	assert_int_equal(rawhost_admin(&cq, NULL), 0);
	assert_int_equal(rawhost_admin(&sq, NULL), 0);
	for (i = 0; i < 40; i++) {
		const uint32_t before = __atomic_load_n(&interrupts[1], __ATOMIC_ACQUIRE);

		sqe = rawhost_rw(&host, GPUNVME_IO_READ, i, 1, 0);
		rawhost_submit(&host, &host.io, &sqe);
		while (__atomic_load_n(&interrupts[1], __ATOMIC_ACQUIRE) == before)
			sched_yield();
		assert_true(rawhost_reap(&host, &host.io, &cqe, 0, true)); /* it is there */
	}
	rawhost_close(&host);
}

/* Without bus mastering nothing is fetched or written, however long one waits; with it again, the rest is done. */
static void a_silent_drive_reaches_nothing(void **state)
{
	struct gnv_soft_config config = config_of(NULL);
	struct gpunvme_sqe sqe;
	struct gpunvme_cqe cqe;

	(void)state;
	rawhost_start(&host, &config);
	assert_int_equal(gnv_soft_allow_dma(host.soft, false), 0);
	sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 1, 0);
	rawhost_fill(&host, 0, 512, 9);
	rawhost_submit(&host, &host.io, &sqe);
	assert_false(rawhost_reap(&host, &host.io, &cqe, 50, true));
	assert_true(rawhost_is_filled(&host, 0, 512, 9));
	assert_int_equal(gnv_soft_allow_dma(host.soft, true), 0);
	assert_true(rawhost_reap(&host, &host.io, &cqe, RAWHOST_SOON, true));
	assert_false(rawhost_is_filled(&host, 0, 512, 9));
	rawhost_close(&host);
}

/* More errors than the drive keeps until somebody asks: all are counted, and the newest are there. */
static void errors_are_counted_beyond_those_kept(void **state)
{
	struct gnv_soft_config config = config_of(NULL);
	struct gpunvme_sqe log = { .opc = GPUNVME_ADMIN_GET_LOG_PAGE, .cdw10 = (64 / 4 - 1) << 16 | GPUNVME_LID_ERROR };
	const struct gpunvme_error_log *entry;
	unsigned i;

	(void)state;
	rawhost_start(&host, &config);
	for (i = 0; i < 200; i++)
		assert_int_equal(rw(GPUNVME_IO_READ, RAWHOST_IMAGE / 512 + i, 1, 0), GPUNVME_SC_LBA_RANGE);
	log.prp1 = rawhost_iova(&host, 0);
	assert_int_equal(rawhost_admin(&log, NULL), 0);
	entry = (const void *)rawhost_data(&host, 0);
	assert_int_equal(entry->error_count, 200);
	assert_int_equal(entry->lba, RAWHOST_IMAGE / 512 + 199);
	assert_int_equal(entry->sqid, 1);
	rawhost_close(&host);
}

static bool tears; /* the next drive copies errors by peek_torn() */
static uint64_t torn_at; /* where they lie; 0: nothing is torn yet (atomic) */

/*
 * As the kernel does at 65 errors more, when the host copies the entries: it takes numbers, and has written the first word of an
 * entry and not yet the second.
 */
static int peek_torn(struct gnv_vd_exec *exec, void *to, uint64_t at, size_t len)
{
	struct gnv_vd_error *error = to;
	const uint32_t more = 65;
	struct gnv_vdrive *d;
	uint32_t errors;

	if (exec_whole->peek(exec, to, at, len) || at != __atomic_load_n(&torn_at, __ATOMIC_ACQUIRE))
		return 0;
	d = gnv_vdrive_of(host.soft);
	error[0].lba = 0x666;
	return exec_whole->peek(exec, &errors, GNV_VD_AT(d, errors), sizeof(errors)) ||
	       gnv_vdrive_poke32(d, GNV_VD_AT(d, errors), errors + more);
}

static void exec_change(struct gnv_vd_exec_ops *ops)
{
	if (tears)
		ops->peek = peek_torn;
}

/* An entry that the kernel overwrites while it is copied is none: it only counts. */
static void errors_that_are_overwritten_only_count(void **state)
{
	struct gpunvme_sqe log = { .opc = GPUNVME_ADMIN_GET_LOG_PAGE, .cdw10 = (64 / 4 - 1) << 16 | GPUNVME_LID_ERROR };
	const struct gpunvme_error_log *entry;
	struct gnv_soft_config config = config_of(NULL);

	(void)state;
	tears = true;
	rawhost_start(&host, &config);
	tears = false;
	assert_int_equal(rw(GPUNVME_IO_READ, RAWHOST_IMAGE / 512, 1, 0), GPUNVME_SC_LBA_RANGE);
	__atomic_store_n(&torn_at, GNV_VD_AT(gnv_vdrive_of(host.soft), error), __ATOMIC_RELEASE);
	log.prp1 = rawhost_iova(&host, 0);
	assert_int_equal(rawhost_admin(&log, NULL), 0);
	entry = (const void *)rawhost_data(&host, 0);
	assert_int_not_equal(entry->lba, 0x666);
	__atomic_store_n(&torn_at, 0, __ATOMIC_RELEASE);
	rawhost_close(&host);
}

/* ---- What is refused ---- */

static void drives_that_cannot_be_are_refused(void **state)
{
	static const struct {
		const char *uri, *says;
		int ret;
	} cases[] = {
		{ "soft:vram:", "named by its size", -EINVAL },
		{ "soft:vram:12x", "named by its size", -EINVAL },
		{ "soft:vram:1000", "no whole number of blocks", -EINVAL },
		{ "soft:vram:9000000T", "Use a smaller size", -ENOMEM },
		{ "soft:vram:60000000G", "Use a smaller size", -ENOMEM },
		{ "soft:vram:1M?ro=1", "Leave ro out", -EINVAL },
		{ "soft:vram:1M?on=gpu", "on=gpu", -EINVAL },
		{ "soft:vram:1M?on=cpu:2", "threads=", -EINVAL },
		{ "soft:vram:1M?slice=2000", "slice=2000", -EINVAL },
		{ "soft:vram:1M?ns2=ram:1M", "ns2=", -EINVAL },
		{ "soft:vram:1M?model=P5", "model=P5 in the URI: no such model", -EINVAL },
		{ "soft:vram:1M?model=P3700&iops=1000", "iops= contradicts model=", -EINVAL },
		{ "soft:vram:1M?model=SN850X&lat_us=10", "lat_us= contradicts model=", -EINVAL },
		{ "soft:vram:1M?model=P4800X&units=3", "has its own units=", -EINVAL },
		{ "soft:vram:1M?fault=flip:p=0.1", "fault=flip: a drive", -EINVAL },
		{ "soft:vram:1M?fault=twice:0", "fault=twice: a drive", -EINVAL },
		{ "soft:vram:1M?fault=early:10", "fault=early: a drive", -EINVAL },
		{ "soft:vram:1M?fault=torn:10", "fault=torn: a drive", -EINVAL },
		{ "soft:vram:1M?fault=cqe-pieces", "fault=cqe-pieces: a drive", -EINVAL },
		{ "soft:vram:1M?fault=sleepy", "fault=sleepy: a drive", -EINVAL },
		{ "soft:vram:1M?fault=one-command", "fault=one-command: a drive", -EINVAL },
		{ "soft:vram:1M?fault=shared-tags", "fault=shared-tags: a drive", -EINVAL },
		{ "soft:vram:1M?fault=few-cids:8", "fault=few-cids: a drive", -EINVAL },
		{ "soft:ram:1M?ns2=vram:1M", "first namespace", -EINVAL },
		{ "soft:ram:1M?on=cpu", "on", -EINVAL },
	};
	struct gpunvme_dev *dev;
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const int ret = gpunvme_dev_open(cases[i].uri, NULL, &dev);

		if (ret != cases[i].ret || !strstr(gpunvme_errmsg(), cases[i].says))
			fail_msg("%s: %d, %s", cases[i].uri, ret, gpunvme_errmsg());
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(commands_outlive_slices),
		cmocka_unit_test(commands_that_overtake_are_all_there),
		cmocka_unit_test(commands_are_judged_in_order),
		cmocka_unit_test(a_rule_that_ends_a_queue_judges_alone),
		cmocka_unit_test(a_reset_ends_what_waits),
		cmocka_unit_test(deallocate_is_bounded),
		cmocka_unit_test(compare_sees_each_byte),
		cmocka_unit_test(placed_regions_are_found),
		cmocka_unit_test(memory_goes_under_load),
		cmocka_unit_test(a_delayed_command_lets_go),
		cmocka_unit_test(interrupts_come_after_their_entries),
		cmocka_unit_test(a_silent_drive_reaches_nothing),
		cmocka_unit_test(errors_are_counted_beyond_those_kept),
		cmocka_unit_test(errors_that_are_overwritten_only_count),
		cmocka_unit_test(drives_that_cannot_be_are_refused),
	};

	return cmocka_run_group_tests_name("vdrive", tests, NULL, NULL);
}
