/* SPDX-License-Identifier: MIT */
/*
 * A mock of HIP's runtime, with what examples/hip call of it, on the mock of HSA's (tests/mocks/hsa): loaded in front of the real
 * one it makes those programs run where there is no GPU. A launch takes the program's own gfx1100 code out of its fat binary, puts the
 * arguments where that code's metadata says, and sends a packet. As with the real one a launch returns at once, launches follow each
 * other, and copies wait for all of them.
 */
#include "gfx/gfx.h"
#include "mocks/hip/graph.h"
#include "mocks/hsa/runtime.h"

#include <elf.h>
#include <hip/hip_runtime_api.h>
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PACKETS 64u
#define ARGUMENTS 4096u
#define EXTENDED_FINE 8u /* HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_EXTENDED_SCOPE_FINE_GRAINED, which old headers lack */
#define PINS_FROM (1u << 20)
#define PINNED_UP_TO (16u << 10)
#define NAME "amdgcn-amd-amdhsa--gfx1100"

void **__hipRegisterFatBinary(const void *wrapper);
void __hipUnregisterFatBinary(void **module);
void __hipRegisterFunction(void **module, const void *host, char *device, const char *name, unsigned limit, void *tid, void *bid,
			   void *block, void *grid, int *wave);
hipError_t __hipPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, hipStream_t *stream);

struct module {
	const void *elf;
	size_t size;
	struct gfx_code *code; /* the same, for its metadata */
	hsa_executable_t executable;
	bool loaded;
};

struct function {
	struct function *next;
	struct module *module;
	const void *host; /* what the program calls it by */
	const char *name;
};

/* What clang puts after a wrapper: a head, and for each GPU where its code is. */
struct bundle {
	char magic[24];
	uint64_t count;
};
struct bundled {
	uint64_t offset, size, length; /* of the name after this */
};

static struct {
	bool ready;
	hsa_agent_t cpu, gpu;
	hsa_amd_memory_pool_t host, coarse, vram, fine;
	hsa_queue_t *queue;
	hsa_signal_t done;
	void *arguments;
	int running, broken; /* broken: atomic */
	bool dirty;	     /* a kernel has run, and no fence of system scope since */
	struct function *functions;
	dim3 grid, block;
} it;

/* ---- The GPU ---- */

static hsa_status_t see_agent(hsa_agent_t agent, void *data)
{
	hsa_device_type_t type;

	(void)data;
	hsa_agent_get_info(agent, HSA_AGENT_INFO_DEVICE, &type);
	if (type == HSA_DEVICE_TYPE_CPU)
		it.cpu = agent;
	else if (!it.gpu.handle)
		it.gpu = agent;
	return HSA_STATUS_SUCCESS;
}

/*
 * hipMalloc() takes coarse-grained memory, hipExtMallocWithFlags() extended fine-grained or else fine-grained (clr
 * Device::deviceLocalAlloc), hipHostMalloc() what both see at once, or not.
 */
static hsa_status_t see_pool(hsa_amd_memory_pool_t pool, void *data)
{
	uint32_t flags;

	hsa_amd_memory_pool_get_info(pool, HSA_AMD_MEMORY_POOL_INFO_GLOBAL_FLAGS, &flags);
	if (data == &it.vram && flags & HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED)
		it.vram = pool;
	if (data == &it.vram && flags & (HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED | EXTENDED_FINE) &&
	    (!it.fine.handle || flags & EXTENDED_FINE))
		it.fine = pool;
	if (data == &it.host && flags == HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_COARSE_GRAINED)
		it.coarse = pool;
	if (data == &it.host && flags == HSA_AMD_MEMORY_POOL_GLOBAL_FLAG_FINE_GRAINED)
		it.host = pool;
	return HSA_STATUS_SUCCESS;
}

static void failed(hsa_status_t status, hsa_queue_t *queue, void *data)
{
	(void)queue;
	(void)data;
	__atomic_store_n(&it.broken, (int)status, __ATOMIC_RELEASE);
}

