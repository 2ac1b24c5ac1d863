/* SPDX-License-Identifier: MIT */
/*
 * Pages of files and volumes that lanes change: what they find again, what the images have afterwards, and that nothing else in them
 * has changed. Holes and ends, which are refused; writes that are never answered; files that kernels may not write to.
 */
#include <gpunvme/device_writable_sources.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "arrays.h"
#include "common/image.h"
#include "file/fs.h"
#include "sources.h"

/* ---- Calls ---- */

static int put(struct sources *s, uint64_t i, uint64_t value)
{
	return s->file ? gpunvme_file_array_put(&s->dq, &s->pages, i, 8, &value) : gpunvme_volume_array_put(&s->v, &s->pages, i, 8, &value);
}

static int put_range(struct sources *s, uint64_t i, uint64_t n, const uint64_t *from)
{
	return s->file ? gpunvme_file_array_put_range(&s->dq, &s->pages, i, n, 8, from) :
			 gpunvme_volume_array_put_range(&s->v, &s->pages, i, n, 8, from);
}

static int get(struct sources *s, uint64_t i, uint64_t *value)
{
	return s->file ? gpunvme_file_writable_array_get(&s->dq, &s->pages, i, 8, value) :
			 gpunvme_volume_writable_array_get(&s->v, &s->pages, i, 8, value);
}

static int get_range(struct sources *s, uint64_t i, uint64_t n, uint64_t *to)
{
	return s->file ? gpunvme_file_writable_array_get_range(&s->dq, &s->pages, i, n, 8, to) :
			 gpunvme_volume_writable_array_get_range(&s->v, &s->pages, i, n, 8, to);
}

static int get_page(struct sources *s, uint64_t page, struct gpunvme_page *p)
{
	return s->file ? gpunvme_file_writable_page_get(&s->dq, &s->pages, page, p) :
			 gpunvme_volume_writable_page_get(&s->v, &s->pages, page, p);
}

static int put_page(struct sources *s, struct gpunvme_page *p, uint32_t offset, uint32_t bytes)
{
	return s->file ? gpunvme_file_writable_page_put(&s->dq, &s->pages, p, offset, bytes) :
			 gpunvme_volume_writable_page_put(&s->v, &s->pages, p, offset, bytes);
}

static int flush(struct sources *s, uint32_t part, uint32_t parts)
{
	return s->file ? gpunvme_file_writable_flush(&s->dq, &s->pages, part, parts) :
			 gpunvme_volume_writable_flush(&s->v, &s->pages, part, parts);
}

/* ---- Many lanes ---- */

/* A word of this lane's, of a page that all use. */
static uint64_t draw(const struct sources *s, uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return (*seed >> 33) % (s->words / s->lanes) * s->lanes + gpunvme_lane();
}

static int change_by_page(struct sources *s, uint64_t i, uint64_t value)
{
	uint64_t page = i * 8 >> s->pages.page_shift, offset = i * 8 - (page << s->pages.page_shift);
	struct gpunvme_page p = { 0, 0 };
	int ret = get_page(s, page, &p);

	if (ret)
		return ret;
	sources_note(s, gnvd_ld64(p.base + offset) == sources_word(s, i, s->version[i]));
	gnvd_st64(p.base + offset, value);
	return put_page(s, &p, (uint32_t)offset, 8);
}

/* Each lane finds in its words what it has put last, whoever had the page meanwhile. Holes stay zeroes. */
static void change_words(void *arg)
{
	struct sources *s = arg;
	uint64_t seed = gpunvme_lane() + 1, i, value, at;
	uint32_t round, member;
	int ret;

	for (round = 0; round < s->rounds; round++) {
		i = draw(s, &seed);
		value = sources_word(s, i, s->version[i] + 1);
		if (!sources_where(s, i, &member, &at)) {
			sources_note(s, put(s, i, ~0ull) == -GPUNVME_EOPNOTSUPP);
		} else {
			do
				ret = seed >> 60 & 1 ? put(s, i, value) : change_by_page(s, i, value);
			while (ret == -GPUNVME_EAGAIN);
			sources_note(s, !ret);
			s->version[i]++;
		}
		i = draw(s, &seed);
		sources_note(s, !get(s, i, &value) && value == sources_word(s, i, s->version[i]));
	}
}

static void flush_all(void *arg)
{
	struct sources *s = arg;

	sources_note(s, !flush(s, gpunvme_lane(), gpunvme_lanes()));
}

