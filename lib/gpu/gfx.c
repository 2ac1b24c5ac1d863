/* SPDX-License-Identifier: MIT */
#include "gpu/gfx.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "util/bits.h"

void gnv_gfx_name(char *to, size_t size, const char *product, const char *isa, const char *bdf)
{
	const char *gfx = strstr(isa, "gfx");

	gfx = gfx ? gfx : isa;
	snprintf(to, size, "%.32s, %.*s, %s", product, (int)gnv_min(strcspn(gfx, ":"), 16u), gfx, bdf);
}

/*
 * Generations whose host data path caches the reads of devices, and is invalidated by register. Read in source: 4.0 to 4.2 and 5.0
 * have that register, 4.4, of gfx90a and gfx94x, has none (Linux hdp_v4_0.c, hdp_v5_0.c). Guessed: which gfx comes with which of
 * them, above all the APUs among gfx103, and that reads by other devices meet the cache. A GPU listed in error loses a placement,
 * no data.
 */
bool gnv_gfx_reads_stale(const char *isa)
{
	static const char *const kinds[] = { "gfx900", "gfx902", "gfx904", "gfx906", "gfx908", "gfx909", "gfx90c", "gfx103" };
	const char *gfx = strstr(isa, "gfx");
	size_t i;

	for (i = 0; i < GNV_ARRAY_LEN(kinds); i++)
		if (gfx && !strncmp(gfx, kinds[i], strlen(kinds[i])))
			return true;
	return false;
}

/* RDNA obeys AMDGPU_VM_MTYPE_UC of libdrm's mapping, whatever the buffer is (Linux gmc_v10_0.c, gmc_v11_0.c, get_vm_pte). */
bool gnv_gfx_maps_uncached(const char *isa)
{
	const char *gfx = strstr(isa, "gfx1");

	return gfx && (gfx[4] == '0' || gfx[4] == '1') && isdigit((unsigned char)gfx[6]);
}
