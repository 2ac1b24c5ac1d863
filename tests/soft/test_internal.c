/* SPDX-License-Identifier: MIT */
/*
 * The queue that a device keeps for the library: made once for all files, after resets as before, never in the way of a program that
 * needs the last queue, and no trouble to anybody after a failure.
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
#include <gpunvme/gpunvme.h>

#include "common/good.h"
#include "common/image.h"
#include "common/shell.h"
#include "dev/dev.h"
#include "file/reader.h"
#include "queue/queue.h"
#include "soft/soft.h"

#define THREADS 4u
#define TIMES 25u

struct counts {
	unsigned made, deleted;	  /* queues of each kind (atomic) */
	unsigned commands, reads; /* of admin and I/O queues (atomic) */
	unsigned refuse;	  /* the next Create I/O Completion Queue fails (atomic) */
	unsigned strike;	  /* the next read is answered with the identifier of another queue (atomic) */
};

static struct counts counts;

static enum gnv_soft_action on_admin(void *ctx, const struct gpunvme_sqe *cmd, uint16_t *status)
{
	(void)ctx;
	*status = GPUNVME_SC_INTERNAL;
	if (cmd->opc == GPUNVME_ADMIN_CREATE_CQ && __atomic_exchange_n(&counts.refuse, 0, __ATOMIC_RELAXED))
		return GNV_SOFT_FAIL;
	__atomic_fetch_add(&counts.commands, 1, __ATOMIC_RELAXED);
	if (cmd->opc == GPUNVME_ADMIN_CREATE_SQ || cmd->opc == GPUNVME_ADMIN_CREATE_CQ)
		__atomic_fetch_add(&counts.made, 1, __ATOMIC_RELAXED);
	if (cmd->opc == GPUNVME_ADMIN_DELETE_SQ || cmd->opc == GPUNVME_ADMIN_DELETE_CQ)
		__atomic_fetch_add(&counts.deleted, 1, __ATOMIC_RELAXED);
	return GNV_SOFT_GO;
}

static enum gnv_soft_action on_io(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	(void)ctx;
	(void)sqid;
	(void)cmd;
	(void)status;
	*delay_us = 1;
	__atomic_fetch_add(&counts.reads, 1, __ATOMIC_RELAXED);
	return __atomic_exchange_n(&counts.strike, 0, __ATOMIC_RELAXED) ? GNV_SOFT_SQID : GNV_SOFT_GO;
}

static unsigned seen(const unsigned *count)
{
	return __atomic_load_n(count, __ATOMIC_RELAXED);
}

static struct gpunvme_dev *open_watched_drive(uint32_t queues, uint32_t watchdog_ms)
{
	static const struct gnv_soft_admin_fault admin = { on_admin, NULL };
	static const struct gnv_soft_fault io = { on_io, NULL };
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	struct gpunvme_dev *dev;
	char uri[256];

	opts.queues = queues;
	opts.watchdog_ms = watchdog_ms;
	snprintf(uri, sizeof(uri), "soft:%s", image_path("fs.img"));
	good(gpunvme_dev_open(uri, &opts, &dev));
	memset(&counts, 0, sizeof(counts));
	gnv_soft_set_admin_fault(gnv_dev_soft(dev), &admin);
	gnv_soft_set_fault(gnv_dev_soft(dev), &io);
	return dev;
}

static struct gpunvme_dev *open_drive(uint32_t queues)
{
	return open_watched_drive(queues, 0);
}

static int open_file(struct gpunvme_dev *dev)
{
	struct gpunvme_file_info info = { .size = sizeof(info) };
	struct gpunvme_file *file;
	int ret = gpunvme_file_open(dev, "plain", NULL, &file);

	if (ret)
		return ret;
	good(gpunvme_file_get_info(file, &info));
	assert_int_equal(info.bytes, 300000);
	gpunvme_file_close(file);
	return 0;
}

/* The queue keeps no view between two uses, so a drive may be formatted while it exists. This drive refuses that. */
static void test_format(void **state)
{
	const struct gpunvme_sqe format = { .opc = GPUNVME_ADMIN_FORMAT_NVM, .nsid = 1 };
	struct gpunvme_dev *dev = open_drive(0);

	(void)state;
	good(open_file(dev));
	assert_int_equal(seen(&counts.made), 2);
	assert_true(gpunvme_dev_admin(dev, &format, NULL, 0, 0, NULL) > 0); /* the drive refuses it */
	good(open_file(dev));
	assert_int_equal(seen(&counts.made), 2);
	good(gpunvme_dev_close(dev));
}

