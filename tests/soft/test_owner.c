/* SPDX-License-Identifier: MIT */
/*
 * Whose bytes are they? A controller stalls with a read in hand, the program lets go of queue, memory and device in every order, and
 * writes to its buffer from the moment it was told that it is its own again. The read goes on later; nothing of that is ever seen.
 */
#include <gpunvme/device.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "common/image.h"
#include "file/reader.h"
#include "mem/mem.h"
#include "dev/dev.h"
#include "queue/qp.h"
#include "soft/soft.h"
#include "util/clock.h"

#define BYTES 8192u
#define TIMEOUT_MS 60u
#define ADMIN_MS 20000u
#define DROP_MS 150u /* the same, where there is no reply */
#define STALL_US 900000u
#define OWN 0xa5
#define MEDIA 0x77

/* The linker sends the library's calls here (--wrap). */
void __real_gnv_mem_release(struct gpunvme_mem *mem);
void __wrap_gnv_mem_release(struct gpunvme_mem *mem);

static struct {
	struct gpunvme_dev *dev;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;
	struct gpunvme_queue *vol;
	struct gpunvme_mem *mem;
	unsigned char *bytes; /* the caller's */
	bool mine;	      /* they were given back, and carry OWN */
	bool begun;	      /* atomic: the stalled read */
	enum gnv_soft_action deletion;
	unsigned busy; /* -EBUSY answered */
} t;

static int make_image(void **state)
{
	char data[BYTES];
	FILE *f;

	if (image_make_disk(state, 1 << 20))
		return -1;
	f = fopen(image_path("disk.img"), "r+b");
	memset(data, MEDIA, sizeof(data));
	return !f || fwrite(data, sizeof(data), 1, f) != 1 || fclose(f) ? -1 : 0;
}

static enum gnv_soft_action stall(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	(void)ctx;
	(void)sqid;
	(void)cmd;
	(void)status;
	*delay_us = STALL_US;
	return GNV_SOFT_STALL;
}

static enum gnv_soft_action decide_admin(void *ctx, const struct gpunvme_sqe *cmd, uint16_t *status)
{
	(void)ctx;
	*status = GPUNVME_SC_INTERNAL;
	return cmd->opc == GPUNVME_ADMIN_DELETE_SQ ? t.deletion : GNV_SOFT_GO;
}

static void open_all(enum gnv_soft_action deletion, bool volume)
{
	static const struct gnv_soft_fault fault = { stall, NULL };
	static const struct gnv_soft_admin_fault admin = { decide_admin, NULL };
	struct gpunvme_dev_opts dev_opts = GPUNVME_DEV_OPTS_INIT;
	struct gpunvme_queue_opts vol_opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	char uri[512];

	memset(&t, 0, sizeof(t));
	t.deletion = deletion;
	dev_opts.admin_timeout_ms = ADMIN_MS;
	opts.cmd_timeout_ms = vol_opts.cmd_timeout_ms = TIMEOUT_MS;
	opts.flags = vol_opts.flags = GPUNVME_QUEUE_NO_SELFTEST;
	vol_opts.queues = 2;
	snprintf(uri, sizeof(uri), "soft:%s", image_path("disk.img"));
	assert_int_equal(gpunvme_dev_open(uri, &dev_opts, &t.dev), 0);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &t.gpu), 0);
	if (volume)
		assert_int_equal(gpunvme_queue_create_striped(&t.dev, 1, t.gpu, &vol_opts, &t.vol), 0);
	else
		assert_int_equal(gpunvme_queue_create(t.dev, t.gpu, &opts, &t.qp), 0);
	if (deletion == GNV_SOFT_DROP)
		t.dev->nvme.admin.timeout_ms = DROP_MS;
	gnv_soft_set_fault(gnv_dev_soft(t.dev), &fault);
	gnv_soft_set_admin_fault(gnv_dev_soft(t.dev), &admin);
	t.bytes = aligned_alloc(4096, BYTES);
	assert_non_null(t.bytes);
	memset(t.bytes, 0, BYTES);
	assert_int_equal(gpunvme_mem_register(t.gpu, t.bytes, BYTES, &t.mem), 0);
	assert_int_equal(gpunvme_mem_map(t.mem, t.dev), 0);
}

