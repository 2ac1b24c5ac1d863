/* SPDX-License-Identifier: MIT */
/*
 * A helper process tests whether a GPU reaches the registers of a controller. When a GPU faults, the process of that kernel loses
 * all its queues. So another process makes the first access: the program gpunvme-probe (tools/probe). A child of fork() cannot,
 * because ROCm's runtime does not survive fork().
 *
 * The program opens the GPU, maps a DMA-BUF of BAR0 in one way, and reports GNV_PROBE_MAPPED. Its kernel loads CAP and VS, and the
 * program reports them as GNV_PROBE_LOADED. It waits for gnv_child_go(). Then its kernel rings one doorbell, and the program
 * reports GNV_PROBE_RUNG, unmaps and ends. It ends early when its parent closes the connection.
 */
#ifndef GNV_GPU_PROBE_H
#define GNV_GPU_PROBE_H

#include <stddef.h>

#include "gpu/gpu.h"
#include "os/linux/child.h"

#define GNV_PROBE_VERSION 0x70726f31u /* of the report. A program of another version is not used */
#define GNV_PROBE_WORDS 3u	      /* the registers CAP, in two halves, and VS: Base Specification 3.1.4 */
#define GNV_PROBE_OPEN_MS 60000u      /* a ROCm runtime takes seconds to begin */
#define GNV_PROBE_STEP_MS 30000u      /* its kernels give up after 10 s */
#define GNV_PROBE_VARIABLE "GPUNVME_PROBE"

enum gnv_probe_step { GNV_PROBE_MAPPED, GNV_PROBE_LOADED, GNV_PROBE_RUNG };

struct gnv_probe_report {
	uint32_t version;
	uint32_t step;	/* enum gnv_probe_step */
	int32_t result; /* 0, or a negative errno of that step with its error message */
	uint32_t word[GNV_PROBE_WORDS];
	char why[168];
};

GPUNVME_STATIC_ASSERT(sizeof(struct gnv_probe_report) == 192, "layout of the report");

struct gnv_probe {
	struct gnv_child child;
	unsigned open_ms, step_ms; /* until it has mapped BAR0, and for each step after that */
	bool hung;   /* a step took longer: its end is not waited for */
};

/*
 * gnv_probe_start() - start the program, and let it map BAR0
 * @way: as gnv_gpu_range.way of the mapping that this process has
 * @dmabuf: of the registers and the doorbells, made for the program alone, which has it from now on, also on failure
 * @len: bytes of it. @doorbell: the offset that it is to ring
 * Return: 0; -ENOENT: there is no program, or it cannot use the GPU and has ended; -ETIME: it did not report in time. gnv_fail()
 * has the error message.
 */
int gnv_probe_start(struct gnv_probe *probe, const struct gpunvme_gpu *gpu, unsigned way, int dmabuf, size_t len, size_t doorbell);

/*
 * gnv_probe_load() - get CAP and VS as its kernel reads them
 * gnv_probe_ring() - let its kernel store 1 to the doorbell
 * Return: 0; -EFAULT: it died, or its GPU reported an error; -ETIME: it did not report in time. gnv_fail() has the
 * error message.
 */
int gnv_probe_load(struct gnv_probe *probe, uint32_t word[GNV_PROBE_WORDS]);
int gnv_probe_ring(struct gnv_probe *probe);

/*
 * gnv_probe_end() - end the program: it has unmapped BAR0, or is killed
 * Return: 0; -EBUSY the driver keeps the process, which may ring yet.
 */
int gnv_probe_end(struct gnv_probe *probe);

#endif
