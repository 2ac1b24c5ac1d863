/* SPDX-License-Identifier: MIT */
/*
 * Invariant: when a call returns the thread has chosen the same GPU as before. HIP loads a module for the GPU that the thread has
 * chosen, and launches only on that one (clr hip_module.cpp, ihipModuleLaunchKernel).
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
	GNV_HIP_FUNCTION(current, "hipGetDevice"),
	GNV_HIP_FUNCTION(choose, "hipSetDevice"),
	GNV_HIP_FUNCTION(module_load, "hipModuleLoadData"),
	GNV_HIP_FUNCTION(module_unload, "hipModuleUnload"),
	GNV_HIP_FUNCTION(module_function, "hipModuleGetFunction"),
	GNV_HIP_FUNCTION(launch, "hipModuleLaunchKernel"),
	GNV_HIP_FUNCTION(stream_device, "hipStreamGetDevice"),
	{ NULL, 0, false },
};

/* With the GPU chosen. */
static int load(struct gnv_hip_module *m, const void *elf, const char *const *name, unsigned count)
{
	int error = m->api.module_load(&m->module, elf);
	unsigned i;

	if (error)
		return gnv_hip_failed(&m->api, "the library's kernels cannot be loaded", error);
	for (i = 0; i < count && !error; i++)
		error = m->api.module_function(&m->kernel[i], m->module, name[i]);
	if (!error)
		return 0;
	m->api.module_unload(m->module);
	return gnv_hip_failed(&m->api, "the library's kernels are not found in their code", error);
}

static int open_module(struct gnv_hip_module *m, const char *bdf, const void *elf, const char *const *name, unsigned count)
{
	int before, ret = gnv_hip_load_6(symbols, &m->api);

	if (!ret)
		ret = gnv_hip_find(&m->api, bdf, &m->device);
	if (!ret)
		ret = gnv_hip_choose(&m->api, m->device, &before);
	if (ret)
		return ret;
	ret = load(m, elf, name, count);
	m->api.choose(before);
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
	int before;

	if (!m)
		return;
	if (!gnv_hip_choose(&m->api, m->device, &before)) {
		m->api.module_unload(m->module);
		m->api.choose(before);
	}
	free(m);
}

static int refuse_stream(const struct gnv_hip_module *m)
{
	return gnv_fail(-EXDEV, "the stream belongs to another GPU than HIP's number %d; call hipSetDevice(%d) before hipStreamCreate()",
			m->device, m->device);
}

/*
 * HIP is not asked for the GPU of hipStreamLegacy: it would take the number 1 for the address of a stream (clr hip_stream.cpp,
 * hipStreamGetDevice).
 */
static int check_stream(const struct gnv_hip_module *m, void *stream)
{
	int device = m->device, error = 0;

	if ((uintptr_t)stream > GNV_HIP_STREAM_LEGACY)
		error = m->api.stream_device(stream, &device);
	if (error == GNV_HIP_NO_STREAM)
		return gnv_fail(-EIO, "HIP does not know the stream: it was destroyed, or is of another runtime");
	if (error)
		return gnv_hip_failed(&m->api, "the stream", error);
	return device == m->device ? 0 : refuse_stream(m);
}

static int launch(const struct gnv_hip_module *m, void *stream, unsigned kernel, uint32_t groups, uint32_t group_lanes,
		  const void *args)
{
	void *params[] = { (void *)(uintptr_t)args };
	int ret = check_stream(m, stream), error;

	if (ret)
		return ret;
	error = m->api.launch(m->kernel[kernel], groups, 1, 1, group_lanes, 1, 1, 0, stream, params, NULL);
	if (error == GNV_HIP_OTHER_DEVICE)
		return refuse_stream(m);
	return error ? gnv_hip_failed(&m->api, "a kernel on the stream", error) : 0;
}

int gnv_hip_module_enqueue(const struct gnv_hip_module *m, void *stream, unsigned kernel, uint32_t groups,
			   uint32_t group_lanes, const void *args)
{
	int before, ret = gnv_hip_choose(&m->api, m->device, &before);

	if (ret)
		return ret;
	ret = launch(m, stream, kernel, groups, group_lanes, args);
	m->api.choose(before);
	return ret;
}
