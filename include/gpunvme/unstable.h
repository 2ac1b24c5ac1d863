/* SPDX-License-Identifier: MIT */
/*
 * What tests and tools need of the inside: ordering tests, injected faults, workloads, coherence, doorbells. No promise: the
 * next minor version of the library may change or remove any of it. <gpunvme/gpunvme.h> does not include this header.
 */
#ifndef GPUNVME_UNSTABLE_H
#define GPUNVME_UNSTABLE_H

#include <gpunvme/status.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpunvme_dbuf;
struct gpunvme_dev;
struct gpunvme_dq;
struct gpunvme_gpu;
struct gpunvme_sqe;

/*
 * Ordering tests: what a machine keeps of the order in which controller, PCIe and the caches of threads ought to see things. A
 * queue's self-test asks whether the path works. These ask thousands of times whether it ever does not. They read and compare, and
 * never write media.
 */
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

/*
 * Faults of the software controller, for programs that test how they handle them.
 *
 *   soft:PATH?fault=WORD[:NUMBER][:CONDITION=VALUE...][,WORD...]
 *
 * A state lasts for the controller's whole life. A fault of commands hits each command that meets all its conditions, or a
 * share of them that a seed decides, so that a run can be repeated. Of several faults the first one that hits a command counts.
 */
enum gpunvme_fault_kind {
	GPUNVME_FAULT_STATE,     /* what the drive is, from the beginning to its end */
	GPUNVME_FAULT_MISHAP,    /* of commands, or of the controller when it is switched on or off */
	GPUNVME_FAULT_CONDITION  /* which commands have the fault */
};

struct gpunvme_fault {
	size_t size;        /* sizeof(struct gpunvme_fault) */
	uint32_t kind;      /* enum gpunvme_fault_kind */
	uint32_t max;       /* the largest number that the word takes; 0: it takes none, or is a condition */
	char word[24];      /* as it is written in the URI */
	char number[24];    /* what its number or value is, in capitals: "US"; "" it takes none */
	char text[160];     /* what it does, a sentence without its full stop */
};
#define GPUNVME_FAULT_INIT { sizeof(struct gpunvme_fault), 0, 0, "", "", "" }

/**
 * gpunvme_fault_nth() - the n-th word of fault= in a URI of the software controller
 * @n:     0 for the first
 * @fault: filled; fault->size must be set
 *
 * The table is the one that gpunvme_dev_open() reads the URI by. Any thread may call it.
 * Return: 0; -ENOENT there are not so many; -EINVAL when fault->size is too small.
 */
GPUNVME_API int gpunvme_fault_nth(unsigned n, struct gpunvme_fault *fault);

/* Workloads, to measure what programs get: the library's kernel issues commands of one size for some time, on any threads. */
enum gpunvme_load_flags {
	GPUNVME_LOAD_WRITE = 1u << 0,  /* writes what is in the buffer; else reads */
	GPUNVME_LOAD_RANDOM = 1u << 1, /* places at random; else in order, pass after pass */
};

struct gpunvme_load {
	size_t size;      /* sizeof(struct gpunvme_load) */
	uint32_t flags;   /* enum gpunvme_load_flags; an unknown bit is an error */
	uint32_t lanes;   /* at most 65536; each has one command in flight. 0: 64 for each queue */
	uint32_t nblocks; /* of one command; places are multiples of it */
	uint32_t ms;      /* how long lanes begin commands */
	uint64_t seed;    /* of the places at random; or the place of the first command */
	/* Results. */
	uint64_t commands;  /* that ended well */
	uint64_t took_ns;   /* from when the first lane began to when the last one ended */
	uint64_t next;      /* `seed` of a load that continues this one */
};
#define GPUNVME_LOAD_INIT { sizeof(struct gpunvme_load), 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * gpunvme_load_run() - issue commands for some time, with lanes of the library's own, and wait
 * @gpu:    the lanes; those that the queues were created for
 * @dq:     views of the queues, all of the same blocks; waves take turns with them
 * @queues: how many
 * @dbuf:   the buffer, of one command at least; its lanes share it where it has no place for all, so that it holds nothing useful
 * @load:   what to do, and what came of it
 *
 * Any thread may call it, several at a time. A lane stops at its first failure.
 * Return: 0; the failure of a command, as the functions of <gpunvme/device.h> return it; -EINVAL no queue, no block, an option, a
 * view of another kind; -EPROTONOSUPPORT a view of another version, or none; -ERANGE a command is larger than the view or the
 * buffer; -EXDEV a queue or the buffer is another GPU's; -ENOMEM; -ETIMEDOUT also when the GPU does not end its kernel; -EIO the
 * GPU failed.
 */
