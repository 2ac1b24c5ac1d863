/* SPDX-License-Identifier: MIT */
/*
 * What the module calls of libcuda and libamdhip64, after cuda.h and hip_runtime_api.h. The CPU cannot follow addresses of the mock
 * GPU's memory (seen on an H100), a copy of CUDA needs a current context, and one of HIP is emulated for the current device alone,
 * though the real one takes addresses of any.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BYTES (32u << 20)
#define ORDINAL 1	   /* of the one that the arrays are on */
#define CUDA_DEVICE 41	   /* CUdevice is a number of the driver's own */
#define INVALID_VALUE 1	   /* CUDA_ERROR_INVALID_VALUE, hipErrorInvalidValue */
#define INVALID_DEVICE 101 /* CUDA_ERROR_INVALID_DEVICE, hipErrorInvalidDevice */
#define INVALID_CONTEXT 201
#define CAPTURE_UNSUPPORTED 900 /* CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED */
#define RELAXED 2		/* CU_STREAM_CAPTURE_MODE_RELAXED */

static char *window, *memory; /* its addresses, and what is there */
static struct {
	void *bytes, *to;
	size_t size;
} staged; /* a copy that has not landed */
static int started, retained, depth, hip_device;
static int capturing, lost; /* another thread captures a stream for all (CU_STREAM_CAPTURE_MODE_GLOBAL); calls have ended that */
static _Thread_local int capture_mode;

uintptr_t mock_memory(void)
{
	if (!window) {
		window = mmap(NULL, BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
		memory = malloc(BYTES);
	}
	return (uintptr_t)window;
}

void *mock_bytes(void)
{
	return memory;
}

/* Return: contexts that are held or current; the device of HIP that is current. */
int mock_left(void)
{
	return retained + depth + hip_device + !!staged.bytes;
}

static void *follow(uintptr_t at, size_t size)
{
	uintptr_t offset = at - mock_memory();

	return offset < BYTES && size <= BYTES - offset ? memory + offset : NULL;
}

/* Begin or end that capture. Return: calls that have ended it before. */
int mock_capture(int begin)
{
	int before = lost;

	capturing = begin;
	lost = 0;
	return before;
}

int cuThreadExchangeStreamCaptureMode(int *mode)
{
	int before = capture_mode;

	if (!started || *mode < 0 || *mode > RELAXED)
		return INVALID_VALUE;
	capture_mode = *mode;
	*mode = before;
	return 0;
}

/*
 * Waits: seen with driver 580. Copies that wait: "Prohibited and Unhandled Operations" of the CUDA programming guide.
 * A context takes memory when it begins. Return: an error.
 */
static int unsafe(void)
{
	if (!capturing || capture_mode == RELAXED)
		return 0;
	lost++;
	return CAPTURE_UNSUPPORTED;
}

int cuInit(unsigned flags)
{
	started = 1;
	return flags ? INVALID_VALUE : 0;
}

int cuDeviceGet(int *device, int ordinal)
{
	*device = CUDA_DEVICE;
	return ordinal == ORDINAL && started ? 0 : INVALID_DEVICE;
}

int cuDevicePrimaryCtxRetain(void **context, int device)
{
	if (unsafe())
		return CAPTURE_UNSUPPORTED;
	*context = &retained;
	retained += device == CUDA_DEVICE;
	return device == CUDA_DEVICE ? 0 : INVALID_DEVICE;
}

int cuDevicePrimaryCtxRelease_v2(int device)
{
	retained -= device == CUDA_DEVICE;
	return 0;
}

int cuCtxPushCurrent_v2(void *context)
{
	if (context != &retained || !retained)
		return INVALID_CONTEXT;
	depth++;
	return 0;
}

int cuCtxPopCurrent_v2(void **context)
{
	*context = &retained;
	return depth-- > 0 ? 0 : INVALID_CONTEXT;
}

static int copy(void *to, const void *from, size_t size)
{
	if (!to || !from)
		return INVALID_VALUE;
	memcpy(to, from, size);
	return 0;
}

/* From memory that is not pinned it lands later ("API synchronization behavior" of the driver's documents): when the stream has ended. */
int cuMemcpyHtoD_v2(uintptr_t to, const void *from, size_t size)
{
	if (!depth || unsafe())
		return depth ? CAPTURE_UNSUPPORTED : INVALID_CONTEXT;
	if (!follow(to, size) || staged.bytes)
		return INVALID_VALUE;
	staged.bytes = malloc(size);
	staged.to = follow(to, size);
	staged.size = size;
	return copy(staged.bytes, from, size);
}

int cuStreamSynchronize(void *stream)
{
	if (!depth || stream)
		return INVALID_CONTEXT;
	if (unsafe())
		return CAPTURE_UNSUPPORTED;
	if (staged.bytes)
		memcpy(staged.to, staged.bytes, staged.size);
	free(staged.bytes);
	staged.bytes = NULL;
	return 0;
}

int cuMemcpyDtoH_v2(void *to, uintptr_t from, size_t size)
{
	if (!depth || unsafe())
		return depth ? CAPTURE_UNSUPPORTED : INVALID_CONTEXT;
	return copy(to, follow(from, size), size);
}

int cuGetErrorString(int error, const char **text)
{
	*text = error == INVALID_VALUE ? "invalid argument" : error == INVALID_DEVICE ? "invalid device ordinal" : NULL;
	return *text ? 0 : INVALID_VALUE;
}

int hipThreadExchangeStreamCaptureMode(int *mode)
{
	return cuThreadExchangeStreamCaptureMode(mode);
}

int hipGetDevice(int *device)
{
	*device = hip_device;
	return 0;
}

int hipSetDevice(int device)
{
	if (device != 0 && device != ORDINAL)
		return INVALID_DEVICE;
	hip_device = device;
	return 0;
}

int hipMemcpy(void *to, const void *from, size_t size, int kind)
{
	void *at = follow((uintptr_t)to, size), *of = follow((uintptr_t)from, size);

	if (kind != 4 || hip_device != ORDINAL || !at == !of)
		return INVALID_VALUE;
	return copy(at ? at : to, of ? of : from, size);
}

const char *hipGetErrorString(int error)
{
	return error == INVALID_DEVICE ? "invalid device ordinal" : "invalid argument";
}
