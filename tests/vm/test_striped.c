/* SPDX-License-Identifier: MIT */
/*
 * A volume striped over block devices: threads write and read it, and the stripes lie where queue.h says. For the guest of
 * tests/vm: GPUNVME_TEST_DISKS names the block devices, GPUNVME_TEST_SECONDS how long threads go on, whatever happens to the drives
 * meanwhile.
 */
#include <gpunvme/device.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "common/good.h"

#define DISKS 4u
#define BLOCK 512u
#define LANES 8u
#define PIECE 300u /* blocks of one transfer: it lies on both members, as a stripe has 256 */
#define PIECES 4u  /* of a thread */
#define COMMAND_MS 120000 /* longer than any cut of the scenario */

struct stage {
	char disk[DISKS][64];
	struct gpunvme_dev *dev[DISKS];
	uint32_t disks, round, stripe;
	struct gpunvme_gpu *gpu;
	struct gpunvme_queue *vol;
	struct gpunvme_mem *mem;
	struct gpunvme_dvol v;
	struct gpunvme_dvbuf buf;
	int status;	/* of the first transfer that failed; atomic */
	uint64_t wrong; /* blocks; atomic */
};

static void read_names(struct stage *s)
{
	const char *names = getenv("GPUNVME_TEST_DISKS");
	int at = 0;

	assert_non_null(names);
	while (s->disks < DISKS && sscanf(names, "%63s%n", s->disk[s->disks], &at) == 1) {
		names += at;
		s->disks++;
	}
	assert_in_range(s->disks, 2, DISKS);
}

static void open_stage(struct stage *s)
{
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_view view = GPUNVME_VIEW_INIT;
	char uri[96];
	uint32_t i;

	for (i = 0; i < s->disks; i++) {
		snprintf(uri, sizeof(uri), "soft:%s?lba=512", s->disk[i]);
		good(gpunvme_dev_open(uri, NULL, &s->dev[i]));
	}
	good(gpunvme_gpu_open("cpu:1", NULL, &s->gpu));
	opts.queues = 1;
	opts.cmd_timeout_ms = COMMAND_MS;
	good(gpunvme_queue_create_striped(s->dev, s->disks, s->gpu, &opts, &s->vol));
	view.flags = GPUNVME_VIEW_WRITE;
	good(gpunvme_queue_view(s->vol, &view, &s->v));
	good(gpunvme_mem_alloc(s->gpu, NULL, (size_t)LANES * 2 * PIECE * BLOCK, NULL, &s->mem));
	good(gpunvme_mem_map_queue(s->mem, s->vol, &s->buf));
	s->stripe = 1u << s->v.stripe_shift;
}

static void close_stage(struct stage *s)
{
	uint32_t i;

	good(gpunvme_queue_destroy(s->vol));
	good(gpunvme_mem_free(s->mem));
	gpunvme_gpu_close(s->gpu);
	for (i = 0; i < s->disks; i++)
		good(gpunvme_dev_close(s->dev[i]));
}

/* Each word of the volume tells where it is, and of which round. */
static uint64_t word_of(const struct stage *s, uint64_t lba, uint32_t i)
{
	return (uint64_t)s->round << 48 | lba << 8 | i;
}

static uint64_t first_of(uint32_t lane, uint32_t piece)
{
	return ((uint64_t)piece * LANES + lane) * PIECE;
}

static int check_block(const struct stage *s, uint64_t lba, const uint64_t *words)
{
	uint32_t i;

	for (i = 0; i < BLOCK / 8; i++)
		if (words[i] != word_of(s, lba, i))
			return 1;
	return 0;
}

static void move(struct stage *s, uint32_t lane, uint64_t lba)
{
	uint64_t out = (uint64_t)lane * 2 * PIECE * BLOCK, in = out + PIECE * BLOCK, i;
	uint64_t *words = (uint64_t *)(uintptr_t)(s->buf.base + out), wrong = 0;
	int ret, none = 0;

	for (i = 0; i < PIECE * BLOCK / 8; i++)
		words[i] = word_of(s, lba + i / (BLOCK / 8), (uint32_t)(i % (BLOCK / 8)));
	ret = gpunvme_write(&s->v, &s->buf, out, lba * BLOCK, (uint64_t)PIECE * BLOCK, 0);
	ret = ret ? ret : gpunvme_flush(&s->v);
	memset(words + PIECE * BLOCK / 8, 0xee, PIECE * BLOCK);
	ret = ret ? ret : gpunvme_read(&s->v, &s->buf, in, lba * BLOCK, (uint64_t)PIECE * BLOCK);
	for (i = 0; i < PIECE && !ret; i++)
		wrong += (uint64_t)check_block(s, lba + i, words + (PIECE + i) * (BLOCK / 8));
	__atomic_fetch_add(&s->wrong, wrong, __ATOMIC_RELAXED);
	if (ret)
		__atomic_compare_exchange_n(&s->status, &none, ret, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

static void kernel(void *arg)
{
	struct stage *s = arg;
	uint32_t piece;

	for (piece = 0; piece < PIECES; piece++)
		move(s, gpunvme_thread_id(), first_of(gpunvme_thread_id(), piece));
}

/* What the last round wrote, as the kernel reads it from each drive. */
static void check_disks(const struct stage *s)
{
	uint64_t words[BLOCK / 8], lba, stripe;
	uint32_t i;
	int fd[DISKS];

	for (i = 0; i < s->disks; i++) {
		fd[i] = open(s->disk[i], O_RDONLY);
		assert_true(fd[i] >= 0);
	}
	for (lba = 0; lba < (uint64_t)LANES * PIECES * PIECE; lba++) {
		stripe = lba / s->stripe;
		assert_int_equal(pread(fd[stripe % s->disks], words, BLOCK,
				       (off_t)((stripe / s->disks * s->stripe + lba % s->stripe) * BLOCK)),
				 BLOCK);
		assert_int_equal(check_block(s, lba, words), 0);
	}
	for (i = 0; i < s->disks; i++)
		close(fd[i]);
}

static void stripes_lie_where_they_belong(void **state)
{
	const char *seconds = getenv("GPUNVME_TEST_SECONDS");
	time_t until = time(NULL) + (seconds ? atoi(seconds) : 0);
	struct stage s = { .round = 0 };

	(void)state;
	read_names(&s);
	open_stage(&s);
	do {
		s.round++;
		good(gpunvme_cpu_launch(LANES, 1, kernel, &s));
		good(s.status);
		assert_int_equal(s.wrong, 0);
	} while (time(NULL) < until);
	close_stage(&s);
	check_disks(&s);
	print_message("%u rounds\n", s.round);
}

int main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(stripes_lie_where_they_belong) };

	return cmocka_run_group_tests_name("striped", tests, NULL, NULL);
}