static int read_all(void)
{
	struct gpunvme_dvbuf dvbuf;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dvol dvol;
	struct gpunvme_dq dq;

	if (t.vol) {
		assert_int_equal(gpunvme_queue_view(t.vol, NULL, &dvol), 0);
		assert_int_equal(gpunvme_mem_map_queue(t.mem, t.vol, &dvbuf), 0);
		return gpunvme_read(&dvol, &dvbuf, 0, 0, BYTES);
	}
	assert_int_equal(gpunvme_queue_view(t.qp, NULL, &dq), 0);
	assert_int_equal(gpunvme_mem_dbuf(t.mem, t.dev, &dbuf), 0);
	return gpunvme_read(&dq, &dbuf, 0, 0, BYTES);
}

/* A read of the whole buffer that does not come back. A thread that other work held up until it did takes it: once more, then. */
static void read_in_vain(void)
{
	uint64_t begun;
	int ret, i = 0;

	do {
		begun = gnv_clock_ns();
		ret = read_all();
	} while (!ret && gnv_clock_ns() - begun >= STALL_US * 1000ull && ++i < 10);
	assert_int_equal(ret, -GPUNVME_ETIMEDOUT);
}

/* Results come with an error message that names a remedy. */
static bool gone(int ret)
{
	assert_true(ret == 0 || ret == -EBUSY);
	if (ret)
		assert_non_null(strpbrk(gpunvme_errmsg(), ".:"));
	t.busy += ret != 0;
	return !ret;
}

static void let_go_of_queue(void)
{
	if (t.qp && gone(gpunvme_queue_destroy(t.qp)))
		t.qp = NULL;
	if (t.vol && gone(gpunvme_queue_destroy(t.vol)))
		t.vol = NULL;
}

static void let_go_of_memory(void)
{
	if (!t.mem || !gone(gpunvme_mem_free(t.mem)))
		return;
	t.mem = NULL;
	t.mine = true;
	memset(t.bytes, OWN, BYTES);
}

static void let_go_of_device(void)
{
	if (t.dev && gone(gpunvme_dev_close(t.dev))) {
		t.dev = NULL;
		t.qp = NULL; /* it took the queue along */
	}
}

static void check_bytes(void)
{
	for (uint32_t i = 0; t.mine && i < BYTES; i++)
		assert_int_equal(t.bytes[i], OWN);
}

static void let_go(const char *order)
{
	for (; *order; order++) {
		if (*order == 'q')
			let_go_of_queue();
		else if (*order == 'm')
			let_go_of_memory();
		else if (*order == 'd')
			let_go_of_device();
		else
			usleep(STALL_US + 200000);
		check_bytes();
	}
	gpunvme_gpu_close(t.gpu);
	assert_null(t.dev);
	assert_null(t.mem);
	assert_null(t.vol);
	free(t.bytes);
}

static unsigned orders(enum gnv_soft_action deletion)
{
	static const char *const order[] = { "qmwqmdm", "mqwmqdm", "mwqmdm", "qdmw" };
	unsigned busy = 0;

	for (uint32_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		open_all(deletion, false);
		read_in_vain();
		let_go(order[i]);
		busy += t.busy;
	}
	return busy;
}

static void controller_deletes(void **state)
{
	(void)state;
	assert_true(orders(GNV_SOFT_GO) > 0); /* freed before the queue was destroyed */
}

static void controller_refuses(void **state)
{
	(void)state;
	assert_true(orders(GNV_SOFT_FAIL) > 4);
}

static void controller_does_not_answer(void **state)
{
	(void)state;
	assert_true(orders(GNV_SOFT_DROP) > 4);
}

