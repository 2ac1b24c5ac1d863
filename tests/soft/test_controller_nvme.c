/* SPDX-License-Identifier: MIT */
/*
 * A controller whose commands a real drive carries out. Here the nvme driver of Linux and a drive are emulated, in place of lib/os:
 * what the driver returns is from Linux, drivers/nvme/host/ioctl.c (nvme_uring_cmd_io(), nvme_uring_task_cb()) and block/blk-map.c,
 * which refuses what a request cannot hold; the scenario `passthrough` of tests/vm has both for real.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#include <gpunvme/status.h>

#include "common/rawhost.h"
#include "os/linux/nvme.h"
#include "soft/engine/threads.h"
#include "util/bits.h"

#define SHIFT 9
#define BYTES (4u << 20)
#define QUEUED 1100u

/* ---- The driver and the drive ---- */

struct gnv_uring {
	struct gnv_uring_done done[QUEUED];
	unsigned count;
	bool waits; /* the last of them, a Flush, is not over while drives hang */
};

static struct {
	struct gpunvme_id_ctrl ctrl;
	struct gpunvme_id_ns ns;
	struct gpunvme_id_ctrl_nvm limits;
	int open, identify, probe, result, flush; /* of its calls; `result`: of all commands after the first of each thread, if not 0 */
	int no_limits;
	int turn; /* the first read of each thread does not complete, and this is what the ring says */
	uint64_t max_bytes;
	unsigned segments; /* pages that a request holds */
	uint32_t block;	   /* as the kernel's disk has them (atomic) */
} mock;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct gnv_os_nvme_cmd last; /* as the next five */
static struct gpunvme_dsm_range ranges[2];
static unsigned commands, flushes, opened, rings, refused, fixed;
static char medium[BYTES];
static bool probed, hangs; /* the second: a Flush does not end (atomic) */
static struct gnv_uring *ring_left; /* of a probe without a reply, as the next */
static void *block_left;

bool __wrap_gnv_os_nvme_owns(const char *path);
bool __wrap_gnv_os_nvme_owns(const char *path)
{
	return !strcmp(path, "drive");
}

int __wrap_gnv_os_nvme_open(const char *path, bool read_only, struct gnv_os_nvme *nvme);
int __wrap_gnv_os_nvme_open(const char *path, bool read_only, struct gnv_os_nvme *nvme)
{
	(void)path;
	*nvme = (struct gnv_os_nvme){ .fd = -1, .held = 5, .nsid = mock.open ? 0 : 7, .disk = 42, .max_bytes = mock.max_bytes, .read_only = read_only };
	opened += !mock.open;
	return mock.open;
}

void __wrap_gnv_os_nvme_close(struct gnv_os_nvme *nvme);
void __wrap_gnv_os_nvme_close(struct gnv_os_nvme *nvme)
{
	opened -= nvme->nsid != 0;
	nvme->nsid = 0;
}

int __wrap_gnv_os_nvme_identify(const struct gnv_os_nvme *nvme, uint8_t cns, void *data);
int __wrap_gnv_os_nvme_identify(const struct gnv_os_nvme *nvme, uint8_t cns, void *data)
{
	(void)nvme;
	if (cns == GPUNVME_CNS_CTRL_NVM && mock.no_limits)
		return mock.no_limits;
	memcpy(data, cns == GPUNVME_CNS_CTRL ? (void *)&mock.ctrl : cns ? (void *)&mock.limits : (void *)&mock.ns, 4096);
	return mock.identify;
}

uint32_t __wrap_gnv_os_nvme_block(const struct gnv_os_nvme *nvme);
uint32_t __wrap_gnv_os_nvme_block(const struct gnv_os_nvme *nvme)
{
	assert_int_equal(nvme->nsid, 7);
	return __atomic_load_n(&mock.block, __ATOMIC_RELAXED);
}

static size_t pages_of(const struct gnv_os_nvme_cmd *cmd)
{
	size_t pages = 0;
	unsigned i;

	for (i = 0; i < cmd->count; i++)
		pages += (((uintptr_t)cmd->iov[i].iov_base & 4095) + cmd->iov[i].iov_len + 4095) / 4096;
	return pages;
}

