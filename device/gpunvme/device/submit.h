/* SPDX-License-Identifier: MIT */
/* Submit without waiting for the result: reserve, write, publish, and drain once if there is no room. */
#ifndef GPUNVME_DEVICE_SUBMIT_H
#define GPUNVME_DEVICE_SUBMIT_H

#include <gpunvme/device/command.h>
#include <gpunvme/device/drain.h>
#include <gpunvme/device/gate.h>
#include <gpunvme/device/reserve.h>
#include <gpunvme/device/write.h>

/* Submit one command for each lane with `want` set that finds a place. Results as gnvd_find_places(). */
GNVD_FN int gnvd_try_submit(const struct gpunvme_dq *dq, const struct gnvd_wave *w, int want, const struct gnvd_cmd *c,
			    uint32_t most, struct gpunvme_req *req)
{
	struct gnvd_grant grant = { 0, 0, 0, 0, 0 };
	int err = gnvd_find_places(dq, w, want, most, &grant);

	if (want && !err)
		gnvd_write_command(dq, &grant, c, gnvd_begin_command(dq, &grant, req));
	if (grant.count)
		gnvd_publish(dq, w, grant.pos, grant.count);
	return err;
}

/* As gnvd_try_submit(). If there is no room, it takes completions once and tries again. */
GNVD_FN int gnvd_submit(const struct gpunvme_dq *dq, const struct gnvd_wave *w, int want, const struct gnvd_cmd *c,
			struct gpunvme_req *req)
{
	uint64_t pending = gnvd_ballot(w, want), left;
	uint32_t turn = 0;
	int err, ret = 0;

	while (pending) {
		err = gnvd_try_submit(dq, w, want, c, gnvd_widest(dq), req);
		if (want && err != -GPUNVME_EAGAIN) {
			ret = err;
			want = 0;
		}
		left = gnvd_ballot(w, want);
		if (left == pending && turn++)
			break;
		if (left == pending)
			gnvd_drain(dq, w);
		pending = left;
	}
	return want ? gnvd_full(dq) : ret;
}

GNVD_FN int gnvd_submit_one(const struct gpunvme_dq *dq, const struct gnvd_cmd *c, int ret, struct gpunvme_req *req)
{
	struct gnvd_wave w;
	int err = 0;

	w.hint = gnvd_hint();
	GNVD_EACH_QUEUE(dq) {
		gnvd_enter(&w, dq, GNVD_SITE_SUBMIT);
		GNVD_TOGETHER(w, err = gnvd_submit(dq, &w, !ret, c, req));
		gnvd_leave(&w);
	}
	if (err == -GPUNVME_EAGAIN)
		gnvd_polled_in_vain();
	return ret ? ret : err;
}

GNVD_FN int gnvd_submit_rw(const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t offset, uint64_t pos,
			   uint64_t len, uint32_t op, int ret, struct gpunvme_req *req)
{
	uint32_t nblocks = GNVD_NBLOCKS(dq, len);
	struct gnvd_cmd c = { 0, 0, 0, 0, 0 };

	if (!ret)
		ret = gnvd_check_transfer(dq, dbuf, offset, pos, len, op);
	if (!ret && gnvd_blocks_per_command(dq, dbuf->iova + offset, nblocks) < nblocks)
		ret = -GPUNVME_EMSGSIZE;
	if (!ret) {
		gnvd_set_blocks(dq, op, GNVD_BLOCKS(dq, pos), nblocks, &c);
		gnvd_set_data(dq, dbuf, offset, len, &c);
	}
	return gnvd_submit_one(dq, &c, ret, req);
}

#endif
