/* SPDX-License-Identifier: MIT */
/*
 * gpunvme discard: deallocate blocks (Dataset Management, Deallocate). One thread does it, piece by piece, so that a signal takes
 * effect and no command takes long.
 */
#include "verbs.h"

#include "common/permission.h"
#include "common/progress.h"

#include <inttypes.h>
#include <stdio.h>

#include <gpunvme/device.h>

#define PIECE (1024 * MIB)

struct discard {
	const struct session_opts *o;
	struct session s;
	uint64_t nblocks; /* all */
	uint64_t done;
	uint32_t piece; /* the size of the current piece */
	int status;
};

static GPUNVME_DEVICE void discard_piece(void *arg)
{
	struct discard *d = (struct discard *)arg;

	d->status =
		gpunvme_discard(d->s.dq, &d->s.dbuf, 0, d->done << d->s.dq->lba_shift, (uint64_t)d->piece << d->s.dq->lba_shift);
}

static int discard_all(struct discard *d)
{
	uint64_t most = PIECE / d->s.ns.lba_size;
	int ret = GO_ON;

	while (d->done < d->nblocks && ret == GO_ON) {
		d->piece = (uint32_t)(d->nblocks - d->done < most ? d->nblocks - d->done : most);
		ret = session_launch(&d->s, 1, discard_piece, d);
		if (ret == GO_ON && d->status)
			ret = failed("blocks %" PRIu64 " to %" PRIu64 " were not deallocated: %s%s", d->o->lba + d->done,
				     d->o->lba + d->done + d->piece - 1, gpunvme_strerror(d->status), remedy(d->status));
		d->done += d->piece;
		if (ret == GO_ON && interrupted && d->done < d->nblocks)
			ret = failed("interrupted: the data of the blocks that were deallocated so far is lost");
	}
	return ret;
}

static void report(const struct discard *d, double seconds)
{
	static const char *const names[] = { "unknown", "zeroes", "ones" };
	const char *as = names[d->s.ns.deallocated < 3 ? d->s.ns.deallocated : GPUNVME_DEALLOCATED_UNKNOWN];
	struct json_object *json;

	if (!d->o->json) {
		printf("deallocated %s, %" PRIu64 " blocks from block %" PRIu64 " on, in %.2f s. The drive reports that such blocks read as %s\n",
		       human((double)d->nblocks * d->s.ns.lba_size), d->nblocks, d->o->lba, seconds, d->s.ns.deallocated ? as : "anything");
		return;
	}
	json = json_object_new_object();
	put_text(json, "program", program);
	put_text(json, "device", d->o->dev);
	put_count(json, "lba", d->o->lba);
	put_count(json, "blocks", d->nblocks);
	put_real(json, "seconds", seconds, 6);
	put_text(json, "reads_as", as);
	print_object(json);
}

static int discard(struct discard *d)
{
	double start;
	int ret = session_lasts(&d->s, 1);

	if (ret == GO_ON)
		ret = session_may_write(&d->s, d->o);
	if (ret == GO_ON && !(d->s.info.oncs & GPUNVME_ONCS_DSM))
		ret = failed("%s cannot deallocate blocks: it has no Dataset Management command", d->s.info.model);
	if (ret == GO_ON)
		ret = session_fits(&d->s, "the range", d->o->lba, d->nblocks);
	if (ret == GO_ON)
		ret = session_open_queues(&d->s, d->o, GPUNVME_VIEW_WRITE, d->o->lba, d->nblocks);
	if (ret == GO_ON)
		ret = session_buffer(&d->s, 4 * KIB);
	start = now_s();
	if (ret == GO_ON)
		ret = discard_all(d);
	if (ret != GO_ON)
		return ret;
	report(d, now_s() - start);
	return EXIT_DONE;
}

int verb_discard(int argc, char **argv)
{
	struct session_opts o = SESSION_OPTS_INIT;
	struct discard d = { .o = &o };
	const struct option_def defs[] = {
		OPTION_DEV(&o),
		OPTION_LBA(&o),
		{ "blocks", OPTION_U64, &d.nblocks, 1, "N", "number of blocks (no default)" },
		OPTION_YES(&o),
		OPTION_VERBOSE(&o),
		OPTION_JSON(&o),
		OPTIONS_END,
	};
	int ret = session_options(argc, argv, "usage: gpunvme discard URI --blocks N [options]\n"
					      "Deallocates blocks. Their data is lost.", defs, &o,
				  NULL);

	if (ret != GO_ON)
		return ret;
	if (!d.nblocks)
		return misused("how many blocks? Give --blocks N, and --lba N for the first one");
	o.queues = 1;
	o.threads = 1;
	catch_signals();
	ret = session_open(&d.s, &o);
	if (ret != GO_ON)
		return ret;
	ret = discard(&d);
	session_close(&d.s);
	return ret;
}