static int move(char *at, const struct gnv_os_nvme_cmd *cmd)
{
	unsigned i;

	for (i = 0; i < cmd->count; i++) {
		if (cmd->opc == GPUNVME_IO_COMPARE && memcmp(at, cmd->iov[i].iov_base, cmd->iov[i].iov_len) != 0)
			return GPUNVME_SC_COMPARE_FAILURE | GPUNVME_ST_DNR;
		if (cmd->opc == GPUNVME_IO_READ)
			memcpy(cmd->iov[i].iov_base, at, cmd->iov[i].iov_len);
		else if (cmd->opc == GPUNVME_IO_WRITE)
			memcpy(at, cmd->iov[i].iov_base, cmd->iov[i].iov_len);
		at += cmd->iov[i].iov_len;
	}
	return 0;
}

static int carry_out(const struct gnv_os_nvme_cmd *cmd)
{
	const uint64_t lba = cmd->cdw10 | (uint64_t)cmd->cdw11 << 32, n = (cmd->cdw12 & 0xffff) + 1;

	if (pages_of(cmd) > mock.segments) {
		refused++;
		return -EINVAL;
	}
	switch (cmd->opc) {
	case GPUNVME_IO_FLUSH:
		return mock.flush;
	case GPUNVME_IO_DSM:
		memcpy(ranges, cmd->iov->iov_base, (cmd->cdw10 + 1) * sizeof(ranges[0]));
		return 0;
	default:
		if (lba + n > BYTES >> SHIFT)
			return GPUNVME_SC_LBA_RANGE | GPUNVME_ST_DNR;
		if (cmd->opc == GPUNVME_IO_WRITE_ZEROES)
			memset(medium + (lba << SHIFT), 0, (size_t)n << SHIFT);
		return move(medium + (lba << SHIFT), cmd);
	}
}

int __wrap_gnv_os_nvme_queue(const struct gnv_os_nvme *nvme, struct gnv_uring *ring, const struct gnv_os_nvme_cmd *cmd, void *tag);
int __wrap_gnv_os_nvme_queue(const struct gnv_os_nvme *nvme, struct gnv_uring *ring, const struct gnv_os_nvme_cmd *cmd, void *tag)
{
	int res;

	assert_int_equal(nvme->nsid, 7);
	assert_true(ring->count < QUEUED);
	pthread_mutex_lock(&lock);
	res = !tag ? mock.probe : mock.result ? mock.result : carry_out(cmd);
	if (tag)
		last = *cmd;
	commands += tag != NULL;
	fixed += cmd->buffer >= 0;
	probed |= !tag;
	pthread_mutex_unlock(&lock);
	if (!tag && mock.turn) {
		ring_left = ring;
		block_left = cmd->iov->iov_base;
		return 0;
	}
	ring->waits = tag && cmd->opc == GPUNVME_IO_FLUSH;
	ring->done[ring->count++] = (struct gnv_uring_done){ tag, res };
	__atomic_fetch_add(&flushes, ring->waits, __ATOMIC_RELEASE);
	return 0;
}

/* ---- Its rings ---- */

int __wrap_gnv_uring_open_nvme(unsigned entries, unsigned buffers, int fd, int held, struct gnv_uring **ring);
int __wrap_gnv_uring_open_nvme(unsigned entries, unsigned buffers, int fd, int held, struct gnv_uring **ring)
{
	(void)fd;
	assert_int_equal(held, 5); /* so that nobody has the disk while commands of a process that died are under way */
	assert_true(entries && buffers);
	*ring = calloc(1, sizeof(**ring));
	assert_non_null(*ring);
	__atomic_fetch_add(&rings, 1, __ATOMIC_RELAXED);
	return 0;
}

void __wrap_gnv_uring_close(struct gnv_uring *ring);
void __wrap_gnv_uring_close(struct gnv_uring *ring)
{
	if (ring)
		__atomic_fetch_sub(&rings, 1, __ATOMIC_RELAXED);
	free(ring);
}

int __wrap_gnv_uring_submit(struct gnv_uring *ring);
int __wrap_gnv_uring_submit(struct gnv_uring *ring)
{
	(void)ring;
	return 0;
}

int __wrap_gnv_uring_turn(struct gnv_uring *ring, unsigned usec);
int __wrap_gnv_uring_turn(struct gnv_uring *ring, unsigned usec)
{
	(void)ring;
	(void)usec;
	return mock.turn;
}