static hipError_t start(void)
{
	if (it.ready)
		return hipSuccess;
	if (hsa_init() != HSA_STATUS_SUCCESS)
		return hipErrorNoDevice;
	hsa_iterate_agents(see_agent, NULL);
	if (!it.gpu.handle)
		return hipErrorNoDevice;
	hsa_amd_agent_iterate_memory_pools(it.gpu, see_pool, &it.vram);
	hsa_amd_agent_iterate_memory_pools(it.cpu, see_pool, &it.host);
	if (hsa_queue_create(it.gpu, PACKETS, HSA_QUEUE_TYPE_MULTI, failed, NULL, UINT32_MAX, UINT32_MAX, &it.queue) !=
		    HSA_STATUS_SUCCESS ||
	    hipHostMalloc(&it.arguments, ARGUMENTS, hipHostMallocDefault) != hipSuccess)
		return hipErrorOutOfMemory;
	mock_user_queue(it.queue);
	it.ready = true;
	return hipSuccess;
}

static void wait_for_packet(void)
{
	while (it.running && !__atomic_load_n(&it.broken, __ATOMIC_ACQUIRE)) {
		it.running = hsa_signal_wait_scacquire(it.done, HSA_SIGNAL_CONDITION_LT, 1, 10000000, HSA_WAIT_STATE_BLOCKED) > 0;
		if (!it.running)
			hsa_signal_destroy(it.done);
	}
}

static void publish(void *packet, uint64_t at, uint16_t header)
{
	it.running = 1;
	__atomic_store_n((uint16_t *)packet, header, __ATOMIC_RELEASE);
	hsa_signal_store_screlease(it.queue->doorbell_signal, (hsa_signal_value_t)at);
}

/*
 * Only a wait for a stream on the host, and a copy, have a marker with fences of system scope (clr,
 * VirtualGPU::releaseGpuMemoryFence).
 */
static void flush(void)
{
	const uint16_t header = HSA_PACKET_TYPE_BARRIER_AND << HSA_PACKET_HEADER_TYPE |
				HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE |
				HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE;
	hsa_barrier_and_packet_t *packet;
	uint64_t at;

	if (!it.dirty || it.broken)
		return;
	at = hsa_queue_add_write_index_screlease(it.queue, 1);
	packet = (hsa_barrier_and_packet_t *)it.queue->base_address + at % PACKETS;
	hsa_signal_create(1, 0, NULL, &it.done);
	*packet = (hsa_barrier_and_packet_t){ .header = HSA_PACKET_TYPE_INVALID, .completion_signal = it.done };
	publish(packet, at, header);
	wait_for_packet();
	it.dirty = false;
}

/* The kernel that runs has ended: the next one may begin. */
static hipError_t ended(void)
{
	hipError_t ret = start();

	if (ret == hipSuccess)
		wait_for_packet();
	return ret == hipSuccess && it.broken ? hipErrorLaunchFailure : ret;
}

/* Waits for the kernel that runs. After a failure nothing works any more, as on a GPU. */
static hipError_t synchronize(void)
{
	hipError_t ret = ended();

	if (ret == hipSuccess)
		flush();
	return ret == hipSuccess && it.broken ? hipErrorLaunchFailure : ret;
}

hipError_t hipGetDeviceCount(int *count)
{
	hipError_t ret = start();

	*count = ret == hipSuccess;
	return ret;
}

hipError_t hipRuntimeGetVersion(int *version)
{
	*version = 60443484;
	return hipSuccess;
}

hipError_t hipSetDevice(int device)
{
	return device ? hipErrorInvalidDevice : start();
}

hipError_t hipGetDevice(int *device)
{
	*device = 0;
	return start();
}

hipError_t hipDeviceGetPCIBusId(char *address, int len, int device)
{
	const hipError_t ret = start(); /* also of a first call (clr, HIP_INIT_API) */
	uint32_t place = 0, domain = 0;

	(void)device;
	if (ret != hipSuccess)
		return ret;
	hsa_agent_get_info(it.gpu, (hsa_agent_info_t)HSA_AMD_AGENT_INFO_BDFID, &place);
	hsa_agent_get_info(it.gpu, (hsa_agent_info_t)HSA_AMD_AGENT_INFO_DOMAIN, &domain);
	snprintf(address, (size_t)len, "%04x:%02x:%02x.%x", domain, place >> 8, place >> 3 & 31, place & 7);
	return hipSuccess;
}

