/* SPDX-License-Identifier: MIT */
/* Between the kernel of served_kernel.c, whose names of core/ are its own, and the rest of the target (served_vdrive.c). */
#ifndef FUZZ_SERVED_KERNEL_H
#define FUZZ_SERVED_KERNEL_H

#include <stdbool.h>
#include <stddef.h>

/* The kernel looks at memory of the host: what was announced is written there. */
void served_look(void);

/* May the kernel access these bytes? */
bool served_is_mapped(const void *at, size_t len, bool to_write);

/* Commands of a queue that have begun and not ended. Forget those of a queue; 0: of all. */
unsigned served_open(unsigned qid);
void served_close(unsigned qid);

#endif
