/* SPDX-License-Identifier: MIT */
/* What only AMD GPUs have. */
#ifndef GPUNVME_AMD_H
#define GPUNVME_AMD_H

#include <gpunvme/mem.h>

/* Memory of an AMD GPU that its HSA runtime did not make: values of GPUNVME_MEM_VENDOR, one at a time. */
enum gpunvme_amd_mem_flags {
	GPUNVME_MEM_HIP = 1u << 3, /* HIP makes it (HIP 6 or newer); may be cached, with one log line then */
	GPUNVME_MEM_DRM = 1u << 4, /* libdrm makes it, uncached; for a GPU that does nothing else */
};

#endif
