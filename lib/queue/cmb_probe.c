/* SPDX-License-Identifier: MIT */
#include "queue/cmb_probe.h"

#include "dma/mem_map.h"
#include "util/bits.h"

#define ROUNDS 4u
#define ROUND_MS 2u
#define CLEARLY 8u /* by the eighth part: less is noise */

/* The best of the rounds, which nothing disturbed. */
static int time_reads(struct gnv_qp *qp, const struct gpunvme_dbuf *dbuf, uint64_t *best)
{
	struct gpunvme_workload load = GPUNVME_WORKLOAD_INIT;
	struct gpunvme_dq dq;
	int ret = gnv_qp_view(qp, NULL, &dq);

	if (ret)
		return ret;
	load.threads = load.nblocks = 1;
	load.ms = ROUND_MS;
	ret = gpunvme_workload_run(qp->gpu, &dq, 1, dbuf, &load);
	if (!ret && load.commands)
		*best = gnv_min(*best, load.took_ns / load.commands);
	return ret;
}

static int time_both(struct gnv_qp *qp, struct gnv_qp *other, struct gpunvme_mem *mem, uint64_t best[2])
{
	struct gpunvme_dbuf dbuf;
	unsigned i;
	int ret = gpunvme_mem_map(mem, qp->dev);

	if (ret)
		return ret;
	ret = gpunvme_mem_dbuf(mem, qp->dev, &dbuf);
	for (i = 0; i < 2 * ROUNDS && !ret; i++)
		ret = time_reads(i % 2 ? other : qp, &dbuf, &best[i % 2]);
	return ret;
}

int gnv_cmb_probe_compare(struct gnv_qp *qp, struct gnv_qp *other, bool *slower)
{
	struct gpunvme_mem_opts opts = GPUNVME_MEM_OPTS_INIT;
	uint64_t best[2] = { UINT64_MAX, UINT64_MAX };
	struct gpunvme_mem *mem;
	int ret;

	opts.flags = qp->local ? GPUNVME_MEM_VRAM : gnv_mem_shared_for(qp->dev->nvme.port->space);
	ret = gpunvme_mem_alloc(qp->gpu, NULL, qp->dev->nvme.ctrl.page_size, &opts, &mem);
	if (!ret) {
		mem->exempt = !qp->local;
		ret = time_both(qp, other, mem, best);
		gnv_map_free(mem);
	}
	if (ret)
		return ret;
	gnv_log(&qp->dev->nvme.log, GPUNVME_LOG_INFO, "a read takes %llu ns with its queue in the drive's memory, and %llu ns without",
		(unsigned long long)best[0], (unsigned long long)best[1]);
	*slower = best[0] - best[0] / CLEARLY > best[1];
	return 0;
}
