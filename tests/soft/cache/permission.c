/* SPDX-License-Identifier: MIT */
/* Sources that may not be written, devices that are closed, a file that becomes shorter, and calls that are refused. */
#include "stage.h"

#include <errno.h>
#include <gpunvme/device.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "common/image.h"
#include "file/file.h"

/* ---- Sources that may not be written ---- */

static void put_one(void *arg)
{
	struct stage *s = arg;

	note(s, !put_word(s, 1, word_of(s, 1, 1)));
	s->version[1] = 1;
}

#if STAGE_FILES
/* A file that was opened for reading has no such cache; one whose lease is gone is not written any more. */
static void files_must_be_writable(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .frames = 4 };
	struct gpunvme_cache *cache = NULL;

	stage_open(&s, "");
	run(&s, put_one);
	s.of_file->info.writable = 0; /* as gpunvme_file_unlease() leaves it */
	assert_int_equal(gpunvme_cache_flush(s.cache), -EROFS);
	assert_non_null(strstr(gpunvme_errmsg(), "gpunvme_file_unlease()"));
	assert_int_equal(info_of(&s).changed, 1);
	assert_int_equal(gpunvme_cache_discard(s.cache), 0);
	assert_int_equal(stage_create(&s, &cache), -EROFS);
	assert_non_null(strstr(gpunvme_errmsg(), "gpunvme_file_lease()"));
	assert_null(cache);
	s.version[1] = 0;
	check_images(&s);
	stage_close(&s);
}
#endif

static void put_by_views(void *arg)
{
	struct stage *s = arg;
	uint64_t value = 1, twice[2];
	struct gpunvme_dvol v = s->v;
	struct gpunvme_dpages pages = s->pages;
	const struct gpunvme_writable_volume by_v = { &v, &s->pages };
	const struct gpunvme_writable_volume of_pages = { &s->v, &pages };
	const struct gpunvme_writable_file writable_file = { (const struct gpunvme_dq *)(uintptr_t)s->v.dq, &s->pages };
	const struct gpunvme_writable_queue writable_queue = { (const struct gpunvme_dq *)(uintptr_t)s->v.dq, &s->pages };

	v.flags &= ~(uint32_t)GPUNVME_DQ_WRITE;
	note(s, gpunvme_array_store(&by_v, 0, 8, &value) == -GPUNVME_EROFS);
	v = s->v;
	v.members = 2;
	note(s, gpunvme_array_store(&by_v, 0, 8, &value) == -GPUNVME_EXDEV);
	pages.flags &= ~(uint32_t)GPUNVME_DPAGES_WRITABLE;
	note(s, gpunvme_array_store(&of_pages, 0, 8, &value) == -GPUNVME_EROFS);
	note(s, gpunvme_array_store(&writable_file, 0, 8, &value) == -GPUNVME_EINVAL);
	note(s, gpunvme_array_store(&writable_queue, 0, 8, &value) == -GPUNVME_EINVAL);
	note(s, flush(s, 1, 1) == -GPUNVME_EINVAL);
	note(s, put_word(s, s->words, 1) == -GPUNVME_ERANGE);
	note(s, put_range(s, s->words - 1, 2, twice) == -GPUNVME_ERANGE);
}

static void volumes_must_be_writable(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .frames = 4 };
	struct gpunvme_cache *cache = NULL;

	stage_open(&s, "");
	run(&s, put_by_views);
	assert_int_equal(info_of(&s).changed, 0);
	check_images(&s);
	stage_close(&s);
	s = (struct stage){ AS(state), .lanes = 1, .width = 1, .frames = 4 };
	stage_open_devices(&s, "?ro=1");
	assert_int_equal(stage_create(&s, &cache), -EROFS);
	assert_null(cache);
	stage_close(&s);
}

/* ---- Devices that are closed ---- */

/* One of the controllers is closed: nothing is written any more, and the changes are forgotten. */
static void changes_outlive_no_device(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .page_size = 4096, .frames = 8 };
	uint32_t m, last = stage_members(&s) - 1;

	stage_open(&s, "");
	run(&s, put_one);
	assert_int_equal(s.source == VOLUME ? gpunvme_queue_destroy(s.vol) : gpunvme_queue_destroy(s.qp), 0);
	assert_int_equal(gpunvme_dev_close(s.dev[last]), 0);
	assert_int_equal(gpunvme_cache_destroy(s.cache), -EBUSY);
	assert_int_equal(gpunvme_cache_flush(s.cache), -ENODEV);
	assert_non_null(strstr(gpunvme_errmsg(), "gpunvme_cache_discard"));
	assert_int_equal(gpunvme_cache_discard(s.cache), 0);
	assert_int_equal(gpunvme_cache_destroy(s.cache), 0);
	gpunvme_gpu_close(s.gpu);
	for (m = 0; m < last; m++)
		assert_int_equal(gpunvme_dev_close(s.dev[m]), 0);
	s.version[1] = 0;
	check_images(&s);
	stage_free(&s);
}

/* ---- A file that becomes shorter ---- */

