/* SPDX-License-Identifier: MIT */
/*
 * The engine that runs on a GPU, or on CPU threads that carry out the same kernel: soft:vram:SIZE?on=... Blocks and the state
 * of queues lie in the memory of that GPU. Registers and the admin queue are served by a thread of the engine in
 * lib/soft/engine.
 */
#ifndef GNV_VDRIVE_VDRIVE_H
#define GNV_VDRIVE_VDRIVE_H

#include "soft/core/engine.h"

extern const struct gnv_soft_engine_ops gnv_vdrive_engine;

#endif
