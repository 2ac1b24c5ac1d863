/* SPDX-License-Identifier: MIT */
/*
 * A drive that runs on an AMD GPU: the machine code that is embedded in the library, launched through the mock of the HSA runtime, on
 * the executor. Threads of the CPU use it through the public API.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "common/pair.h" /* has a parameter that rig.h has as a variable */
#include "rig.h"

#include <sys/mman.h>

#include "dev/dev.h"
#include "soft/engine/threads.h"
#include "soft/soft.h"
#include "util/clock.h"

#define DRIVE "soft:vram:1M?on=hsa:0&queues=2&link=0&slice=20"
#define COMMANDS 8u

/* The mock's GPU is threads of a machine that may be busy: they run late, and no launch is short of a place. */
struct gnv_vdrive;
void __wrap_gnv_vdrive_watch(struct gnv_vdrive *d);
void __wrap_gnv_vdrive_watch(struct gnv_vdrive *d)
{
	(void)d;
}

static unsigned char stamp(uint32_t i, uint32_t byte)
{
	return (unsigned char)(i * 31 + byte / 512 * 7 + byte + 1);
}

/* Command i moves one to eight blocks of its own. */
static void move_all(struct pair *p, uint32_t op)
{
	struct gpunvme_command cmd[COMMANDS];
	struct gpunvme_commands list = { sizeof(list), 4, COMMANDS / 4, cmd };
	uint32_t i;

	for (i = 0; i < COMMANDS; i++)
		cmd[i] = (struct gpunvme_command){ .offset = i * 4096ull, .lba = i * 8, .nblocks = i % 8 + 1, .op = op };
	good(gpunvme_run_commands(p->gpu, &p->dq, 1, &p->dbuf, &list));
	for (i = 0; i < COMMANDS; i++)
		assert_int_equal(cmd[i].status, 0);
}

static void write_and_read(const char *lanes)
{
	struct pair p;
	unsigned char *data;
	uint32_t i, byte;

	pair_open(&p, DRIVE, lanes, COMMANDS * 4096);
	data = gpunvme_mem_ptr(p.mem);
	for (i = 0; i < COMMANDS; i++)
		for (byte = 0; byte < 4096; byte++)
			data[i * 4096 + byte] = stamp(i, byte);
	move_all(&p, GPUNVME_IO_WRITE);
	memset(data, 0, COMMANDS * 4096);
	move_all(&p, GPUNVME_IO_READ);
	for (i = 0; i < COMMANDS; i++)
		for (byte = 0; byte < (i % 8 + 1) * 512; byte++)
			assert_int_equal(data[i * 4096 + byte], stamp(i, byte));
	pair_close(&p);
	nothing_left();
}

static void blocks_come_back(void **state)
{
	(void)state;
	write_and_read("cpu:4");
}

/* Launches of both run at the same time. */
static void threads_of_the_same_gpu(void **state)
{
	(void)state;
	write_and_read("hsa:0");
}

static void full(bool is)
{
	__atomic_store_n((bool *)mock_symbol("mock_full"), is, __ATOMIC_RELEASE);
}

/* Kernels of the program fill the GPU: closing ends, and can be repeated when they have ended. */
static void a_full_gpu(void **state)
{
	struct gpunvme_dev *dev;
	struct pair p;

	(void)state;
	pair_open(&p, DRIVE, "cpu:4", COMMANDS * 4096);
	dev = p.dev;
	dev->nvme.admin.timeout_ms = dev->nvme.ctrl.disable_ms = dev->nvme.ctrl.shutdown_ms = gnv_dev_soft(dev)->patience_ms = 300;
	full(true);
	gnv_sleep_ms(100); /* launches that had begun end */
	assert_int_equal(gpunvme_dev_close(dev), -EBUSY);
	assert_int_equal(gpunvme_dev_close(dev), -EBUSY);
	full(false);
	gnv_dev_soft(dev)->patience_ms = 60000;
	good(gpunvme_dev_close(dev));
	good(gpunvme_mem_free(p.mem));
	gpunvme_gpu_close(p.gpu);
	nothing_left();
}

/* Memory of the program goes before it is unmapped: the drive goes on with other memory, and the mapping can be ended. */
static void memory_that_went(void **state)
{
	const size_t len = 65536;
	void *own = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct gpunvme_mem *mem;
	struct pair p;

	(void)state;
	pair_open(&p, DRIVE, "cpu:4", COMMANDS * 4096);
	good(gpunvme_mem_register(p.gpu, own, len, &mem));
	good(gpunvme_mem_map(mem, p.dev));
	munmap(own, len);
	move_all(&p, GPUNVME_IO_WRITE);
	move_all(&p, GPUNVME_IO_READ);
	good(gpunvme_mem_unmap(mem, p.dev));
	good(gpunvme_mem_free(mem));
	pair_close(&p);
	nothing_left();
}

static void refused(const char *query, int err, const char *why)
{
	char drive[200];
	struct gpunvme_dev *dev;

	snprintf(drive, sizeof(drive), "soft:vram:%s", query);
	assert_int_equal(gpunvme_dev_open(drive, NULL, &dev), err);
	if (!strstr(gpunvme_errmsg(), why))
		fail_msg("%s: '%s' does not contain '%s'", query, gpunvme_errmsg(), why);
	nothing_left();
}

static void refusals_say_what_to_do(void **state)
{
	(void)state;
	refused("1M?on=hsa", -EINVAL, "as in on=hsa:0");
	refused("1M?on=hsa:7", -ENODEV, "");
	refused("1M?on=hsa:0&slice=0", -EINVAL, "Use slice=1 or more");
	refused("1M?on=rocm:0", -EINVAL, "on=hsa:N for an AMD GPU");
	pretend("MOCK_CLOCK", "1000");
	refused("1M?on=hsa:0", -EOPNOTSUPP, "its clock has 1000000000 Hz");
	pretend("MOCK_CLOCK", "100");
	pretend("MOCK_GFX", "gfx1030");
	refused("1M?on=hsa:0", -EOPNOTSUPP, "does not run on gfx1030");
	unsetenv("MOCK_GFX");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(blocks_come_back, clear),
		cmocka_unit_test_teardown(threads_of_the_same_gpu, clear),
		cmocka_unit_test_teardown(a_full_gpu, clear),
		cmocka_unit_test_teardown(memory_that_went, clear),
		cmocka_unit_test_teardown(refusals_say_what_to_do, clear),
	};
	struct gpunvme_gpu *gpu;

	if (gpunvme_gpu_open("hsa:0", NULL, &gpu)) {
		printf("skipped: %s\n", gpunvme_errmsg());
		return 77;
	}
	gpunvme_gpu_close(gpu);
	return cmocka_run_group_tests(tests, setup, teardown);
}
