/* SPDX-License-Identifier: MIT */
/*
 * What tests and tools need of the inside: injected faults, workloads, coherence, doorbells. No promise: the
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
	uint32_t kind;      /* enum gpunvme_fault_kind */
	uint32_t max;       /* the largest number that the word takes; 0: it takes none, or is a condition */
	char word[24];      /* as it is written in the URI */
	char number[24];    /* what its number or value is, in capitals: "US"; "" it takes none */
	char text[160];     /* what it does, a sentence without its full stop */
};

/* As gpunvme_fault_list(), for a caller whose elements have `stride` bytes each. Use the wrapper below. */
GPUNVME_API int gpunvme_fault_list_v(struct gpunvme_fault *list, uint32_t *count, size_t stride);

/**
 * gpunvme_fault_list() - the words of fault= in a URI of the software controller
 * @list:  room for *count elements
 * @count: in: room; out: how many there are, which may be more than there was room for
 *
 * The table is the one that gpunvme_dev_open() reads the URI by. Any thread may call it. Return: 0; -EINVAL.
 */
static inline int gpunvme_fault_list(struct gpunvme_fault *list, uint32_t *count)
{
	return gpunvme_fault_list_v(list, count, sizeof(*list));
}

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