/* That of gfx1100; nothing else is asked for. */
hipError_t hipDeviceGetAttribute(int *value, hipDeviceAttribute_t attribute, int device)
{
	(void)device;
	*value = 32;
	return attribute == hipDeviceAttributeWarpSize ? start() : hipErrorInvalidValue;
}

static _Thread_local hipError_t last_error; /* of a call that failed (clr hip_internal.hpp, HIP_RETURN); successes leave it */

static hipError_t failed_call(hipError_t error)
{
	last_error = error;
	return error;
}

/* ---- Streams: one launch runs at a time, whatever its stream ---- */

static struct stream {
	struct stream *next;
} *streams;

hipError_t hipStreamCreateWithFlags(hipStream_t *stream, unsigned flags)
{
	struct stream *s = calloc(1, sizeof(*s));

	(void)flags;
	if (!s)
		return hipErrorOutOfMemory;
	s->next = streams;
	streams = s;
	*stream = (hipStream_t)s;
	return start();
}

/* clr hip_stream.cpp, isValid(): the default streams, and those that a list holds. */
static bool is_stream(hipStream_t stream)
{
	const struct stream *s = streams;

	if ((uintptr_t)stream <= (uintptr_t)hipStreamPerThread)
		return true;
	while (s && s != (const struct stream *)stream)
		s = s->next;
	return s;
}

/* Of hipStreamLegacy it would read memory at address 1 (clr hip_stream.cpp: only NULL is no address there). */
hipError_t hipStreamGetDevice(hipStream_t stream, int *device)
{
	if ((uintptr_t)stream == 1)
		abort();
	if (!is_stream(stream))
		return failed_call(hipErrorContextIsDestroyed);
	*device = getenv("MOCK_STREAM_DEVICE") ? atoi(getenv("MOCK_STREAM_DEVICE")) : 0;
	return hipSuccess;
}

hipError_t hipStreamSynchronize(hipStream_t stream)
{
	if (!is_stream(stream))
		return failed_call(hipErrorContextIsDestroyed);
	return capture_ongoing(stream) ? failed_call(hipErrorStreamCaptureUnsupported) : synchronize();
}

hipError_t hipStreamDestroy(hipStream_t stream)
{
	struct stream **link = &streams;

	while (*link && *link != (struct stream *)stream)
		link = &(*link)->next;
	if (!*link)
		return hipErrorInvalidResourceHandle;
	*link = (*link)->next;
	capture_drop(stream);
	return synchronize();
}

hipError_t hipStreamQuery(hipStream_t stream)
{
	if (!is_stream(stream))
		abort(); /* one version of clr hip_stream.cpp, hipStreamQuery_common(), follows the pointer */
	if (stream && getenv("MOCK_OTHERS_CAPTURE")) /* another thread of the program captures, for all threads */
		capture_must_be_relaxed();		/* StreamCaptureOngoing() there */
	if (capture_ongoing(stream))
		return failed_call(hipErrorStreamCaptureUnsupported);
	if (it.running && !it.broken &&
	    hsa_signal_wait_scacquire(it.done, HSA_SIGNAL_CONDITION_LT, 1, 0, HSA_WAIT_STATE_ACTIVE) > 0)
		return hipErrorNotReady;
	return ended();
}

/* clr hip_graph.cpp, hipStreamIsCapturing_common(). Old ones read memory at address 1 of hipStreamLegacy, new ones of no stream. */
hipError_t hipStreamIsCapturing(hipStream_t stream, enum hipStreamCaptureStatus *status)
{
	if ((uintptr_t)stream == 1)
		abort();
	if (!is_stream(stream))
		return failed_call(hipErrorContextIsDestroyed);
	*status = getenv("MOCK_CAPTURING") ? hipStreamCaptureStatusActive : capture_status(stream);
	return hipSuccess;
}

hipError_t hipDeviceSynchronize(void)
{
	const hipError_t ret = capture_forbids(hipErrorStreamCaptureUnsupported);

	return ret == hipSuccess ? synchronize() : failed_call(ret);
}

hipError_t hipGetLastError(void)
{
	hipError_t error = it.broken ? hipErrorLaunchFailure : last_error;

	last_error = hipSuccess;
	return error;
}

