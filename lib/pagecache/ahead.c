/* SPDX-License-Identifier: MIT */
/*
 * The host's side of prefetch. A command that reads a page is over for its queue when a lane has taken its result, and no lane
 * comes to a cache that is gone: so that waits for a kernel, or for the queue's end.
 */
#include "pagecache/ahead.h"

#include <errno.h>

#include "queue/qp.h"
#include "util/bits.h"

#define FRAMES 64u /* looked at at once */

uint32_t gnv_ahead_words(const struct gpunvme_dpages *view)
{
	return view->magic == GPUNVME_DPAGES_AHEAD_MAGIC ? 3 : 1;
}

/* Who has the identifiers of n frames? Of each the first of two words names tag and identifier; by 0 or 1 there is none. */
static int check_some(struct gpunvme_gpu *gpu, struct gpunvme_dev *dev, uint64_t at, uint32_t n)
{
	uint64_t words[2 * FRAMES];
	uint32_t i, qid;

	if (gpu->ops->peek(gpu, words, at, n * 2 * sizeof(*words)))
		return gnv_fail(-EIO, "the lanes' memory cannot be read: the queue of pages that were prefetched is not known; close the device");
	for (i = 0; i < n; i++) {
		qid = words[2 * i] > 1 ? gnv_qp_of_tag(dev, (uint32_t)(words[2 * i] >> 32)) : 0;
		if (qid)
			return gnv_fail(-EBUSY,
					"pages were prefetched by queue %u, and have identifiers of it; run gpunvme_ahead_settle() in a "
					"kernel, or recover or destroy the queue, then try again",
					qid);
	}
	return 0;
}

int gnv_ahead_check(const struct gpunvme_dpages *view, struct gpunvme_gpu *gpu, struct gpunvme_dev *dev)
{
	uint32_t i;
	int ret = 0;

	if (view->magic != GPUNVME_DPAGES_AHEAD_MAGIC)
		return 0;
	for (i = 0; i < view->frames && !ret; i += FRAMES)
		ret = check_some(gpu, dev, view->frame + 8ull * view->frames + 16ull * i, (uint32_t)gnv_min(view->frames - i, FRAMES));
	return ret;
}
