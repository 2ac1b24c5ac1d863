/* SPDX-License-Identifier: MIT */
#include "fake_hip.h"

#include <fcntl.h>
#include <hip/hip_runtime_api.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "os/amd/uapi/hip.h"

static struct fake_hip state;
static char range[2 * FAKE_HIP_UNIT];
static bool accessible;
static void *vram; /* of hipMalloc() */

struct fake_hip *fake_hip(void)
{
	return &state;
}

static void rule(bool kept, const char *what)
{
	if (!kept && !state.broke)
		state.broke = what;
}

static int fails(void)
{
	int ret = ++state.count == state.fails_at ? state.fails_with : 0;

	state.last_error = ret ? ret : state.last_error;
	return ret;
}

hipError_t hipGetLastError(void)
{
	int ret = state.last_error;

	state.last_error = 0;
	return ret;
}

hipError_t hipGetDeviceCount(int *count)
{
	*count = state.devices;
	return state.count_error;
}

hipError_t hipRuntimeGetVersion(int *version)
{
	*version = state.version;
	return 0;
}

hipError_t hipDeviceGetPCIBusId(char *text, int room, int device)
{
	snprintf(text, (size_t)room, "0000:%02X:00.0", 3 + device);
	return 0;
}

const char *hipGetErrorString(hipError_t error)
{
	return error == hipErrorOutOfMemory ? "out of memory" : "an error";
}

hipError_t hipMemGetAllocationGranularity(size_t *unit, const hipMemAllocationProp *theirs,
					  hipMemAllocationGranularity_flags option)
{
	const struct gnv_hip_prop *prop = (const void *)theirs;
	int ret = fails();

	rule(option == hipMemAllocationGranularityMinimum && prop->location.type == hipMemLocationTypeDevice, "memory of a device");
	*unit = FAKE_HIP_UNIT;
	return ret;
}

hipError_t hipMemCreate(hipMemGenericAllocationHandle_t *handle, size_t len, const hipMemAllocationProp *theirs,
			unsigned long long flags)
{
	const struct gnv_hip_prop *prop = (const void *)theirs;
	int ret = fails();

	rule(!flags && len && len % FAKE_HIP_UNIT == 0 && prop->handle_types == hipMemHandleTypePosixFileDescriptor,
	     "whole units that can be exported");
	if (ret)
		return ret;
	if (state.no_uncached && prop->type != hipMemAllocationTypePinned)
		return hipErrorInvalidValue;
	state.type = prop->type;
	state.handles++;
	*handle = (hipMemGenericAllocationHandle_t)&state;
	return 0;
}

hipError_t hipMemRelease(hipMemGenericAllocationHandle_t handle)
{
	rule((void *)handle == (void *)&state && !state.maps, "unmapped before it is released");
	state.handles--;
	return 0;
}

hipError_t hipMemAddressReserve(void **ptr, size_t size, size_t alignment, void *addr, unsigned long long flags)
{
	int ret = fails();

	rule(!alignment && !addr && !flags && size <= sizeof(range), "addresses");
	if (ret)
		return ret;
	*ptr = range;
	state.ranges++;
	return 0;
}

hipError_t hipMemAddressFree(void *ptr, size_t size)
{
	rule(ptr == range && size && !state.maps, "unmapped before its addresses go");
	state.ranges--;
	return 0;
}

hipError_t hipMemMap(void *ptr, size_t size, size_t offset, hipMemGenericAllocationHandle_t handle, unsigned long long flags)
{
	int ret = fails();

	rule(ptr == range && size && !offset && !flags && (void *)handle == (void *)&state, "the allocation is mapped");
	if (!ret)
		state.maps++;
	return ret;
}

hipError_t hipMemUnmap(void *ptr, size_t size)
{
	rule(ptr == range && size && state.maps, "what is mapped is unmapped");
	state.maps--;
	if (accessible && state.granted)
		state.granted(ptr, size, false);
	accessible = false;
	return 0;
}

