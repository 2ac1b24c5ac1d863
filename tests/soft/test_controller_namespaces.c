/* SPDX-License-Identifier: MIT */
/* Several namespaces of one controller, each with a store, a size, a block size and a permission of its own. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/status.h>

#include "common/image.h"
#include "common/rawhost.h"
#include "os/linux/uring.h"

#define ONE (2u << 20)
#define TWO (1u << 20)
#define FOUR (512u << 10)

static char path[3][96];
static unsigned syncs; /* that files were asked for (atomic) */

int __real_gnv_uring_sync(struct gnv_uring *ring, void *tag);
int __wrap_gnv_uring_sync(struct gnv_uring *ring, void *tag);
int __wrap_gnv_uring_sync(struct gnv_uring *ring, void *tag)
{
	__atomic_fetch_add(&syncs, 1, __ATOMIC_RELAXED);
	return __real_gnv_uring_sync(ring, tag);
}

static void make(unsigned i, const char *name, long long size)
{
	snprintf(path[i], sizeof(path[i]), "%s", image_path(name));
	image_make(path[i], size);
}

/* 1: 512-byte blocks in a file; 2: 4096 in another; 3: in memory; 4: a file that may only be read. */
static struct gnv_soft_config several(void)
{
	struct gnv_soft_config c = GNV_SOFT_CONFIG_INIT;

	c.path = path[0];
	c.more[0] = (struct gnv_soft_more){ .path = path[1], .lba_size = 4096 };
	c.more[1] = (struct gnv_soft_more){ .path = "ram:1M" };
	c.more[2] = (struct gnv_soft_more){ .path = path[2], .read_only = true };
	return c;
}

static int make_images(void **state)
{
	if (image_make_dir(state))
		return -1;
	make(0, "one", ONE);
	make(1, "two", TWO);
	make(2, "four", FOUR);
	return 0;
}

static int remove_images(void **state)
{
	unsigned i;

	for (i = 0; i < 3; i++)
		unlink(path[i]);
	return image_remove_dir(state);
}

static int start(void **state)
{
	struct gnv_soft_config c;

	if (make_images(state))
		return -1;
	c = several();
	rawhost_start(&host, &c);
	return 0;
}

static int end(void **state)
{
	rawhost_close(&host);
	return remove_images(state);
}

static uint16_t rw(uint8_t opc, uint32_t nsid, uint64_t lba, uint32_t blocks, uint32_t at)
{
	struct gpunvme_sqe sqe = rawhost_rw(&host, opc, lba, blocks, at);

	sqe.nsid = nsid;
	return rawhost_io(&sqe);
}

static uint16_t identify(uint8_t cns, uint32_t nsid, void *data)
{
	struct gpunvme_sqe sqe = { .opc = GPUNVME_ADMIN_IDENTIFY, .nsid = nsid, .prp1 = rawhost_iova(&host, 0), .cdw10 = cns };
	const uint16_t status = rawhost_admin(&sqe, NULL);

	if (!status)
		memcpy(data, rawhost_data(&host, 0), 4096);
	return status;
}

