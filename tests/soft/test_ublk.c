/* SPDX-License-Identifier: MIT */
/*
 * Block devices of the kernel, on the software controller and a mock of the kernel (ublk_driver.c): what is written is read, also
 * when queues time out, the device is reset or loses commands; nothing is left when a start fails. The real one: tests/vm.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "common/good.h"
#include "common/image.h"
#include "common/known.h"
#include "dev/dev.h"
#include "mocks/kernel/ublk_driver.h"
#include "soft/soft.h"
#include "util/clock.h"

#define THREADS 3u
#define REGION 256u /* blocks of 4 KiB of a thread */
#define STEP 4096u

static struct gpunvme_dev *dev;
static struct gpunvme_ublk *ublk;

static int make_image(void **state)
{
	return image_make_disk(state, 16 << 20);
}

static unsigned undeletable; /* queues, as the log says (atomic) */

static void listen(void *ctx, enum gpunvme_log_level level, const char *text)
{
	(void)ctx;
	(void)level;
	if (strstr(text, "could not be deleted"))
		__atomic_add_fetch(&undeletable, 1, __ATOMIC_RELAXED);
}

static void open_device(const char *keys)
{
	struct gpunvme_dev_opts opts = GPUNVME_DEV_OPTS_INIT;
	char uri[512];

	opts.log = listen;
	ublk_driver_reset();
	snprintf(uri, sizeof(uri), "soft:%s?%s", image_path("disk.img"), keys);
	good(gpunvme_dev_open(uri, &opts, &dev));
}

static void start(uint32_t timeout_ms)
{
	struct gpunvme_ublk_opts opts = GPUNVME_UBLK_OPTS_INIT;

	opts.queues = 2;
	opts.depth = 8;
	opts.cmd_timeout_ms = timeout_ms;
	good(gpunvme_ublk_start(dev, 0, &opts, &ublk));
}

static void open_all(const char *keys, uint32_t timeout_ms)
{
	open_device(keys);
	start(timeout_ms);
}

static struct gpunvme_ublk_info info(void)
{
	struct gpunvme_ublk_info i = { .size = sizeof(i) };

	good(gpunvme_ublk_get_info(ublk, &i));
	return i;
}

static void close_all(void)
{
	good(gpunvme_ublk_stop(ublk));
	assert_false(driver.added);
	assert_int_equal(driver.opened, 0);
	good(gpunvme_dev_close(dev));
}

/* ---- Threads that know what they wrote ---- */

struct writer {
	uint32_t number, turns, seed;
	uint32_t version[REGION];
	uint32_t passed; /* turns (atomic) */
	int wrong; /* the line */
};

static int one(struct writer *w, uint32_t step, uint32_t steps, char *buf, char *want)
{
	const uint64_t sector = (uint64_t)(w->number * REGION + step) * (STEP / 512);
	const uint32_t sectors = steps * (STEP / 512), what = known_next(&w->seed) % 8, queue = known_next(&w->seed) % 2;

	for (uint32_t i = 0; i < steps; i++) {
		if (what < 5)
			w->version[step + i] = what ? w->version[step + i] + 1 + what : 0;
		known_fill((uint32_t *)(want + i * STEP), STEP / 4, w->number, step + i, w->version[step + i]);
	}
	if (!what)
		return ublk_driver_io(queue, GNV_UBLK_WRITE_ZEROES, sector, sectors, NULL);
	if (what < 5)
		return ublk_driver_io(queue, GNV_UBLK_WRITE | (what & 1 ? GNV_UBLK_FUA : 0), sector, sectors, want) != (int)(steps * STEP);
	if (what == 5 && ublk_driver_io(queue, GNV_UBLK_FLUSH, UINT64_MAX, 0, NULL))
		return 1;
	return ublk_driver_io(queue, GNV_UBLK_READ, sector, sectors, buf) != (int)(steps * STEP) || memcmp(buf, want, steps * STEP);
}

