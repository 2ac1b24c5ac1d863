/* SPDX-License-Identifier: MIT */
/*
 * The self-test: a kernel reads one block into trusted memory of the host, and once more into memory of the kind that data will lie
 * in. Each was filled with a word of its own, which the threads have in their caches when the data comes. The second word does not
 * occur in the block. Data that never arrived, arrived elsewhere, or is not seen leaves the fillings. If the CPU has an address of
 * the second memory, it must find filling and data there, too. Otherwise threads see other memory.
 * Invariant: reads only.
 */
#include "queue/selftest.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/condition.h"
#include "dma/mem_map.h"
#include "dma/placement.h"
#include "util/bits.h"

#define FILL_TRUSTED 0xa5a5a5a5u
#define FILL_CANDIDATE 0x3c3c3c3cu
#define TURNS 8u /* of a block that is written to all the while */
#define SLACK_MS 10000u /* a GPU has to start the kernel, too */

static int moved(const struct gnv_qp *qp)
{
	return gnv_fail(-EIO,
			"the self-test of queue %u: GPU and CPU access different memory at the address of the test's buffer, "
			"because the GPU's driver has moved it for one of them",
			qp->qid);
}

/* Check that the CPU reads the words that threads have written. */
static int check_view(const struct gnv_qp *qp, const struct gpunvme_mem *mem, size_t len, uint32_t fill)
{
	const uint32_t *cpu = mem->cpu;
	size_t i;

	if (cpu)
		gnv_mem_far_fence(mem);
	for (i = 0; cpu && i < len / 4; i++)
		if (cpu[i] != fill)
			return moved(qp);
	return 0;
}

static int make(struct gnv_selftest *test, struct gnv_qp *qp, unsigned i, size_t len, bool local)
{
	struct gpunvme_mem_opts opts = GPUNVME_MEM_OPTS_INIT;
	int ret;

	opts.flags = local ? GPUNVME_MEM_VRAM : gnv_mem_shared_for(qp->dev->nvme.port->space);
	ret = gpunvme_mem_alloc(qp->gpu, NULL, len, &opts, &test->mem[i]);
	if (ret)
		return ret;
	test->mem[i]->exempt = !local;
	return gnv_placement_status(qp->dev, local, gpunvme_mem_map(test->mem[i], qp->dev));
}

static int prepare(struct gnv_selftest *test, struct gnv_qp *qp, unsigned i, size_t len, uint32_t fill,
		   struct gpunvme_dbuf *dbuf)
{
	bool local = i && qp->local;
	uint32_t *at;
	int ret;

	if (!test->seen[i])
		test->seen[i] = calloc(1, len);
	if (!test->seen[i])
		return gnv_fail(-ENOMEM, "out of memory");
	ret = test->mem[i] ? 0 : make(test, qp, i, len, local);
	if (ret)
		return ret;
	ret = gpunvme_mem_dbuf(test->mem[i], qp->dev, dbuf);
	if (ret)
		return ret;
	if (!local) {
		for (at = gpunvme_mem_ptr(test->mem[i]); at < (uint32_t *)gpunvme_mem_ptr(test->mem[i]) + len / 4; at++)
			*at = fill;
		return 0;
	}
	ret = gnv_gpu_fill(qp->gpu, dbuf->base, dbuf->len, fill);
	if (ret)
		return ret;
	return check_view(qp, test->mem[i], len, fill);
}

static int explain(const struct gnv_qp *qp, int ret)
{
	struct gpunvme_dq_state state;
	const char *link = "";

	gnv_qp_state_read(qp, &state);
	if (ret == -ETIMEDOUT)
		link = gnv_qp_completion_waits(qp, &state) ? " (the completion is in memory, but the threads do not see it)" :
							     " (there is no completion: the doorbell, or the command, does not arrive)";
	if (gnv_condition_of(ret))
		return gnv_fail(ret, "%s", gnv_condition_of(ret));
	if (ret > 0 || ret == -ETIMEDOUT)
		return gnv_fail(ret, "the self-test of queue %u could not read a block: %s%s. GPUNVME_QUEUE_NO_SELFTEST skips it",
				qp->qid, gpunvme_strerror(ret), link);
	return gnv_fail(-EIO, "the self-test of queue %u failed to read the first block: %s", qp->qid, gpunvme_strerror(ret));
}

