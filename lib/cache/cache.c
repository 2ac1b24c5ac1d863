/* SPDX-License-Identifier: MIT */
/*
 * The host's side of a page cache: its memory, and the data that kernels need to use it. Threads handle its pages.
 * Invariant: the words of pages and frames live as long as a device may write to a frame.
 */
#include "cache/cache.h"

#include <errno.h>
#include <gpunvme/mem.h>
#include <stdlib.h>

#include "dev/dev.h"
#include "cache/prefetch.h"
#include "dma/mem_map.h"
#include "queue/queue.h"
#include "util/bits.h"
#include "util/checked.h"
#include "util/entry.h"
#include "util/opts.h"
#include "util/process.h"

#define PAGE_MIN 512u
#define PAGE_MAX 65536u
#define PAGE_AUTO 4096u
#define FRAMES_AUTO 4096u
#define WORDS GNV_CACHE_WORDS
#define WAYS (GPUNVME_CACHE_LANDING | GPUNVME_CACHE_IN_PLACE)
#define FLAGS ((uint32_t)(GPUNVME_CACHE_STATS | WAYS | GPUNVME_CACHE_PREFETCH | GPUNVME_CACHE_WRITE_BACK | GPUNVME_CACHE_VOLUME))

/* ---- Options ---- */

static int check_page(struct gpunvme_cache_opts *opts, const struct gnv_source *source)
{
	if (!opts->page_size)
		opts->page_size = (uint32_t)gnv_max(PAGE_AUTO, source->lba_size);
	if (!gnv_is_pow2(opts->page_size) || opts->page_size < PAGE_MIN || opts->page_size > PAGE_MAX)
		return gnv_fail(-EINVAL, "a page of %u bytes is not possible: take a power of two from %u to %u", opts->page_size, PAGE_MIN,
				PAGE_MAX);
	if (opts->page_size < source->lba_size)
		return gnv_fail(-EINVAL, "a page of %u bytes is less than a block of %s: take %u or more", opts->page_size,
				source->name, source->lba_size);
	return 0;
}

static int check_flags(const struct gpunvme_cache_opts *opts, const struct gnv_source *source)
{
	if (opts->flags & ~FLAGS)
		return gnv_fail(-EINVAL, "unknown page cache flags 0x%x. Valid are GPUNVME_CACHE_STATS, _LANDING, _IN_PLACE, "
				"_PREFETCH, _WRITE_BACK, _VOLUME", opts->flags & ~FLAGS);
	if ((opts->flags & WAYS) == WAYS)
		return gnv_fail(-EINVAL, "pages cannot both be copied and stay in place: take one of GPUNVME_CACHE_LANDING and _IN_PLACE");
	if (opts->flags & GPUNVME_CACHE_PREFETCH && opts->flags & GPUNVME_CACHE_WRITE_BACK)
		return gnv_fail(-EINVAL, "pages are prefetched or changed, not both: take one of GPUNVME_CACHE_PREFETCH and _WRITE_BACK");
	if (!(opts->flags & GPUNVME_CACHE_WRITE_BACK) || !source->read_only)
		return 0;
	if (source->file)
		return gnv_fail(-EROFS, "the file is open for reading only. Before creating the cache open it with "
					"GPUNVME_FILE_WRITE, or call gpunvme_file_lease() for a file of a mounted file system, or "
					"leave out GPUNVME_CACHE_WRITE_BACK");
	return gnv_fail(-EROFS, "%s cannot be written: it is write protected, or the device was opened read-only. Leave out "
				"GPUNVME_CACHE_WRITE_BACK", source->name);
}

