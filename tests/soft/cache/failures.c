/* SPDX-License-Identifier: MIT */
/* Reads that fail or never end, queues that end while threads read, and options that are refused. */
#include "stage.h"

#include <errno.h>
#include <gpunvme/device.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#include "calls.h"
#include "common/wait.h"

/* ---- Pages that cannot be read ---- */

#define STUCK 7u /* a page whose reader never ends */

/* One thread waits for it; the other keeps the queue moving until the first has been told. */
static void wait_for_ever(void *arg)
{
	struct stage *s = arg;
	struct gpunvme_dq hasty = s->dq;
	struct gpunvme_page page;
	uint64_t value, i = 0;
	const struct gpunvme_cached_queue src = { &hasty, &s->pages };

	if (gpunvme_thread_id()) {
		do
			note(s, !get_word(s, 512 * (STUCK + 1 + i++ % 100), &value));
		while (!__atomic_load_n(&s->told, __ATOMIC_ACQUIRE));
		return;
	}
	hasty.cmd_timeout = 250 * hasty.ticks_per_ms;
	note(s, gpunvme_page_get(&src, STUCK, &page) == -GPUNVME_ETIMEDOUT);
	__atomic_store_n(&s->told, 1, __ATOMIC_RELEASE);
}

static void wait_for_a_page_ends(void **state)
{
	struct stage s = { AS(state), .lanes = 2, .width = 1, .page_size = 4096, .frames = 4 };
	uint64_t *word;

	stage_open(&s, "");
	word = (uint64_t *)(uintptr_t)s.pages.table + STUCK;
	*word = GPUNVME_PAGE_READING;
	run(&s, wait_for_ever);
	assert_int_equal(*word, GPUNVME_PAGE_READING);
	*word = 0;
	check_quiet(&s);
	stage_close(&s);
}

#define BAD 400u /* the page of blocks 3200 to 3207: the library, which proves a device by reads of 1 MiB, does not come so far */

/* That page is bad: all threads get that error, each time, and nothing else suffers. */
static void get_past_a_bad_page(void *arg)
{
	struct stage *s = arg;
	uint64_t seed = gpunvme_thread_id() + 3, value, i;
	uint32_t round;
	int ret;

	for (round = 0; round < s->rounds; round++) {
		i = round % 2 ? next_random(&seed) % s->words : 512 * BAD + gpunvme_thread_id();
		ret = get_word(s, i, &value);
		note(s, i / 512 == BAD ? ret == 0x281 : !ret && value == word_of(s, i, 0));
	}
}

static void errors_belong_to_their_page(void **state)
{
	struct stage s = { AS(state), .lanes = 96, .width = 8, .rounds = 20, .page_size = 4096, .frames = 4 };

	stage_open(&s, "?fault=status:0x281:op=read:lba=3200-3207");
	run(&s, get_past_a_bad_page);
	assert_true(info_of(&s).failures > 0);
	assert_int_equal(info_of(&s).lost, 0);
	check_quiet(&s);
	stage_close(&s);
}

/* All ask once. Those that waited for the read that failed get that error; others may have read anew. */
static void get_once(void *arg)
{
	struct stage *s = arg;
	uint64_t value = 0;
	int ret = get_word(s, 512 * BAD + gpunvme_thread_id(), &value);

	s->ret[gpunvme_thread_id()] = ret;
	note(s, ret == 0x281 || (!ret && value == word_of(s, 512 * BAD + gpunvme_thread_id(), 0)));
}

static void error_is_not_for_ever(void **state)
{
	struct stage s = { AS(state), .lanes = 64, .width = 8, .page_size = 4096, .frames = 4 };
	uint32_t i, failed = 0;

	stage_open(&s, "?fault=status:0x281:op=read:lba=3200-3207:count=1");
	run(&s, get_once);
	for (i = 0; i < s.lanes; i++)
		failed += s.ret[i] != 0;
	assert_true(failed > 0);
	assert_int_equal(info_of(&s).failures, 1);
	run(&s, get_once);
	for (i = 0; i < s.lanes; i++)
		assert_int_equal(s.ret[i], 0);
	check_quiet(&s);
	stage_close(&s);
}

/* ---- Queues that end ---- */

/* Until the first failure, which comes: each thread wants pages that are not there. */
static void get_until_the_end(void *arg)
{
	struct stage *s = arg;
	uint64_t seed = gpunvme_thread_id() + 5, value, i;
	int ret;

	do {
		i = next_random(&seed) % s->words;
		ret = get_word(s, i, &value);
		if (!ret)
			note(s, value == word_of(s, i, 0));
	} while (!ret);
	s->ret[gpunvme_thread_id()] = ret;
}

