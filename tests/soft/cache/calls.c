/* SPDX-License-Identifier: MIT */
#include "calls.h"

#include <errno.h>
#include <gpunvme/device.h>
#include <stdlib.h>

#include "soft/arrays.h"

/* Returns what `call` on `src` returns, which is the stage's source through a cache of that mode. */
#define ON(s, type, queue, call)                                                                                                   \
	{                                                                                                                          \
		const struct gpunvme_##type src = { queue, &(s)->pages };                                                          \
                                                                                                                                   \
		return call;                                                                                                       \
	}
#define BY_SOURCE(s, mode, call)                                                                                                   \
	{                                                                                                                          \
		if ((s)->source == VOLUME)                                                                                         \
			ON(s, mode##_volume, &(s)->v, call)                                                                        \
		if ((s)->source == OF_FILE)                                                                                        \
			ON(s, mode##_file, &(s)->dq, call)                                                                         \
		ON(s, mode##_queue, &(s)->dq, call)                                                                                \
	}

int get(struct stage *s, uint64_t i, uint32_t bytes, void *value)
{
	if (s->mode & PREFETCH)
		BY_SOURCE(s, prefetch, gpunvme_array_load(&src, i, bytes, value))
	if (s->mode & WRITE_BACK)
		BY_SOURCE(s, writable, gpunvme_array_load(&src, i, bytes, value))
	BY_SOURCE(s, cached, gpunvme_array_load(&src, i, bytes, value))
}

int get_word(struct stage *s, uint64_t i, uint64_t *value)
{
	return get(s, i, 8, value);
}

int get_range(struct stage *s, uint64_t i, uint64_t n, void *to)
{
	if (s->mode & PREFETCH)
		BY_SOURCE(s, prefetch, gpunvme_array_load_range(&src, i, n, 8, to))
	if (s->mode & WRITE_BACK)
		BY_SOURCE(s, writable, gpunvme_array_load_range(&src, i, n, 8, to))
	BY_SOURCE(s, cached, gpunvme_array_load_range(&src, i, n, 8, to))
}

int get_page(struct stage *s, uint64_t page, struct gpunvme_page *p)
{
	if (s->mode & PREFETCH)
		BY_SOURCE(s, prefetch, gpunvme_page_get(&src, page, p))
	if (s->mode & WRITE_BACK)
		BY_SOURCE(s, writable, gpunvme_page_get(&src, page, p))
	BY_SOURCE(s, cached, gpunvme_page_get(&src, page, p))
}

int put_page(struct stage *s, struct gpunvme_page *p)
{
	if (s->mode & PREFETCH)
		BY_SOURCE(s, prefetch, gpunvme_page_put(&src, p))
	if (s->mode & WRITE_BACK)
		return put_changed(s, p, 0, 0);
	BY_SOURCE(s, cached, gpunvme_page_put(&src, p))
}

int prefetch(struct stage *s, uint64_t page)
{
	BY_SOURCE(s, prefetch, gpunvme_prefetch(&src, page))
}

int finish(struct stage *s)
{
	BY_SOURCE(s, prefetch, gpunvme_prefetch_finish(&src))
}

int put(struct stage *s, uint64_t i, uint32_t bytes, const void *value)
{
	BY_SOURCE(s, writable, gpunvme_array_store(&src, i, bytes, value))
}

int put_word(struct stage *s, uint64_t i, uint64_t value)
{
	return put(s, i, 8, &value);
}

int put_range(struct stage *s, uint64_t i, uint64_t n, const uint64_t *from)
{
	BY_SOURCE(s, writable, gpunvme_array_store_range(&src, i, n, 8, from))
}

int put_changed(struct stage *s, struct gpunvme_page *p, uint32_t offset, uint32_t bytes)
{
	BY_SOURCE(s, writable, gpunvme_page_put(&src, p, offset, bytes))
}

int flush(struct stage *s, uint32_t part, uint32_t parts)
{
	BY_SOURCE(s, writable, gpunvme_write_back(&src, part, parts))
}

void get_first(void *arg)
{
	struct stage *s = arg;
	uint64_t value;
	uint32_t round;

	for (round = 0; round < s->rounds; round++)
		note(s, !get_word(s, gpunvme_thread_id(), &value) && value == word_of(s, gpunvme_thread_id(), 0));
}

/* The word of a page that the thread has. */
int get_by_page(struct stage *s, uint64_t i, uint64_t *value)
{
	uint64_t page = i * 8 >> s->pages.page_shift, offset = i * 8 - (page << s->pages.page_shift);
	struct gpunvme_page p = { 0, 0 };
	int ret = get_page(s, page, &p);

	if (ret)
		return ret;
	*value = *(const uint64_t *)(uintptr_t)(p.base + offset);
	return put_page(s, &p);
}

void get_all(void *arg)
{
	struct stage *s = arg;
	uint64_t n = s->words - s->first, *to = malloc(n * 8), i;

	note(s, to && !get_range(s, s->first, n, to));
	for (i = 0; to && i < n; i++)
		note(s, to[i] == word_of(s, s->first + i, 0));
	free(to);
}

/* One thread. */
void prefetch_some(void *arg)
{
	struct stage *s = arg;
	uint64_t i;

	for (i = 0; i < s->count; i++)
		s->ret[i] = prefetch(s, s->first + i);
}

void get_some(void *arg)
{
	struct stage *s = arg;
	uint64_t value, i, last = (1ull << (s->pages.page_shift - 3)) - 1;

	for (i = 0; i < s->count; i++) {
		s->ret[i] = get_by_page(s, (s->first + i) * (last + 1) + last, &value);
		note(s, s->ret[i] || value == word_of(s, (s->first + i) * (last + 1) + last, 0));
	}
}

/* The kernel's results: @want of all pages, but @other of the page @odd. */
void returns(struct stage *s, void (*kernel)(void *), int want, uint64_t odd, int other)
{
	uint64_t i;

	s->lanes = s->width = 1;
	run(s, kernel);
	for (i = 0; i < s->count; i++)
		assert_int_equal(s->ret[i], i == odd ? other : want);
}

void all_return(struct stage *s, void (*kernel)(void *), int want)
{
	returns(s, kernel, want, UINT64_MAX, 0);
}

void finish_all(void *arg)
{
	struct stage *s = arg;

	note(s, !finish(s));
}

void flush_all(void *arg)
{
	struct stage *s = arg;

	note(s, !flush(s, gpunvme_thread_id(), gpunvme_thread_count()));
}

/* ---- Kernels that change ---- */

/* A word of this thread's, of a page that all use. */
uint64_t draw_word(const struct stage *s, uint64_t *seed)
{
	return next_random(seed) % (s->words / s->lanes) * s->lanes + gpunvme_thread_id();
}

static int change_by_page(struct stage *s, uint64_t i, uint64_t value, uint64_t was)
{
	uint64_t page = i * 8 >> s->pages.page_shift;
	uint32_t offset = (uint32_t)(i * 8 - (page << s->pages.page_shift));
	struct gpunvme_page p = { 0, 0 };
	int ret;

	do
		ret = get_page(s, page, &p);
	while (ret == -GPUNVME_EAGAIN);
	if (ret)
		return ret;
	note(s, gnvd_ld64(p.base + offset) == was);
	gnvd_st64(p.base + offset, value);
	return put_changed(s, &p, offset, 8);
}

/* By the whole word, by the half that has the version, or in its page. */
static int change_word(struct stage *s, uint64_t i, uint32_t way)
{
	uint32_t version = ++s->version[i];
	uint64_t value = word_of(s, i, version);
	int ret;

	if (way == 2)
		return change_by_page(s, i, value, word_of(s, i, version - 1));
	do
		ret = way ? put(s, 2 * i + 1, 4, &version) : put_word(s, i, value);
	while (ret == -GPUNVME_EAGAIN && s->source != NAMESPACE);
	return ret;
}

void change_words(void *arg)
{
	struct stage *s = arg;
	uint64_t seed = gpunvme_thread_id() + 1, i, value, at;
	uint32_t round, member;

	for (round = 0; round < s->rounds; round++) {
		i = draw_word(s, &seed);
		value = ~0ull;
		note(s, !get_word(s, i, &value) && value == word_of(s, i, s->version[i]));
		if (stage_where(s, i, &member, &at))
			note(s, !change_word(s, i, round % 3));
		else
			note(s, put_word(s, i, ~0ull) == -GPUNVME_EOPNOTSUPP);
	}
}

void change_one(void *arg)
{
	struct stage *s = arg;

	note(s, !put_word(s, 1000, word_of(s, 1000, 1)));
	s->version[1000] = 1;
}

void flush_and_close(struct stage *s)
{
	struct gpunvme_cache_info info;

	check_quiet(s);
	if (info_of(s).changed)
		assert_int_equal(gpunvme_cache_destroy(s->cache), -EBUSY);
	if (gpunvme_cache_flush(s->cache))
		fail_msg("%s", gpunvme_errmsg());
	info = info_of(s);
	assert_int_equal(info.changed, 0);
	assert_true(s->mode & COPIED ? info.copied >= info.writes << s->pages.page_shift : !info.copied);
	check_images(s);
	stage_close(s);
}

#ifdef WITH_ARRAYS
int get_by_array(struct stage *s, uint64_t i, uint64_t n, uint64_t *value, uint64_t *to, uint64_t *size)
{
	if (!(s->mode & PREFETCH))
		return arrays_of_namespace(&s->dq, &s->pages, i, n, value, to, size);
	if (s->source == VOLUME)
		return arrays_prefetched_of_volume(&s->v, &s->pages, i, n, value, to, size);
	return s->source == OF_FILE ? arrays_prefetched_of_file(&s->dq, &s->pages, i, n, value, to, size) :
				      arrays_prefetched(&s->dq, &s->pages, i, n, value, to, size);
}

int put_by_array(struct stage *s, uint64_t i, uint64_t n, uint64_t value, const uint64_t *from)
{
	if (s->source == VOLUME)
		return arrays_change_volume(&s->v, &s->pages, i, n, value, from);
	return s->source == OF_FILE ? arrays_change_file(&s->dq, &s->pages, i, n, value, from) :
				      arrays_change(&s->dq, &s->pages, i, n, value, from);
}
#endif
