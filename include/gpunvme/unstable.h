/* SPDX-License-Identifier: MIT */
/*
 * Internals for tests and tools: injected faults, workloads, coherence, doorbells. There is no guarantee: the next minor version
 * of the library may change or remove any of it. <gpunvme/gpunvme.h> does not include this header.
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
 * A state lasts as long as the controller. A fault of commands hits each command that meets all its conditions, or a share of
 * them. A seed selects that share, so that a run can be repeated. Of several faults the first one that hits a command counts.
 */
enum gpunvme_fault_kind {
	GPUNVME_FAULT_STATE,     /* a property of the drive, as long as it exists */
	GPUNVME_FAULT_ACTION,    /* changes commands, or the controller when it is enabled or disabled */
	GPUNVME_FAULT_CONDITION  /* selects the commands that have the fault */
};

struct gpunvme_fault {
	uint32_t kind;      /* enum gpunvme_fault_kind */
	uint32_t max;       /* the largest number that the word takes. 0: it takes none, or is a condition */
	char word[24];      /* the word in the URI */
	char number[24];    /* name of its number or value, in capitals: "US". "": it takes none */
	char text[160];     /* its effect: a sentence without its full stop */
};

/* As gpunvme_fault_list(), for a caller whose elements have `stride` bytes each. Use the wrapper below. */
GPUNVME_API int gpunvme_fault_list_v(struct gpunvme_fault *list, uint32_t *count, size_t stride);

/**
 * gpunvme_fault_list() - list the words of fault= in a URI of the software controller
 * @list:  room for *count elements
 * @count: in: room. Out: number of words, which may exceed the room
 *
 * gpunvme_dev_open() reads the URI by the same table. Any thread may call it.
 * Return: 0; -EINVAL.
 */
static inline int gpunvme_fault_list(struct gpunvme_fault *list, uint32_t *count)
{
	return gpunvme_fault_list_v(list, count, sizeof(*list));
}

/* Workloads, to measure what programs get: the library's kernel issues commands of one size for some time, on any threads. */
enum gpunvme_workload_flags {
	GPUNVME_WORKLOAD_WRITE = 1u << 0,  /* write what is in the buffer. Else read */
	GPUNVME_WORKLOAD_RANDOM = 1u << 1, /* random positions. Else in order, pass after pass */
};

struct gpunvme_workload {
	size_t size;      /* sizeof(struct gpunvme_workload) */
	uint32_t flags;   /* enum gpunvme_workload_flags. An unknown bit is an error */
	uint32_t threads; /* at most 65536, each with one command in flight. 0: 64 for each queue */
	uint32_t nblocks; /* of one command. Positions are multiples of it */
	uint32_t ms;      /* how long threads begin commands */
	uint64_t seed;    /* of the random positions, or the position of the first command */
	/* Results. */
	uint64_t commands;  /* commands that succeeded */
	uint64_t took_ns;   /* from the begin of the first thread to the end of the last */
	uint64_t next;      /* `seed` of a workload that continues this one */
};
#define GPUNVME_WORKLOAD_INIT { sizeof(struct gpunvme_workload), 0, 0, 0, 0, 0, 0, 0, 0 }

/**
 * gpunvme_workload_run() - issue commands for some time with threads of the library, and wait
 * @gpu:    the processor that runs the threads, as of the queues
 * @dq:     views of the queues, all of the same blocks. Waves take turns with them
 * @queues: number of views
 * @dbuf:   the buffer, at least of one command. Its threads share it if it has no room for all, so its content is of no use
 * @workload: the workload, and its results
 *
 * Any thread may call it, several at a time. A thread stops at its first failure.
 * Return:
 * - 0: no command failed.
 * - The failure of a command, as the functions of <gpunvme/device.h> return it.
 * - -EINVAL: no queue, no block, no time, a bad option, or a view of another kind.
 * - -EPROTONOSUPPORT: a view of another version, or none.
 * - -ERANGE: a command is larger than the view or the buffer.
 * - -EXDEV: a queue or the buffer belongs to another GPU.
 * - -ETIMEDOUT: also if the GPU does not end its kernel; -EIO: the GPU failed; -ENOMEM; -ECHILD.
 */
