/* SPDX-License-Identifier: MIT */
/* The gate of the doorbell: the thread that finds it open rings for all. Each other thread leaves a READY word for that thread. */
#ifndef GPUNVME_DEVICE_GATE_H
#define GPUNVME_DEVICE_GATE_H

#include <gpunvme/device/queue.h>

/*
 * Find the end of the run of READY commands that starts at `pos`. Lanes look at runs of `stride` commands at the same time, because
 * usually all waves submit the same number. The caller's own run, at `own`, is READY.
 */
GNVD_FN uint64_t gnvd_scan_ready(const struct gpunvme_dq *dq, const struct gnvd_wave *w, uint64_t pos, uint64_t own,
				 uint32_t stride)
{
	uint32_t ahead = w->rank * stride, n, k, next;
	uint64_t word;

	if (GNVD_ALONE(w) && pos == own)
		pos += stride;
	for (;;) {
		word = ahead < 1u << dq->sq_shift ? gnvd_ld_after64(gnvd_ready_at(dq, pos + ahead)) : 0;
		k = word >> GPUNVME_READY_POS_SHIFT == pos + ahead ? (uint32_t)(word & GPUNVME_READY_COUNT) : 0;
		k = pos + ahead == own ? stride : k;
		n = gnvd_leading(w, k == stride, &next);
		pos += (uint64_t)n * stride;
		if (n == w->count)
			continue;
		k = gnvd_shfl32(w, k, next);
		if (!k)
			return pos;
		pos += k;
	}
}

/*
 * Announce the commands up to `end` to the controller. Release all stores of these commands, of this and other waves, to the
 * system.
 */
GNVD_FN void gnvd_ring(const struct gpunvme_dq *dq, uint64_t end)
{
	uint32_t mask = (1u << dq->sq_shift) - 1;

	gnvd_st64(GNVD_STATE(dq, pub), end); /* before the doorbell: a completion is checked against it */
	gnvd_order_system();
	if (dq->flags & GPUNVME_DQ_READBACK_SQE)
		(void)gnvd_load_ring32(dq->sq + 64ull * ((uint32_t)(end - 1) & mask) + 60);
	gnvd_doorbell(dq->sq_db, (uint32_t)end & mask);
	if (GNVD_KEEPS(dq, GPUNVME_DQ_STATS))
		gnvd_add64(GNVD_STATE(dq, doorbells), 1);
}

/* Enter the gate. Return its count before this wave. *pub: the position up to which commands are announced. */
GNVD_FN uint32_t gnvd_come(const struct gpunvme_dq *dq, const struct gnvd_wave *w, uint64_t own, uint64_t *pub)
{
	uint64_t gate = gnvd_bcast64(w, w->rank == 0 ? gnvd_fetch_add64(GNVD_STATE(dq, pub_gate), 1) : 0);

	*pub = own + (uint64_t)((int64_t)(gate - (own << GPUNVME_GATE_SHIFT)) >> GPUNVME_GATE_SHIFT);
	return (uint32_t)(gate & GPUNVME_GATE_CAME);
}

/*
 * Announce the wave's `count` commands at `own`, and all that follow and are READY. If another wave is announcing, the count in the
 * gate makes that wave look again. A wave that finds the gate open and no gap before its commands needs no READY word. Any other
 * wave stores its READY word. If the gate was closed, it then enters again, so that the other wave looks after this store.
 */
GNVD_FN void gnvd_publish(const struct gpunvme_dq *dq, const struct gnvd_wave *w, uint64_t own, uint32_t count)
{
	uint32_t closed, again;
	uint64_t gate, pub, end, ready;

	gnvd_meet(w); /* the commands of all lanes before the leader's next step */
	own = gnvd_same64(own); /* the same for all lanes: the next steps are scalar */
	count = gnvd_same32(count);
	gnvd_soon(dq->sq_db);
	closed = gnvd_come(dq, w, own, &pub);
	if (closed || pub != own) {
		gnvd_release_to64(w, gnvd_ready_at(dq, own), own << GPUNVME_READY_POS_SHIFT | count);
		if (closed) {
			gnvd_order_agent();
			closed = gnvd_come(dq, w, own, &pub);
		}
	}
	while (!closed) {
		end = gnvd_scan_ready(dq, w, pub, own, count);
		again = 0;
		if (w->rank == 0) {
			if (end != pub)
				gnvd_ring(dq, end);
			gate = gnvd_xchg64(GNVD_STATE(dq, pub_gate), end << GPUNVME_GATE_SHIFT);
			if ((gate & GPUNVME_GATE_CAME) > 1) {
				ready = gnvd_ld64(gnvd_ready_at(dq, end));
				again = ready && ready >> GPUNVME_READY_POS_SHIFT == end;
			}
		}
		if (!gnvd_bcast32(w, again))
			return;
		closed = gnvd_come(dq, w, own, &pub);
	}
}

#endif
