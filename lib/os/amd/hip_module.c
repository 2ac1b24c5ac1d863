/* SPDX-License-Identifier: MIT */
/*
 * Invariant: when a call returns the thread has chosen the same GPU as before, has the same mode of stream capture, and HIP keeps
 * no error of ours. HIP loads a module for the GPU that the thread has chosen, and launches only on that GPU (clr hip_module.cpp,
 * ihipModuleLaunchKernel). A call that is not allowed while a stream is captured would end the program's capture.
 */
#include "os/amd/hip_module.h"

#include <errno.h>
#include <stdlib.h>

#include "os/amd/hip_table.h"
#include "util/log.h"

struct gnv_hip_module {
	struct gnv_hip_api api;
	int device;
	void *module;
	void *kernel[GNV_HIP_KERNELS_MAX];
};

static const struct gnv_dl_symbol symbols[] = {
	GNV_HIP_FUNCTION(count, "hipGetDeviceCount"),
	GNV_HIP_FUNCTION(version, "hipRuntimeGetVersion"),
	GNV_HIP_FUNCTION(bus_id, "hipDeviceGetPCIBusId"),
	GNV_HIP_FUNCTION(error, "hipGetErrorString"),
	GNV_HIP_FUNCTION(last_error, "hipGetLastError"),
	GNV_HIP_FUNCTION(current, "hipGetDevice"),
	GNV_HIP_FUNCTION(choose, "hipSetDevice"),
	GNV_HIP_FUNCTION(module_load, "hipModuleLoadData"),
	GNV_HIP_FUNCTION(module_unload, "hipModuleUnload"),
	GNV_HIP_FUNCTION(module_function, "hipModuleGetFunction"),
	GNV_HIP_FUNCTION(launch, "hipModuleLaunchKernel"),
	GNV_HIP_FUNCTION(stream_device, "hipStreamGetDevice"),
	GNV_HIP_FUNCTION(capture_mode, "hipThreadExchangeStreamCaptureMode"),
	{ NULL, 0, false },
};

/* The thread's earlier state. */
struct turn {
	int device, mode;
};

static int enter(const struct gnv_hip_module *m, struct turn *before)
{
	int error, ret;

	before->mode = GNV_HIP_CAPTURE_RELAXED;
	error = m->api.capture_mode(&before->mode);
	if (error)
		return gnv_hip_failed(&m->api, "the mode of stream capture", error);
	ret = gnv_hip_choose(&m->api, m->device, &before->device);
	if (ret)
		m->api.capture_mode(&before->mode);
	return ret;
}

static void leave(const struct gnv_hip_module *m, struct turn *before)
{
	gnv_hip_choose_back(&m->api, before->device);
	m->api.capture_mode(&before->mode);
}

/* Report unusable code of the library. HIP has many errors for that. */
static int unusable(const struct gnv_hip_module *m, const char *what, int error)
{
	const int ret = gnv_hip_failed(&m->api, what, error);

	return ret == -ENOMEM ? ret : -EOPNOTSUPP;
}

/* After enter(). */
static int load(struct gnv_hip_module *m, const void *elf, const char *const *name, unsigned count)
{
	int error = m->api.module_load(&m->module, elf);
	unsigned i;

	if (error)
		return unusable(m, "the library's kernels cannot be loaded", error);
	for (i = 0; i < count && !error; i++)
		error = m->api.module_function(&m->kernel[i], m->module, name[i]);
	if (!error)
		return 0;
	m->api.module_unload(m->module);
	return unusable(m, "the library's kernels are not found in their code", error);
}

static int open_module(struct gnv_hip_module *m, const char *bdf, const void *elf, const char *const *name, unsigned count)
{
	struct turn before;
	int ret = gnv_hip_load_6(symbols, &m->api);

	if (!ret)
		ret = gnv_hip_find(&m->api, bdf, &m->device);
	if (!ret)
		ret = enter(m, &before);
	if (ret)
		return ret;
	ret = load(m, elf, name, count);
	leave(m, &before);
	return ret;
}

int gnv_hip_module_open(const char *bdf, const void *elf, const char *const *name, unsigned count, struct gnv_hip_module **module)
{
	struct gnv_hip_module *m = count <= GNV_HIP_KERNELS_MAX ? calloc(1, sizeof(*m)) : NULL;
	int ret = m ? open_module(m, bdf, elf, name, count) : gnv_fail(-ENOMEM, "out of memory");

	if (ret)
		free(m);
	else
		*module = m;
	return ret;
}

void gnv_hip_module_close(struct gnv_hip_module *m)
{
	struct turn before;

	if (m && !enter(m, &before)) {
		m->api.module_unload(m->module);
		leave(m, &before);
	}
	free(m);
}

static int check_stream(const struct gnv_hip_module *m, void *stream)
{
	int device = m->device, error = stream ? m->api.stream_device(stream, &device) : 0;

	if (error == GNV_HIP_NO_STREAM) {
		m->api.last_error();
		return gnv_fail(-EIO, "HIP does not know the stream: it was destroyed, or is of another runtime");
	}
	if (error)
		return gnv_hip_failed(&m->api, "the stream", error);
	if (device == m->device)
		return 0;
	return gnv_fail(-EXDEV, "the stream belongs to another GPU than HIP's number %d. Call hipSetDevice(%d) before hipStreamCreate()",
			m->device, m->device);
}

static int launch(const struct gnv_hip_module *m, void *stream, unsigned kernel, uint32_t groups, uint32_t group_lanes,
		  const void *args)
{
	void *params[] = { (void *)(uintptr_t)args };
	int ret = check_stream(m, stream), error;

	if (ret)
		return ret;
	error = m->api.launch(m->kernel[kernel], groups, 1, 1, group_lanes, 1, 1, 0, stream, params, NULL);
	return error ? gnv_hip_failed(&m->api, "a kernel on the stream", error) : 0;
}

/* hipStreamLegacy is NULL: to find its GPU, HIP would use the number 1 as an address (clr hip_stream.cpp, hipStreamGetDevice). */
int gnv_hip_module_enqueue(const struct gnv_hip_module *m, void *stream, unsigned kernel, uint32_t groups,
			   uint32_t group_lanes, const void *args)
{
	struct turn before;
	int ret = enter(m, &before);

	if (ret)
		return ret;
	ret = launch(m, stream == GNV_HIP_STREAM_LEGACY ? NULL : stream, kernel, groups, group_lanes, args);
	leave(m, &before);
	return ret;
}
