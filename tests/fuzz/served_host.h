/* SPDX-License-Identifier: MIT */
/*
 * What both engines have in common as fuzz targets (served.c, served_vdrive.c): the host with its memory and registers, the clock,
 * the blocks, and what the host writes while the controller looks.
 */
#ifndef FUZZ_SERVED_HOST_H
#define FUZZ_SERVED_HOST_H

#include "served.h"

#include "soft/soft.h"

extern struct gnv_space *host_space;

/* Memory of the host, and the space in which the controller finds it. Mapped are all parts but the odd one. */
void make_memory(void);
void map_all(void);
void place_odd(void);

/* Two namespaces, QUEUES queues, SERVERS threads. */
void configure(struct gnv_soft_config *config, const char *path, const char *path2);
void fill_still(void);

/* The host writes what was announced for this look of the controller. */
void served_look(void);

/* Are these bytes memory that is mapped? Are they blocks? */
bool is_mapped(const void *at, size_t len);
bool is_block(const void *at, size_t len, bool to_write);

/* The world as new, of this input: memory, registers, namespaces. The controller is enabled by enable_controller(). */
void begin_world(const uint8_t *input, size_t size);
void forget_registers(void);
void begin_blocks(void);
void enable_controller(void);

void turns(unsigned n);

/* All that was fetched ends. The host asks for a reset. What a read-only namespace has is as it was. All memory can be unmapped. */
void finish_commands(void);
void ask_for_reset(void);
void check_off(void);
void end_world(void);

#endif