static void they_are_listed(void **state)
{
	static const uint64_t blocks[] = { ONE / 512, TWO / 4096, (1u << 20) / 512, FOUR / 512 };
	struct gpunvme_id_ns id[4];
	struct gpunvme_id_ctrl ctrl;
	uint8_t bytes[4096];
	uint32_t list[1024], i;

	(void)state;
	assert_int_equal(identify(GPUNVME_CNS_CTRL, 0, &ctrl), 0);
	assert_int_equal(ctrl.nn, 4);
	assert_int_equal(identify(GPUNVME_CNS_ACTIVE_NS_LIST, 0, list), 0);
	for (i = 0; i < 4; i++)
		assert_int_equal(list[i], i + 1);
	assert_int_equal(list[4], 0);
	assert_int_equal(identify(GPUNVME_CNS_ACTIVE_NS_LIST, 2, list), 0);
	assert_int_equal(list[0], 3);
	assert_int_equal(list[1], 4);
	assert_int_equal(list[2], 0);
	assert_int_equal(identify(GPUNVME_CNS_ACTIVE_NS_LIST, 4, list), 0);
	assert_int_equal(list[0], 0);
	for (i = 0; i < 4; i++) {
		assert_int_equal(identify(GPUNVME_CNS_NS, i + 1, &id[i]), 0);
		assert_int_equal(id[i].nsze, blocks[i]);
		assert_int_equal(id[i].lbaf[0].lbads, i == 1 ? 12 : 9);
		assert_int_equal(id[i].nsattr, i == 3 ? GPUNVME_NSATTR_WP : 0);
		assert_true(!i || memcmp(id[i].eui64, id[i - 1].eui64, 8) != 0);
		assert_int_equal(id[i].eui64[0] & 3, 2); /* of one, and administered locally */
		assert_int_equal(identify(GPUNVME_CNS_NS_DESC_LIST, i + 1, bytes), 0);
		assert_memory_equal(bytes + 4, id[i].eui64, 8);
		assert_memory_equal(bytes + 16, id[i].nguid, 16);
	}
	assert_int_equal(identify(GPUNVME_CNS_NS, 5, bytes), GPUNVME_SC_INVALID_NS);
	assert_int_equal(identify(GPUNVME_CNS_NS, 0, bytes), GPUNVME_SC_INVALID_NS);
	assert_int_equal(identify(GPUNVME_CNS_NS_DESC_LIST, 5, bytes), GPUNVME_SC_INVALID_NS);
}

static void each_has_its_blocks(void **state)
{
	char bytes[8192];
	uint32_t nsid;
	int fd;

	(void)state;
	for (nsid = 1; nsid <= 3; nsid++) {
		rawhost_fill(&host, 0, 8192, nsid);
		assert_int_equal(rw(GPUNVME_IO_WRITE, nsid, 2, nsid == 2 ? 2 : 16, 0), 0);
	}
	for (nsid = 1; nsid <= 3; nsid++) {
		memset(rawhost_data(&host, 16384), 0, 8192);
		assert_int_equal(rw(GPUNVME_IO_READ, nsid, 2, nsid == 2 ? 2 : 16, 16384), 0);
		assert_true(rawhost_is_filled(&host, 16384, 8192, nsid));
	}
	fd = open(path[1], O_RDONLY);
	assert_int_equal(pread(fd, bytes, 8192, 2 * 4096), 8192);
	close(fd);
	rawhost_fill(&host, 0, 8192, 2);
	assert_memory_equal(bytes, rawhost_data(&host, 0), 8192);
}

static void each_has_its_bounds_and_permission(void **state)
{
	(void)state;
	assert_int_equal(rw(GPUNVME_IO_READ, 1, ONE / 512 - 1, 1, 0), 0);
	assert_int_equal(rw(GPUNVME_IO_READ, 1, ONE / 512, 1, 0), GPUNVME_SC_LBA_RANGE);
	assert_int_equal(rw(GPUNVME_IO_READ, 2, TWO / 4096 - 1, 1, 0), 0);
	assert_int_equal(rw(GPUNVME_IO_READ, 2, TWO / 4096, 1, 0), GPUNVME_SC_LBA_RANGE);
	assert_int_equal(rw(GPUNVME_IO_WRITE, 4, 0, 1, 0), GPUNVME_SC_NS_WRITE_PROTECTED);
	assert_int_equal(rw(GPUNVME_IO_READ, 4, 0, 1, 0), 0);
	assert_int_equal(rw(GPUNVME_IO_READ, 0, 0, 1, 0), GPUNVME_SC_INVALID_NS);
	assert_int_equal(rw(GPUNVME_IO_READ, 5, 0, 1, 0), GPUNVME_SC_INVALID_NS);
	assert_int_equal(rw(GPUNVME_IO_READ, GPUNVME_NSID_ALL, 0, 1, 0), GPUNVME_SC_INVALID_NS);
	assert_int_equal(rw(GPUNVME_IO_WRITE, GPUNVME_NSID_ALL, 0, 1, 0), GPUNVME_SC_INVALID_NS);
	assert_false(gnv_soft_read_only(host.soft));
}

