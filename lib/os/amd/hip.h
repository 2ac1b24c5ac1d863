/* SPDX-License-Identifier: MIT */
/* Memory of AMD GPUs through HIP, as HIP programs have it: pointers that may be given to their kernels. */
#ifndef GNV_OS_AMD_HIP_H
#define GNV_OS_AMD_HIP_H

#include <stddef.h>

struct gnv_hip_bytes {
	void *va; /* for kernels, and for the CPU where the GPU's BAR is large */
	size_t len;
	int dmabuf;   /* of it */
	void *handle; /* HIP's */
};

/*
 * gnv_hip_device() - HIP's number of the GPU at a PCI address
 * Return: 0; -ENODEV no HIP, no GPU, or not this one (HIP_VISIBLE_DEVICES hides it); -EOPNOTSUPP HIP older than 6. gnv_fail() has
 * the message.
 */
int gnv_hip_device(const char *bdf, int *device);

/*
 * gnv_hip_version() - load HIP and get its version
 * @version: as hipRuntimeGetVersion() returns it: major * 10,000,000 + minor * 100,000 + patch
 * Return: 0; -ENODEV there is no HIP; -EOPNOTSUPP it does not report it.
 */
int gnv_hip_version(int *version);

/*
 * gnv_hip_alloc() - allocate memory of the GPU, and export a DMA-BUF of it
 * @len: rounded up to the granularity of HIP
 * It requests uncached memory. HIP 6 has none, and HIP 7.2 ignores the request: gnv_drm_uncached() reports the result.
 * Return: 0, -ENOMEM, -EOPNOTSUPP, -EIO; gnv_fail() has the message.
 */
int gnv_hip_alloc(int device, size_t len, struct gnv_hip_bytes *bytes);

/*
 * gnv_hip_copy() - copy memory to the GPU and back by hipMemcpy(), as programs do
 * Return: 0; -ENODEV, as gnv_hip_device(); -EOPNOTSUPP HIP lacks a function; -ENOMEM, -EIO. gnv_fail() has the message.
 */
int gnv_hip_copy(const char *bdf, void *ptr, size_t len);
void gnv_hip_free(struct gnv_hip_bytes *bytes); /* no kernel and no controller uses it any more */

#endif
