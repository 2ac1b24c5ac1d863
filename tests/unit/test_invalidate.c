/* SPDX-License-Identifier: MIT */
/* The flush through registers, over a made-up sysfs and debug file system: files keep what is written. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "gpu/invalidate.h"
#include "os/amd/uapi/amdregs.h"

#define BDF "0000:03:00.0"
#define BASE 0x1260u

static char root[] = "/tmp/gpunvme-regs-XXXXXX";
static unsigned states;
static int state_errno;

int __wrap_ioctl(int fd, unsigned long request, ...);

int __wrap_ioctl(int fd, unsigned long request, ...)
{
	static const struct gnv_amdregs_state all;
	va_list args;

	va_start(args, request);
	assert_int_equal(request, 0xc0282000u); /* as umr calls it */
	assert_memory_equal(va_arg(args, void *), &all, sizeof(all));
	va_end(args);
	assert_true(fd >= 0);
	states++;
	errno = state_errno;
	return state_errno ? -1 : 0;
}

static void put(const char *path, const char *text)
{
	char full[300], *slash;
	FILE *f;

	snprintf(full, sizeof(full), "%s/%s", root, path);
	for (slash = strchr(full + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
		*slash = 0;
		mkdir(full, 0755);
		*slash = '/';
	}
	f = fopen(full, "w");
	assert_non_null(f);
	fputs(text, f);
	fclose(f);
}

static int open_file(const char *name)
{
	char path[300];
	int fd;

	snprintf(path, sizeof(path), "%s/debug/dri/1/%s", root, name);
	fd = open(path, O_RDWR);
	assert_true(fd >= 0);
	return fd;
}

static uint32_t get_reg(uint32_t reg)
{
	int fd = open_file("amdgpu_regs2");
	uint32_t value = 0;

	assert_true(pread(fd, &value, 4, reg * 4) >= 0);
	close(fd);
	return value;
}

static void set_reg(uint32_t reg, uint32_t value)
{
	int fd = open_file("amdgpu_regs2");

	assert_int_equal(pwrite(fd, &value, 4, reg * 4), 4);
	close(fd);
}

static void put_gc(const char *major, const char *minor, const char *revision)
{
	put("bus/pci/devices/" BDF "/ip_discovery/die/0/GC/0/major", major);
	put("bus/pci/devices/" BDF "/ip_discovery/die/0/GC/0/minor", minor);
	put("bus/pci/devices/" BDF "/ip_discovery/die/0/GC/0/revision", revision);
	put("bus/pci/devices/" BDF "/ip_discovery/die/0/GC/0/base_addr", "0x00001260\n0x0000a000\n0x02402c00\n");
}

static int begin(void **state)
{
	(void)state;
	strcpy(root, "/tmp/gpunvme-regs-XXXXXX");
	assert_non_null(mkdtemp(root));
	put("debug/dri/0/name", "simpledrm dev=simple-framebuffer.0 unique=simple\n");
	put("debug/dri/1/name", "amdgpu dev=" BDF " unique=" BDF "\n");
	put("debug/dri/1/amdgpu_regs2", "");
	put("debug/dri/1/amdgpu_gfxoff", "....");
	put_gc("11\n", "0\n", "0\n");
	states = 0;
	state_errno = 0;
	return 0;
}

static int end(void **state)
{
	char command[64];

	(void)state;
	snprintf(command, sizeof(command), "rm -rf %s", root);
	return system(command);
}

static int run(const char *bdf)
{
	char debug[64];

	snprintf(debug, sizeof(debug), "%s/debug", root);
	return gnv_gpu_invalidate_at(root, debug, bdf);
}

static void test_flush(void **state)
{
	static const struct {
		const char *revision;
		uint32_t req, ack;
	} table[] = { { "0\n", 0x16bc, 0x16ce }, { "2\n", 0x16bc, 0x16ce }, { "3\n", 0x16cc, 0x16de } };
	uint32_t powered = 0;
	int fd;

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		put_gc("11\n", "0\n", table[i].revision);
		put("debug/dri/1/amdgpu_regs2", "");
		set_reg(BASE + table[i].ack, 0xff00);
		states = 0;
		assert_int_equal(run(BDF), 0);
		assert_int_equal(get_reg(BASE + table[i].req), 0x00faff00); /* 8 to 15, heavy, every table */
		assert_int_equal(states, 2);				    /* one for each access */
	}
	fd = open_file("amdgpu_gfxoff");
	assert_int_equal(read(fd, &powered, 4), 4);
	close(fd);
	assert_int_equal(powered, 1); /* it may go to sleep again */
}

static void test_silent(void **state)
{
	(void)state;
	set_reg(BASE + 0x16ce, 0x7f00); /* one address space is missing */
	assert_int_equal(run(BDF), -ETIMEDOUT);
	assert_non_null(strstr(gpunvme_errmsg(), "0x7f00"));
	set_reg(BASE + 0x16ce, ~0u); /* no GPU returns this */
	assert_int_equal(run(BDF), -ETIMEDOUT);
}

static void test_refusals(void **state)
{
	static const char *const others[][3] = { { "10\n", "3\n", "0\n" }, { "11\n", "5\n", "0\n" }, { "12\n", "0\n", "1\n" } };
	char path[300];

	(void)state;
	for (unsigned i = 0; i < 3; i++) {
		put_gc(others[i][0], others[i][1], others[i][2]);
		assert_int_equal(run(BDF), -EOPNOTSUPP);
		assert_non_null(strstr(gpunvme_errmsg(), "RDNA3"));
	}
	assert_int_equal(states, 0); /* nothing was touched */
	put_gc("eleven\n", "0\n", "0\n");
	assert_int_equal(run(BDF), -ENOENT);
	assert_int_equal(run("0000:04:00.0"), -ENOENT);
	put_gc("11\n", "0\n", "0\n");
	state_errno = ENOTTY;
	assert_int_equal(run(BDF), -EIO);
	snprintf(path, sizeof(path), "%s/debug/dri/1/amdgpu_regs2", root);
	unlink(path);
	assert_int_equal(run(BDF), -ENOENT);
	assert_non_null(strstr(gpunvme_errmsg(), "5.15"));
	put("debug/dri/1/name", "amdgpu dev=0000:0a:00.0 unique=0000:0a:00.0\n"); /* another GPU */
	assert_int_equal(run(BDF), -ENOENT);
	assert_non_null(strstr(gpunvme_errmsg(), "no GPU " BDF));
	end(state);
	begin(state);
	snprintf(path, sizeof(path), "rm -rf %s/debug", root);
	assert_int_equal(system(path), 0);
	assert_int_equal(run(BDF), -ENOENT);
	assert_non_null(strstr(gpunvme_errmsg(), "mount"));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_flush, begin, end),
		cmocka_unit_test_setup_teardown(test_silent, begin, end),
		cmocka_unit_test_setup_teardown(test_refusals, begin, end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