static void changes(struct sources s)
{
	struct gpunvme_pagecache_info info;

	s.flags |= GPUNVME_PAGECACHE_WRITE_BACK;
	sources_open(&s, "");
	sources_run(&s, change_words);
	if (sources_info(&s).changed)
		assert_int_equal(gpunvme_pagecache_destroy(s.cache), -EBUSY);
	if (s.rounds % 2)
		sources_run(&s, flush_all);
	assert_true(!(s.rounds % 2) || !sources_info(&s).changed);
	sources_run(&s, change_words);
	if (gpunvme_pagecache_flush(s.cache))
		fail_msg("%s", gpunvme_errmsg());
	info = sources_info(&s);
	assert_int_equal(info.changed, 0);
	assert_int_equal(info.lost, 0);
	assert_int_equal(info.write_failures, 0);
	assert_true(info.writes > 0);
	assert_true(s.flags & GPUNVME_PAGECACHE_LANDING ? info.copied >= info.writes << s.pages.page_shift : !info.copied);
	sources_check(&s);
	sources_close(&s);
}

static void files_are_changed_in_place(void **state)
{
	(void)state;
	changes((struct sources){ .file = true, .lanes = 8, .width = 4, .rounds = 9, .page_size = 4096, .frames = 6 });
	changes((struct sources){ .file = true, .lanes = 4, .width = 1, .rounds = 16, .page_size = 512, .frames = 20, .lba = 3 });
	changes((struct sources){ .file = true, .lanes = 4, .width = 4, .rounds = 7, .page_size = 65536, .frames = 2,
				  .flags = GPUNVME_PAGECACHE_LANDING });
}

static void volumes_are_changed_in_place(void **state)
{
	(void)state;
	changes((struct sources){ .lanes = 8, .width = 4, .rounds = 9, .page_size = 4096, .frames = 6, .queues = 2 });
	changes((struct sources){ .lanes = 4, .width = 1, .rounds = 16, .page_size = 4096, .frames = 8, .stripe = 2, .lba = 3 });
	changes((struct sources){ .lanes = 4, .width = 4, .rounds = 5, .page_size = 16384, .frames = 3, .stripe = 4, .queues = 2,
				  .flags = GPUNVME_PAGECACHE_LANDING });
}

#ifdef WITH_ARRAYS
#define CHANGED 60u /* by an array, of a file within one block */

static int change_by_array(struct sources *s, uint64_t i, uint64_t n, uint64_t value, const uint64_t *from)
{
	return s->file ? arrays_change_file(&s->dq, &s->pages, i, n, value, from) :
			 arrays_change_volume(&s->v, &s->pages, i, n, value, from);
}

static void change_by_arrays(void *arg)
{
	struct sources *s = arg;
	uint64_t from[CHANGED], at, i = 0, k;
	uint32_t member;

	while (!sources_where(s, i, &member, &at))
		i += 64;
	for (k = 1; k < CHANGED; k++)
		from[k - 1] = sources_word(s, i + k, 1);
	sources_note(s, !change_by_array(s, i, CHANGED - 1, sources_word(s, i, 1), from));
	for (k = 0; k < CHANGED; k++)
		s->version[i + k] = 1;
	sources_note(s, change_by_array(s, s->words, 0, 0, from) == -GPUNVME_ERANGE);
	sources_note(s, change_by_array(s, i, s->words, sources_word(s, i, 1), from) == -GPUNVME_ERANGE);
}

static void arrays_of(struct sources s)
{
	s.flags |= GPUNVME_PAGECACHE_WRITE_BACK;
	sources_open(&s, "");
	sources_run(&s, change_by_arrays);
	assert_int_equal(sources_info(&s).changed, 1);
	assert_int_equal(gpunvme_pagecache_flush(s.cache), 0);
	sources_check(&s);
	sources_close(&s);
}

static void arrays_are_changed(void **state)
{
	(void)state;
	arrays_of((struct sources){ .file = true, .lanes = 1, .width = 1, .page_size = 4096, .frames = 4 });
	arrays_of((struct sources){ .lanes = 1, .width = 1, .page_size = 4096, .frames = 4 });
}
#endif

/* ---- Holes and ends ---- */

/* The first word of the window that is the other way than this one. */
static uint64_t edge(const struct sources *s, uint64_t i)
{
	uint64_t at;
	uint32_t m;
	bool has = sources_where(s, i, &m, &at);

	while (sources_where(s, i, &m, &at) == has)
		i++;
	return i;
}

