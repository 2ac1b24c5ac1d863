/* SPDX-License-Identifier: MIT */
#include "stage.h"

#include <errno.h>
#include <gpunvme/device.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "calls.h"
#include "common/image.h"

#define SEVERAL 20u /* extents, at least */

const char *stage_path(const struct stage *s, uint32_t member)
{
	static const char *const name[STAGE_MEMBERS] = { "a.img", "b.img", "c.img" };

	return image_path(s->source == OF_FILE ? "fs.img" : s->source == NAMESPACE ? "disk.img" : name[member]);
}

uint32_t stage_members(const struct stage *s)
{
	return s->source == VOLUME ? STAGE_MEMBERS : 1;
}

/* ---- Devices and caches ---- */

static void create_queue(struct stage *s)
{
	struct gpunvme_queue_opts qp = GPUNVME_QUEUE_OPTS_INIT;

	qp.depth = 64;
	qp.cmd_timeout_ms = s->timeout_ms ? s->timeout_ms : 60000;
	assert_int_equal(gpunvme_queue_create(s->dev[0], s->gpu, &qp, &s->qp), 0);
}

static void open_namespace(struct stage *s)
{
	create_queue(s);
	s->words = s->bytes[0] / 8 - s->lba * 64;
}

static void open_file(struct stage *s)
{
	const struct gpunvme_file_opts opts = { .size = sizeof(opts), .flags = s->mode & WRITE_BACK ? GPUNVME_FILE_WRITE : 0 };
	struct gpunvme_file_info info = { .size = sizeof(info) };

	create_queue(s);
	if (gpunvme_file_open(s->dev[0], "/file", &opts, &s->of_file))
		fail_msg("%s", gpunvme_errmsg());
	s->extents = STAGE_EXTENTS;
	assert_int_equal(gpunvme_file_get_extents(s->of_file, 0, s->extent, &s->extents), 0);
	assert_true(s->extents >= SEVERAL && s->extents < STAGE_EXTENTS);
	assert_int_equal(gpunvme_file_get_info(s->of_file, &info), 0);
	s->words = (info.bytes - s->lba * 512) / 8;
}

static void open_volume(struct stage *s)
{
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_queue_info info = { .size = sizeof(info) };

	s->stripe = s->stripe ? s->stripe : 8;
	opts.queues = s->queues ? s->queues : 1;
	opts.stripe = s->stripe;
	opts.depth = 64;
	opts.cmd_timeout_ms = s->timeout_ms ? s->timeout_ms : 60000;
	assert_int_equal(gpunvme_queue_create_striped(s->dev, STAGE_MEMBERS, s->gpu, &opts, &s->vol), 0);
	assert_int_equal(gpunvme_queue_get_info(s->vol, &info), 0);
	s->words = (info.nblocks - s->lba) * 64;
}

void stage_open_devices(struct stage *s, const char *keys)
{
	static void (*const open_source[])(struct stage *) = { open_namespace, open_file, open_volume };
	char uri[512];
	uint32_t m;

	images_make(s);
	for (m = 0; m < stage_members(s); m++) {
		snprintf(uri, sizeof(uri), "soft:%s%s", stage_path(s, m), m && s->one_faulty ? "" : keys);
		assert_int_equal(gpunvme_dev_open(uri, NULL, &s->dev[m]), 0);
	}
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &s->gpu), 0);
	open_source[s->source](s);
	images_place_words(s);
	s->version = calloc(s->words, sizeof(*s->version));
	assert_non_null(s->version);
}

void stage_view(struct stage *s)
{
	struct gpunvme_view view = GPUNVME_VIEW_INIT;

	view.flags = s->mode & WRITE_BACK ? GPUNVME_VIEW_WRITE : 0;
	if (s->source == VOLUME)
		assert_int_equal(gpunvme_queue_view(s->vol, &view, &s->v), 0);
	else
		assert_int_equal(gpunvme_queue_view(s->qp, &view, &s->dq), 0);
	assert_int_equal(gpunvme_cache_view(s->cache, &s->pages), 0);
}

int stage_create(const struct stage *s, struct gpunvme_cache **cache)
{
	struct gpunvme_cache_opts opts = GPUNVME_CACHE_OPTS_INIT;

	opts.flags = GPUNVME_CACHE_STATS | s->mode;
	opts.page_size = s->page_size;
	opts.frames = s->frames;
	opts.lba = s->lba;
	opts.file = s->of_file;
	return gpunvme_cache_create(s->source == VOLUME ? s->vol : s->qp, &opts, cache);
}

void stage_open(struct stage *s, const char *keys)
{
	stage_open_devices(s, keys);
	if (stage_create(s, &s->cache))
		fail_msg("%s", gpunvme_errmsg());
	stage_view(s);
	assert_int_equal(s->pages.local != 0, (s->mode & COPIED) != 0);
}