GPUNVME_API int gpunvme_load_run(struct gpunvme_gpu *gpu, const struct gpunvme_dq *dq, uint32_t queues,
				 const struct gpunvme_dbuf *dbuf, struct gpunvme_load *load);

/* What gpunvme_gpu_coherence() does. */
enum gpunvme_coherence {
	GPUNVME_COHERENCE_HDP = 1, /* what the CPU has written to memory of the GPU through PCIe becomes visible to its lanes */
	/*
	 * The GPU empties its caches of every address space that computes. For diagnosis only: the registers of its driver are written
	 * without its knowledge. Root, RDNA3, no other work on the GPU.
	 */
	GPUNVME_COHERENCE_INVALIDATE = 2
};

/**
 * gpunvme_gpu_coherence() - make a GPU see memory as it is
 * @gpu:  an AMD GPU
 * @what: which way
 *
 * The library does what it needs by itself: this is for tests of one's own, and to find out why lanes see old data. Any thread may
 * call it.
 * Return: 0; -EINVAL; -EOPNOTSUPP not these lanes, not this GPU; -EACCES not root; -ENOENT the kernel does not show its registers;
 * -ETIMEDOUT the GPU did not confirm; -EIO.
 */
GPUNVME_API int gpunvme_gpu_coherence(struct gpunvme_gpu *gpu, enum gpunvme_coherence what);

/**
 * gpunvme_dev_admin_rung() - run one admin command whose doorbell somebody else rings
 * @dev:  an open device
 * @cmd:  as for gpunvme_dev_admin()
 * @page: where its data is or goes, at most one page of the controller: from gpunvme_mem_dbuf(); NULL: no data
 * @ring: called once, when the command stands in the ring: stores @tail into the tail doorbell of the admin queue, at 1000h in
 *        BAR0, or makes a GPU store it. Non-zero: it did not and will not
 * @ctx:  for @ring
 * @result: dword 0 of the completion; may be NULL
 *
 * Proves that a GPU's store reaches a doorbell, with nothing else of the GPU on the path. Any thread may call it. A Set Features is
 * kept for after a reset as by gpunvme_dev_admin(), but not with @page, whose bytes the library does not have: set it again then.
 * Return: as gpunvme_dev_admin(), -ETIMEDOUT, too, when the doorbell did not arrive (the device is dead then); what @ring answered.
 */
GPUNVME_API int gpunvme_dev_admin_rung(struct gpunvme_dev *dev, const struct gpunvme_sqe *cmd, const struct gpunvme_dbuf *page,
				       int (*ring)(void *ctx, uint32_t tail), void *ctx, uint32_t *result);

/**
 * gpunvme_dev_export_doorbells() - the doorbells as a DMA-BUF, for a peer that is to ring them
 * @dev:    an open device
 * @fd:     set to a descriptor; the caller closes it, before gpunvme_dev_close()
 * @offset: set to the offset in BAR0 of its first byte
 * @len:    set to its size; whole pages
 *
 * Holds the doorbell pages only, never the interrupt table of the controller. A reset of the device revokes it. Any thread may call
 * it. Return: 0; -EOPNOTSUPP the kernel cannot, or the interrupt table shares a page with the doorbells, or the controller is in
 * software; -ENODEV the device is gone.
 */
GPUNVME_API int gpunvme_dev_export_doorbells(struct gpunvme_dev *dev, int *fd, uint64_t *offset, size_t *len);

#ifdef __cplusplus
}
#endif
#endif