static void change_holes(void *arg)
{
	struct sources *s = arg;
	uint64_t hole = edge(s, 0), data = edge(s, hole), from[4] = { 1, 2, 3, 4 }, to[4], value, k;
	struct gpunvme_page p = { 0, 0 };
	uint32_t words = 1u << (s->pages.page_shift - 3), offset = (uint32_t)(hole % words * 8);

	sources_note(s, put(s, hole, 5) == -GPUNVME_EOPNOTSUPP);
	sources_note(s, put_range(s, hole - 2, 4, from) == -GPUNVME_EOPNOTSUPP); /* begins where there are blocks */
	sources_note(s, put_range(s, data - 2, 4, from) == -GPUNVME_EOPNOTSUPP);
	sources_note(s, put_range(s, hole, 0, from) == 0);
	for (k = hole - 2; k < hole + 2; k++)
		sources_note(s, !get(s, k, &value) && value == sources_word(s, k, 0));
	sources_note(s, !get_range(s, data - 2, 4, to) && !to[0] && !to[1] && to[2] == sources_word(s, data, 0));
	sources_note(s, !get_page(s, hole / words, &p));
	gnvd_st64(p.base + offset, 5);
	sources_note(s, put_page(s, &p, offset, 8) == -GPUNVME_EOPNOTSUPP && p.word);
	sources_note(s, put_page(s, &p, offset - 8, 16) == -GPUNVME_EOPNOTSUPP && p.word);
	gnvd_st64(p.base + offset - 8, sources_word(s, hole - 1, 1));
	sources_note(s, !put_page(s, &p, offset - 8, 8));
	s->version[hole - 1] = 1;
	sources_note(s, !flush(s, 0, 1));
	sources_note(s, !get(s, hole, &value) && !value); /* what was stored there went with that */
}

/* Of the last block of the file it has not all. */
static void change_ends(void *arg)
{
	struct sources *s = arg;
	uint64_t last = s->words - 1, from[2] = { 1, 2 };
	struct gpunvme_page p = { 0, 0 };
	uint32_t four = 9, words = 1u << (s->pages.page_shift - 3), offset = (uint32_t)(last % words * 8);

	sources_note(s, put(s, s->words, 5) == -GPUNVME_ERANGE);
	sources_note(s, put_range(s, last, 2, from) == -GPUNVME_ERANGE);
	sources_note(s, gpunvme_file_array_put(&s->dq, &s->pages, 2 * s->words + 1, 4, &four) == -GPUNVME_ERANGE);
	sources_note(s, get_page(s, last / words + 1, &p) == -GPUNVME_ERANGE);
	sources_note(s, !get_page(s, last / words, &p));
	sources_note(s, put_page(s, &p, offset, 13) == -GPUNVME_ERANGE && p.word); /* the file has four bytes behind its last word */
	gnvd_st64(p.base + offset, sources_word(s, last, 1));
	gnvd_st64(p.base + offset + 16, ~0ull); /* behind the end */
	sources_note(s, !put_page(s, &p, offset, 12));
	s->version[last] = 1;
}

static void refusals(uint32_t flags, void (*kernel)(void *), bool by_host)
{
	struct sources s = { .file = true, .lanes = 1, .width = 1, .page_size = 4096, .frames = 4,
			     .flags = GPUNVME_PAGECACHE_WRITE_BACK | flags };

	sources_open(&s, "");
	sources_run(&s, kernel);
	if (!by_host)
		sources_run(&s, flush_all);
	assert_int_equal(sources_info(&s).changed, by_host);
	assert_int_equal(gpunvme_pagecache_flush(s.cache), 0);
	sources_check(&s);
	sources_close(&s);
}

static void holes_are_refused(void **state)
{
	(void)state;
	refusals(0, change_holes, false);
	refusals(GPUNVME_PAGECACHE_LANDING, change_holes, false);
}

static void ends_are_zeroes(void **state)
{
	(void)state;
	refusals(0, change_ends, false);
	refusals(GPUNVME_PAGECACHE_LANDING, change_ends, false);
	refusals(0, change_ends, true);
	refusals(GPUNVME_PAGECACHE_LANDING, change_ends, true);
}

/* ---- Who may not write ---- */

static int create(struct sources *s, struct gpunvme_pagecache **cache)
{
	struct gpunvme_pagecache_opts opts = GPUNVME_PAGECACHE_OPTS_INIT;

	opts.flags = GPUNVME_PAGECACHE_WRITE_BACK;
	opts.file = s->of_file;
	opts.volume = s->vol;
	return gpunvme_pagecache_create(s->file ? s->dev[0] : NULL, s->gpu, &opts, cache);
}

static void put_one(void *arg)
{
	struct sources *s = arg;

	sources_note(s, !put(s, 1, sources_word(s, 1, 1)));
	s->version[1] = 1;
}