const char *hipGetErrorString(hipError_t error)
{
	switch (error) {
	case hipSuccess:
		return "no error";
	case hipErrorNoDevice:
		return "no ROCm-capable device is detected";
	case hipErrorOutOfMemory:
		return "out of memory";
	case hipErrorLaunchFailure:
		return "unspecified launch failure";
	case hipErrorInvalidDeviceFunction:
		return "invalid device function";
	case hipErrorNoBinaryForGpu:
		return "no kernel image is available for execution on the device";
	case hipErrorStreamCaptureInvalidated:
		return "operation failed due to a previous error during capture";
	default:
		return "unknown error";
	}
}

/* ---- Memory ---- */

static hipError_t alloc(const hsa_amd_memory_pool_t *pool, void **ptr, size_t size)
{
	hipError_t ret = start();

	if (capture_allows() != hipSuccess)
		return failed_call(hipErrorStreamCaptureUnsupported);
	if (ret == hipSuccess && hsa_amd_memory_pool_allocate(*pool, size, 0, ptr) != HSA_STATUS_SUCCESS)
		return hipErrorOutOfMemory;
	return ret;
}

hipError_t hipMalloc(void **ptr, size_t size)
{
	return alloc(&it.vram, ptr, size);
}

/* Uncached is fine-grained, and where there is none coarse memory, without a word (clr, Device::deviceLocalAlloc). */
hipError_t hipExtMallocWithFlags(void **ptr, size_t size, unsigned flags)
{
	hipError_t ret = start();

	(void)flags;
	return ret == hipSuccess ? alloc(it.fine.handle ? &it.fine : &it.vram, ptr, size) : ret;
}

/* Coherent by no flag at all, or by one of these; the others alone are not, unless HIP_HOST_COHERENT=1 (clr, ihipHostMalloc). */
hipError_t hipHostMalloc(void **ptr, size_t size, unsigned flags)
{
	const char *always = getenv("HIP_HOST_COHERENT");
	const unsigned coherent = hipHostMallocCoherent | hipHostMallocMapped | hipHostMallocNumaUser;
	const bool fine = !(flags & hipHostMallocNonCoherent) && (!flags || flags & coherent || (always && *always == '1'));

	if (capture_allows() != hipSuccess)
		return failed_call(hipErrorStreamCaptureUnsupported);
	if (hsa_amd_memory_pool_allocate(fine ? it.host : it.coarse, size, 0, ptr) != HSA_STATUS_SUCCESS)
		return hipErrorOutOfMemory;
	return hsa_amd_agents_allow_access(1, &it.gpu, NULL, *ptr) == HSA_STATUS_SUCCESS ? hipSuccess : hipErrorOutOfMemory;
}

hipError_t hipFree(void *ptr)
{
	hipError_t ret;

	if (capture_allows() != hipSuccess)
		return failed_call(hipErrorStreamCaptureUnsupported);
	ret = synchronize();
	if (ptr && hsa_amd_memory_pool_free(ptr) != HSA_STATUS_SUCCESS)
		return hipErrorInvalidValue;
	return ret;
}

hipError_t hipHostFree(void *ptr)
{
	return hipFree(ptr);
}

/*
 * Memory of the process's is pinned by a buffer without atomics, which is locked into the coarse pool, from 1 MiB on, up to 2024 also up
 * to 16 KiB (MOCK_OLD_COPIES=1; clr rocblit.cpp, DmaBlitManager::pinHostMemory; rocmemory.cpp, Buffer::create). Where locking is
 * refused it is staged.
 */
static bool pin(const void *ptr, size_t size, void **pinned)
{
	const char *old = getenv("MOCK_OLD_COPIES");
	const uintptr_t from = (uintptr_t)ptr & ~(uintptr_t)4095, to = ((uintptr_t)ptr + size + 4095) & ~(uintptr_t)4095;
	hsa_amd_pointer_info_t info = { .size = sizeof(info) };
	void *lane;

	if (size <= PINS_FROM && !(old && *old == '1' && size <= PINNED_UP_TO))
		return false;
	if (hsa_amd_pointer_info(ptr, &info, NULL, NULL, NULL) != HSA_STATUS_SUCCESS || info.type == HSA_EXT_POINTER_TYPE_HSA)
		return false;
	*pinned = (void *)from;
	return hsa_amd_memory_lock_to_pool(*pinned, to - from, NULL, 0, it.coarse, 0, &lane) == HSA_STATUS_SUCCESS;
}

