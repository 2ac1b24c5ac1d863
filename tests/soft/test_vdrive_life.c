/* SPDX-License-Identifier: MIT */
/*
 * The life of a controller whose I/O queues a kernel serves: what the thread that looks at the kernel finds belongs to the
 * controller of then, not to the one after a reset. Memory that the processor of the drive keeps stays.
 */
#include <errno.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "common/exec_table.h"
#include "common/rawhost.h"
#include "vdrive/drive.h"
#include "vdrive/vdrive.h"

/* ---- A processor that is in the way: copies of some words fail or wait ---- */

static uint64_t structure; /* of the drive (atomic) */
static uint32_t fails, waits; /* looks do (atomic) */
static uint32_t refuses, clings, keeps; /* regions are not written; nor do they end; memory stays registered (atomic) */
static uint32_t goes_on; /* the kernel does not start, and does not end either (atomic) */
static uint32_t looks, waiting; /* so far; one waits (atomic) */

static bool is_set(const uint32_t *flag)
{
	return __atomic_load_n(flag, __ATOMIC_ACQUIRE);
}

static void set(uint32_t *flag, bool value)
{
	__atomic_store_n(flag, value, __ATOMIC_RELEASE);
}

static void await(const uint32_t *flag)
{
	while (!is_set(flag))
		sched_yield();
}

static bool is_word(uint64_t at, size_t offset)
{
	return at == __atomic_load_n(&structure, __ATOMIC_ACQUIRE) + offset;
}

static int peek_between(struct gnv_vd_exec *exec, void *to, uint64_t at, size_t len)
{
	const bool look = is_word(at, offsetof(struct gnv_vd, raised));

	if (look || is_word(at, offsetof(struct gnv_vd, view.io.doom))) {
		if (is_set(&fails))
			return gnv_fail(-EIO, "no copies today");
		set(&waiting, is_set(&waits));
		while (look && is_set(&waits))
			sched_yield();
		__atomic_fetch_add(&looks, look, __ATOMIC_ACQ_REL);
	}
	return exec_whole->peek(exec, to, at, len);
}

/* The length of a region: by then its memory is registered. */
static int poke_between(struct gnv_vd_exec *exec, uint64_t at, const void *from, size_t len)
{
	const uint64_t first = __atomic_load_n(&structure, __ATOMIC_ACQUIRE) + offsetof(struct gnv_vd, region);

	if (is_set(&refuses) && len == 8 && at - first < GNV_VD_REGIONS * sizeof(struct gnv_vd_region) &&
	    (*(const uint64_t *)from || is_set(&clings)))
		return gnv_fail(-EIO, "no copies today");
	return exec_whole->poke(exec, at, from, len);
}

static int hide_between(struct gnv_vd_exec *exec, void *cookie)
{
	return is_set(&keeps) ? gnv_fail(-EBUSY, "the memory stays registered") : exec_whole->hide(exec, cookie);
}

static int start_between(struct gnv_vd_exec *exec, uint64_t vd, uint64_t slice_ns)
{
	if (is_set(&goes_on))
		return gnv_fail(-EIO, "no kernel today");
	__atomic_store_n(&structure, vd, __ATOMIC_RELEASE);
	return exec_whole->start(exec, vd, slice_ns);
}

static bool stop_between(struct gnv_vd_exec *exec, uint32_t ms)
{
	return !is_set(&goes_on) && exec_whole->stop(exec, ms);
}

static void exec_change(struct gnv_vd_exec_ops *ops)
{
	ops->peek = peek_between;
	ops->poke = poke_between;
	ops->hide = hide_between;
	ops->start = start_between;
	ops->stop = stop_between;
}

static struct gnv_soft_config config_of(const char *fault)
{
	struct gnv_soft_config config = GNV_SOFT_CONFIG_INIT;

	config.path = RAWHOST_VRAM;
	config.engine = &gnv_vdrive_engine;
	if (fault)
		assert_int_equal(gnv_soft_fault_parse(fault, &config.quirks, &config.rules), 0);
	return config;
}

/* ---- What was found before a reset ---- */

static void await_looks(uint32_t more)
{
	const uint32_t before = __atomic_load_n(&looks, __ATOMIC_ACQUIRE);

	while (__atomic_load_n(&looks, __ATOMIC_ACQUIRE) - before < more)
		sched_yield();
}

static void check_is_well(void)
{
	await_looks(2); /* the second begins after what the first one found */
	gnv_soft_engine_threads.hold(host.soft);
	assert_int_equal(host.soft->io.doom, 0);
	assert_int_equal(rawhost_read32(&host, GPUNVME_REG_CSTS), GPUNVME_CSTS_RDY);
	gnv_soft_engine_threads.release(host.soft);
}

static uint32_t said, was_reset;