static void *work(void *arg)
{
	struct writer *w = arg;
	char *buf = malloc(8 * STEP), *want = malloc(8 * STEP);

	if (ublk_driver_io(0, GNV_UBLK_WRITE_ZEROES, (uint64_t)w->number * REGION * 8, REGION * 8, NULL))
		w->wrong = __LINE__;
	for (uint32_t turn = 0; turn < w->turns && !w->wrong; turn++) {
		uint32_t step = known_next(&w->seed) % (REGION - 8);

		if (one(w, step, known_next(&w->seed) % 8 + 1, buf, want))
			w->wrong = __LINE__;
		__atomic_store_n(&w->passed, turn + 1, __ATOMIC_RELEASE);
	}
	__atomic_store_n(&w->passed, w->turns, __ATOMIC_RELEASE);
	free(buf);
	free(want);
	return NULL;
}

static struct writer writer[THREADS];
static pthread_t thread[THREADS];

static void begin(uint32_t turns)
{
	memset(writer, 0, sizeof(writer));
	for (uint32_t i = 0; i < THREADS; i++) {
		writer[i].number = i;
		writer[i].seed = i + 1;
		writer[i].turns = turns;
		assert_int_equal(pthread_create(&thread[i], NULL, work, &writer[i]), 0);
	}
}