static int check_opts(struct gpunvme_cache_opts *opts, const struct gnv_source *source)
{
	uint64_t pages, bytes;
	int ret = check_page(opts, source);

	if (!ret)
		ret = check_flags(opts, source);
	if (ret)
		return ret;
	if (!opts->nblocks && opts->lba < source->nblocks)
		opts->nblocks = source->nblocks - opts->lba;
	if (!opts->nblocks || !gnv_within(opts->lba, opts->nblocks, source->nblocks))
		return gnv_fail(-ERANGE, "blocks %llu to +%llu are not within %s of %llu blocks", (unsigned long long)opts->lba,
				(unsigned long long)opts->nblocks, source->name, (unsigned long long)source->nblocks);
	pages = opts->nblocks / (opts->page_size / source->lba_size) + (opts->nblocks % (opts->page_size / source->lba_size) != 0);
	if (gnv_mul_overflow(pages, (uint64_t)opts->page_size, &bytes))
		return gnv_fail(-ERANGE, "the last page of the window would end beyond 64 bits. Take smaller pages or a smaller "
				"window");
	return 0;
}

/* ---- Creation ---- */

static void describe(struct gpunvme_cache *cache, const struct gpunvme_cache_opts *opts)
{
	const struct gnv_source *source = &cache->source;
	uint32_t blocks = opts->page_size / source->lba_size, frames = opts->frames ? opts->frames : FRAMES_AUTO;
	uint16_t prefetch = opts->flags & GPUNVME_CACHE_PREFETCH ? GPUNVME_KIND_PREFETCH : 0;

	cache->pages = opts->nblocks / blocks + (opts->nblocks % blocks != 0);
	cache->view = (struct gpunvme_dpages){
		.head = GPUNVME_HEAD((uint16_t)(source->kind | prefetch), cache->view),
		.flags = (opts->flags & GPUNVME_CACHE_STATS ? GPUNVME_DPAGES_STATS : 0) |
			 (opts->flags & GPUNVME_CACHE_WRITE_BACK ? GPUNVME_DPAGES_WRITABLE : 0),
		.nsid = source->nsid,
		.device = source->dev[0]->number,
		.frames = (uint32_t)gnv_min(frames, cache->pages),
		.lba_shift = (uint8_t)gnv_log2(source->lba_size),
		.page_shift = (uint8_t)gnv_log2(opts->page_size),
		.members = (uint16_t)source->devs,
		.lba_first = opts->lba,
		.lba_count = opts->nblocks,
	};
}

static int make_words(struct gpunvme_cache *cache)
{
	const uint64_t frames = cache->view.frames * (gnv_cache_writable(cache) || gnv_has_prefetch(&cache->view) ? 3ull : 1ull);
	uint64_t len;
	int ret;

	if (gnv_mul_overflow(cache->pages + frames, sizeof(uint64_t), &len) || len > SIZE_MAX - sizeof(struct gpunvme_cache_state))
		return gnv_fail(-ENOMEM, "%llu pages are more than memory can have words for. Take larger pages or a smaller window",
				(unsigned long long)cache->pages);
	cache->words_len = (size_t)len + sizeof(struct gpunvme_cache_state);
	ret = cache->gpu->ops->local_alloc(cache->gpu, cache->words_len, &cache->words);
	if (ret)
		return gnv_fail(ret, "the threads have no %zu bytes for the words of %llu pages. Take larger pages or a smaller "
				     "window",
				cache->words_len, (unsigned long long)cache->pages);
	cache->view.state = cache->words.lane;
	cache->view.table = cache->view.state + sizeof(struct gpunvme_cache_state);
	cache->view.frame = cache->view.table + cache->pages * sizeof(uint64_t);
	return 0;
}

/* A second place for the frames, near the threads, if the first is not. */
static int make_local(struct gpunvme_cache *cache, uint32_t flags)
{
	bool far = cache->gpu->own_memory && !cache->mem->local;
	int ret;

	if (!(flags & GPUNVME_CACHE_LANDING) && (!far || flags & GPUNVME_CACHE_IN_PLACE))
		return 0;
	ret = cache->gpu->ops->local_alloc(cache->gpu, cache->frames_len, &cache->local);
	if (ret)
		return gnv_fail(ret, "the threads have no %zu bytes for %u pages. Take fewer, or GPUNVME_CACHE_IN_PLACE",
				cache->frames_len,
				cache->view.frames);
	cache->view.local = cache->local.lane;
	return 0;
}