/* A file that was opened for reading has no such cache; one whose lease is gone is not written any more. */
static void files_must_be_writable(void **state)
{
	struct sources s = { .file = true, .lanes = 1, .width = 1, .frames = 4, .flags = GPUNVME_PAGECACHE_WRITE_BACK };
	struct gpunvme_pagecache *cache = NULL;

	(void)state;
	sources_open(&s, "");
	sources_run(&s, put_one);
	s.of_file->info.writable = 0; /* as gpunvme_file_unlease() leaves it */
	assert_int_equal(gpunvme_pagecache_flush(s.cache), -EROFS);
	assert_non_null(strstr(gpunvme_errmsg(), "gpunvme_file_unlease()"));
	assert_int_equal(sources_info(&s).changed, 1);
	assert_int_equal(gpunvme_pagecache_discard(s.cache), 0);
	assert_int_equal(create(&s, &cache), -EROFS);
	assert_non_null(strstr(gpunvme_errmsg(), "gpunvme_file_lease()"));
	assert_null(cache);
	s.version[1] = 0;
	sources_check(&s);
	sources_close(&s);
}

static void put_by_views(void *arg)
{
	struct sources *s = arg;
	uint64_t value = 1, twice[2];
	struct gpunvme_dvol v = s->v;
	struct gpunvme_dpages pages = s->pages;

	v.flags &= ~(uint32_t)GPUNVME_DQ_WRITE;
	sources_note(s, gpunvme_volume_array_put(&v, &s->pages, 0, 8, &value) == -GPUNVME_EROFS);
	v = s->v;
	v.members = 2;
	sources_note(s, gpunvme_volume_array_put(&v, &s->pages, 0, 8, &value) == -GPUNVME_EXDEV);
	pages.flags &= ~(uint32_t)GPUNVME_DPAGES_WRITABLE;
	sources_note(s, gpunvme_volume_array_put(&s->v, &pages, 0, 8, &value) == -GPUNVME_EROFS);
	sources_note(s, gpunvme_file_array_put((const struct gpunvme_dq *)(uintptr_t)s->v.dq, &s->pages, 0, 8, &value) ==
				-GPUNVME_EPROTONOSUPPORT);
	sources_note(s, gpunvme_array_put((const struct gpunvme_dq *)(uintptr_t)s->v.dq, &s->pages, 0, 8, &value) ==
				-GPUNVME_EPROTONOSUPPORT);
	sources_note(s, flush(s, 1, 1) == -GPUNVME_EINVAL);
	sources_note(s, put(s, s->words, 1) == -GPUNVME_ERANGE);
	sources_note(s, put_range(s, s->words - 1, 2, twice) == -GPUNVME_ERANGE);
}

static void volumes_must_be_writable(void **state)
{
	struct sources s = { .lanes = 1, .width = 1, .frames = 4, .flags = GPUNVME_PAGECACHE_WRITE_BACK };
	struct gpunvme_pagecache *cache = NULL;

	(void)state;
	sources_open(&s, "");
	sources_run(&s, put_by_views);
	assert_int_equal(sources_info(&s).changed, 0);
	sources_check(&s);
	sources_close(&s);
	s = (struct sources){ .lanes = 1, .width = 1, .frames = 4 };
	sources_open_devices(&s, "?ro=1");
	assert_int_equal(create(&s, &cache), -EROFS);
	assert_null(cache);
	sources_close(&s);
}

/* ---- Writes that are not answered ---- */

static void put_until_the_end(void *arg)
{
	struct sources *s = arg;
	uint64_t seed = gpunvme_lane() + 5, i, value;
	uint32_t round;
	int ret = 0;

	for (round = 0; round < 400 && !ret; round++) {
		i = draw(s, &seed);
		ret = put(s, i, sources_word(s, i, s->version[i] + 1));
		s->version[i] += !ret;
		i = draw(s, &seed);
		if (!ret && !get(s, i, &value))
			sources_note(s, value == sources_word(s, i, s->version[i]));
	}
	__atomic_fetch_add(&s->asked, ret == -GPUNVME_ETIMEDOUT || ret == -GPUNVME_ESHUTDOWN || ret == -GPUNVME_EAGAIN ? 1u << 24 : 0,
			   __ATOMIC_RELAXED);
}

/*
 * A controller loses a write of a part of a page: all lanes are told, the page is kept, and after the recovery the host writes all that
 * lanes were told is the cache's.
 */