static bool is_vram(const void *ptr)
{
	hsa_amd_pointer_info_t info = { .size = sizeof(info) };

	return hsa_amd_pointer_info(ptr, &info, NULL, NULL, NULL) == HSA_STATUS_SUCCESS && info.type == HSA_EXT_POINTER_TYPE_HSA &&
	       info.agentOwner.handle == it.gpu.handle;
}

/* From the host to the host the CPU copies (clr hip_memory.cpp, ihipMemcpy: ihipHtoHMemcpy), and pins nothing. */
hipError_t hipMemcpy(void *to, const void *from, size_t size, hipMemcpyKind kind)
{
	hipError_t ret = capture_forbids(hipErrorStreamCaptureImplicit);
	void *pinned[2];
	bool is_pinned[2];

	(void)kind;
	if (ret != hipSuccess)
		return failed_call(ret);
	ret = synchronize();
	if (ret != hipSuccess)
		return ret;
	if (!is_vram(to) && !is_vram(from)) {
		memcpy(to, from, size);
		return hipSuccess;
	}
	is_pinned[0] = pin(to, size, &pinned[0]);
	is_pinned[1] = pin(from, size, &pinned[1]);
	if (hsa_memory_copy(to, from, size) != HSA_STATUS_SUCCESS)
		ret = hipErrorInvalidValue;
	if (is_pinned[0])
		hsa_amd_memory_unlock(pinned[0]);
	if (is_pinned[1])
		hsa_amd_memory_unlock(pinned[1]);
	return ret;
}

static hipError_t fill(void *ptr, int value, size_t size)
{
	hipError_t ret = synchronize();

	if (ret != hipSuccess)
		return ret;
	mock_near_flush(ptr, size);
	memset(ptr, value, size);
	return ret;
}

hipError_t hipMemset(void *ptr, int value, size_t size)
{
	const hipError_t ret = capture_forbids(hipErrorStreamCaptureImplicit);

	return ret == hipSuccess ? fill(ptr, value, size) : failed_call(ret);
}

/* A kernel of the same stream comes after it, and what was enqueued before has ended. Graphs have only kernels here. */
hipError_t hipMemsetAsync(void *ptr, int value, size_t size, hipStream_t stream)
{
	if (!is_stream(stream))
		return failed_call(hipErrorContextIsDestroyed);
	return capture_status(stream) == hipStreamCaptureStatusNone ? fill(ptr, value, size) : failed_call(hipErrorNotSupported);
}

/* ---- Code ---- */

static void take_code(struct module *module, const void *elf, size_t size)
{
	char why[300];

	module->elf = elf;
	module->size = size;
	module->code = gfx_load_memory(elf, size, why, sizeof(why));
	if (!module->code)
		fprintf(stderr, "mock: %s\n", why);
}

void **__hipRegisterFatBinary(const void *wrapper)
{
	struct module *module = calloc(1, sizeof(*module));
	const struct bundle *bundle;
	const char *at;
	uint64_t i;

	memcpy(&bundle, (const char *)wrapper + 8, sizeof(bundle));
	if (!module || memcmp(bundle->magic, "__CLANG_OFFLOAD_BUNDLE__", sizeof(bundle->magic)) != 0)
		abort();
	at = (const char *)(bundle + 1);
	for (i = 0; i < bundle->count; i++) {
		struct bundled entry;

		memcpy(&entry, at, sizeof(entry));
		at += sizeof(entry) + entry.length;
		if (entry.length >= strlen(NAME) && !memcmp(at - strlen(NAME), NAME, strlen(NAME)))
			take_code(module, (const char *)bundle + entry.offset, entry.size);
	}
	return (void **)module;
}

void __hipUnregisterFatBinary(void **module)
{
	(void)module; /* the program ends */
}

