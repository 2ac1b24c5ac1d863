/* SPDX-License-Identifier: MIT */
/*
 * The host's side of prefetch. A command that reads a page is over for its queue when a thread has taken its result. No thread uses
 * a cache that is gone, so its end waits for a kernel, or for the end of the queue.
 */
#include "cache/prefetch.h"

#include <errno.h>

#include "dma/mem_map.h"
#include "queue/qp.h"
#include "util/bits.h"

#define FRAMES GNV_CACHE_WORDS /* looked at at once */

bool gnv_has_prefetch(const struct gpunvme_dpages *view)
{
	return view->head.kind & GPUNVME_KIND_PREFETCH;
}

/* Does the frame's page say by which device it comes? As gnvd_page_dq(). Kernels may have put anything there. */
static bool names_device(const struct gpunvme_cache *cache, uint64_t owner, uint32_t *dev)
{
	const uint32_t shift = cache->view.page_shift - cache->view.lba_shift;
	struct gnv_source_part part;

	if (!owner || owner > cache->pages)
		return false;
	gnv_source_part(&cache->source, cache->view.lba_first + ((owner - 1) << shift), 1, &part);
	*dev = part.dev;
	return true;
}

/* Id of the queue that goes on and has this tag, 0: none. Where a kernel was killed before it named the page, of any device. */
static uint32_t queue_of(struct gpunvme_cache *cache, uint64_t owner, uint32_t tag)
{
	const struct gnv_source *source = &cache->source;
	uint32_t i, qid = 0, dev = 0;
	const bool named = source->devs == 1 || names_device(cache, owner, &dev);

	for (i = 0; i < source->devs && !qid; i++)
		if ((!named || i == dev) && gnv_map_has(cache->mem, source->dev[i]))
			qid = gnv_qp_of_tag(source->dev[i], tag);
	return qid;
}

/* Which queues have the identifiers of n frames? The first of two words of a frame names tag and identifier. 0 or 1: none. */
static int check_some(struct gpunvme_cache *cache, uint64_t first, uint32_t n)
{
	const uint64_t at = cache->view.frame + 8ull * cache->view.frames + 16ull * first;
	uint64_t words[2 * FRAMES], owner[FRAMES];
	uint32_t i, qid;

	if (cache->gpu->ops->peek(cache->gpu, words, at, n * 2 * sizeof(*words)) ||
	    cache->gpu->ops->peek(cache->gpu, owner, cache->view.frame + 8 * first, n * sizeof(*owner)))
		return gnv_fail(-EIO, "the threads' memory cannot be read, so the queue of prefetched pages is not known. Close "
				      "the device");
	for (i = 0; i < n; i++) {
		qid = words[2 * i] > 1 ? queue_of(cache, owner[i], (uint32_t)(words[2 * i] >> 32)) : 0;
		if (qid)
			return gnv_fail(-EBUSY,
					"pages were prefetched by queue %u, and have identifiers of it. Run "
					"gpunvme_prefetch_finish() in a kernel, or recover or destroy the queue, then try again",
					qid);
	}
	return 0;
}

int gnv_prefetch_check(struct gpunvme_cache *cache)
{
	bool open = false;
	uint64_t i;
	int ret = 0;

	for (i = 0; gnv_has_prefetch(&cache->view) && i < cache->source.devs; i++)
		open |= gnv_map_has(cache->mem, cache->source.dev[i]);
	for (i = 0; open && i < cache->view.frames && !ret; i += FRAMES)
		ret = check_some(cache, i, (uint32_t)gnv_min(cache->view.frames - i, FRAMES));
	return ret;
}
