/* SPDX-License-Identifier: MIT */
/* Differences between generations of AMD GPUs. @isa: the runtime's name of the machine code, with "gfx90a" or the like in it. */
#ifndef GNV_GPU_GFX_H
#define GNV_GPU_GFX_H

#include <stdbool.h>
#include <stddef.h>

/* Write "PRODUCT, gfx90a, BDF": the GPU's own kind, also where it runs the code of its family. */
void gnv_gfx_name(char *to, size_t size, const char *product, const char *isa, const char *bdf);

/* Does the GPU cache the lines of its memory that devices read? */
bool gnv_gfx_reads_stale(const char *isa);

/* Is memory uncached where a mapping of libdrm's asks for it? */
bool gnv_gfx_maps_uncached(const char *isa);

#endif