static int make_frames(struct gpunvme_cache *cache, struct gpunvme_queue *queue, uint32_t flags)
{
	size_t len;
	int ret;

	if (gnv_mul_overflow((size_t)cache->view.frames, (size_t)1 << cache->view.page_shift, &len))
		return gnv_fail(-ENOMEM, "%u pages of %u bytes are more than an address can have. Take fewer", cache->view.frames,
				1u << cache->view.page_shift);
	cache->frames_len = len;
	ret = gpunvme_mem_alloc(cache->gpu, queue, len, NULL, &cache->mem);
	if (!ret)
		ret = gnv_source_map(&cache->source, cache->mem);
	if (!ret)
		ret = gnv_source_show(&cache->source, cache->gpu, cache->mem);
	cache->view.source = cache->source.range.lane;
	if (ret)
		return ret;
	return make_local(cache, flags);
}

static void drop(struct gpunvme_cache *cache)
{
	if (cache->local.lane)
		cache->gpu->ops->local_free(cache->gpu, &cache->local, cache->frames_len);
	if (cache->words.lane)
		cache->gpu->ops->local_free(cache->gpu, &cache->words, cache->words_len);
	gnv_source_hide(&cache->source, cache->gpu);
	pthread_mutex_destroy(&cache->lock);
	pthread_mutex_destroy(&cache->changing);
	gnv_gpu_put(cache->gpu);
	free(cache);
}

/* Return: a cache without memory, or NULL with its error message (-ENOMEM). */
static struct gpunvme_cache *new_cache(struct gpunvme_gpu *gpu, const struct gnv_source *source)
{
	struct gpunvme_cache *cache = calloc(1, sizeof(*cache));

	if (!cache) {
		gnv_fail(-ENOMEM, "out of memory");
		return NULL;
	}
	cache->process = gpu->process;
	cache->source = *source;
	cache->gpu = gnv_gpu_get(gpu);
	pthread_mutex_init(&cache->changing, NULL);
	pthread_mutex_init(&cache->lock, NULL);
	return cache;
}

/* A cache that is not given out: a device with commands that did not end keeps the frames until it is closed. Return: @ret. */
static int fail_create(struct gpunvme_cache *cache, int ret)
{
	const struct gnv_message cause = gnv_message();

	gnv_map_free(cache->mem);
	drop(cache);
	return gnv_fail_again(ret, &cause);
}

GPUNVME_API int gpunvme_cache_create(struct gpunvme_queue *queue, const struct gpunvme_cache_opts *user, struct gpunvme_cache **out)
{
	struct gpunvme_cache_opts opts = GPUNVME_CACHE_OPTS_INIT;
	struct gnv_source source = { .kind = 0 };
	struct gpunvme_cache *cache;
	int ret = gnv_enter(queue->gpu, queue && out, "queue and cache");

	if (ret)
		return ret;
	ret = gnv_opts_copy(&opts, user, gpunvme_cache_opts);
	if (!ret)
		ret = gnv_queue_check(queue);
	if (!ret)
		ret = gnv_source_find(&source, queue, &opts);
	if (!ret)
		ret = check_opts(&opts, &source);
	if (ret)
		return ret;
	cache = new_cache(queue->gpu, &source);
	if (!cache)
		return -ENOMEM;
	describe(cache, &opts);
	ret = make_words(cache);
	if (!ret)
		ret = make_frames(cache, queue, opts.flags);
	if (ret)
		return fail_create(cache, ret);
	*out = cache;
	return 0;
}

GPUNVME_API int gpunvme_cache_destroy(struct gpunvme_cache *cache)
{
	uint64_t changed = 0;
	int ret = 0;

	if (!cache)
		return 0;
	if (gnv_foreign(cache->process))
		return -ECHILD;
	(void)gnv_cache_changed(cache, &changed); /* pages that cannot be read cannot be saved */
	if (changed)
		return gnv_fail(-EBUSY, "kernels have changed %llu pages that are not on the drive: gpunvme_cache_flush() writes them, "
				"gpunvme_cache_discard() forgets them", (unsigned long long)changed);
	ret = gnv_prefetch_check(cache);
	if (!ret)
		ret = gpunvme_mem_free(cache->mem);
	if (!ret)
		drop(cache);
	return ret;
}

