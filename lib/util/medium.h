/* SPDX-License-Identifier: MIT */
/* The medium of a namespace, from the store or port that knows it to gpunvme_ns_info. */
#ifndef GNV_UTIL_MEDIUM_H
#define GNV_UTIL_MEDIUM_H

#include <stdbool.h>

#include <gpunvme/ns.h>

struct gnv_medium {
	uint32_t kind;	   /* enum gpunvme_medium */
	uint64_t dev, ino; /* as gpunvme_ns_info.medium_dev and medium_ino */
};

/* May it be overwritten without a question? It was made for this, and no user keeps data there. */
static inline bool gnv_medium_is_scratch(uint32_t kind)
{
	return kind == GPUNVME_MEDIUM_FILE || kind == GPUNVME_MEDIUM_MEMORY || kind == GPUNVME_MEDIUM_GPU;
}

/* For an error message, after the size of the namespace. */
static inline const char *gnv_medium_text(uint32_t kind)
{
	switch (kind) {
	case GPUNVME_MEDIUM_BLOCK:
		return " on a block device";
	case GPUNVME_MEDIUM_CHAR:
		return " on a device of the nvme driver";
	case GPUNVME_MEDIUM_PROCESS:
		return " that another process provides";
	default:
		return "";
	}
}

#endif