static void *run_until_the_end(void *arg)
{
	launch(arg, get_until_the_end);
	return NULL;
}

static void stop_is_answered(void **state)
{
	struct stage s = { AS(state), .lanes = 64, .width = 8, .page_size = 4096, .frames = 4 };
	pthread_t thread;
	uint32_t i;

	stage_open(&s, "");
	assert_int_equal(pthread_create(&thread, NULL, run_until_the_end, &s), 0);
	for (i = 0; i < 60000 && __atomic_load_n(&s.asked, __ATOMIC_RELAXED) < 200; i++)
		usleep(1000);
	gpunvme_queue_stop(s.qp, 1);
	pthread_join(thread, NULL);
	for (i = 0; i < s.lanes; i++)
		assert_int_equal(s.ret[i], -GPUNVME_ECANCELED);
	check_quiet(&s);
	stage_close(&s);
}

/*
 * Some read is never answered: the queue ends, for all; recovered, it serves the same cache with all its frames. -EAGAIN: a thread
 * has waited for a frame as long as the others for their reads.
 */
static void lost_read_is_answered(void **state)
{
	struct stage s = { AS(state), .lanes = 64, .width = 8, .timeout_ms = 500, .page_size = 4096, .frames = 40 };
	uint32_t i;
	int ret;

	stage_open(&s, "?fault=lose:op=read:after=2000:count=1");
	run(&s, get_until_the_end);
	for (i = 0; i < s.lanes; i++) {
		ret = s.ret[i];
		assert_true(ret == -GPUNVME_ETIMEDOUT || ret == -GPUNVME_ESHUTDOWN || ret == -GPUNVME_EAGAIN);
	}
	assert_true(info_of(&s).lost > 0);
	check_quiet(&s);
	stage_recover(&s);
	s.rounds = 4;
	s.asked = 0;
	s.dq.cmd_timeout *= 100; /* half a second may be too little on a busy machine */
	run(&s, get_first);
	assert_int_equal(s.asked, s.lanes * s.rounds);
	check_quiet(&s);
	stage_close(&s);
}

static uint32_t in_flight(struct stage *s)
{
	struct gpunvme_queue_info info = { .size = sizeof(info) };

	assert_int_equal(gpunvme_queue_get_info(s->qp, &info), 0);
	return info.in_flight;
}

/* Stop threads while the device reads; a machine that sleeps for so long that the reads have ended tries again. */
static void stop_while_it_reads(struct stage *s)
{
	pthread_t thread;

	while (!info_of(s).lost) {
		gpunvme_queue_stop(s->qp, 0);
		assert_int_equal(pthread_create(&thread, NULL, run_until_the_end, s), 0);
		wait_until(in_flight(s) >= info_of(s).frames);
		gpunvme_queue_stop(s->qp, 1);
		pthread_join(thread, NULL);
	}
}

struct poller {
	const struct gpunvme_dq *dq;
	uint32_t stop; /* atomic */
};

static void *poll_queue(void *arg)
{
	struct poller *p = arg;

	gpunvme_poll_queue(p->dq, 1, (uintptr_t)&p->stop);
	return NULL;
}

static void wait_until_quiet(struct stage *s)
{
	struct poller poller = { .dq = &s->dq };
	pthread_t thread;

	assert_int_equal(pthread_create(&thread, NULL, poll_queue, &poller), 0);
	wait_until(!in_flight(s));
	__atomic_store_n(&poller.stop, 1, __ATOMIC_RELEASE);
	pthread_join(thread, NULL);
}

/* Nobody takes completions between the kernels, so what was in flight remains so until a thread polls the queue. */
static void lost_frames_come_back(void **state)
{
	struct stage s = { AS(state), .lanes = 64, .width = 8, .rounds = 4, .page_size = 4096, .frames = 4 };
	uint64_t lost;

	stage_open(&s, "?fault=delay:50000:op=read");
	stop_while_it_reads(&s);
	lost = info_of(&s).lost;
	assert_int_equal(gpunvme_cache_view(s.cache, &s.pages), 0);
	assert_int_equal(info_of(&s).lost, lost);
	check_quiet(&s);
	gpunvme_queue_stop(s.qp, 0);
	wait_until_quiet(&s);
	assert_int_equal(gpunvme_cache_view(s.cache, &s.pages), 0);
	assert_int_equal(info_of(&s).lost, 0);
	s.asked = 0;
	run(&s, get_first);
	assert_int_equal(s.asked, s.lanes * s.rounds);
	check_quiet(&s);
	stage_close(&s);
}