static void flush_is_of_one_or_of_all(void **state)
{
	struct gpunvme_sqe flush = { .opc = GPUNVME_IO_FLUSH };
	static const struct {
		uint32_t nsid;
		unsigned syncs;
	} flushes[] = { { 1, 1 }, { 2, 1 }, { 3, 0 }, { GPUNVME_NSID_ALL, 3 } };
	size_t i;

	(void)state;
	for (i = 0; i < sizeof(flushes) / sizeof(flushes[0]); i++) {
		flush.nsid = flushes[i].nsid;
		__atomic_store_n(&syncs, 0, __ATOMIC_RELAXED);
		assert_int_equal(rawhost_io(&flush), 0);
		assert_int_equal(__atomic_load_n(&syncs, __ATOMIC_RELAXED), flushes[i].syncs);
	}
	flush.nsid = 5;
	assert_int_equal(rawhost_io(&flush), GPUNVME_SC_INVALID_NS);
}

/* Commands to all of them at once, in one queue. */
static void they_work_side_by_side(void **state)
{
	struct gpunvme_cqe cqe;
	struct gpunvme_sqe sqe;
	unsigned turn, i;

	(void)state;
	for (turn = 0; turn < 50; turn++) {
		for (i = 0; i < 12; i++) {
			sqe = rawhost_rw(&host, i < 6 ? GPUNVME_IO_WRITE : GPUNVME_IO_READ, 16 + i % 6, 1, 4096 * i);
			sqe.nsid = 1 + i % 3;
			rawhost_submit(&host, &host.io, &sqe);
		}
		for (i = 0; i < 12; i++) {
			assert_true(rawhost_reap(&host, &host.io, &cqe, RAWHOST_SOON, true));
			assert_int_equal(cqe.status >> 1, 0);
		}
	}
}

/* It must not open so, say why, and leave the others as they were. */
static void refuses(const struct gnv_soft_config *c, int ret, const char *message)
{
	struct gnv_space *space;
	struct gnv_soft *soft;

	assert_int_equal(gnv_soft_space_create(&space), 0);
	assert_int_equal(gnv_soft_create(c, space, NULL, &soft), ret);
	if (!strstr(gpunvme_errmsg(), message))
		fail_msg("'%s' does not say '%s'", gpunvme_errmsg(), message);
	gnv_space_put(space);
}

static void what_cannot_be_is_refused(void **state)
{
	struct gnv_soft_config c = several();

	(void)state;
	c.more[1].path = path[0];
	refuses(&c, -EBUSY, "in use");
	c = several();
	c.more[1].path = "/nowhere/image";
	refuses(&c, -ENOENT, "no such file");
	c = several();
	c.more[2].lba_size = 1024;
	refuses(&c, -EINVAL, "block size 1024");
	c = several();
	rawhost_start(&host, &c); /* nothing of it is locked any more */
	rawhost_close(&host);
}

static void all_may_be_read_only(void **state)
{
	struct gnv_soft_config c = several();

	(void)state;
	c.more[1].path = NULL; /* memory that may only be read makes no sense */
	c.read_only = true;
	rawhost_start(&host, &c);
	assert_true(gnv_soft_read_only(host.soft));
	assert_int_equal(rw(GPUNVME_IO_WRITE, 2, 0, 1, 0), GPUNVME_SC_NS_WRITE_PROTECTED);
	assert_int_equal(rw(GPUNVME_IO_READ, 3, 0, 1, 0), GPUNVME_SC_INVALID_NS);
	rawhost_close(&host);
}

#define STARTED(test) cmocka_unit_test_setup_teardown(test, start, end)
#define WITH_IMAGES(test) cmocka_unit_test_setup_teardown(test, make_images, remove_images)

int main(void)
{
	const struct CMUnitTest tests[] = {
		STARTED(they_are_listed),
		STARTED(each_has_its_blocks),
		STARTED(each_has_its_bounds_and_permission),
		STARTED(flush_is_of_one_or_of_all),
		STARTED(they_work_side_by_side),
		WITH_IMAGES(what_cannot_be_is_refused),
		WITH_IMAGES(all_may_be_read_only),
	};

	return cmocka_run_group_tests_name("controller_namespaces", tests, NULL, NULL);
}