/* Run the kernel. `out` has room for its result and for the data that it saw. */
static int run(struct gnv_qp *qp, struct gnv_selftest_args *args, uint64_t out, size_t len, void *seen,
	       struct gnv_selftest_result *result)
{
	const struct gnv_launch launch = {
		.kernel = GNV_KERNEL_SELFTEST,
		.args = args,
		.args_len = sizeof(*args),
		.threads = 1,
		.timeout_ms = (uint32_t)(args->dq.cmd_timeout / args->dq.ticks_per_ms) + SLACK_MS,
	};
	int ret;

	args->result = out;
	args->seen = out + sizeof(*result);
	ret = qp->gpu->ops->launch(qp->gpu, &launch);
	if (ret)
		return ret;
	ret = qp->gpu->ops->peek(qp->gpu, result, args->result, sizeof(*result));
	if (ret)
		return ret;
	return qp->gpu->ops->peek(qp->gpu, seen, args->seen, len);
}

static int read_block(struct gnv_qp *qp, const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, size_t len,
		      uint32_t fill, void *seen)
{
	struct gnv_selftest_args args = { .dq = *dq, .dbuf = *dbuf, .nblocks = (uint32_t)(len >> dq->lba_shift), .fill = fill };
	struct gnv_selftest_result result = { 0, 0, 0 };
	const size_t room = sizeof(result) + len;
	struct gnv_gpu_range out;
	int ret = qp->gpu->ops->local_alloc(qp->gpu, room, &out);

	if (ret)
		return ret;
	ret = run(qp, &args, out.lane, len, seen, &result);
	if (ret != -ETIMEDOUT) /* a thread that still runs writes there */
		qp->gpu->ops->local_free(qp->gpu, &out, room);
	if (ret)
		return ret;
	if (result.strange)
		return gnv_fail(-EIO, "the self-test of queue %u: the threads do not see earlier writes to their buffer",
				qp->qid);
	return result.status ? explain(qp, result.status) : 0;
}

/* A word that the block does not have: there are more words than a block holds. */
static uint32_t unlike(const uint32_t *block, size_t len)
{
	uint32_t word = FILL_CANDIDATE;
	size_t i;

	for (i = 0; i < len / 4; i++)
		if (block[i] == word) {
			word++;
			i = (size_t)-1;
		}
	return word;
}

/* Another queue may write to the block between two reads: then the data is that of another block, but all of it came. */
static bool is_another(const struct gnv_selftest *test, size_t len, uint32_t fill)
{
	const uint32_t *seen = test->seen[1];
	size_t i;

	if (gpunvme_mem_ptr(test->mem[1]) && memcmp(gpunvme_mem_ptr(test->mem[1]), seen, len))
		return false;
	for (i = 0; i < len / 4; i++)
		if (seen[i] == fill)
			return false;
	return true;
}

/* Compare the data that the controller sent, the data in memory, and the data that threads saw. */
static int compare(const struct gnv_selftest *test, const struct gnv_qp *qp, size_t len)
{
	const void *sent = gpunvme_mem_ptr(test->mem[0]), *lies = gpunvme_mem_ptr(test->mem[1]);
	bool there, seen = !memcmp(sent, test->seen[1], len);

	if (lies && qp->local)
		gnv_mem_far_fence(test->mem[1]);
	there = lies && !memcmp(sent, lies, len);
	if (seen && (there || !lies))
		return 0;
	if (there)
		return gnv_fail(-EIO, "the self-test of queue %u: the data is in memory, but the threads see the bytes that were "
				      "there before",
				qp->qid);
	if (seen)
		return moved(qp);
	return gnv_fail(-EIO, "the self-test of queue %u read one block as two: data does not land where it should", qp->qid);
}