static void end(void)
{
	for (uint32_t i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	for (uint32_t i = 0; i < THREADS; i++)
		if (writer[i].wrong)
			fail_msg("thread %u: other bytes or an error, at line %d", i, writer[i].wrong);
}

/* ---- Tests ---- */

static void test_bytes(void **state)
{
	(void)state;
	open_all("lba=512", 0);
	assert_int_equal(info().queues, 2);
	assert_string_equal(info().path, "/dev/ublkb7");
	assert_int_equal(driver.params.basic.sectors, 32768);
	assert_int_equal(driver.params.basic.attrs, GNV_UBLK_ATTR_VOLATILE_CACHE | GNV_UBLK_ATTR_FUA);
	assert_true(driver.params.discard.max_sectors && driver.params.discard.max_zeroes_sectors);
	begin(300);
	end();
	assert_int_equal(ublk_driver_io(1, GNV_UBLK_DISCARD, 8192, 64, NULL), 0);
	assert_int_equal(info().failed, 0);
	assert_int_equal(info().recoveries, 0);
	close_all();
}

static unsigned flushers; /* threads that asked to be one (atomic) */

void __real_gnv_sys_serves_io(void);
void __wrap_gnv_sys_serves_io(void);
void __wrap_gnv_sys_serves_io(void)
{
	__real_gnv_sys_serves_io();
	__atomic_add_fetch(&flushers, 1, __ATOMIC_RELAXED);
}

/* Workers, and the controller's threads below them, do not wait for themselves when memory is short. The kernel's word: tests/vm. */
static void test_flushers(void **state)
{
	(void)state;
	__atomic_store_n(&flushers, 0, __ATOMIC_RELAXED);
	open_all("lba=512&threads=2", 0);
	assert_int_equal(__atomic_load_n(&flushers, __ATOMIC_RELAXED), 2 + 2);
	close_all();
}

static void test_large_blocks(void **state)
{
	static char buf[8 * STEP];

	(void)state;
	open_all("lba=4096&mdts=1", 0);
	assert_int_equal(driver.params.basic.logical_shift, 12);
	assert_int_equal(driver.params.basic.max_sectors, 16); /* 2^1 pages */
	assert_int_equal(ublk_driver_io(0, GNV_UBLK_READ, 8, 16, buf), 8192);
	assert_int_equal(ublk_driver_io(0, GNV_UBLK_READ, 4, 8, buf), -EIO); /* half blocks */
	assert_int_equal(ublk_driver_io(0, GNV_UBLK_READ, 0, 64, buf), -EIO); /* more than the buffer */
	assert_int_equal(ublk_driver_io(0, 4, 0, 8, buf), -EOPNOTSUPP); /* WRITE_SAME, which the driver never sends */
	assert_int_equal(ublk_driver_io(0, GNV_UBLK_FLUSH, UINT64_MAX, 0, NULL), 0);
	assert_int_equal(info().failed, 3);
	close_all();
}

/* Commands that never complete: queues time out, are recovered, and nobody above hears of it. */
static void test_lost_commands(void **state)
{
	(void)state;
	open_all("lba=512&fault=lose:p=0.01:count=2,seed:3", 300);
	begin(150);
	end();
	assert_true(info().recoveries >= 1);
	assert_int_equal(info().failed, 0);
	close_all();
}

/* A command that is lost whatever is done is reported. */
static void test_hopeless_command(void **state)
{
	static char buf[STEP];

	(void)state;
	open_all("lba=512&fault=lose:op=read:lba=4096-4103", 200);
	assert_int_equal(ublk_driver_io(0, GNV_UBLK_READ, 4096, 8, buf), -EIO);
	assert_int_equal(info().recoveries, 3);
	assert_int_equal(ublk_driver_io(0, GNV_UBLK_READ, 0, 8, buf), STEP);
	close_all();
}

static void test_bad_blocks(void **state)
{
	static char buf[STEP];

	(void)state;
	open_all("lba=512&fault=status:0x281:op=read:lba=80,status:1:op=zeroes", 0);
	assert_int_equal(ublk_driver_io(0, GNV_UBLK_READ, 80, 8, buf), -ENODATA);
	assert_int_equal(ublk_driver_io(0, GNV_UBLK_WRITE_ZEROES, 0, 8, NULL), -EOPNOTSUPP);
	assert_int_equal(ublk_driver_io(1, GNV_UBLK_READ, 88, 8, buf), STEP);
	assert_int_equal(info().failed, 2);
	close_all();
}

/* ---- Requests in flight ---- */

#define MOST 4u
#define HELD 4096u /* its reads do not complete */
#define LATE 8192u /* a read of it completes late */
#define LATE_US 50000
#define FLIGHT_MS 100000 /* they do not time out on a busy machine */

static struct {
	bool off;	 /* all complete at once (atomic) */
	unsigned begun;	 /* reads of the two sectors that the controller has (atomic) */
	unsigned over;	 /* requests of HELD that ended (atomic) */
	bool late;	 /* that of LATE ended (atomic) */
	unsigned failed; /* requests that ended with an error (atomic) */
} flight;

static enum gnv_soft_action hold(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *number)
{
	const bool late = cmd->cdw10 == LATE;

	(void)ctx, (void)sqid, (void)status;
	if (__atomic_load_n(&flight.off, __ATOMIC_ACQUIRE) || (!late && cmd->cdw10 != HELD))
		return GNV_SOFT_GO;
	__atomic_add_fetch(&flight.begun, 1, __ATOMIC_RELEASE);
	*number = LATE_US;
	return late ? GNV_SOFT_DELAY : GNV_SOFT_DROP;
}

static void open_held(void)
{
	static const struct gnv_soft_fault fault = { hold, NULL };

	memset(&flight, 0, sizeof(flight));
	open_device("lba=512&queues=8");
	gnv_soft_set_fault(gnv_dev_soft(dev), &fault);
	start(FLIGHT_MS);
}

static void *read_sector(void *arg)
{
	const uint64_t *sector = arg;
	char buf[STEP];
	int ret = ublk_driver_io(0, GNV_UBLK_READ, *sector, 8, buf);

	__atomic_add_fetch(&flight.failed, ret != STEP, __ATOMIC_RELAXED);
	__atomic_add_fetch(&flight.over, *sector == HELD, __ATOMIC_RELEASE);
	if (*sector == LATE)
		__atomic_store_n(&flight.late, true, __ATOMIC_RELEASE);
	return NULL;
}

/* Return when the controller has the command. */
static void begin_read(pthread_t *reader, uint64_t *sector)
{
	const unsigned before = __atomic_load_n(&flight.begun, __ATOMIC_ACQUIRE);

	assert_int_equal(pthread_create(reader, NULL, read_sector, sector), 0);
	while (__atomic_load_n(&flight.begun, __ATOMIC_ACQUIRE) == before)
		sched_yield();
}

/* Of @count requests all but number @late stay in flight; then the device is reset. Return: that one ended after all had begun. */
static bool complete_one(unsigned count, unsigned late)
{
	uint64_t sector[MOST];
	pthread_t reader[MOST];
	char buf[STEP];
	bool met;
	unsigned i;

	open_held();
	for (i = 0; i < count; i++) {
		sector[i] = i == late ? LATE : HELD;
		begin_read(&reader[i], &sector[i]);
	}
	met = !__atomic_load_n(&flight.late, __ATOMIC_ACQUIRE);
	pthread_join(reader[late], NULL);
	assert_int_equal(ublk_driver_io(0, GNV_UBLK_READ, 8, 8, buf), STEP);
	assert_int_equal(info().recoveries, 0);
	assert_int_equal(__atomic_load_n(&flight.over, __ATOMIC_ACQUIRE), 0);
	__atomic_store_n(&flight.off, true, __ATOMIC_RELEASE);
	good(gpunvme_dev_reset(dev));
	for (i = 0; i < count; i++)
		if (i != late)
			pthread_join(reader[i], NULL);
	assert_int_equal(flight.over, count - 1);
	assert_int_equal(flight.failed + info().failed, 0);
	close_all();
	return met;
}

/* Requests end in any order: those that do not complete, before and after it, hold up no other. */
static void test_any_order(void **state)
{
	unsigned count, late;

	(void)state;
	for (count = 2; count <= MOST; count++)
		for (late = 0; late < count; late++)
			while (!complete_one(count, late)) /* this thread was late itself */
				;
}

/* A server that is taken for dead ends its queue after the controller has completed its commands: they use its buffers. */
static void test_killed_in_flight(void **state)
{
	struct gpunvme_ublk_opts opts = GPUNVME_UBLK_OPTS_INIT;
	struct gpunvme_ublk *dead, *other = NULL;
	uint64_t sector = LATE;
	pthread_t reader;

	(void)state;
	open_held();
	dead = ublk;
	begin_read(&reader, &sector);
	ublk_driver_kill();
	assert_int_equal(info().requests, 1);
	assert_int_equal(info().ended, 0); /* no io_uring failed */
	__atomic_store_n(&flight.off, true, __ATOMIC_RELEASE);
	opts.flags = GPUNVME_UBLK_RECOVER;
	opts.id = ID;
	good(gpunvme_ublk_start(dev, 0, &opts, &other));
	pthread_join(reader, NULL);
	assert_int_equal(flight.failed, 0);
	good(gpunvme_ublk_stop(other));
	good(gpunvme_ublk_stop(dead));
	good(gpunvme_dev_close(dev));
}

/* ---- Errors, resets, servers that end ---- */

/*
 * What the controller says may succeed another time is asked for again, but not without limit, nor for users that want a fast
 * failure.
 */
static void test_worth_more(void **state)
{
	static char buf[STEP];

	(void)state;
	open_all("lba=512&fault=status:0x21:op=read:lba=9000:count=2,status:0x281:op=read:lba=9100:count=4:dnr=0,"
		 "status:0x281:op=read:lba=9200:count=1:dnr=1",
		 0);
	assert_int_equal(ublk_driver_io(0, GNV_UBLK_READ, 9000, 8, buf), STEP);
	assert_int_equal(info().failed, 0);
	assert_int_equal(ublk_driver_io(0, GNV_UBLK_READ, 9100, 8, buf), -ENODATA);
	assert_int_equal(ublk_driver_io(0, GNV_UBLK_READ | 1u << 8, 9100, 8, buf), -ENODATA);
	assert_int_equal(ublk_driver_io(0, GNV_UBLK_READ, 9100, 8, buf), STEP);
	assert_int_equal(ublk_driver_io(0, GNV_UBLK_READ, 9200, 8, buf), -ENODATA);
	assert_int_equal(info().failed, 3);
	assert_int_equal(info().recoveries, 0);
	close_all();
}

/* Every thread has ended what it was at: a request that three resets end is answered with an error. */
static void let_all_pass(void)
{
	struct gnv_deadline deadline = gnv_deadline_in(60000);
	uint32_t seen[THREADS], i;

	for (i = 0; i < THREADS; i++)
		seen[i] = __atomic_load_n(&writer[i].passed, __ATOMIC_ACQUIRE);
	for (i = 0; i < THREADS; i++)
		while (seen[i] < writer[i].turns && __atomic_load_n(&writer[i].passed, __ATOMIC_ACQUIRE) == seen[i])
			assert_true(gnv_deadline_poll_again(&deadline));
}

/* Resets by the program, for whatever reason, while requests are under way. */
static void test_resets(void **state)
{
	(void)state;
	open_all("lba=512", 0);
	begin(400);
	for (unsigned i = 0; i < 5; i++) {
		let_all_pass();
		good(gpunvme_dev_reset(dev));
	}
	end();
	assert_int_equal(info().failed, 0);
	close_all();
}

/* The controller dies: all requests fail, soon; after a reset they work again. */
static void test_death(void **state)
{
	static char buf[STEP];

	(void)state;
	open_all("lba=512&fault=cfs:op=read:lba=4096:count=1,dies:after=1:count=6", 300);
	assert_int_equal(ublk_driver_io(0, GNV_UBLK_READ, 4096, 8, buf), -EIO);
	assert_int_equal(ublk_driver_io(1, GNV_UBLK_READ, 0, 8, buf), -EIO);
	while (gpunvme_dev_reset(dev))
		gnv_sleep_ms(10);
	gnv_sleep_ms(300);
	assert_int_equal(ublk_driver_io(0, GNV_UBLK_READ, 0, 8, buf), STEP);
	assert_int_equal(ublk_driver_io(1, GNV_UBLK_READ, 0, 8, buf), STEP);
	close_all();
}

static void test_stop_in_use(void **state)
{
	static char buf[STEP];

	(void)state;
	for (unsigned old = 0; old < 2; old++) {
		open_device("lba=512");
		driver.old = old;
		good(gpunvme_ublk_start(dev, 0, NULL, &ublk));
		driver.openers = 1;
		driver.users = "it is mounted on /mnt. Unmount it first";
		assert_int_equal(gpunvme_ublk_stop(ublk), -EBUSY);
		assert_non_null(strstr(gpunvme_errmsg(), "mounted on /mnt"));
		assert_int_equal(gpunvme_ublk_remove(ID, 0), -EBUSY);
		assert_int_equal(ublk_driver_io(0, GNV_UBLK_READ, 0, 8, buf), STEP);
		driver.openers = 0;
		driver.users = NULL;
		close_all();
	}
}

/* A server dies with requests under way; another one goes on, which has the same namespace. */
static void test_recovery(void **state)
{
	struct gpunvme_ublk_opts opts = GPUNVME_UBLK_OPTS_INIT;
	struct gpunvme_ublk *dead, *other = NULL;

	(void)state;
	open_all("lba=512&queues=8", 0);
	dead = ublk;
	begin(300);
	gnv_sleep_ms(50);
	ublk_driver_kill();
	opts.flags = GPUNVME_UBLK_RECOVER;
	opts.id = 5;
	assert_int_equal(gpunvme_ublk_start(dev, 0, &opts, &other), -ENODEV);
	opts.id = ID;
	opts.depth = 8;
	assert_int_equal(gpunvme_ublk_start(dev, 0, &opts, &other), -EINVAL);
	opts.depth = 0;
	driver.info.mark ^= 1;
	assert_int_equal(gpunvme_ublk_start(dev, 0, &opts, &other), -EXDEV);
	driver.info.mark ^= 1;
	driver.fail_op = GNV_UBLK_END_RECOVERY; /* fails, and leaves the disk for the next */
	assert_int_equal(gpunvme_ublk_start(dev, 0, &opts, &other), -EIO);
	assert_true(driver.added);
	assert_int_equal(driver.info.state, GNV_UBLK_QUIESCED);
	driver.fail_op = 0;
	good(gpunvme_ublk_start(dev, 0, &opts, &other));
	ublk = other;
	assert_int_equal(info().queues, 2);
	assert_int_equal(info().depth, 8);
	end();
	good(gpunvme_ublk_stop(other));
	assert_false(driver.added);
	good(gpunvme_ublk_stop(dead));
	good(gpunvme_dev_close(dev));
}

static void set(int *what, int error)
{
	__atomic_store_n(what, error, __ATOMIC_RELAXED);
}

/* io_uring fails for good: the program gets an error, and the next server has all requests. */
static void fail_for_good(int *what, int error)
{
	struct gpunvme_ublk_opts opts = GPUNVME_UBLK_OPTS_INIT;
	struct gpunvme_ublk *dead = ublk, *other = NULL;

	begin(300);
	gnv_sleep_ms(20);
	set(what, error);
	for (unsigned i = 0; !info().error && i < 2000; i++)
		gnv_sleep_ms(10);
	assert_int_equal(info().error, error);
	assert_in_range(info().ended, 1, info().queues);
	ublk_driver_kill(); /* the rings end by themselves */
	set(what, 0);
	opts.flags = GPUNVME_UBLK_RECOVER;
	opts.id = ID;
	good(gpunvme_ublk_start(dev, 0, &opts, &other));
	end();
	good(gpunvme_ublk_stop(other));
	good(gpunvme_ublk_stop(dead));
	good(gpunvme_dev_close(dev));
}

/* It fails for a moment, and nobody hears of it. */
static void test_broken_rings(void **state)
{
	(void)state;
	open_all("lba=512&queues=8", 0);
	begin(200);
	gnv_sleep_ms(20);
	set(&driver.ring_error, -ENOMEM);
	gnv_sleep_ms(50);
	set(&driver.ring_error, 0);
	end();
	assert_int_equal(info().error, 0);
	fail_for_good(&driver.ring_error, -EIO);
}

/* A ring that has not an entry for each tag takes no more. */
static void test_full_ring(void **state)
{
	(void)state;
	open_all("lba=512&queues=8", 0);
	set(&driver.answer_error, -EBUSY); /* from the first reply on */
	fail_for_good(&driver.answer_error, -EBUSY);
}

/* Of a start that fails a queue cannot be deleted: what stays goes with the device, and the sentence is that of the failure. */
static void test_undeletable_queue(void **state)
{
	(void)state;
	undeletable = 0;
	for (unsigned after = 1; after < 4; after++) {
		char keys[80];

		snprintf(keys, sizeof(keys), "lba=512&queues=8&fault=status:0x6:queue=0:op=0:after=%u:count=1", after);
		open_device(keys);
		driver.fail_op = GNV_UBLK_START_DEV;
		assert_int_equal(gpunvme_ublk_start(dev, 0, NULL, &ublk), -EIO);
		assert_non_null(strstr(gpunvme_errmsg(), "does not start device"));
		assert_false(driver.added);
		assert_int_equal(driver.opened, 0);
		good(gpunvme_dev_close(dev));
		assert_int_equal(undeletable, after);
	}
}

static void test_remove(void **state)
{
	struct gpunvme_ublk_opts opts = GPUNVME_UBLK_OPTS_INIT;
	struct gpunvme_ublk *other = NULL;

	(void)state;
	open_all("lba=512", 0);
	assert_int_equal(gpunvme_ublk_remove(ID + 1, 0), -ENODEV);
	assert_int_equal(gpunvme_ublk_remove(ID, 8 | 16), -EINVAL);
	assert_int_equal(gpunvme_ublk_remove(ID, GPUNVME_UBLK_FORCE), -EBUSY); /* it lives */
	ublk_driver_kill();
	opts.flags = GPUNVME_UBLK_RECOVER;
	opts.id = ID;
	driver.info.state = GNV_UBLK_DEAD; /* its server died when it had stopped the disk, and had yet to remove it */
	assert_int_equal(gpunvme_ublk_start(dev, 0, &opts, &other), -ENODEV);
	driver.info.state = GNV_UBLK_QUIESCED;
	driver.openers = 1;
	assert_int_equal(gpunvme_ublk_remove(ID, 0), -EBUSY);
	driver.openers = 0;
	driver.waits = true; /* its server died while the kernel looked for partitions */
	driver.users = "requests wait for a server";
	assert_int_equal(gpunvme_ublk_remove(ID, 0), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "requests wait for a server"));
	good(gpunvme_ublk_remove(ID, GPUNVME_UBLK_FORCE));
	assert_false(driver.added);
	close_all();
}