hipError_t hipMemSetAccess(void *ptr, size_t size, const hipMemAccessDesc *desc, size_t count)
{
	int ret = fails();

	rule(ptr == range && size && count == 1 && desc->flags == hipMemAccessFlagsProtReadWrite &&
		     desc->location.type == hipMemLocationTypeDevice,
	     "the GPU may read and write");
	accessible = !ret;
	if (accessible && state.granted)
		state.granted(ptr, size, true);
	return ret;
}

hipError_t hipMemExportToShareableHandle(void *fd, hipMemGenericAllocationHandle_t handle, hipMemAllocationHandleType type,
					 unsigned long long flags)
{
	int ret = fails();

	rule(accessible && !flags && type == hipMemHandleTypePosixFileDescriptor && handle, "export of what is mapped");
	if (ret)
		return ret;
	*(int *)fd = open("/dev/null", O_RDWR | O_CLOEXEC);
	state.files++;
	return 0;
}

hipError_t hipGetDevice(int *device)
{
	int ret = fails();

	if (!ret)
		*device = state.current;
	return ret;
}

hipError_t hipSetDevice(int device)
{
	int ret = fails();

	rule(device >= 0 && device < state.devices, "a device that there is");
	if (!ret)
		state.current = device;
	return ret;
}

hipError_t hipMalloc(void **ptr, size_t size)
{
	int ret = fails();

	rule(size && !vram, "one buffer at a time");
	if (ret)
		return ret;
	vram = malloc(size);
	state.buffers++;
	*ptr = vram;
	return 0;
}

hipError_t hipFree(void *ptr)
{
	rule(ptr && ptr == vram, "what hipMalloc() gave");
	free(vram);
	vram = NULL;
	state.buffers--;
	return 0;
}

/* What fails has copied a part. */
hipError_t hipMemcpy(void *to, const void *from, size_t size, hipMemcpyKind kind)
{
	int ret = fails();

	rule(vram && (to == vram) != (from == vram) && kind == hipMemcpyDefault, "copies between the host and the GPU");
	memcpy(to, from, ret ? size / 2 : size);
	if (!ret)
		state.copies[from == vram]++;
	return ret;
}

hipError_t hipThreadExchangeStreamCaptureMode(hipStreamCaptureMode *mode)
{
	int before = state.capture_mode;

	state.capture_mode = *mode;
	*mode = before;
	return 0;
}

hipError_t hipModuleLoadData(hipModule_t *module, const void *image)
{
	int ret = fails();

	rule(image && state.current == 1, "code for the GPU that was chosen");
	rule(state.capture_mode == hipStreamCaptureModeRelaxed, "no capture of the program ends");
	if (ret)
		return ret;
	state.modules++;
	*module = (hipModule_t)&state.modules;
	return 0;
}

hipError_t hipModuleUnload(hipModule_t module)
{
	rule((void *)module == (void *)&state.modules && state.current == 1, "a module of the GPU that was chosen");
	rule(state.capture_mode == hipStreamCaptureModeRelaxed, "no capture of the program ends");
	state.modules--;
	return 0;
}

hipError_t hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *name)
{
	int ret = fails();

	rule((void *)module == (void *)&state.modules, "a module");
	if (!ret)
		*function = (hipFunction_t)(uintptr_t)name;
	return ret;
}

hipError_t hipStreamGetDevice(hipStream_t stream, int *device); /* the header of HIP 5 lacks it */
hipError_t hipStreamGetDevice(hipStream_t stream, int *device)
{
	int ret = fails();

	rule((uintptr_t)stream > 1, "a stream: HIP would read memory at 1");
	if (!ret && state.no_stream)
		ret = state.last_error = hipErrorContextIsDestroyed;
	if (ret)
		return ret;
	*device = state.stream_device;
	return 0;
}

hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
				 unsigned block_y, unsigned block_z, unsigned shared, hipStream_t stream, void **params, void **extra)
{
	int ret = fails();

	rule(function && grid_x && block_x && grid_y * grid_z * block_y * block_z == 1 && !shared && params && !extra, "a launch");
	rule(state.current == 1, "a launch on the GPU that was chosen");
	rule((uintptr_t)stream != 1, "NULL for hipStreamLegacy, which older ones do not know");
	state.launches += !ret;
	return ret;
}