unsigned __wrap_gnv_uring_reap(struct gnv_uring *ring, struct gnv_uring_done *done, unsigned max);
unsigned __wrap_gnv_uring_reap(struct gnv_uring *ring, struct gnv_uring_done *done, unsigned max)
{
	unsigned n = ring->count < max ? ring->count : max;

	if (ring->waits && __atomic_load_n(&hangs, __ATOMIC_ACQUIRE))
		return 0;
	memcpy(done, ring->done, n * sizeof(*done));
	memmove(ring->done, ring->done + n, (ring->count - n) * sizeof(*done));
	ring->count -= n;
	return n;
}

void __wrap_gnv_uring_wait(struct gnv_uring *ring, unsigned usec);
void __wrap_gnv_uring_wait(struct gnv_uring *ring, unsigned usec)
{
	(void)ring;
	(void)usec;
}

int __wrap_gnv_uring_set_buffer(struct gnv_uring *ring, unsigned slot, void *ptr, size_t len);
int __wrap_gnv_uring_set_buffer(struct gnv_uring *ring, unsigned slot, void *ptr, size_t len)
{
	(void)ring;
	(void)slot;
	(void)ptr;
	(void)len;
	return 0;
}

/* ---- Around a test ---- */

static int new_drive(void **state)
{
	(void)state;
	memset(&mock, 0, sizeof(mock));
	memset(medium, 0, sizeof(medium));
	commands = flushes = refused = fixed = 0;
	probed = false;
	mock.max_bytes = 128u << 10;
	mock.segments = 33;
	mock.block = 1u << SHIFT;
	mock.ns.nsze = BYTES >> SHIFT;
	mock.ns.ncap = mock.ns.nsze;
	mock.ns.lbaf[0].lbads = SHIFT;
	mock.ctrl.oncs = GPUNVME_ONCS_COMPARE | GPUNVME_ONCS_DSM | GPUNVME_ONCS_WRITE_ZEROES;
	mock.ctrl.vwc = GPUNVME_VWC_PRESENT;
	return 0;
}

static struct gnv_soft_config drive(void)
{
	struct gnv_soft_config c = GNV_SOFT_CONFIG_INIT;

	c.path = "drive";
	return c;
}

static int start(void **state)
{
	struct gnv_soft_config c = drive();

	new_drive(state);
	rawhost_start(&host, &c);
	return 0;
}

static int end(void **state)
{
	(void)state;
	rawhost_close(&host);
	assert_int_equal(opened, 0);
	assert_int_equal(rings, 0);
	return 0;
}

/* One command; all 15 bits of its status. */
static uint16_t status_of(const struct gpunvme_sqe *sqe)
{
	struct gpunvme_cqe cqe;

	assert_int_not_equal(rawhost_run(&host, &host.io, sqe, &cqe), 0xffff);
	return cqe.status >> 1;
}

static void identify(uint8_t cns, uint32_t nsid, void *data)
{
	struct gpunvme_sqe sqe = { .opc = GPUNVME_ADMIN_IDENTIFY, .nsid = nsid, .prp1 = rawhost_iova(&host, 0), .cdw10 = cns };

	assert_int_equal(rawhost_admin(&sqe, NULL), 0);
	memcpy(data, rawhost_data(&host, 0), 4096);
}

/* ---- Tests ---- */

static void data_and_fields_reach_the_drive(void **state)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_WRITE, 100, 16, 0);

	(void)state;
	rawhost_fill(&host, 0, 8192, 1);
	sqe.cdw12 |= GPUNVME_RW_FUA | GPUNVME_RW_LR;
	sqe.cdw13 = 0xffffff25;
	sqe.cdw14 = sqe.cdw15 = sqe.cdw2 = 0xdeadbeef;
	assert_int_equal(status_of(&sqe), 0);
	assert_int_equal(last.opc, GPUNVME_IO_WRITE);
	assert_int_equal(last.cdw10, 100);
	assert_int_equal(last.cdw11, 0);
	assert_int_equal(last.cdw12, 15 | GPUNVME_RW_FUA | GPUNVME_RW_LR);
	assert_int_equal(last.cdw13, 0x25);
	assert_memory_equal(medium + 100 * 512, rawhost_data(&host, 0), 8192);
	sqe = rawhost_rw(&host, GPUNVME_IO_READ, 100, 16, 16384);
	assert_int_equal(status_of(&sqe), 0);
	assert_int_equal(last.cdw12, 15);
	assert_true(rawhost_is_filled(&host, 16384, 8192, 1));
	assert_true(probed);
	assert_int_equal(commands, 2);
}

