/* SPDX-License-Identifier: MIT */
/* What the library declares of ROCm itself, because headers may be missing or older, against the headers of one that has it. */
#ifndef TESTS_HIP_DECLARED_H
#define TESTS_HIP_DECLARED_H

#define __HIP_PLATFORM_AMD__ 1
#include <hip/hip_runtime_api.h>
#include <stddef.h>

#include "os/amd/hsa_table.h"
#include "os/amd/uapi/hip.h"

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), "ROCm")
#define ALIKE(ours, theirs) _Static_assert(__builtin_types_compatible_p(ours, __typeof__(theirs)), "ROCm")

/* hsa_table.h: what the oldest headers lack. */
#if HSA_AMD_INTERFACE_VERSION_MINOR >= 3
SAME(GNV_HSA_EXT_VERSION_MINOR, HSA_AMD_SYSTEM_INFO_EXT_VERSION_MINOR);
SAME(GNV_HSA_AGENT_CLOCK, HSA_AMD_AGENT_INFO_TIMESTAMP_FREQUENCY);
SAME(GNV_HSA_POOL_EXTENDED_FINE, HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_EXTENDED_SCOPE_FINE_GRAINED);
ALIKE(gnv_hsa_export_v1, hsa_amd_portable_export_dmabuf);
ALIKE(gnv_hsa_export_end, hsa_amd_portable_close_dmabuf);
#endif
#if HSA_AMD_INTERFACE_VERSION_MINOR >= GNV_HSA_UNCACHED_SINCE
SAME(GNV_HSA_POOL_UNCACHED, HSA_AMD_MEMORY_POOL_UNCACHED_FLAG);
SAME(GNV_HSA_EXPORT_PCIE, HSA_AMD_DMABUF_MAPPING_TYPE_PCIE);
ALIKE(gnv_hsa_export_v2, hsa_amd_portable_export_dmabuf_v2);
#endif

/* uapi/hip.h against HIP's header. */
SAME(GNV_HIP_INVALID_VALUE, hipErrorInvalidValue);
SAME(GNV_HIP_OUT_OF_MEMORY, hipErrorOutOfMemory);
SAME(GNV_HIP_NO_DEVICE, hipErrorNoDevice);
SAME(GNV_HIP_INVALID_DEVICE, hipErrorInvalidDevice);
SAME(GNV_HIP_NOT_SUPPORTED, hipErrorNotSupported);
SAME(GNV_HIP_NO_STREAM, hipErrorContextIsDestroyed);
SAME(GNV_HIP_CAPTURE_RELAXED, hipStreamCaptureModeRelaxed);
SAME(GNV_HIP_PINNED, hipMemAllocationTypePinned);
SAME(GNV_HIP_LOCATION_DEVICE, hipMemLocationTypeDevice);
SAME(GNV_HIP_HANDLE_FD, hipMemHandleTypePosixFileDescriptor);
SAME(GNV_HIP_READ_WRITE, hipMemAccessFlagsProtReadWrite);
SAME(GNV_HIP_GRANULARITY_MINIMUM, hipMemAllocationGranularityMinimum);
SAME(GNV_HIP_COPY_DEFAULT, hipMemcpyDefault);
SAME(sizeof(struct gnv_hip_location), sizeof(hipMemLocation));
SAME(offsetof(struct gnv_hip_location, id), offsetof(hipMemLocation, id));
SAME(sizeof(struct gnv_hip_access), sizeof(hipMemAccessDesc));
SAME(offsetof(struct gnv_hip_access, flags), offsetof(hipMemAccessDesc, flags));
SAME(sizeof(struct gnv_hip_prop), sizeof(hipMemAllocationProp));
#if HIP_VERSION_MAJOR >= 6
SAME(offsetof(struct gnv_hip_prop, location), offsetof(hipMemAllocationProp, location));
#endif
#if HIP_VERSION >= 70200000
SAME(GNV_HIP_UNCACHED, hipMemAllocationTypeUncached);
#endif

#endif
