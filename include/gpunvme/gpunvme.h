/* SPDX-License-Identifier: MIT */
/*
 * libgpunvme: NVMe I/O started by the lanes that need the data.
 *
 * The host side in five steps (each header explains its functions):
 *   gpunvme_dev_open()   a controller          dev.h
 *   gpunvme_gpu_open()   where lanes run       gpu.h
 *   gpunvme_qp_create()  a queue pair          qp.h
 *   gpunvme_mem_alloc(), gpunvme_mem_map()     mem.h
 *   gpunvme_qp_view(), gpunvme_mem_dbuf()      what a kernel receives
 * The kernel side is <gpunvme/device.h>.
 */
#ifndef GPUNVME_H
#define GPUNVME_H

#include <gpunvme/admin.h>
#include <gpunvme/amd.h>
#include <gpunvme/cache.h>
#include <gpunvme/dev.h>
#include <gpunvme/dq.h>
#include <gpunvme/event.h>
#include <gpunvme/file.h>
#include <gpunvme/files.h>
#include <gpunvme/gpu.h>
#include <gpunvme/mem.h>
#include <gpunvme/pagecache.h>
#include <gpunvme/peer.h>
#include <gpunvme/qp.h>
#include <gpunvme/run.h>
#include <gpunvme/serve.h>
#include <gpunvme/service.h>
#include <gpunvme/spec.h>
#include <gpunvme/status.h>
#include <gpunvme/volume.h>

#define GPUNVME_VERSION_MAJOR 0
#define GPUNVME_VERSION_MINOR 1
#define GPUNVME_VERSION_PATCH 0

#ifdef __cplusplus
extern "C" {
#endif

/**
 * gpunvme_version() - the version of the library that is running
 * Return: major << 16 | minor << 8 | patch; compare with GPUNVME_VERSION_*.
 */
GPUNVME_API unsigned gpunvme_version(void);

#ifdef __cplusplus
}
#endif
#endif