/* What a thread of the library has asked of a namespace is not used after a Format: block sizes, and so lengths, would be others. */
static void test_format_meanwhile(void **state)
{
	const struct gpunvme_sqe format = { .opc = GPUNVME_ADMIN_FORMAT_NVM, .nsid = 1 };
	struct gpunvme_dev *dev = open_drive(0);
	struct gnv_reader r;
	char byte;

	(void)state;
	good(gnv_reader_open(dev, 0, &r));
	good(gnv_reader_read(&r, 0, &byte, 1));
	assert_true(gpunvme_dev_admin(dev, &format, NULL, 0, 0, NULL) > 0); /* it need not have succeeded */
	assert_int_equal(gnv_reader_read(&r, GNV_READER_CHUNK, &byte, 1), -ESTALE);
	assert_non_null(strstr(gpunvme_errmsg(), "Begin again"));
	gnv_reader_close(&r);
	good(open_file(dev));
	good(gpunvme_dev_close(dev));
}

/* The first file makes a queue pair, the others none: they cost what they read, and one Identify of the namespace. */
static void test_made_once(void **state)
{
	struct gpunvme_dev *dev = open_drive(0);
	unsigned commands, reads;

	(void)state;
	good(open_file(dev));
	assert_int_equal(seen(&counts.made), 2);
	commands = seen(&counts.commands);
	reads = seen(&counts.reads);
	for (unsigned i = 0; i < TIMES; i++)
		good(open_file(dev));
	assert_int_equal(seen(&counts.made), 2);
	assert_int_equal(seen(&counts.deleted), 0);
	print_message("first file: %u admin commands, %u reads; each more: %u and %u\n", commands, reads,
		      (seen(&counts.commands) - commands) / TIMES, (seen(&counts.reads) - reads) / TIMES);
	assert_true(seen(&counts.commands) - commands <= 3 * TIMES);
	good(gpunvme_dev_close(dev));
	assert_int_equal(seen(&counts.deleted), 2);
}

/* After a reset it goes on, as a part of the drive that no event names. */
static void test_reset(void **state)
{
	struct gpunvme_event event = { .size = sizeof(event) };
	struct gpunvme_dev *dev = open_drive(0);
	int fd;

	(void)state;
	good(gpunvme_dev_event_fd(dev, &fd));
	good(open_file(dev));
	for (unsigned i = 0; i < 3; i++) {
		good(gpunvme_dev_reset(dev));
		good(gpunvme_dev_next_event(dev, &event));
		assert_int_equal(event.type, GPUNVME_EVENT_RESET);
		good(open_file(dev));
		good(open_file(dev));
	}
	assert_int_equal(gpunvme_dev_next_event(dev, &event), -EAGAIN);
	good(gpunvme_dev_close(dev));
}

/* End a queue, and wait until the watchdog has recovered it, with all that belongs to that. */
static void end_and_recover(struct gpunvme_dev *dev, struct gnv_qp *qp)
{
	bool over = true;

	pthread_mutex_lock(&dev->queues_lock);
	gnv_qp_command(qp, GPUNVME_ESHUTDOWN);
	pthread_mutex_unlock(&dev->queues_lock);
	while (over) {
		sched_yield();
		pthread_mutex_lock(&dev->queues_lock);
		over = gnv_qp_poisoned(qp);
		pthread_mutex_unlock(&dev->queues_lock);
	}
}

/* An event names the program's queue that the watchdog has recovered. The library's own is recovered without one. */
static void test_watchdog(void **state)
{
	struct gpunvme_event event = { .size = sizeof(event) };
	struct gpunvme_dev *dev = open_watched_drive(0, 1);
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;
	int fd;

	(void)state;
	good(gpunvme_gpu_open("cpu", NULL, &gpu));
	good(gpunvme_dev_event_fd(dev, &fd));
	good(gpunvme_queue_create(dev, gpu, NULL, &qp));
	good(open_file(dev));
	end_and_recover(dev, dev->internal.qp);
	assert_int_equal(gpunvme_dev_next_event(dev, &event), -EAGAIN);
	end_and_recover(dev, qp->qp[0]);
	good(gpunvme_dev_next_event(dev, &event));
	assert_int_equal(event.type, GPUNVME_EVENT_RECOVERED);
	assert_ptr_equal(event.queue, qp);
	assert_int_equal(gpunvme_dev_next_event(dev, &event), -EAGAIN);
	good(open_file(dev));
	assert_int_equal(seen(&counts.made), 8);
	good(gpunvme_queue_destroy(qp));
	gpunvme_gpu_close(gpu);
	good(gpunvme_dev_close(dev));
}