/* Return: 0; -ENOENT there is nothing to read, which the log says. */
static int describe(struct gnv_qp *qp, struct gpunvme_ns_info *ns, struct gpunvme_dq *dq)
{
	int ret;

	ns->size = sizeof(*ns);
	ret = gpunvme_ns_get_info(qp->dev, 0, ns);
	if (ret == -ENOENT || ret == -EOPNOTSUPP) {
		gnv_log(&qp->dev->nvme.log, GPUNVME_LOG_INFO, "queue %u: no self-test: %s", qp->qid, gpunvme_errmsg());
		return -ENOENT;
	}
	if (ret)
		return ret;
	gnv_qp_describe(qp, ns, dq);
	return dq->max_blocks ? 0 : -ENOENT; /* no view of it can be made either */
}

/* Return: 0; -EAGAIN whole data came, and other data than before; another failure. */
static int read_twice(struct gnv_selftest *test, struct gnv_qp *qp, const struct gpunvme_dq *dq, size_t len)
{
	uint32_t next = FILL_TRUSTED, fill = next;
	struct gpunvme_dbuf dbuf;
	unsigned i;
	int ret;

	for (i = 0; i < 2; i++) {
		fill = next;
		ret = prepare(test, qp, i, len, fill, &dbuf);
		if (!ret)
			ret = read_block(qp, dq, &dbuf, len, fill, test->seen[i]);
		if (ret)
			return ret;
		next = unlike(gpunvme_mem_ptr(test->mem[0]), len);
	}
	ret = compare(test, qp, len);
	return ret && is_another(test, len, fill) ? -EAGAIN : ret;
}

static int read_both(struct gnv_selftest *test, struct gnv_qp *qp, const struct gpunvme_dq *dq, size_t len)
{
	unsigned turn;
	int ret = -EAGAIN;

	for (turn = 0; turn < TURNS && ret == -EAGAIN; turn++)
		ret = read_twice(test, qp, dq, len);
	return ret == -EAGAIN ? -EIO : ret; /* with the error message of the last turn */
}

int gnv_selftest_memory(struct gnv_selftest *test, struct gnv_qp *qp, size_t most)
{
	struct gpunvme_ns_info ns;
	struct gpunvme_dq dq;
	size_t len;
	int ret = describe(qp, &ns, &dq);

	if (ret)
		return ret == -ENOENT ? 0 : ret;
	len = gnv_max(gnv_min(gnv_min(most, test->mem[1]->len) / ns.lba_size, ns.nblocks), 1) * ns.lba_size;
	if (len > test->mem[1]->len)
		return 0; /* not one block can be read into it, by anybody */
	ret = read_both(test, qp, &dq, len);
	if (!ret)
		memset(test->mem[1]->cpu, 0, len);
	return ret;
}

int gnv_selftest_run(struct gnv_selftest *test, struct gnv_qp *qp)
{
	struct gpunvme_ns_info ns;
	struct gpunvme_dq dq;
	int ret = describe(qp, &ns, &dq);

	if (ret)
		return ret == -ENOENT ? 0 : ret;
	ret = read_both(test, qp, &dq, ns.lba_size);
	if (!ret && qp->local)
		ret = qp->gpu->ops->mem_stays(qp->gpu, test->mem[1]->dmabuf);
	if (ret)
		return ret;
	ret = gnv_qp_zero_counters(qp);
	if (ret)
		return ret;
	gnv_log(&qp->dev->nvme.log, GPUNVME_LOG_DEBUG, "queue %u: self-test passed", qp->qid);
	return 0;
}

void gnv_selftest_fini(struct gnv_selftest *test)
{
	unsigned i;

	for (i = 0; i < 2; i++) {
		gnv_map_free(test->mem[i]);
		free(test->seen[i]);
	}
}
