/* SPDX-License-Identifier: MIT */
/*
 * The link of a drive whose blocks are in the memory of a GPU: the link that its data uses, unless the URI asks for a slower one.
 * The rate is measured, and only reported. The first copies may be slow, because an idle GPU wakes its link up, so the fastest of
 * several counts. With link=0 the drive has no link.
 */
#include "os/linux/sys.h"
#include "util/bits.h"
#include "util/clock.h"
#include "vdrive/drive.h"

#define PROBE_BYTES (32u << 20)
#define COPIES 8u /* of each direction */

/* Return: the time of the fastest copy, in ns; UINT64_MAX: none succeeded. */
static uint64_t fastest(struct gnv_vdrive *d, char *host, size_t len, bool out)
{
	uint64_t best = UINT64_MAX, since;
	unsigned i;
	int ret;

	for (i = 0; i < COPIES; i++) {
		since = gnv_clock_ns();
		ret = out ? d->exec->ops->peek(d->exec, host, d->flash[0], len) : d->exec->ops->poke(d->exec, d->flash[0], host, len);
		if (ret)
			return UINT64_MAX;
		best = gnv_min(best, gnv_max(gnv_clock_ns() - since, 1));
	}
	return best;
}

static void measure(struct gnv_vdrive *d, char *host, size_t len)
{
	const uint64_t out = fastest(d, host, len, true), in = fastest(d, host, len, false), slower = gnv_max(out, in);
	const uint64_t asked = d->t.soft.link;

	if (slower != UINT64_MAX) {
		d->t.soft.link = len * 1000000000ull / slower;
		if (asked)
			d->t.soft.link = gnv_min(asked, d->t.soft.link);
	}
}

void gnv_vdrive_measure_link(struct gnv_vdrive *d)
{
	const uint64_t size = gnv_min(d->t.soft.part[0].store->size, PROBE_BYTES);
	const size_t len = (size_t)(size - size % gnv_sys_page_size());
	void *host, *cookie;
	uint64_t at;

	if (d->exec->is_cpu || d->t.soft.config.model.no_link || !len || gnv_sys_map(len, 0, false, &host))
		return;
	if (!d->exec->ops->show(d->exec, host, len, &at, &cookie)) { /* pinned, because memory that is not pinned is copied twice */
		measure(d, host, len);
		if (d->exec->ops->hide(d->exec, cookie)) { /* the GPU may still access it, so it stays */
			gnv_log(d->t.soft.log, GPUNVME_LOG_ERROR, "%zu bytes of the measurement are leaked: %s", len, gpunvme_errmsg());
			return;
		}
	}
	gnv_sys_unmap(host, len);
}