#if STAGE_FILES
#define FILE_WORDS 20010u /* more than it has */
#define SHORT_BYTES 4096u

static void run_debugfs(const char *request)
{
	char command[1024];

	snprintf(command, sizeof(command), "PATH=$PATH:/sbin:/usr/sbin debugfs -w -R '%s' %s >/dev/null 2>&1", request, image_path("fs.img"));
	assert_int_equal(system(command), 0);
}

static void look_at_all(void *arg)
{
	struct stage *s = arg;
	uint64_t i, value = 0;

	for (i = gpunvme_thread_id(); i < FILE_WORDS; i += s->lanes)
		if (i < s->words)
			note(s, !get_word(s, i, &value) && value == word_of(s, i, 0));
		else
			note(s, get_word(s, i, &value) == -GPUNVME_ERANGE);
}

/* A cache of the file as it is now. */
static void open_anew(struct stage *s)
{
	const struct gpunvme_file_opts file = { .size = sizeof(file), .flags = GPUNVME_FILE_WRITE };

	assert_int_equal(gpunvme_cache_destroy(s->cache), 0);
	gpunvme_file_close(s->of_file);
	assert_int_equal(gpunvme_file_open(s->dev[0], "/file", &file, &s->of_file), 0);
	assert_int_equal(stage_create(s, &s->cache), 0);
	stage_view(s);
}

/*
 * A cache from before reads what the blocks have, to the old end; one that is made then has the new end. No thread is left waiting.
 */
static void files_may_shrink(void **state)
{
	struct stage s = { AS(state), .page_size = 1024, .frames = 16, .lanes = 16, .width = 4 };

	stage_open(&s, "");
	run_debugfs("punch file 4 156");
	run_debugfs("set_inode_field file size 4096");
	run(&s, look_at_all);
	open_anew(&s);
	s.words = SHORT_BYTES / 8;
	run(&s, look_at_all);
	assert_int_equal(s.asked, 2 * FILE_WORDS);
	stage_close(&s);
}
#endif

/* ---- Bad calls ---- */

static void bad_calls_are_refused(void **state)
{
	struct stage s = { AS(state), .lanes = 1, .width = 1, .frames = 4 };
	struct gpunvme_cache_opts opts = GPUNVME_CACHE_OPTS_INIT;
	struct gpunvme_cache *cache = NULL;
	struct gpunvme_queue *queue;
	struct gpunvme_dev *dev;
	char uri[512];

	stage_open(&s, "");
	assert_int_equal(gpunvme_cache_create(s.qp, &opts, &cache), 0);
	assert_int_equal(gpunvme_cache_flush(cache), -EINVAL);
	assert_non_null(strstr(gpunvme_errmsg(), "GPUNVME_CACHE_WRITE_BACK"));
	assert_int_equal(gpunvme_cache_discard(cache), -EINVAL);
	assert_int_equal(gpunvme_cache_discard(NULL), -EINVAL);
	opts.flags = GPUNVME_CACHE_WRITE_BACK | GPUNVME_CACHE_PREFETCH;
	assert_int_equal(gpunvme_cache_create(s.qp, &opts, &(struct gpunvme_cache *){ NULL }), -EINVAL);
	assert_non_null(strstr(gpunvme_errmsg(), "prefetched or changed, not both"));
	assert_int_equal(gpunvme_cache_destroy(cache), 0);
	stage_close(&s);
	cache = NULL;
	snprintf(uri, sizeof(uri), "soft:%s?ro=1", stage_path(&s, 0));
	assert_int_equal(gpunvme_dev_open(uri, NULL, &dev), 0);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &s.gpu), 0);
	assert_int_equal(gpunvme_queue_create(dev, s.gpu, NULL, &queue), 0);
	opts.flags = GPUNVME_CACHE_WRITE_BACK;
	assert_int_equal(gpunvme_cache_create(queue, &opts, &cache), -EROFS);
	assert_null(cache);
	assert_non_null(strstr(gpunvme_errmsg(), "opened read-only"));
	gpunvme_queue_destroy(queue);
	gpunvme_gpu_close(s.gpu);
	gpunvme_dev_close(dev);
}

int run_refused_changes(void)
{
	const struct CMUnitTest tests[] = {
		ROW(changes_outlive_no_device, NAMESPACE, WRITE_BACK),
		ROW(changes_outlive_no_device, NAMESPACE, WRITE_BACK | COPIED),
		ROW(changes_outlive_no_device, VOLUME, WRITE_BACK),
		ROW(volumes_must_be_writable, VOLUME, WRITE_BACK),
		ROW(bad_calls_are_refused, NAMESPACE, WRITE_BACK),
		ROW(bad_calls_are_refused, NAMESPACE, WRITE_BACK | COPIED),
#if STAGE_FILES
		ROW(files_must_be_writable, OF_FILE, WRITE_BACK),
		ROW(files_may_shrink, OF_FILE, WRITE_BACK),
#endif
	};

	return cmocka_run_group_tests(tests, stage_make, stage_remove);
}