/* The thread that looks says that the drive has failed. Before it goes on the host resets the controller, and all is well again. */
static void log_and_wait(void *ctx, enum gpunvme_log_level level, const char *line)
{
	(void)ctx;
	if (level != GPUNVME_LOG_ERROR || !strstr(line, "has failed"))
		return;
	set(&fails, false);
	set(&said, true);
	await(&was_reset);
}

static void a_failure_of_before_a_reset_is_none_of_after(void **state)
{
	static struct gnv_log log = { .fn = log_and_wait };
	struct gnv_soft_config config = config_of(NULL);

	(void)state;
	rawhost_log = &log;
	rawhost_start(&host, &config);
	set(&fails, true);
	await(&said);
	assert_true(rawhost_disable(&host));
	assert_int_equal(rawhost_enable(&host), GPUNVME_CSTS_RDY);
	set(&was_reset, true);
	check_is_well();
	rawhost_close(&host);
	rawhost_log = NULL;
}

/* A command ends its controller, and a reset comes before any thread of the host knows. */
static void a_command_ends_its_own_controller(void **state)
{
	struct gnv_soft_config config = config_of("cfs:op=read");
	struct gpunvme_sqe sqe;
	uint32_t doom = 0;

	(void)state;
	config.faulty = true;
	rawhost_start(&host, &config);
	set(&waits, true);
	await(&waiting);
	sqe = rawhost_rw(&host, GPUNVME_IO_READ, 0, 1, 0);
	rawhost_submit(&host, &host.io, &sqe);
	while (!doom) {
		sched_yield();
		exec_whole->peek(gnv_vdrive_of(host.soft)->exec, &doom, structure + offsetof(struct gnv_vd, view.io.doom), sizeof(doom));
	}
	assert_true(rawhost_disable(&host));
	assert_int_equal(rawhost_enable(&host), GPUNVME_CSTS_RDY);
	set(&waits, false);
	check_is_well();
	rawhost_close(&host);
}

/* ---- Memory ---- */

/*
 * A map fails when the memory is registered with the processor already, which does not let go of it: it is not the caller's again.
 * @reached: the drive may even use it.
 */
static void refused_memory_stays(bool reached)
{
	static char bytes[2][65536] __attribute__((aligned(65536)));
	static struct gpunvme_mem *own[2], *callers[2]; /* they stay, for LeakSanitizer, too */
	struct gpunvme_gpu *gpu;
	struct gpunvme_dev *dev;

	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
	assert_int_equal(gpunvme_dev_open("soft:" RAWHOST_VRAM, NULL, &dev), 0);
	assert_int_equal(gpunvme_mem_register(gpu, bytes[reached], sizeof(bytes[0]), &callers[reached]), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, sizeof(bytes[0]), NULL, &own[reached]), 0);
	set(&clings, reached);
	set(&keeps, !reached);
	set(&refuses, true);
	assert_int_equal(gpunvme_mem_map(callers[reached], dev), -EIO);
	assert_int_equal(gpunvme_mem_map(own[reached], dev), -EIO);
	set(&refuses, false);
	assert_int_equal(gpunvme_mem_free(callers[reached]), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "until the process ends"));
	assert_int_equal(gpunvme_mem_free(own[reached]), -EBUSY);
	set(&keeps, false);
	assert_int_equal(gpunvme_dev_close(dev), 0);
	memset(gpunvme_mem_ptr(own[reached]), 1, sizeof(bytes[0])); /* they are still there */
	gpunvme_gpu_close(gpu);
}

static void refused_memory_stays_where_the_processor_keeps_it(void **state)
{
	(void)state;
	refused_memory_stays(false);
}

static void refused_memory_stays_where_the_drive_reaches_it(void **state)
{
	(void)state;
	refused_memory_stays(true);
}

/* A launch that the driver has not returned from, while the drive could not be opened: its thread looks at the drive later. */
static void what_a_launch_uses_stays(void **state)
{
	const struct gnv_soft_config config = config_of(NULL);
	struct rawhost h;

	(void)state;
	set(&goes_on, true);
	assert_int_equal(rawhost_open(&h, &config), -EIO);
	assert_non_null(strstr(gpunvme_errmsg(), "no kernel today"));
	set(&goes_on, false);
	exec_wish.before_launch(exec_wish.ctx);
	rawhost_close(&h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_failure_of_before_a_reset_is_none_of_after),
		cmocka_unit_test(a_command_ends_its_own_controller),
		cmocka_unit_test(refused_memory_stays_where_the_processor_keeps_it),
		cmocka_unit_test(refused_memory_stays_where_the_drive_reaches_it),
		cmocka_unit_test(what_a_launch_uses_stays),
	};

	return cmocka_run_group_tests_name("vdrive life", tests, NULL, NULL);
}
