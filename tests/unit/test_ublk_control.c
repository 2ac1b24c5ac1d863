/* SPDX-License-Identifier: MIT */
/*
 * Commands to ublk's control node are answered, also when the kernel's worker threads have left one lying. The ring is emulated,
 * from io_uring/io-wq.c of Linux 7.2: a worker that is ending is taken for one that will carry the command out
 * (io_acct_activate_free_worker()), it ends without a look (io_wq_worker(), io_worker_exit()), and the next work starts another
 * one, which carries out all that lies there.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cmocka.h>

#include "common/virtual.h"
#include "os/linux/ublk.h"
#include "os/linux/uring.h"
#include "util/clock.h"

#define ANSWER 5u

struct gnv_uring {
	struct gnv_uring_done done[4];
	unsigned count, waits;
	void *lying; /* the tag of the command that nobody carries out */
};

static struct gnv_uring ring;
static unsigned lose;	/* nudges, before which it is not carried out */
static unsigned nudges; /* that came */
static unsigned busy;	/* times that the driver returns so, before */
static unsigned open_rings, opened;

int __real_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...);
int __wrap_open(const char *path, int flags, ...)
{
	va_list args;
	mode_t mode;

	va_start(args, flags);
	mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
	va_end(args);
	return __real_open(strcmp(path, "/dev/ublk-control") ? path : "/dev/null", flags, mode);
}

static void complete(void *tag, int res)
{
	assert_true(ring.count < 4);
	ring.done[ring.count++] = (struct gnv_uring_done){ tag, res };
}

int __wrap_gnv_uring_open_wide(unsigned entries, int fd, struct gnv_uring **out);
int __wrap_gnv_uring_open_wide(unsigned entries, int fd, struct gnv_uring **out)
{
	assert_true(entries >= 2 && fd >= 0);
	memset(&ring, 0, sizeof(ring));
	open_rings++;
	opened++;
	*out = &ring;
	return 0;
}

int __wrap_gnv_uring_command(struct gnv_uring *r, uint32_t op, const void *cmd, size_t len, void *tag);
int __wrap_gnv_uring_command(struct gnv_uring *r, uint32_t op, const void *cmd, size_t len, void *tag)
{
	assert_ptr_equal(r, &ring);
	assert_int_equal(op, GNV_UBLK_START_DEV);
	assert_int_equal(len, sizeof(struct gnv_ublk_ctrl));
	assert_int_equal(((const struct gnv_ublk_ctrl *)cmd)->id, 3);
	assert_non_null(tag);
	if (lose)
		ring.lying = tag;
	else
		complete(tag, busy ? -EBUSY : (int)ANSWER);
	busy -= busy > 0;
	return 0;
}

int __wrap_gnv_uring_turn(struct gnv_uring *r, unsigned usec);
int __wrap_gnv_uring_turn(struct gnv_uring *r, unsigned usec)
{
	(void)r;
	(void)usec;
	return 0;
}

unsigned __wrap_gnv_uring_reap(struct gnv_uring *r, struct gnv_uring_done *done, unsigned max);
unsigned __wrap_gnv_uring_reap(struct gnv_uring *r, struct gnv_uring_done *done, unsigned max)
{
	assert_ptr_equal(r, &ring);
	if (!max || !ring.count)
		return 0;
	*done = ring.done[0];
	memmove(ring.done, ring.done + 1, --ring.count * sizeof(*done));
	return 1;
}

void __wrap_gnv_uring_wait(struct gnv_uring *r, unsigned usec);
void __wrap_gnv_uring_wait(struct gnv_uring *r, unsigned usec)
{
	assert_ptr_equal(r, &ring);
	assert_true(ring.waits++ < 100); /* nobody nudges */
	if (!ring.count)
		gnv_sleep_ms(usec / 1000);
}

/* The worker that it starts carries out what lies there, unless it is lost as well. */
void __wrap_gnv_uring_nudge(struct gnv_uring *r);
void __wrap_gnv_uring_nudge(struct gnv_uring *r)
{
	assert_ptr_equal(r, &ring);
	complete(NULL, 0);
	if (++nudges < lose || !ring.lying)
		return;
	complete(ring.lying, ANSWER);
	ring.lying = NULL;
}

void __wrap_gnv_uring_close(struct gnv_uring *r);
void __wrap_gnv_uring_close(struct gnv_uring *r)
{
	assert_ptr_equal(r, &ring);
	open_rings--;
}

static void check(unsigned lost)
{
	lose = lost;
	nudges = 0;
	assert_int_equal(gnv_ublk_control(GNV_UBLK_START_DEV, 3, NULL, 0), ANSWER);
	assert_int_equal(nudges, lost);
	assert_int_equal(open_rings, 0);
}

static void test_answered(void **state)
{
	(void)state;
	check(0);
}

static void test_left_lying(void **state)
{
	(void)state;
	check(1);
	check(2);
}

/* A wait until the disk has no user any more opens no ring for each look: the kernel ends its worker with each. */
static void test_busy(void **state)
{
	(void)state;
	opened = lose = 0;
	busy = 5;
	assert_int_equal(gnv_ublk_control_within(GNV_UBLK_START_DEV, 3, 10000), ANSWER);
	assert_int_equal(busy, 0);
	assert_int_equal(opened, 1);
	busy = UINT_MAX;
	assert_int_equal(gnv_ublk_control_within(GNV_UBLK_START_DEV, 3, 20), -EBUSY);
	busy = 1;
	assert_int_equal(gnv_ublk_control(GNV_UBLK_START_DEV, 3, NULL, 0), -EBUSY);
	assert_int_equal(open_rings, 0);
}

static bool waits(const char *stat)
{
	const char *const folders[] = { "", "/block", "/block/ublkb3" };
	char sys[] = "/tmp/ublk-XXXXXX", path[64];
	bool ret;
	FILE *f;

	assert_non_null(mkdtemp(sys));
	for (size_t i = 1; i < 3; i++) {
		snprintf(path, sizeof(path), "%s%s", sys, folders[i]);
		assert_int_equal(mkdir(path, 0700), 0);
	}
	snprintf(path, sizeof(path), "%s/block/ublkb3/stat", sys);
	f = fopen(path, "w");
	fputs(stat, f);
	fclose(f);
	ret = gnv_ublk_waits(sys, 3);
	assert_false(gnv_ublk_waits(sys, 4));
	remove(path);
	for (size_t i = 3; i--;) {
		snprintf(path, sizeof(path), "%s%s", sys, folders[i]);
		assert_int_equal(rmdir(path), 0);
	}
	return ret;
}

/* block/genhd.c, part_stat_show() */
static void test_waits(void **state)
{
	(void)state;
	assert_false(waits("      42        0     1344        7        3        0       24        1        0        8        9"
			   "        0        0        0        0        1        0\n"));
	assert_true(waits("      42        0     1344        7        3        0       24        1        2        8        9"
			  "        0        0        0        0        1        0\n"));
	assert_false(waits(""));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_answered),
		cmocka_unit_test(test_left_lying),
		cmocka_unit_test(test_busy),
		cmocka_unit_test(test_waits),
	};

	virtual_begin(NULL, NULL);
	return cmocka_run_group_tests_name("ublk_control", tests, NULL, NULL);
}