void __hipRegisterFunction(void **module, const void *host, char *device, const char *name, unsigned limit, void *tid, void *bid,
			   void *block, void *grid, int *wave)
{
	struct function *f = calloc(1, sizeof(*f));

	(void)device, (void)limit, (void)tid, (void)bid, (void)block, (void)grid, (void)wave;
	if (!f)
		abort();
	*f = (struct function){ it.functions, (struct module *)module, host, name };
	it.functions = f;
}

static bool load(struct module *m)
{
	hsa_code_object_reader_t reader;

	if (m->loaded || !m->code)
		return m->loaded;
	m->loaded = hsa_code_object_reader_create_from_memory(m->elf, m->size, &reader) == HSA_STATUS_SUCCESS &&
		    hsa_executable_create_alt(HSA_PROFILE_FULL, HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT, NULL, &m->executable) ==
			    HSA_STATUS_SUCCESS &&
		    hsa_executable_load_agent_code_object(m->executable, it.gpu, reader, NULL, NULL) == HSA_STATUS_SUCCESS &&
		    hsa_executable_freeze(m->executable, NULL) == HSA_STATUS_SUCCESS;
	return m->loaded;
}

/* ---- Launches ---- */

hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared, hipStream_t stream)
{
	(void)shared;
	(void)stream;
	it.grid = grid;
	it.block = block;
	return hipSuccess;
}

hipError_t __hipPopCallConfiguration(dim3 *grid, dim3 *block, size_t *shared, hipStream_t *stream)
{
	*grid = it.grid;
	*block = it.block;
	*shared = 0;
	*stream = NULL;
	return hipSuccess;
}

/* Arguments where the metadata has them, then the grid (AMDGPUUsage, hidden arguments of code objects from version 5 on). */
static void put_arguments(const struct gfx_kernel *k, void **args, dim3 grid, dim3 block)
{
	const uint32_t groups[3] = { grid.x, grid.y, grid.z };
	const uint16_t group[3] = { (uint16_t)block.x, (uint16_t)block.y, (uint16_t)block.z }, dimensions = 1;
	char *to = it.arguments, *hidden = to + k->hidden;
	unsigned i;

	memset(to, 0, ARGUMENTS);
	for (i = 0; i < k->args; i++)
		memcpy(to + k->arg[i].offset, args[i], k->arg[i].size);
	if (!k->hidden)
		return;
	memcpy(hidden, groups, sizeof(groups));
	memcpy(hidden + 12, group, sizeof(group));
	memcpy(hidden + 64, &dimensions, sizeof(dimensions));
}

static void send(uint64_t object, const struct gfx_kernel *k, dim3 grid, dim3 block)
{
	const uint16_t header = HSA_PACKET_TYPE_KERNEL_DISPATCH << HSA_PACKET_HEADER_TYPE |
				HSA_FENCE_SCOPE_AGENT << HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE |
				HSA_FENCE_SCOPE_AGENT << HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE;
	uint64_t at = hsa_queue_add_write_index_screlease(it.queue, 1);
	hsa_kernel_dispatch_packet_t *packet = (hsa_kernel_dispatch_packet_t *)it.queue->base_address + at % PACKETS;

	hsa_signal_create(1, 0, NULL, &it.done);
	*packet = (hsa_kernel_dispatch_packet_t){ .header = HSA_PACKET_TYPE_INVALID,
						  .setup = 1 << HSA_KERNEL_DISPATCH_PACKET_SETUP_DIMENSIONS,
						  .workgroup_size_x = (uint16_t)block.x,
						  .workgroup_size_y = 1,
						  .workgroup_size_z = 1,
						  .grid_size_x = grid.x * block.x,
						  .grid_size_y = 1,
						  .grid_size_z = 1,
						  .private_segment_size = k->scratch,
						  .group_segment_size = k->lds,
						  .kernel_object = object,
						  .kernarg_address = it.arguments,
						  .completion_signal = it.done };
	it.dirty = true;
	publish(packet, at, header);
}

/* Grid and groups as the program says, once the kernel that runs has ended. */
static hipError_t start_kernel(struct module *m, const char *kernel, dim3 grid, dim3 block, void **args)
{
	const struct gfx_kernel *k = gfx_find(m->code, kernel);
	hsa_executable_symbol_t symbol;
	char name[128];
	uint64_t object;

	snprintf(name, sizeof(name), "%s.kd", kernel);
	if (!k || grid.y != 1 || grid.z != 1 || block.y != 1 || block.z != 1 || k->kernarg > ARGUMENTS ||
	    hsa_executable_get_symbol_by_name(m->executable, name, &it.gpu, &symbol) != HSA_STATUS_SUCCESS)
		return hipErrorInvalidDeviceFunction;
	hsa_executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, &object);
	put_arguments(k, args, grid, block);
	send(object, k, grid, block);
	return hipSuccess;
}

