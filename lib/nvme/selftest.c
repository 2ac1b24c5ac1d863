/* SPDX-License-Identifier: MIT */
/*
 * The self-test: one block is read into trusted host memory and into memory of the kind that data will lie in, each filled with
 * another pattern before. Data that never arrived, or arrived elsewhere, leaves the patterns, which differ.
 * Invariant: reads only.
 */
#include "nvme/selftest.h"

#include <errno.h>
#include <string.h>

#define PATTERN_TRUSTED 0xa5
#define PATTERN_CANDIDATE 0x3c

static int prepare(struct gnv_selftest *test, struct gpunvme_qp *qp, unsigned i, size_t len, int pattern, struct gpunvme_dbuf *dbuf)
{
	int ret = gpunvme_mem_alloc(qp->gpu, len, NULL, &test->mem[i]);

	if (!ret)
		ret = gpunvme_mem_map(test->mem[i], qp->dev);
	if (!ret)
		ret = gpunvme_mem_dbuf(test->mem[i], qp->dev, dbuf);
	if (!ret)
		memset(gpunvme_mem_ptr(test->mem[i]), pattern, len);
	return ret;
}

static int explain(const struct gpunvme_qp *qp, int ret)
{
	if (ret > 0 || ret == -ETIMEDOUT)
		return gnv_fail(ret, "the self-test of queue %u could not read a block: %s; GPUNVME_QP_NO_SELFTEST skips it",
				qp->qid, gpunvme_strerror(ret));
	return gnv_fail(-EIO, "the self-test of queue %u failed to read the first block: %s", qp->qid, gpunvme_strerror(ret));
}

int gnv_selftest_run(struct gnv_selftest *test, struct gpunvme_qp *qp)
{
	static const int pattern[2] = { PATTERN_TRUSTED, PATTERN_CANDIDATE };
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dq dq;
	unsigned i;
	int ret;

	ret = gpunvme_ns_info(qp->dev, 0, &ns);
	if (ret == -ENOENT || ret == -EOPNOTSUPP) {
		gnv_log(&qp->dev->log, GPUNVME_LOG_INFO, "queue %u: no self-test: %s", qp->qid, gpunvme_errmsg());
		return 0;
	}
	if (ret)
		return ret;
	gnv_qp_describe(qp, &ns, &dq);
	if (!dq.max_blocks)
		return 0; /* no view of it can be made either */
	for (i = 0; i < 2; i++) {
		ret = prepare(test, qp, i, ns.lba_size, pattern[i], &dbuf);
		if (ret)
			return ret;
		ret = gnv_gpu_read(qp->gpu, &dq, &dbuf, 0, 1);
		if (ret)
			return explain(qp, ret);
	}
	if (memcmp(gpunvme_mem_ptr(test->mem[0]), gpunvme_mem_ptr(test->mem[1]), ns.lba_size))
		return gnv_fail(-EIO, "the self-test of queue %u read one block as two: data does not land where it should",
				qp->qid);
	gnv_qp_zero_counters(qp);
	return 0;
}

void gnv_selftest_fini(struct gnv_selftest *test)
{
	gpunvme_mem_free(test->mem[0]);
	gpunvme_mem_free(test->mem[1]);
}