GPUNVME_API int gpunvme_workload_run(struct gpunvme_gpu *gpu, const struct gpunvme_dq *dq, uint32_t queues,
				     const struct gpunvme_dbuf *dbuf, struct gpunvme_workload *workload);

/* Ways of gpunvme_gpu_coherence(). */
enum gpunvme_coherence {
	GPUNVME_COHERENCE_HDP = 1, /* make stores of the CPU to memory of the GPU through PCIe visible to its threads */
	/*
	 * Empty the GPU's caches of every address space that computes. For diagnosis only: it writes registers of the GPU's driver
	 * without its knowledge. Needs root, RDNA3, and no other work on the GPU.
	 */
	GPUNVME_COHERENCE_INVALIDATE = 2
};

/**
 * gpunvme_gpu_coherence() - make stores of others visible to the threads of a GPU
 * @gpu:  an AMD GPU
 * @what: enum gpunvme_coherence
 *
 * The library itself does what it needs. This is for own tests, and to find out why threads see old data. Any thread may call it.
 * Return: 0; -EINVAL; -EOPNOTSUPP: not for this GPU; -EACCES: not root; -ENOENT: the kernel does not show its registers;
 * -ETIMEDOUT: the GPU did not confirm; -EIO: it failed.
 */
GPUNVME_API int gpunvme_gpu_coherence(struct gpunvme_gpu *gpu, enum gpunvme_coherence what);

/**
 * gpunvme_dev_admin_doorbell() - run one admin command whose doorbell the caller rings
 * @dev:  an open device
 * @cmd:  as for gpunvme_dev_admin()
 * @page: its data, by gpunvme_mem_dbuf(): a page of the controller or more, of which it uses the first. NULL: no data
 * @ring: called once, with the command in the ring. Stores @tail into the tail doorbell of the admin queue, at 1000h in BAR0, or
 *        makes a GPU store it. Returns non-zero if it did not and will not
 * @ctx:  passed to @ring
 * @result: set to dword 0 of the completion. May be NULL
 *
 * Tests whether a GPU's store arrives at a doorbell, without any other part of the GPU. A successful Set Features is sent again
 * after a reset, as by gpunvme_dev_admin(). With @page it is not, because the library lacks the data. Any thread may call it.
 * Return: as gpunvme_dev_admin(); -EINVAL: @page is too small or not aligned; -ETIMEDOUT: also if the doorbell did not arrive, and
 * the device is dead then; what @ring returned.
 */
GPUNVME_API int gpunvme_dev_admin_doorbell(struct gpunvme_dev *dev, const struct gpunvme_sqe *cmd, const struct gpunvme_dbuf *page,
					   int (*ring)(void *ctx, uint32_t tail), void *ctx, uint32_t *result);

/**
 * gpunvme_dev_export_doorbells() - export the doorbells of a device as a DMA-BUF, for another device to ring them
 * @dev:    an open device
 * @fd:     set to a descriptor. The caller closes it, before gpunvme_dev_close()
 * @offset: set to the offset of its first byte in BAR0
 * @len:    set to its size in bytes, whole pages
 *
 * It has the doorbell pages only, never the interrupt table of the controller. A reset of the device revokes it. Any thread may
 * call it.
 * Return: 0; -EOPNOTSUPP: the kernel cannot, the interrupt table shares a page with the doorbells, or the controller is software;
 * -ENODEV, -ESHUTDOWN: the device is gone or dead; -ECHILD.
 */
GPUNVME_API int gpunvme_dev_export_doorbells(struct gpunvme_dev *dev, int *fd, uint64_t *offset, size_t *len);

#ifdef __cplusplus
}
#endif
#endif