static bool is_gfx1100(void)
{
	const char *gfx = getenv("MOCK_GFX");

	return !gfx || !strcmp(gfx, "gfx1100");
}

/*
 * A program that was not built for the GPU learns it here (clr hip_platform.cpp, ihipLaunchKernel). A launch by <<<>>> drops what this
 * returns, and hipGetLastError() has it.
 */
hipError_t hipLaunchKernel(const void *host, dim3 grid, dim3 block, void **args, size_t shared, hipStream_t stream)
{
	hipError_t ret = ended();
	struct function *f;

	(void)shared;
	(void)stream;
	for (f = it.functions; f && f->host != host; f = f->next)
		;
	if (ret != hipSuccess || !f || !is_gfx1100() || !load(f->module))
		return failed_call(ret != hipSuccess ? ret : hipErrorInvalidDeviceFunction);
	return start_kernel(f->module, f->name, grid, block, args);
}

/* ---- Modules ---- */

/* The size of an ELF file is the end of its section headers, as clr asks (amd::Elf::getElfSize). */
static size_t elf_size(const void *image)
{
	const Elf64_Ehdr *head = image;

	return head->e_shoff + (size_t)head->e_shentsize * head->e_shnum;
}

hipError_t hipModuleLoadData(hipModule_t *module, const void *image)
{
	struct module *m = calloc(1, sizeof(*m));

	capture_must_be_relaxed();
	if (!m || start() != hipSuccess)
		return hipErrorOutOfMemory;
	take_code(m, image, elf_size(image));
	if (!load(m)) {
		free(m);
		return failed_call(hipErrorNoBinaryForGpu);
	}
	*module = (hipModule_t)m;
	return hipSuccess;
}

hipError_t hipModuleUnload(hipModule_t module)
{
	struct module *m = (struct module *)module;

	capture_must_be_relaxed();
	if (hipStreamQuery(NULL) == hipErrorNotReady) { /* clr hip_platform.cpp, unloadModule: it waits for nothing */
		fprintf(stderr, "mock: a module is unloaded while a kernel runs\n");
		abort();
	}
	hsa_executable_destroy(m->executable);
	gfx_unload(m->code);
	free(m);
	return hipSuccess;
}

struct module_function {
	struct module *module;
	char name[64];
};

hipError_t hipModuleGetFunction(hipFunction_t *function, hipModule_t module, const char *name)
{
	struct module *m = (struct module *)module;
	struct module_function *f = gfx_find(m->code, name) ? calloc(1, sizeof(*f)) : NULL; /* kept, as the program's are */

	if (!f)
		return failed_call(hipErrorNotFound);
	f->module = m;
	snprintf(f->name, sizeof(f->name), "%s", name);
	*function = (hipFunction_t)f;
	return hipSuccess;
}

/* As hipLaunchKernel() it waits for the kernel that runs, so no program has two under way here. On a captured stream it does not. */
hipError_t hipModuleLaunchKernel(hipFunction_t function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
				 unsigned block_y, unsigned block_z, unsigned shared, hipStream_t stream, void **params, void **extra)
{
	const dim3 grid = { grid_x, grid_y, grid_z }, block = { block_x, block_y, block_z };
	const struct module_function *f = (const struct module_function *)function;
	hipError_t ret;

	if (shared || extra || !params)
		return hipErrorInvalidValue;
	if (!is_stream(stream))
		return failed_call(hipErrorContextIsDestroyed);
	if (capture_status(stream) != hipStreamCaptureStatusNone) {
		ret = capture_launch(stream, function, gfx_find(f->module->code, f->name), grid, block, params);
		return ret == hipSuccess ? ret : failed_call(ret);
	}
	ret = ended();
	return ret == hipSuccess ? start_kernel(f->module, f->name, grid, block, params) : ret;
}