/* ---- Frames that were lost ---- */

/*
 * Of `n` frames. The words come first: a command that had not ended when its frame was lost is not over before the device is quiet,
 * and no thread touches the word of a lost frame. Return: false: going on is of no use.
 */
static bool give_back_some(struct gpunvme_cache *cache, uint64_t at, uint32_t n)
{
	uint64_t words[WORDS], none = 0;
	uint32_t i, lost = 0;

	if (cache->gpu->ops->peek(cache->gpu, words, at, n * sizeof(*words)))
		return false;
	for (i = 0; i < n; i++)
		lost += words[i] == GPUNVME_FRAME_LOST;
	__atomic_thread_fence(__ATOMIC_ACQUIRE); /* gnvd_end_reading() */
	if (!lost)
		return true;
	if (!gnv_source_quiet(&cache->source, cache->mem))
		return false;
	for (i = 0; i < n; i++)
		if (words[i] == GPUNVME_FRAME_LOST) {
			if (cache->gpu->ops->poke(cache->gpu, at + i * sizeof(none), &none, sizeof(none)))
				return false;
			cache->given_back++;
		}
	return true;
}

/* A thread that looked before another gave frames back, and acts after, would take a frame that was lost again since. */
void gnv_cache_give_back(struct gpunvme_cache *cache)
{
	const uint64_t all = cache->view.frames * (gnv_cache_writable(cache) ? 2ull : 1ull); /* those that are kept, too */
	struct gpunvme_cache_state state;
	uint64_t i;

	if (cache->gpu->ops->peek(cache->gpu, &state, cache->words.lane, sizeof(state)) || state.lost <= cache->given_back)
		return;
	for (i = 0; i < all; i += WORDS)
		if (!give_back_some(cache, cache->view.frame + 8 * i, (uint32_t)gnv_min(all - i, WORDS)))
			return;
}

/* ---- Views and info ---- */

GPUNVME_API int gpunvme_cache_view_v(struct gpunvme_cache *cache, struct gpunvme_dpages *pages, uint32_t version,
				     uint32_t size)
{
	struct gpunvme_dbuf buf;
	int ret = gnv_enter(cache, cache && pages, "cache and pages");

	if (ret)
		return ret;
	ret = gnv_view_check(version, size, sizeof(*pages));
	if (ret)
		return ret;
	ret = gnv_source_dbuf(&cache->source, cache->mem, &buf);
	if (ret)
		return ret;
	pthread_mutex_lock(&cache->lock);
	gnv_cache_give_back(cache);
	pthread_mutex_unlock(&cache->lock);
	*pages = cache->view;
	pages->buf = buf;
	return 0;
}

GPUNVME_API int gpunvme_cache_get_info(struct gpunvme_cache *cache, struct gpunvme_cache_info *user)
{
	struct gpunvme_cache_info info = { .size = sizeof(info) };
	struct gpunvme_cache_state state;
	uint64_t given_back;
	int ret = gnv_enter(cache, cache, "cache");

	if (ret)
		return ret;
	pthread_mutex_lock(&cache->lock);
	given_back = cache->given_back;
	ret = cache->gpu->ops->peek(cache->gpu, &state, cache->words.lane, sizeof(state));
	pthread_mutex_unlock(&cache->lock);
	if (!ret)
		ret = gnv_cache_changed(cache, &info.changed);
	if (ret)
		return ret;
	info.page_size = 1u << cache->view.page_shift;
	info.frames = cache->view.frames;
	info.pages = cache->pages;
	info.lost = state.lost > given_back ? state.lost - given_back : 0; /* a thread counts its frame after it has lost it */
	info.hits = state.hits;
	info.misses = state.misses;
	info.waits = state.waits;
	info.evictions = state.evictions;
	info.failures = state.failures;
	info.prefetches = state.prefetches;
	info.used = state.used;
	info.wasted = state.wasted;
	info.coming = state.coming;
	info.writes = state.writes;
	info.write_failures = state.write_failures;
	info.copied = state.copied << cache->view.page_shift;
	return gnv_info_copy(user, &info, gpunvme_cache_info);
}