void stage_recover(struct stage *s)
{
	assert_int_equal(s->source == VOLUME ? gpunvme_queue_recover(s->vol) : gpunvme_queue_recover(s->qp), 0);
	stage_view(s);
	assert_int_equal(info_of(s).lost, 0);
}

void stage_free(struct stage *s)
{
	uint32_t m;

	for (m = 0; m < stage_members(s); m++)
		free(s->image[m]);
	free(s->version);
}

/* A device that does not let go of its queue may write to pages until it is closed. */
void stage_close(struct stage *s)
{
	int kept = s->source == VOLUME ? gpunvme_queue_destroy(s->vol) : gpunvme_queue_destroy(s->qp);
	int ret = gpunvme_cache_destroy(s->cache);
	uint32_t m;

	assert_true(!kept || s->dies);
	if (ret != (kept ? -EBUSY : 0))
		fail_msg("%d: %s", ret, gpunvme_errmsg());
	gpunvme_file_close(s->of_file);
	gpunvme_gpu_close(s->gpu);
	for (m = 0; m < stage_members(s); m++)
		assert_true(!gpunvme_dev_close(s->dev[m]) || s->dies);
	if (ret)
		assert_int_equal(gpunvme_cache_destroy(s->cache), 0);
	stage_free(s);
}

struct gpunvme_cache_info info_of(struct stage *s)
{
	struct gpunvme_cache_info info = { .size = sizeof(info) };

	assert_int_equal(gpunvme_cache_get_info(s->cache, &info), 0);
	return info;
}

/* Pages that are there were read, and not one too few or too many. */
static void check_reads(struct stage *s)
{
	const uint64_t *word = (const uint64_t *)(uintptr_t)s->pages.table;
	struct gpunvme_cache_info info = info_of(s);
	uint64_t i, valid = 0, read = info.misses - info.failures;

	for (i = 0; i < info.pages; i++) {
		assert_int_equal(word[i] & GPUNVME_PAGE_REFS, 0);
		assert_int_not_equal(word[i] & GPUNVME_PAGE_STATE, GPUNVME_PAGE_READING);
		valid += (word[i] & GPUNVME_PAGE_STATE) == GPUNVME_PAGE_VALID;
	}
	assert_int_equal(valid, read - info.evictions);
	assert_true(valid + info.lost <= info.frames);
	read <<= s->pages.page_shift;
	if (s->source == OF_FILE) /* whose holes are not copied */
		assert_true(s->mode & COPIED ? info.copied > 0 && info.copied <= read : !info.copied);
	else
		assert_int_equal(info.copied, s->mode & COPIED ? read : 0);
}

/* A page with changes has one reference, which is theirs, and what is not there was not changed. */
static void check_changes(struct stage *s)
{
	const uint64_t *word = (const uint64_t *)(uintptr_t)s->pages.table, *frame = (const uint64_t *)(uintptr_t)s->pages.frame;
	const uint64_t *parts = frame + 2 * s->pages.frames;
	uint64_t i, refs = 0, changed = 0;

	for (i = 0; i < info_of(s).pages; i++) {
		refs += (word[i] & GPUNVME_PAGE_REFS) / GPUNVME_PAGE_REF;
		assert_true((word[i] & GPUNVME_PAGE_STATE) == GPUNVME_PAGE_EMPTY || (word[i] & GPUNVME_PAGE_STATE) == GPUNVME_PAGE_VALID);
	}
	for (i = 0; i < s->pages.frames; i++) {
		assert_true(frame[i] <= info_of(s).pages || frame[i] == GPUNVME_FRAME_LOST);
		if (!parts[i])
			continue;
		changed++;
		assert_int_equal(word[frame[i] - 1] >> GPUNVME_PAGE_FRAME_SHIFT, i);
		assert_int_equal(word[frame[i] - 1] & GPUNVME_PAGE_REFS, GPUNVME_PAGE_REF);
	}
	assert_int_equal(refs, changed);
	assert_int_equal(info_of(s).changed, changed);
	assert_int_equal(((const struct gpunvme_cache_state *)(uintptr_t)s->pages.state)->changed, changed);
}

void check_quiet(struct stage *s)
{
	if (s->mode & WRITE_BACK)
		check_changes(s);
	else
		check_reads(s);
}

/* ---- Kernels ---- */

void launch(struct stage *s, void (*kernel)(void *))
{
	memset(s->ret, 0, sizeof(s->ret));
	assert_int_equal(gpunvme_cpu_launch(s->lanes, s->width, kernel, s), 0);
}

void run(struct stage *s, void (*kernel)(void *))
{
	launch(s, kernel);
	assert_int_equal(s->wrong, 0);
}

void note(struct stage *s, bool right)
{
	if (!right)
		__atomic_fetch_add(&s->wrong, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&s->asked, 1, __ATOMIC_RELAXED);
}

uint32_t next_random(uint64_t *seed)
{
	*seed = *seed * 6364136223846793005ull + 1442695040888963407ull;
	return (uint32_t)(*seed >> 33);
}