/* Whatever fails of a start, nothing is left. */
static void test_failing_starts(void **state)
{
	static const uint32_t ops[] = { GNV_UBLK_ADD_DEV, GNV_UBLK_SET_PARAMS, GNV_UBLK_START_DEV };
	struct gpunvme_ublk_opts opts = GPUNVME_UBLK_OPTS_INIT;

	(void)state;
	open_device("lba=512&queues=3");
	for (unsigned i = 0; i < 3; i++) {
		driver.fail_op = ops[i];
		assert_int_equal(gpunvme_ublk_start(dev, 0, NULL, &ublk), -EIO);
		assert_false(driver.added);
	}
	driver.silent = true;
	for (unsigned i = 0; i < 3; i++) {
		driver.fail_op = ops[i];
		assert_int_equal(gpunvme_ublk_start(dev, 0, NULL, &ublk), -ETIMEDOUT);
		assert_non_null(strstr(gpunvme_errmsg(), "did not carry out"));
		assert_false(driver.added);
	}
	for (int n = 1; n < 130; n += 64) {
		ublk_driver_reset();
		driver.refuse_fetch = n;
		assert_int_equal(gpunvme_ublk_start(dev, 0, NULL, &ublk), -EINVAL);
		assert_false(driver.added);
	}
	ublk_driver_reset();
	opts.queues = 4; /* the controller has 3 */
	assert_int_equal(gpunvme_ublk_start(dev, 0, &opts, &ublk), -ENOSPC);
	assert_false(driver.added);
	opts.queues = 0;
	opts.max_bytes = 5000;
	assert_int_equal(gpunvme_ublk_start(dev, 0, &opts, &ublk), -EINVAL);
	opts.max_bytes = 0;
	opts.flags = 64;
	assert_int_equal(gpunvme_ublk_start(dev, 0, &opts, &ublk), -EINVAL);
	assert_int_equal(gpunvme_ublk_start(dev, 2, NULL, &ublk), -ENOENT);
	good(gpunvme_ublk_start(dev, 0, NULL, &ublk));
	assert_int_equal(info().queues, 3);
	close_all();
}