static void commands_without_data_reach_the_drive(void **state)
{
	struct gpunvme_sqe flush = { .opc = GPUNVME_IO_FLUSH, .nsid = GPUNVME_NSID_ALL };
	struct gpunvme_sqe zero = { .opc = GPUNVME_IO_WRITE_ZEROES, .nsid = 1, .cdw10 = 4, .cdw12 = 3 | GPUNVME_RW_DEAC };
	struct gpunvme_sqe dsm = { .opc = GPUNVME_IO_DSM, .nsid = 1, .prp1 = rawhost_iova(&host, 0), .cdw10 = 1, .cdw11 = 0xf6 };
	const struct gpunvme_dsm_range given[2] = { { 1, 8, 16 }, { 2, UINT32_MAX, UINT64_MAX } };

	(void)state;
	memset(medium, 1, 8192);
	assert_int_equal(status_of(&zero), 0);
	assert_int_equal(last.cdw12, 3 | GPUNVME_RW_DEAC);
	assert_int_equal(medium[4 * 512 - 1], 1);
	assert_int_equal(medium[4 * 512], 0);
	assert_int_equal(medium[8 * 512], 1);
	assert_int_equal(status_of(&flush), 0);
	assert_int_equal(last.opc, GPUNVME_IO_FLUSH);
	memcpy(rawhost_data(&host, 0), given, sizeof(given));
	assert_int_equal(status_of(&dsm), 0);
	assert_int_equal(last.cdw10, 1);
	assert_int_equal(last.cdw11, 6);
	assert_memory_equal(ranges, given, sizeof(given));
	dsm.cdw11 = 0; /* it may be there for its hints alone */
	assert_int_equal(status_of(&dsm), 0);
	assert_int_equal(last.cdw11, 0);
	assert_int_equal(commands, 4);
}

static void compare_is_the_drives(void **state)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_COMPARE, 8, 4, 0);

	(void)state;
	rawhost_fill(&host, 0, 2048, 3);
	assert_int_equal(status_of(&sqe), GPUNVME_SC_COMPARE_FAILURE | GPUNVME_ST_DNR);
	memcpy(medium + 8 * 512, rawhost_data(&host, 0), 2048);
	assert_int_equal(status_of(&sqe), 0);
	assert_int_equal(last.opc, GPUNVME_IO_COMPARE);
}

/* All that the driver may reply, and what the host hears. */
static void results_are_the_drives(void **state)
{
	static const struct {
		int result;
		uint16_t status;
	} results[] = {
		{ GPUNVME_SC_UNRECOVERED_READ, GPUNVME_SC_UNRECOVERED_READ },
		{ GPUNVME_SC_UNRECOVERED_READ | GPUNVME_ST_DNR, GPUNVME_SC_UNRECOVERED_READ | GPUNVME_ST_DNR },
		{ GPUNVME_SC_INVALID_FIELD | GPUNVME_ST_MORE, GPUNVME_SC_INVALID_FIELD | GPUNVME_ST_MORE }, /* final, but it does not say so */
		{ 0x7c5 | GPUNVME_ST_CRD, 0x7c5 }, /* a vendor's; delays are in a page that the host does not see */
		{ GPUNVME_SC_HOST_PATH, GPUNVME_SC_HOST_PATH }, /* of a drive elsewhere */
		{ GPUNVME_ST_MORE, 0 },
		{ -EINTR, GPUNVME_SC_HOST_ABORTED }, /* the driver gave it up */
		{ -EACCES, GPUNVME_SC_ACCESS_DENIED | GPUNVME_ST_DNR },
		{ -EOPNOTSUPP, GPUNVME_SC_INTERNAL },
		{ -EINVAL, GPUNVME_SC_INTERNAL },
		{ -EIO, GPUNVME_SC_UNRECOVERED_READ },
		{ -EFAULT, GPUNVME_SC_DATA_TRANSFER },
	};
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 8, 0);
	size_t i;

	(void)state;
	for (i = 0; i < GNV_ARRAY_LEN(results); i++) {
		mock.result = results[i].result;
		if (status_of(&sqe) != results[i].status)
			fail_msg("result %d is taken for another one", results[i].result);
	}
	mock.result = 0;
	assert_int_equal(status_of(&sqe), 0);
}

