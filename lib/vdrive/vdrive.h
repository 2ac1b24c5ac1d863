/* SPDX-License-Identifier: MIT */
/*
 * The engine that runs on a GPU, or on CPU threads with the same kernel: soft:vram:SIZE?on=... Blocks and the state of queues are
 * in the memory of that GPU. A thread of lib/soft/engine runs the registers and the admin queue.
 */
#ifndef GNV_VDRIVE_VDRIVE_H
#define GNV_VDRIVE_VDRIVE_H

#include "soft/core/engine.h"

extern const struct gnv_soft_engine_ops gnv_vdrive_engine;

#endif
