/* SPDX-License-Identifier: MIT */
/*
 * libgpunvme: GPU kernels read and write NVMe drives directly.
 *
 * The host side in five steps (each header explains its functions):
 *
 *   gpunvme_dev_open()      a controller                       dev.h
 *   gpunvme_gpu_open()      the processor of the threads       gpu.h
 *   gpunvme_queue_create()  a queue                            queue.h
 *   gpunvme_mem_alloc(), gpunvme_mem_map()     a buffer        mem.h
 *   gpunvme_queue_view(), gpunvme_mem_dbuf()   what a kernel receives
 * The kernel side is <gpunvme/device.h>.
 */
#ifndef GPUNVME_H
#define GPUNVME_H

#include <gpunvme/admin.h>
#include <gpunvme/dev.h>
#include <gpunvme/dq.h>
#include <gpunvme/file.h>
#include <gpunvme/gpu.h>
#include <gpunvme/mem.h>
#include <gpunvme/ns.h>
#include <gpunvme/cache.h>
#include <gpunvme/queue.h>
#include <gpunvme/run.h>
#include <gpunvme/serve.h>
#include <gpunvme/spec.h>
#include <gpunvme/status.h>

#endif