static void test_read_only(void **state)
{
	struct gpunvme_ublk_opts opts = GPUNVME_UBLK_OPTS_INIT;
	static char buf[STEP];

	(void)state;
	open_device("lba=512&ro=1");
	assert_int_equal(gpunvme_ublk_start(dev, 0, NULL, &ublk), -EROFS);
	assert_non_null(strstr(gpunvme_errmsg(), "--ro"));
	opts.flags = GPUNVME_UBLK_READ_ONLY;
	good(gpunvme_ublk_start(dev, 0, &opts, &ublk));
	assert_true(driver.params.basic.attrs & GNV_UBLK_ATTR_READ_ONLY);
	assert_int_equal(ublk_driver_io(0, GNV_UBLK_READ, 0, 8, buf), STEP);
	assert_true(ublk_driver_io(0, GNV_UBLK_WRITE, 0, 8, buf) < 0); /* the kernel sends none */
	close_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_flushers),	cmocka_unit_test(test_any_order),
		cmocka_unit_test(test_bytes),		 cmocka_unit_test(test_large_blocks),	cmocka_unit_test(test_lost_commands),
		cmocka_unit_test(test_hopeless_command), cmocka_unit_test(test_bad_blocks),	cmocka_unit_test(test_worth_more),
		cmocka_unit_test(test_resets),		 cmocka_unit_test(test_death),		cmocka_unit_test(test_stop_in_use),
		cmocka_unit_test(test_recovery),	 cmocka_unit_test(test_remove),		cmocka_unit_test(test_failing_starts),
		cmocka_unit_test(test_read_only),	 cmocka_unit_test(test_broken_rings),	cmocka_unit_test(test_full_ring),
		cmocka_unit_test(test_undeletable_queue), cmocka_unit_test(test_killed_in_flight),
	};

	return cmocka_run_group_tests_name("ublk", tests, make_image, image_remove_disk);
}