/* Of a drive with one pair of queues: the program's comes first, whatever was before. */
static void test_makes_way(void **state)
{
	struct gpunvme_dev *dev = open_drive(1);
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;

	(void)state;
	good(gpunvme_gpu_open("cpu", NULL, &gpu));
	for (unsigned i = 0; i < 3; i++) {
		good(open_file(dev));
		good(gpunvme_queue_create(dev, gpu, NULL, &qp));
		assert_int_equal(open_file(dev), -ENOSPC);
		assert_non_null(strstr(gpunvme_errmsg(), "all 1 I/O queue pairs of the controller are in use"));
		good(gpunvme_queue_recover(qp));
		good(gpunvme_dev_reset(dev));
		good(gpunvme_queue_destroy(qp));
	}
	good(open_file(dev));
	good(gpunvme_dev_reset(dev));
	good(open_file(dev));
	gpunvme_gpu_close(gpu);
	good(gpunvme_dev_close(dev));
}

/* A drive whose queues are all in use, and that refuses the internal one once: the next renewal does not give up what it renews. */
static void test_refused_renewal(void **state)
{
	struct gpunvme_dev *dev = open_drive(2);
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;

	(void)state;
	good(gpunvme_gpu_open("cpu", NULL, &gpu));
	good(gpunvme_queue_create(dev, gpu, NULL, &qp));
	good(open_file(dev));
	__atomic_store_n(&counts.refuse, 1, __ATOMIC_RELAXED);
	gpunvme_dev_reset(dev);
	gpunvme_dev_reset(dev);
	good(gpunvme_dev_reset(dev));
	good(gpunvme_queue_destroy(qp));
	good(open_file(dev));
	gpunvme_gpu_close(gpu);
	good(gpunvme_dev_close(dev));
}

/* A failure ends the queue, which then keeps nobody's memory; the next file gets another. */
static void test_failure(void **state)
{
	struct gpunvme_dev *dev = open_drive(0);
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *mem;

	(void)state;
	good(gpunvme_gpu_open("cpu", NULL, &gpu));
	good(gpunvme_mem_alloc(gpu, NULL, 4096, NULL, &mem));
	for (unsigned i = 0; i < 3; i++) {
		good(open_file(dev));
		good(gpunvme_mem_map(mem, dev));
		__atomic_store_n(&counts.strike, 1, __ATOMIC_RELAXED);
		assert_true(open_file(dev) < 0);
		assert_null(dev->internal.qp);
		good(gpunvme_mem_unmap(mem, dev));
		good(open_file(dev));
	}
	good(gpunvme_mem_free(mem));
	gpunvme_gpu_close(gpu);
	good(gpunvme_dev_close(dev));
}

static void *open_many(void *dev)
{
	for (unsigned i = 0; i < TIMES; i++)
		good(open_file(dev));
	return NULL;
}

/* One queue for all threads, while a program makes and destroys its own. */
static void test_threads(void **state)
{
	struct gpunvme_dev *dev = open_drive(0);
	pthread_t thread[THREADS];
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *qp;

	(void)state;
	good(gpunvme_gpu_open("cpu", NULL, &gpu));
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, open_many, dev), 0);
	for (unsigned i = 0; i < TIMES; i++) {
		good(gpunvme_queue_create(dev, gpu, NULL, &qp));
		good(gpunvme_queue_destroy(qp));
	}
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_join(thread[i], NULL), 0);
	gpunvme_gpu_close(gpu);
	good(gpunvme_dev_close(dev));
}

static int make_image(void **state)
{
	if (image_make_dir(state))
		return -1;
	run("mkdir -p %s/tree && head -c 300000 /dev/urandom >%s/tree/plain", image_dir, image_dir);
	run("cd %s && PATH=$PATH:/sbin:/usr/sbin mke2fs -q -F -t ext4 -d tree fs.img 12M", image_dir);
	return 0;
}

static int remove_image(void **state)
{
	run("rm -rf %s/tree %s/fs.img", image_dir, image_dir);
	return image_remove_dir(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_made_once), cmocka_unit_test(test_reset),	  cmocka_unit_test(test_makes_way),
		cmocka_unit_test(test_failure),	  cmocka_unit_test(test_threads), cmocka_unit_test(test_refused_renewal),
		cmocka_unit_test(test_format),	  cmocka_unit_test(test_format_meanwhile),
		cmocka_unit_test(test_watchdog),
	};

	return cmocka_run_group_tests(tests, make_image, remove_image);
}