static void what_a_request_cannot_hold_is_copied(void **state)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_WRITE, 16, 16, 2048);

	(void)state;
	mock.segments = 2; /* as many pages as 8 KiB have that begin with a page; here they lie on three */
	rawhost_fill(&host, 2048, 8192, 5);
	sqe.prp2 = rawhost_iova(&host, 64);
	((uint64_t *)(void *)rawhost_data(&host, 64))[0] = rawhost_iova(&host, 4096);
	((uint64_t *)(void *)rawhost_data(&host, 64))[1] = rawhost_iova(&host, 8192);
	assert_int_equal(status_of(&sqe), 0);
	assert_int_equal(refused, 1);
	assert_memory_equal(medium + 16 * 512, rawhost_data(&host, 2048), 8192);
	memset(rawhost_data(&host, 2048), 0, 8192);
	sqe.opc = GPUNVME_IO_READ;
	assert_int_equal(status_of(&sqe), 0);
	assert_int_equal(refused, 2);
	assert_memory_equal(medium + 16 * 512, rawhost_data(&host, 2048), 8192);
}

static void busy_memory_is_registered(void **state)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 8, 0);
	unsigned i;

	(void)state;
	for (i = 0; i < 70; i++)
		assert_int_equal(status_of(&sqe), 0);
	assert_true(fixed > 2 && fixed < 10);
}

static void without_write_cache_writes_are_durable(void **state)
{
	struct gpunvme_sqe off = { .opc = GPUNVME_ADMIN_SET_FEATURES, .cdw10 = GPUNVME_FID_VWC };
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_WRITE, 0, 1, 0);

	(void)state;
	assert_int_equal(rawhost_admin(&off, NULL), 0);
	assert_int_equal(status_of(&sqe), 0);
	assert_true(last.cdw12 & GPUNVME_RW_FUA);
	sqe.opc = GPUNVME_IO_READ;
	assert_int_equal(status_of(&sqe), 0);
	assert_false(last.cdw12 & GPUNVME_RW_FUA);
}

static void other_commands_do_not_reach_it(void **state)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_WRITE, 0, 1, 0);
	unsigned opc;

	(void)state;
	for (opc = 0; opc < 256; opc++) {
		sqe.opc = (uint8_t)opc;
		if (opc > 2 && opc != GPUNVME_IO_COMPARE && opc != GPUNVME_IO_WRITE_ZEROES && opc != GPUNVME_IO_DSM)
			assert_int_equal(status_of(&sqe), GPUNVME_SC_INVALID_OPCODE | GPUNVME_ST_DNR);
	}
	sqe.opc = GPUNVME_IO_WRITE;
	sqe.nsid = 7; /* its own number is the kernel's matter */
	assert_int_equal(status_of(&sqe), GPUNVME_SC_INVALID_NS | GPUNVME_ST_DNR);
	sqe.nsid = 1;
	sqe.cdw12 |= 1u << 29; /* protection information */
	assert_int_equal(status_of(&sqe), GPUNVME_SC_INVALID_PROTECTION | GPUNVME_ST_DNR);
	assert_int_equal(commands, 0);
}

static void faults_are_played_before_it(void **state)
{
	struct gnv_soft_config c = drive();
	struct gpunvme_sqe sqe;

	new_drive(state);
	assert_int_equal(gnv_soft_fault_parse("flip:op=write:count=1", &c.quirks, &c.rules), 0);
	rawhost_start(&host, &c);
	rawhost_fill(&host, 0, 512, 1);
	sqe = rawhost_rw(&host, GPUNVME_IO_WRITE, 0, 1, 0);
	assert_int_equal(status_of(&sqe), 0);
	assert_memory_not_equal(medium, rawhost_data(&host, 0), 512);
	assert_int_equal(status_of(&sqe), 0);
	assert_memory_equal(medium, rawhost_data(&host, 0), 512);
}

static void its_commands_take_their_time(void **state)
{
	struct gnv_soft_config c = drive();
	struct gpunvme_sqe sqe;
	uint64_t before;

	new_drive(state);
	c.model.lat_us = 20000;
	rawhost_start(&host, &c);
	sqe = rawhost_rw(&host, GPUNVME_IO_WRITE, 0, 1, 0);
	before = gnv_soft_now();
	assert_int_equal(status_of(&sqe), 0);
	assert_true(gnv_soft_now() - before >= 20000000);
	assert_int_equal(commands, 1);
}

