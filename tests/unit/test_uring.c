/* SPDX-License-Identifier: MIT */
/* Rings of any size carry what they are given: also few entries, which a queue of few requests asks for. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>
#include <cmocka.h>

#include "os/linux/uring.h"

static const unsigned sizes[] = { 1, 2, 3, 8, 15, 16, 17, 64 };
static int fd;

static int setup(void **state)
{
	(void)state;
	fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
	return fd < 0 ? -1 : 0;
}

static int teardown(void **state)
{
	(void)state;
	close(fd);
	return 0;
}

/* Kernels, and seccomp profiles, without io_uring. */
static void opened(int ret)
{
	if (ret == -EPERM || ret == -EOPNOTSUPP)
		exit(77);
	assert_int_equal(ret, 0);
}

static void await(struct gnv_uring *ring, unsigned count, int res, unsigned *seen)
{
	struct gnv_uring_done done;

	for (unsigned turn = 0; turn < 500 && *seen < count; turn++) {
		assert_int_equal(gnv_uring_turn(ring, 20000), 0);
		while (gnv_uring_reap(ring, &done, 1)) {
			assert_int_equal(done.res, res);
			++*seen;
		}
	}
	assert_int_equal(*seen, count);
}

static void test_reads(void **state)
{
	static char bytes[64][8];
	static struct iovec iov[64];
	struct gnv_uring *ring = NULL;

	(void)state;
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		unsigned seen = 0;

		opened(gnv_uring_open(sizes[i], 0, fd, &ring));
		for (unsigned n = 0; n < sizes[i]; n++) {
			iov[n] = (struct iovec){ bytes[n], sizeof(bytes[n]) };
			assert_int_equal(gnv_uring_rw(ring, false, &iov[n], 1, 0, -1, false, NULL), 0);
		}
		await(ring, sizes[i], sizeof(bytes[0]), &seen);
		gnv_uring_close(ring);
	}
}

/* /dev/zero takes no commands (io_uring_cmd(), io_uring/uring_cmd.c), and says so for each. */
static void test_commands(void **state)
{
	static const char cmd[GNV_URING_COMMAND];
	struct gnv_uring *ring = NULL;

	(void)state;
	for (unsigned i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
		unsigned seen = 0;

		opened(gnv_uring_open_wide(sizes[i], fd, &ring));
		for (unsigned n = 0; n < sizes[i]; n++)
			assert_int_equal(gnv_uring_command(ring, 1, cmd, sizeof(cmd), NULL), 0);
		await(ring, sizes[i], -EOPNOTSUPP, &seen);
		gnv_uring_close(ring);
	}
}

/* The same of a ring for the nvme driver, with the data in a registered buffer or not. */
static void test_nvme(void **state)
{
	static const char cmd[GNV_URING_COMMAND];
	struct gnv_uring *ring = NULL;
	unsigned seen = 0;

	(void)state;
	opened(gnv_uring_open_nvme(16, 4, fd, -1, &ring));
	for (unsigned n = 0; n < 16; n++)
		assert_int_equal(gnv_uring_command_fixed(ring, 1, cmd, sizeof(cmd), -1, NULL), 0);
	await(ring, 16, -EOPNOTSUPP, &seen);
	gnv_uring_close(ring);
}

/* What holds the disk is held as long as there are commands for it, whatever becomes of the process' own descriptor. */
static void test_held(void **state)
{
	struct gnv_uring *ring = NULL;
	int ends[2], n = -1;
	char byte;

	(void)state;
	assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
	opened(gnv_uring_open_nvme(8, 0, fd, ends[1], &ring));
	close(ends[1]);
	assert_int_equal(read(ends[0], &byte, 1), -1);
	assert_int_equal(errno, EAGAIN);
	gnv_uring_close(ring);
	for (unsigned turn = 0; turn < 500 && n < 0; turn++) {
		n = (int)read(ends[0], &byte, 1);
		usleep(n < 0 ? 20000 : 0);
	}
	assert_int_equal(n, 0);
	close(ends[0]);
}

/* A nudge completes by itself, whatever kind of ring it is, and however many requests are there. */
static void test_nudge(void **state)
{
	static char byte;
	struct iovec iov = { &byte, 1 };
	struct gnv_uring *ring = NULL;
	struct gnv_uring_done done;
	unsigned nudges = 0, reads = 0, wide;

	(void)state;
	for (wide = 0; wide < 2; wide++) {
		opened(wide ? gnv_uring_open_wide(2, fd, &ring) : gnv_uring_open(2, 0, fd, &ring));
		assert_int_equal(gnv_uring_rw(ring, false, &iov, 1, 0, -1, false, &byte), 0);
		gnv_uring_nudge(ring);
		gnv_uring_nudge(ring);
		for (unsigned turn = 0; turn < 500 && nudges + reads < 3 * (wide + 1); turn++) {
			gnv_uring_wait(ring, 20000);
			while (gnv_uring_reap(ring, &done, 1)) {
				assert_int_equal(done.res, done.tag ? 1 : 0);
				if (done.tag)
					reads++;
				else
					nudges++;
			}
		}
		gnv_uring_close(ring);
	}
	assert_int_equal(nudges, 4);
	assert_int_equal(reads, 2);
}

/* What was not handed over comes back with its own tag, however wide the entries are; the ring goes on. */
static void test_take_back(void **state)
{
	static const char cmd[GNV_URING_COMMAND];
	struct gnv_uring *ring = NULL;
	unsigned seen = 0;
	char tags[5];
	void *tag[5];

	(void)state;
	opened(gnv_uring_open_nvme(8, 0, fd, -1, &ring));
	for (unsigned turn = 0; turn < 4; turn++) { /* over the end of the ring */
		for (unsigned n = 0; n < 5; n++)
			assert_int_equal(gnv_uring_command(ring, 1, cmd, sizeof(cmd), &tags[n]), 0);
		assert_int_equal(gnv_uring_take_back(ring, tag, 2), 2);
		assert_ptr_equal(tag[0], &tags[4]);
		assert_ptr_equal(tag[1], &tags[3]);
		await(ring, 3 * (turn + 1), -EOPNOTSUPP, &seen);
	}
	assert_int_equal(gnv_uring_take_back(ring, tag, 5), 0);
	gnv_uring_close(ring);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_reads),
		cmocka_unit_test(test_commands),
		cmocka_unit_test(test_nvme),
		cmocka_unit_test(test_held),
		cmocka_unit_test(test_nudge),
		cmocka_unit_test(test_take_back),
	};

	return cmocka_run_group_tests_name("uring", tests, setup, teardown);
}