static void dead_controller_is_answered(void **state)
{
	struct stage s = { AS(state), .lanes = 64, .width = 8, .timeout_ms = 500, .dies = true, .page_size = 4096, .frames = 40 };
	uint32_t i;

	stage_open(&s, "?fault=cfs:op=read:after=2000");
	run(&s, get_until_the_end);
	for (i = 0; i < s.lanes; i++)
		assert_true(s.ret[i] == -GPUNVME_ETIMEDOUT || s.ret[i] == -GPUNVME_ESHUTDOWN || s.ret[i] == -GPUNVME_ENODEV ||
			    s.ret[i] == -GPUNVME_EAGAIN);
	check_quiet(&s);
	stage_close(&s);
}

/* ---- Bad input ---- */

static void refuses(struct stage *s, const struct gpunvme_cache_opts *opts, int want, const char *says)
{
	struct gpunvme_cache *cache = NULL;

	assert_int_equal(gpunvme_cache_create(s->qp, opts, &cache), want);
	assert_null(cache);
	assert_non_null(strstr(gpunvme_errmsg(), says));
}

static void bad_options_are_refused(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1 };
	struct gpunvme_cache_opts opts = GPUNVME_CACHE_OPTS_INIT;
	struct gpunvme_cache_info info = { .size = sizeof(info) };
	struct gpunvme_cache *cache;
	struct gpunvme_dpages pages;

	stage_open(&s, "?lba=4096");
	assert_int_equal(gpunvme_cache_get_info(s.cache, &info), 0);
	assert_int_equal(info.page_size, 4096);
	assert_int_equal(info.frames, s.words / 512); /* no more than there are pages */
	opts.page_size = 5000;
	refuses(&s, &opts, -EINVAL, "power of two");
	opts.page_size = 256;
	refuses(&s, &opts, -EINVAL, "512 to 65536");
	opts.page_size = 131072;
	refuses(&s, &opts, -EINVAL, "512 to 65536");
	opts.page_size = 512;
	refuses(&s, &opts, -EINVAL, "less than a block");
	opts = (struct gpunvme_cache_opts)GPUNVME_CACHE_OPTS_INIT;
	opts.lba = 506;
	opts.nblocks = 7;
	refuses(&s, &opts, -ERANGE, "not within namespace");
	opts.lba = UINT64_MAX;
	refuses(&s, &opts, -ERANGE, "not within namespace");
	opts = (struct gpunvme_cache_opts)GPUNVME_CACHE_OPTS_INIT;
	opts.flags = 1 | 1u << 30;
	refuses(&s, &opts, -EINVAL, "flags 0x40000000");
	opts.flags = GPUNVME_CACHE_LANDING | GPUNVME_CACHE_IN_PLACE;
	refuses(&s, &opts, -EINVAL, "both be copied and stay");
	opts.flags = 0;
	opts.nsid = 9;
	assert_int_not_equal(gpunvme_cache_create(s.qp, &opts, &cache), 0);
	refuses(&s, &(struct gpunvme_cache_opts){ .size = 8 }, -EINVAL, "size is 8");
	assert_int_equal(gpunvme_cache_create(NULL, NULL, &cache), -EINVAL);
	assert_int_equal(gpunvme_cache_view(NULL, &pages), -EINVAL);
	assert_int_equal(gpunvme_cache_view_v(s.cache, &pages, 9u << 16, sizeof(pages)), -EPROTONOSUPPORT);
	assert_int_equal(gpunvme_cache_destroy(NULL), 0);
	stage_close(&s);
}

int run_read_failures(void)
{
	const struct CMUnitTest tests[] = {
		ROW(errors_belong_to_their_page, NAMESPACE, PLAIN),
		ROW(errors_belong_to_their_page, NAMESPACE, COPIED),
		ROW(error_is_not_for_ever, NAMESPACE, PLAIN),
		ROW(wait_for_a_page_ends, NAMESPACE, PLAIN),
		ROW(stop_is_answered, NAMESPACE, PLAIN),
		ROW(lost_read_is_answered, NAMESPACE, PLAIN),
		ROW(lost_frames_come_back, NAMESPACE, PLAIN),
		ROW(lost_frames_come_back, NAMESPACE, COPIED),
		ROW(dead_controller_is_answered, NAMESPACE, PLAIN),
		ROW(bad_options_are_refused, NAMESPACE, PLAIN),
	};

	return cmocka_run_group_tests(tests, stage_make, stage_remove);
}