static void it_is_described_as_the_drive(void **state)
{
	struct gnv_medium medium_of[GNV_SOFT_NAMESPACES];
	struct gnv_soft_config c = drive();
	struct gpunvme_id_ctrl_nvm limits;
	struct gpunvme_id_ctrl ctrl;
	struct gpunvme_id_ns ns;

	new_drive(state);
	mock.ns.nsze = 1000;
	mock.ns.ncap = mock.ns.nuse = 900;
	mock.ns.flbas = 1;
	mock.ns.nlbaf_0b = 1;
	mock.ns.lbaf[1].lbads = 12;
	mock.ns.dlfeat = 0x0a;
	mock.ns.nsfeat = GPUNVME_NSFEAT_OPTIMAL;
	mock.ns.npwg_0b = 3;
	mock.ns.noiob = 64;
	mock.ctrl.oncs = GPUNVME_ONCS_DSM;
	mock.ctrl.vwc = 0;
	mock.ctrl.awun_0b = 7;
	mock.limits.dmrsl = 77;
	mock.limits.wzsl = 4;
	mock.max_bytes = 100000; /* 64 KiB are the largest power of two */
	rawhost_start(&host, &c);
	gnv_soft_media(host.soft, medium_of);
	assert_int_equal(medium_of[0].kind, GPUNVME_MEDIUM_CHAR);
	assert_int_equal(medium_of[0].dev, 42);
	identify(GPUNVME_CNS_CTRL, 0, &ctrl);
	identify(GPUNVME_CNS_NS, 1, &ns);
	identify(GPUNVME_CNS_CTRL_NVM, 0, &limits);
	assert_int_equal(ctrl.mdts, 4);
	assert_int_equal(ctrl.oncs & 0xf, GPUNVME_ONCS_DSM);
	assert_int_equal(ctrl.vwc & GPUNVME_VWC_PRESENT, 0);
	assert_int_equal(ctrl.awun_0b, 7);
	assert_int_equal(ctrl.ver, 0x00020000);
	assert_int_equal(ns.nsze, 1000);
	assert_int_equal(ns.ncap, 900);
	assert_int_equal(ns.flbas, 0);
	assert_int_equal(ns.lbaf[0].lbads, 12);
	assert_int_equal(ns.dlfeat, 0x0a);
	assert_int_equal(ns.npwg_0b, 3);
	assert_int_equal(ns.noiob, 64);
	assert_int_equal(limits.dmrsl, 77);
	assert_int_equal(limits.wzsl, 4);
}

static void transfers_end_at_the_least_limit(void **state)
{
	struct gnv_soft_config c = drive();
	struct gpunvme_id_ctrl ctrl;

	new_drive(state);
	mock.ctrl.mdts = 2;
	mock.no_limits = GPUNVME_SC_INVALID_FIELD;
	rawhost_start(&host, &c);
	identify(GPUNVME_CNS_CTRL, 0, &ctrl);
	assert_int_equal(ctrl.mdts, 2);
	assert_int_equal(ctrl.ver, 0x00010400);
	rawhost_close(&host);
	c.mdts = 1;
	rawhost_start(&host, &c);
	identify(GPUNVME_CNS_CTRL, 0, &ctrl);
	assert_int_equal(ctrl.mdts, 1);
}

static void shutdown_flushes(void **state)
{
	(void)state;
	rawhost_write32(&host, GPUNVME_REG_CC, RAWHOST_CC_ENABLE | 1u << 14);
	assert_true(rawhost_wait32(&host, GPUNVME_REG_CSTS, 3u << 2, 2u << 2));
	assert_int_equal(__atomic_load_n(&flushes, __ATOMIC_ACQUIRE), 1);
}

static void begin_shutdown_that_hangs(void)
{
	__atomic_store_n(&hangs, true, __ATOMIC_RELEASE);
	rawhost_write32(&host, GPUNVME_REG_CC, RAWHOST_CC_ENABLE | GPUNVME_CC_SHN_NORMAL);
	while (!__atomic_load_n(&flushes, __ATOMIC_ACQUIRE))
		sched_yield();
}

/* Nor do registers and unmapping wait for it; closing the controller waits no longer than for other I/O. */
static void a_flush_that_hangs_keeps_nobody(void **state)
{
	const uint32_t version = rawhost_read32(&host, GPUNVME_REG_VS);

	(void)state;
	begin_shutdown_that_hangs();
	rawhost_write32(&host, GPUNVME_REG_VS, 0);
	assert_true(rawhost_wait32(&host, GPUNVME_REG_VS, ~0u, version));
	assert_int_equal(rawhost_read32(&host, GPUNVME_REG_CSTS) & GPUNVME_CSTS_SHST, GPUNVME_CSTS_SHST_BUSY);
	assert_false(gnv_soft_has_ring(host.soft, 0, 1)); /* a second for a thread that was put off its core with the lock */
	host.soft->patience_ms = 50;
	assert_int_equal(gnv_soft_function_reset(host.soft), -EIO);
	assert_int_equal(gnv_soft_destroy(host.soft), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "stuck in the kernel"));
	host.soft->patience_ms = 60000;
	__atomic_store_n(&hangs, false, __ATOMIC_RELEASE);
}