/* A volume of which a queue was refused is destroyed by calling again. */
static void volume_is_refused(void **state)
{
	(void)state;
	open_all(GNV_SOFT_FAIL, true);
	read_in_vain();
	assert_int_equal(gpunvme_queue_destroy(t.vol), -EBUSY);
	assert_int_equal(gpunvme_queue_destroy(t.vol), -EBUSY);
	let_go_of_memory();
	assert_false(t.mine);
	t.deletion = GNV_SOFT_GO;
	let_go("qmwd");
}

/* The queue is well, only its thread does not wait any more: what is unmapped is out of the controller's reach. */
static void nobody_waits(void **state)
{
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dq dq;

	(void)state;
	open_all(GNV_SOFT_GO, false);
	assert_int_equal(gpunvme_queue_view(t.qp, NULL, &dq), 0);
	assert_int_equal(gpunvme_mem_dbuf(t.mem, t.dev, &dbuf), 0);
	assert_int_equal(gpunvme_submit_read(&dq, &dbuf, 0, 0, BYTES, NULL), 0);
	usleep(100000); /* the controller has it */
	let_go("mwqd");
}

/* What a queue accepts that its owner has begun to destroy. */
static void refused_queue_only_ends(void **state)
{
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	struct gpunvme_dq dq;

	(void)state;
	open_all(GNV_SOFT_FAIL, false);
	read_in_vain();
	assert_int_equal(gpunvme_queue_destroy(t.qp), -EBUSY);
	assert_int_equal(gpunvme_queue_view(t.qp, NULL, &dq), -ESHUTDOWN);
	assert_int_equal(gpunvme_queue_recover(t.qp), -ESHUTDOWN);
	assert_int_equal(gpunvme_queue_get_info(t.qp, &info), 0);
	assert_int_equal(info.in_flight, 1);
	assert_int_equal(gpunvme_mem_unmap(t.mem, t.dev), -EBUSY);
	t.deletion = GNV_SOFT_GO;
	let_go("qmd");
}

static struct {
	const struct gpunvme_mem *mem;
	unsigned times;
} released;

void __wrap_gnv_mem_release(struct gpunvme_mem *mem)
{
	released.times += mem == released.mem;
	__real_gnv_mem_release(mem);
}

/* The library's own buffer, by which files are looked for, of a drive that never replies: the device takes it along. */
static void reader_loses_nothing(void **state)
{
	static const struct gnv_soft_fault fault = { stall, NULL };
	struct gnv_reader reader;
	char bytes[512];

	(void)state;
	for (int refused = 0; refused < 2; refused++) {
		open_all(refused ? GNV_SOFT_FAIL : GNV_SOFT_GO, false);
		gnv_soft_set_fault(gnv_dev_soft(t.dev), NULL);
		assert_int_equal(gnv_reader_open(t.dev, 0, &reader), 0);
		gnv_soft_set_fault(gnv_dev_soft(t.dev), &fault);
		t.dev->internal.qp->cmd_timeout = (uint64_t)TIMEOUT_MS * gnv_gpu_ticks_per_ms(t.dev->internal.gpu);
		released.mem = t.dev->internal.mem;
		released.times = 0;
		assert_int_equal(gnv_reader_read(&reader, 0, bytes, sizeof(bytes)), -GPUNVME_ETIMEDOUT);
		gnv_reader_close(&reader);
		assert_int_equal(released.times, !refused);
		t.deletion = GNV_SOFT_GO;
		let_go("wqmdm");
		assert_int_equal(released.times, 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(controller_deletes),
		cmocka_unit_test(controller_refuses),
		cmocka_unit_test(controller_does_not_answer),
		cmocka_unit_test(volume_is_refused),
		cmocka_unit_test(nobody_waits),
		cmocka_unit_test(refused_queue_only_ends),
		cmocka_unit_test(reader_loses_nothing),
	};

	cmocka_set_test_filter(getenv("TEST_FILTER"));
	return cmocka_run_group_tests(tests, make_image, image_remove_disk);
}
