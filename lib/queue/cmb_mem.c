/* SPDX-License-Identifier: MIT */
/*
 * Invariant: memory in a drive is mapped to that drive only, and the drive accesses it by its own addresses. The drive is closed
 * after the memory is freed.
 */
#include "queue/cmb_mem.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nvme/cmb.h"
#include "dma/deferred_free.h"
#include "dma/mem_map.h"
#include "queue/selftest.h"
#include "util/bits.h"
#include "util/entry.h"
#include "util/opts.h"
#include "util/process.h"

#define DEPTH 16u
#define PAGES 8u /* enough for a list */

struct cmb {
	struct gpunvme_mem mem; /* first: it has the address of the whole */
	struct gnv_block block;
	bool given; /* to its user, which frees it */
};

static void cmb_release(struct gpunvme_mem *mem)
{
	struct cmb *cmb = gnv_container_of(mem, struct cmb, mem);

	gnv_arena_free(mem->home->nvme.cmb.arena, &cmb->block);
	if (cmb->given) /* last: another thread may close the drive then */
		__atomic_fetch_sub(&mem->home->dma.cmb_given, 1, __ATOMIC_RELEASE);
}

static const struct gnv_mem_ops cmb_ops = { "drive", cmb_release, gnv_mem_attach_host, gnv_mem_detach_host };

/* ---- The proof: reads by a queue of its own, with the threads that will use it ---- */

static int test_with(struct gnv_qp *qp, struct gpunvme_mem *mem)
{
	struct gnv_selftest test = { { NULL, mem }, { NULL, NULL } };
	struct gnv_message cause;
	int ret = gnv_map_add(mem, qp->dev);

	if (!ret)
		ret = gnv_selftest_memory(&test, qp, PAGES * qp->dev->nvme.ctrl.page_size);
	cause = gnv_message();
	gnv_qp_discard(qp);
	test.mem[1] = NULL; /* is its owner's */
	gnv_selftest_fini(&test);
	return ret ? gnv_fail_again(ret, &cause) : 0;
}

static int prove(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, struct gpunvme_mem *mem)
{
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gnv_qp *qp;
	int ret;

	opts.depth = gnv_min(DEPTH, dev->nvme.info.max_depth);
	opts.flags = GPUNVME_QUEUE_NO_SELFTEST; /* its memory is tested instead */
	ret = gnv_qp_create(dev, gpu, &opts, &qp);
	if (ret)
		return ret;
	return test_with(qp, mem);
}

static int prove_lists(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu)
{
	const struct gnv_log silent = { .fn = NULL };
	struct gpunvme_mem *mem;
	int ret = gnv_mem_host_alloc(PAGES * dev->nvme.ctrl.page_size, gnv_mem_flags_for(dev->nvme.port->space), &silent, &mem);

	if (ret)
		return ret;
	mem->gpu = gnv_gpu_get(gpu);
	mem->lists_inside = true;
	ret = prove(dev, gpu, mem);
	gnv_map_free(mem);
	return ret;
}

int gnv_cmb_mem_test_lists(struct gpunvme_dev *dev)
{
	struct gnv_message cause;
	struct gpunvme_gpu *cpu;
	int ret = gnv_cmb_check(&dev->nvme, GPUNVME_CMB_LISTS);

	if (ret || __atomic_load_n(&dev->nvme.cmb.lists_proven, __ATOMIC_ACQUIRE))
		return ret;
	ret = gpunvme_gpu_open("cpu", NULL, &cpu);
	if (ret)
		return ret;
	ret = prove_lists(dev, cpu);
	cause = gnv_message();
	gpunvme_gpu_close(cpu);
	if (ret)
		return gnv_fail(ret, "PRP lists in the drive's memory (CMB) were not proven, leave GPUNVME_MEM_CMB_LISTS out: %s",
				cause.text);
	__atomic_store_n(&dev->nvme.cmb.lists_proven, true, __ATOMIC_RELEASE);
	return 0;
}

/* ---- The kind of memory ---- */

static int make(struct gpunvme_gpu *gpu, struct gpunvme_dev *dev, size_t len, struct cmb **out)
{
	struct cmb *cmb = calloc(1, sizeof(*cmb));
	struct gpunvme_mem *mem;
	int ret;

	if (!cmb)
		return gnv_fail(-ENOMEM, "out of memory");
	gnv_deferred_free_unused(dev);
	ret = gnv_arena_alloc(dev->nvme.cmb.arena, len, NULL, &cmb->block);
	if (ret) {
		free(cmb);
		return ret;
	}
	mem = &cmb->mem;
	gnv_mem_init(mem, &cmb_ops);
	mem->gpu = gnv_gpu_get(gpu);
	mem->cpu = cmb->block.cpu;
	mem->len = cmb->block.len;
	mem->page = dev->nvme.port->bar0->page;
	mem->home = dev;
	mem->home_iova = cmb->block.iova;
	mem->locked = true;
	mem->far = dev->nvme.port->remote;
	*out = cmb;
	return 0;
}

static int check(const struct gpunvme_gpu *gpu, const struct gpunvme_dev *dev, size_t len)
{
	int ret = gnv_ctrl_check(&dev->nvme.ctrl);

	if (ret)
		return ret;
	ret = gnv_cmb_check(&dev->nvme, GPUNVME_CMB_DATA);
	if (ret)
		return ret;
	if (!len)
		return gnv_fail(-EINVAL, "memory of zero bytes was asked for");
	/* The GPU's stores to the drive and its doorbell are not ordered: the data could be older than the command. */
	if (dev->nvme.port->remote && gpu->info.kind != GPUNVME_GPU_CPU)
		return gnv_fail(-EOPNOTSUPP, "data in the drive's memory (CMB) is for CPU threads only, because commands may "
					     "overtake the stores of a GPU. Use memory of the host");
	return 0;
}

GPUNVME_API int gpunvme_mem_cmb(struct gpunvme_gpu *gpu, struct gpunvme_dev *dev, size_t len, const struct gpunvme_mem_opts *user,
				struct gpunvme_mem **mem)
{
	struct gpunvme_mem_opts opts = GPUNVME_MEM_OPTS_INIT;
	struct cmb *cmb = NULL;
	int ret;

	if (!gpu || !dev || !mem)
		return gnv_null("gpu, dev and mem");
	if (gnv_foreign(gpu->process) || gnv_foreign(dev->process))
		return -ECHILD;
	ret = gnv_opts_copy(&opts, user, gpunvme_mem_opts);
	if (ret)
		return ret;
	if (opts.reserved || opts.flags & ~(uint32_t)GPUNVME_MEM_CMB_LISTS)
		return gnv_fail(-EINVAL, "memory in a drive takes no flag but GPUNVME_MEM_CMB_LISTS");
	ret = check(gpu, dev, len);
	if (ret)
		return ret;
	ret = opts.flags ? gnv_cmb_mem_test_lists(dev) : 0;
	if (ret)
		return ret;
	ret = make(gpu, dev, len, &cmb);
	if (ret)
		return ret;
	cmb->mem.lists_inside = opts.flags;
	ret = prove(dev, gpu, &cmb->mem);
	if (ret) {
		gnv_map_free(&cmb->mem);
		return ret;
	}
	cmb->given = true;
	__atomic_fetch_add(&dev->dma.cmb_given, 1, __ATOMIC_RELAXED);
	*mem = &cmb->mem;
	return 0;
}