/* It is over when the drive has completed it, or the host has the controller reset, which waits for the drive, too. */
static void a_shutdown_lasts_as_long_as_the_flush(void **state)
{
	(void)state;
	begin_shutdown_that_hangs();
	__atomic_store_n(&hangs, false, __ATOMIC_RELEASE);
	assert_true(rawhost_wait32(&host, GPUNVME_REG_CSTS, GPUNVME_CSTS_SHST, GPUNVME_CSTS_SHST_DONE));
	rawhost_write32(&host, GPUNVME_REG_CC, 0);
	assert_true(rawhost_wait32(&host, GPUNVME_REG_CSTS, ~0u, 0));
	rawhost_enable(&host);
	__atomic_store_n(&flushes, 0, __ATOMIC_RELEASE);
	pthread_mutex_lock(&lock);
	mock.flush = GPUNVME_SC_INTERNAL;
	pthread_mutex_unlock(&lock);
	begin_shutdown_that_hangs();
	rawhost_write32(&host, GPUNVME_REG_CC, 0);
	__atomic_store_n(&hangs, false, __ATOMIC_RELEASE);
	assert_true(rawhost_wait32(&host, GPUNVME_REG_CSTS, ~0u, 0));
}

/* Somebody formats it to other blocks: from the next look on nothing is moved any more, whatever it is formatted to afterwards. */
static void a_drive_that_is_formatted_moves_nothing_more(void **state)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 1, 0);
	const uint64_t end = gnv_soft_now() + RAWHOST_SOON * 1000000ull;
	unsigned before;
	uint16_t status;

	(void)state;
	assert_int_equal(status_of(&sqe), 0);
	__atomic_store_n(&mock.block, 4096, __ATOMIC_RELAXED);
	do
		status = status_of(&sqe);
	while (!status && gnv_soft_now() < end);
	assert_int_equal(status & GPUNVME_ST_CODE, GPUNVME_SC_INVALID_NS);
	before = commands;
	sqe.opc = GPUNVME_IO_WRITE;
	assert_int_equal(status_of(&sqe) & GPUNVME_ST_CODE, GPUNVME_SC_INVALID_NS);
	__atomic_store_n(&mock.block, 512, __ATOMIC_RELAXED);
	assert_int_equal(status_of(&sqe) & GPUNVME_ST_CODE, GPUNVME_SC_INVALID_NS);
	assert_int_equal(commands, before);
}

static void a_drive_that_is_protected_is_not_written(void **state)
{
	struct gnv_soft_config c = drive();
	struct gpunvme_sqe sqe;

	new_drive(state);
	mock.ns.nsattr = GPUNVME_NSATTR_WP;
	rawhost_start(&host, &c);
	sqe = rawhost_rw(&host, GPUNVME_IO_WRITE, 0, 1, 0);
	assert_int_equal(status_of(&sqe), GPUNVME_SC_NS_WRITE_PROTECTED | GPUNVME_ST_DNR);
	sqe.opc = GPUNVME_IO_READ;
	assert_int_equal(status_of(&sqe), 0);
	assert_int_equal(commands, 1);
}

/* It must not open so, and say why. */
static void refuses(const struct gnv_soft_config *c, int ret, const char *message)
{
	struct gnv_space *space;
	struct gnv_soft *soft;

	assert_int_equal(gnv_soft_space_create(&space), 0);
	assert_int_equal(gnv_soft_create(c, space, NULL, &soft), ret);
	gnv_space_put(space);
	if (!strstr(gpunvme_errmsg(), message))
		fail_msg("'%s' does not say '%s'", gpunvme_errmsg(), message);
	assert_int_equal(opened, 0);
	assert_int_equal(rings, 0);
	new_drive(NULL);
}