static void lost_writes_are_written_again(void **state)
{
	struct sources s = { .lanes = 16, .width = 4, .page_size = 4096, .frames = 8, .stripe = 4, .timeout_ms = 500,
			     .flags = GPUNVME_PAGECACHE_WRITE_BACK };

	(void)state;
	sources_open(&s, "?fault=lose:op=write:after=20:count=1");
	sources_run(&s, put_until_the_end);
	assert_true(s.asked >> 24 > 0);
	assert_true(sources_info(&s).lost > 0);
	assert_int_equal(gpunvme_pagecache_flush(s.cache), -EBUSY);
	assert_int_equal(gpunvme_volume_recover(s.vol), 0);
	sources_view(&s);
	assert_int_equal(sources_info(&s).lost, 0);
	if (gpunvme_pagecache_flush(s.cache))
		fail_msg("%s", gpunvme_errmsg());
	sources_check(&s);
	sources_close(&s);
}

/* ---- A file that becomes shorter ---- */

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
	struct sources *s = arg;
	uint64_t i, value = 0;

	for (i = gpunvme_lane(); i < FILE_WORDS; i += s->lanes)
		if (i < s->words)
			sources_note(s, !get(s, i, &value) && value == sources_word(s, i, 0));
		else
			sources_note(s, get(s, i, &value) == -GPUNVME_ERANGE);
}

/* A cache of the file as it is now. */
static void open_anew(struct sources *s)
{
	const struct gpunvme_file_opts file = { sizeof(file), GPUNVME_FILE_WRITE, 0, 0, 0 };
	struct gpunvme_pagecache_opts opts = GPUNVME_PAGECACHE_OPTS_INIT;

	assert_int_equal(gpunvme_pagecache_destroy(s->cache), 0);
	gpunvme_file_close(s->of_file);
	assert_int_equal(gpunvme_file_open(s->dev[0], "/file", &file, &s->of_file), 0);
	opts.flags = s->flags;
	opts.page_size = s->page_size;
	opts.frames = s->frames;
	opts.file = s->of_file;
	assert_int_equal(gpunvme_pagecache_create(s->dev[0], s->gpu, &opts, &s->cache), 0);
	sources_view(s);
}

/* Who has opened it before reads what its blocks have, to the old end; who opens it then has the new one. No lane is left waiting. */
static void files_may_shrink(void **state)
{
	struct sources s = { .file = true, .flags = GPUNVME_PAGECACHE_WRITE_BACK, .page_size = 1024, .frames = 16, .lanes = 16, .width = 4 };

	(void)state;
	sources_open(&s, "");
	run_debugfs("punch file 4 156");
	run_debugfs("set_inode_field file size 4096");
	sources_run(&s, look_at_all);
	open_anew(&s);
	s.words = SHORT_BYTES / 8;
	sources_run(&s, look_at_all);
	assert_int_equal(s.asked, 2 * FILE_WORDS);
	sources_close(&s);
}

/* One of the controllers is closed: nothing is written any more, and the changes are forgotten. */
static void closed_members_leave_nothing(void **state)
{
	struct sources s = { .lanes = 1, .width = 1, .page_size = 4096, .frames = 8, .flags = GPUNVME_PAGECACHE_WRITE_BACK };
	uint32_t m;

	(void)state;
	sources_open(&s, "");
	sources_run(&s, put_one);
	assert_int_equal(gpunvme_volume_destroy(s.vol), 0);
	assert_int_equal(gpunvme_dev_close(s.dev[1]), 0);
	assert_int_equal(gpunvme_pagecache_flush(s.cache), -ENODEV);
	assert_int_equal(gpunvme_pagecache_destroy(s.cache), -EBUSY);
	assert_int_equal(gpunvme_pagecache_discard(s.cache), 0);
	assert_int_equal(gpunvme_pagecache_destroy(s.cache), 0);
	gpunvme_gpu_close(s.gpu);
	for (m = 0; m < SOURCES_MEMBERS; m++)
		assert_int_equal(m == 1 ? 0 : gpunvme_dev_close(s.dev[m]), 0);
	s.version[1] = 0;
	sources_check(&s);
	for (m = 0; m < SOURCES_MEMBERS; m++)
		free(s.image[m]);
	free(s.version);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(files_are_changed_in_place),
		cmocka_unit_test(volumes_are_changed_in_place),
		cmocka_unit_test(holes_are_refused),
		cmocka_unit_test(ends_are_zeroes),
		cmocka_unit_test(files_must_be_writable),
		cmocka_unit_test(volumes_must_be_writable),
		cmocka_unit_test(lost_writes_are_written_again),
		cmocka_unit_test(files_may_shrink),
		cmocka_unit_test(closed_members_leave_nothing),
#ifdef WITH_ARRAYS
		cmocka_unit_test(arrays_are_changed),
#endif
	};

	return cmocka_run_group_tests(tests, sources_make, sources_remove);
}
