/* SPDX-License-Identifier: MIT */
/*
 * Litmus: what a machine keeps of the order in which controller, PCIe and the lanes' caches ought to see things. Where a queue's
 * self-test asks whether the path works, this asks thousands of times whether it ever does not. Reads and compares, and never
 * writes media.
 */
#ifndef GPUNVME_LITMUS_H
#define GPUNVME_LITMUS_H

#include <gpunvme/gpu.h>

#ifdef __cplusplus
extern "C" {
#endif

enum gpunvme_litmus_test {
	GPUNVME_LITMUS_ORDER,    /* the controller fetches no SQE that is older than the doorbell */
	GPUNVME_LITMUS_CQE,      /* a completion is seen without help, although caches held the entry before */
	GPUNVME_LITMUS_DATA,     /* data is seen when its completion is, although caches held the buffer before */
	GPUNVME_LITMUS_DOORBELL, /* of doorbells in close succession the last one counts */
	GPUNVME_LITMUS_CQE16,    /* a completion that is loaded with 16 bytes at once is whole */
	GPUNVME_LITMUS_STORE,    /* the controller reads what a thread stored last: Compare commands, half of which must fail */
	GPUNVME_LITMUS_TESTS
};

enum gpunvme_litmus_verdict {
	GPUNVME_LITMUS_NOT_RUN, /* the controller has no Compare command, or too few commands were asked for; `why` says which */
	GPUNVME_LITMUS_PASSED,
	GPUNVME_LITMUS_FAILED
};

enum gpunvme_litmus_flags {
	/*
	 * Before each launch the GPU's runtime copies the data to its memory and back, as programs do: HIP, which may make memory of the
	 * host cached that way. The data lies in 2 MiB then, as HIP treats small copies otherwise.
	 */
	GPUNVME_LITMUS_COPIES = 1u << 0,
};

struct gpunvme_litmus_opts {
	size_t size;         /* sizeof(struct gpunvme_litmus_opts) */
	uint32_t commands;   /* of each test; 0: 100,000 */
	uint32_t timeout_ms; /* that one completion may take; 0: 2,000 */
	/* NULL, or called on the caller's thread now and then: commands of all tests so far, of as many as there will be. */
	void (*progress)(void *ctx, uint64_t done, uint64_t total);
	void *progress_ctx;
	uint32_t qp_flags; /* GPUNVME_QP_VRAM: rings and data in the GPU's memory; or 0: in the host's */
	/*
	 * Where the data lies: GPUNVME_MEM_HOST, _HUGE, _SHARED, _VRAM or a flag of _VENDOR; 0: with the rings. Other memory than theirs
	 * is for a controller in software: on a drive data and rings lie together (-EXDEV).
	 */
	uint32_t mem_flags;
	uint32_t flags;    /* enum gpunvme_litmus_flags; an unknown bit is an error */
	uint32_t reserved; /* 0 */
};
#define GPUNVME_LITMUS_OPTS_INIT { sizeof(struct gpunvme_litmus_opts), 0, 0, NULL, NULL, 0, 0, 0, 0 }

struct gpunvme_litmus_result {
	const char *name;        /* "order", "cqe", ...; a constant */
	uint32_t verdict;        /* enum gpunvme_litmus_verdict */
	uint32_t faults;         /* how often the forbidden was seen */
	uint64_t commands;       /* that were made */
	double mean_us, worst_us; /* from the doorbell to a completion */
	char why[160];           /* of a failure what was seen, of a test that was not run the reason; else empty */
};

struct gpunvme_litmus {
	size_t size;     /* sizeof(struct gpunvme_litmus) */
	uint32_t stride; /* sizeof(struct gpunvme_litmus_result) */
	uint32_t tests;  /* in `test` */
	/*
	 * What was proven, as flags for gpunvme_qp_create() on the same controller and GPU: GPUNVME_QP_CQE16, GPUNVME_QP_NO_READBACK.
	 * CQE16 alone may fail without harm: it allows a shortcut. Where GPUNVME_QP_VRAM was asked for, with that flag, or 0 when
	 * something failed: nothing was proven of memory of the host.
	 */
	uint32_t qp_flags;
	uint32_t failed; /* tests but CQE16 that failed: queues of this kind lose data here */
	struct gpunvme_litmus_result test[GPUNVME_LITMUS_TESTS];
};
#define GPUNVME_LITMUS_INIT \
	{ sizeof(struct gpunvme_litmus), (uint32_t)sizeof(struct gpunvme_litmus_result), GPUNVME_LITMUS_TESTS, 0, 0, \
	  { { NULL, 0, 0, 0, 0, 0, "" } } }

/**
 * gpunvme_litmus_run() - run all tests
 * @dev:    the controller; one queue pair must be free
 * @gpu:    whose lanes
 * @opts:   NULL for the defaults
 * @result: filled; initialise it with GPUNVME_LITMUS_INIT
 *
 * Takes seconds to minutes. Each test has a queue pair of its own. Any thread may call it, several at a time.
 * Return: 0 the tests ran, and @result says what they found; -EINVAL bad arguments, other flags; -ENOENT, -EOPNOTSUPP no namespace
 * to read, or with GPUNVME_LITMUS_COPIES a GPU without HIP or memory that HIP does not reach; -ENODEV no HIP, or it does not see
 * this GPU; what gpunvme_qp_create() and gpunvme_mem_alloc() return; a positive NVMe status when a block cannot be read at all.
 */
GPUNVME_API int gpunvme_litmus_run(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, const struct gpunvme_litmus_opts *opts,
				   struct gpunvme_litmus *result);

#ifdef __cplusplus
}
#endif
#endif