static void what_cannot_be_is_refused(void **state)
{
	struct gnv_soft_config c = drive();

	(void)state;
	c.careful = true; /* of a real drive it is asked */
	refuses(&c, -EPERM, "on a device of the nvme driver");
	c = drive();
	mock.open = gnv_fail(-EBUSY, "it is in use");
	refuses(&c, -EBUSY, "in use");
	mock.identify = -EACCES;
	refuses(&c, -EACCES, "Linux 6.2");
	mock.identify = GPUNVME_SC_INTERNAL;
	refuses(&c, -EIO, "Internal");
	mock.ns.nsze = 0;
	refuses(&c, -ENODEV, "not active");
	mock.ns.lbaf[0].ms = 8;
	refuses(&c, -EOPNOTSUPP, "metadata of 8 bytes");
	mock.ns.dps = 1;
	refuses(&c, -EOPNOTSUPP, "metadata");
	mock.ns.lbaf[0].lbads = 13;
	refuses(&c, -EOPNOTSUPP, "2^13 bytes");
	mock.ns.flbas = 0x21; /* format 17 */
	mock.ns.nlbaf_0b = 20;
	mock.ns.lbaf[17].lbads = 14;
	refuses(&c, -EOPNOTSUPP, "2^14 bytes");
	mock.ns.flbas = 0x20; /* 16, the last of 17: the first count for which there are bits above */
	mock.ns.nlbaf_0b = 16;
	mock.ns.lbaf[16].lbads = 15;
	refuses(&c, -EOPNOTSUPP, "2^15 bytes");
	mock.ns.nsze = UINT64_MAX;
	refuses(&c, -EINVAL, "64 bits");
	mock.max_bytes = 4096; /* MDTS knows 8 KiB, and then more */
	refuses(&c, -EOPNOTSUPP, "less than 8 KiB");
	mock.probe = -EACCES;
	refuses(&c, -EACCES, "effects");
	mock.probe = -EOPNOTSUPP;
	refuses(&c, -EOPNOTSUPP, "Linux 5.19");
	mock.probe = -ENOTTY;
	refuses(&c, -EOPNOTSUPP, "block device");
	c.lba_size = 4096;
	refuses(&c, -EINVAL, "lba=512");
	c.lba_size = 0;
	c.quirks.set = 1ull << GNV_SOFT_ZEROES;
	refuses(&c, -EINVAL, "real drive");
}

/* The drive may yet write to the block, and closing the ring would wait for it: both stay. */
static void a_probe_that_does_not_complete_leaves_its_memory(void **state)
{
	const struct gnv_soft_config c = drive();
	struct gnv_space *space;
	struct gnv_soft *soft;

	(void)state;
	mock.turn = -ETIMEDOUT;
	assert_int_equal(gnv_soft_space_create(&space), 0);
	assert_int_equal(gnv_soft_create(&c, space, NULL, &soft), -ETIMEDOUT);
	assert_non_null(strstr(gpunvme_errmsg(), "completes no command"));
	gnv_space_put(space);
	assert_int_equal(rings, 1);
	memset(block_left, 0, 1u << SHIFT);
	free(block_left);
	__wrap_gnv_uring_close(ring_left);
	assert_int_equal(rings, 0);
}

#define STARTED(test) cmocka_unit_test_setup_teardown(test, start, end)
#define STARTS(test) cmocka_unit_test_setup_teardown(test, new_drive, end)

int main(void)
{
	const struct CMUnitTest tests[] = {
		STARTED(data_and_fields_reach_the_drive),
		STARTED(commands_without_data_reach_the_drive),
		STARTED(compare_is_the_drives),
		STARTED(results_are_the_drives),
		STARTED(what_a_request_cannot_hold_is_copied),
		STARTED(busy_memory_is_registered),
		STARTED(without_write_cache_writes_are_durable),
		STARTED(other_commands_do_not_reach_it),
		STARTED(shutdown_flushes),
		STARTED(a_drive_that_is_formatted_moves_nothing_more),
		STARTED(a_shutdown_lasts_as_long_as_the_flush),
		STARTED(a_flush_that_hangs_keeps_nobody),
		STARTS(faults_are_played_before_it),
		STARTS(its_commands_take_their_time),
		STARTS(it_is_described_as_the_drive),
		STARTS(transfers_end_at_the_least_limit),
		STARTS(a_drive_that_is_protected_is_not_written),
		cmocka_unit_test_setup(what_cannot_be_is_refused, new_drive),
		cmocka_unit_test_setup(a_probe_that_does_not_complete_leaves_its_memory, new_drive),
	};

	return cmocka_run_group_tests_name("controller_nvme", tests, NULL, NULL);
}
