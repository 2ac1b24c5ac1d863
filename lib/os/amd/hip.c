/* SPDX-License-Identifier: MIT */
/* Invariant: an allocation is undone in reverse order: access and mapping, handle, addresses. */
#include "os/amd/hip.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "os/amd/hip_table.h"
#include "util/bits.h"
#include "util/log.h"

static const struct gnv_dl_symbol symbols[] = {
	GNV_HIP_FUNCTION(count, "hipGetDeviceCount"),
	GNV_HIP_FUNCTION(version, "hipRuntimeGetVersion"),
	GNV_HIP_FUNCTION(bus_id, "hipDeviceGetPCIBusId"),
	GNV_HIP_FUNCTION(error, "hipGetErrorString"),
	GNV_HIP_FUNCTION(last_error, "hipGetLastError"),
	GNV_HIP_FUNCTION(granularity, "hipMemGetAllocationGranularity"),
	GNV_HIP_FUNCTION(create, "hipMemCreate"),
	GNV_HIP_FUNCTION(release, "hipMemRelease"),
	GNV_HIP_FUNCTION(reserve, "hipMemAddressReserve"),
	GNV_HIP_FUNCTION(unreserve, "hipMemAddressFree"),
	GNV_HIP_FUNCTION(map, "hipMemMap"),
	GNV_HIP_FUNCTION(unmap, "hipMemUnmap"),
	GNV_HIP_FUNCTION(set_access, "hipMemSetAccess"),
	GNV_HIP_FUNCTION(export_fd, "hipMemExportToShareableHandle"),
	{ NULL, 0, false },
};
static const struct gnv_dl_symbol copy_symbols[] = {
	GNV_HIP_FUNCTION(count, "hipGetDeviceCount"),
	GNV_HIP_FUNCTION(bus_id, "hipDeviceGetPCIBusId"),
	GNV_HIP_FUNCTION(error, "hipGetErrorString"),
	GNV_HIP_FUNCTION(last_error, "hipGetLastError"),
	GNV_HIP_FUNCTION(current, "hipGetDevice"),
	GNV_HIP_FUNCTION(choose, "hipSetDevice"),
	GNV_HIP_FUNCTION(malloc, "hipMalloc"),
	GNV_HIP_FUNCTION(free, "hipFree"),
	GNV_HIP_FUNCTION(copy, "hipMemcpy"),
	{ NULL, 0, false },
};
static const char *const files[] = { "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so", "libamdhip64.so.5",
				     "/opt/rocm/lib/libamdhip64.so", NULL };

int gnv_hip_load(const struct gnv_dl_symbol *names, struct gnv_hip_api *api)
{
	const struct gnv_dl library = { "HIP (libamdhip64)", "GPUNVME_HIP_LIBRARY", files, names };

	return gnv_dl_load(&library, api);
}

static int load(const struct gnv_dl_symbol *names, struct gnv_hip_api *api, int *version)
{
	int ret = gnv_hip_load(names, api);

	if (!ret && api->version(version) != GNV_HIP_SUCCESS)
		ret = gnv_fail(-EOPNOTSUPP, "HIP does not report its version");
	return ret;
}

int gnv_hip_version(int *version)
{
	struct gnv_hip_api api;

	return load(symbols, &api, version);
}

int gnv_hip_load_6(const struct gnv_dl_symbol *names, struct gnv_hip_api *api)
{
	int version, ret = load(names, api, &version);

	if (ret)
		return ret;
	if (version < GNV_HIP_VERSION(6))
		return gnv_fail(-EOPNOTSUPP, "HIP %d is too old for this library. Use ROCm 6 or newer", version / GNV_HIP_VERSION(1));
	return 0;
}

int gnv_hip_failed(const struct gnv_hip_api *api, const char *what, int error)
{
	int ret = error == GNV_HIP_OUT_OF_MEMORY ? -ENOMEM : error == GNV_HIP_NOT_SUPPORTED ? -EOPNOTSUPP : -EIO;
	const char *text = api->error(error);

	api->last_error();
	return gnv_fail(ret, "HIP: %s: %s (%d)", what, text ? text : "unknown", error);
}

int gnv_hip_find(const struct gnv_hip_api *api, const char *bdf, int *device)
{
	int count = 0, i, error = api->count(&count);
	char text[32];

	if (error == GNV_HIP_NO_DEVICE || error == GNV_HIP_INVALID_DEVICE || (!error && !count))
		return gnv_fail(-ENODEV, "HIP sees no AMD GPU. Load amdgpu, and add your user to the group render");
	if (error)
		return gnv_hip_failed(api, "GPUs cannot be counted", error);
	for (i = 0; i < count; i++) {
		if (api->bus_id(text, sizeof(text), i) == GNV_HIP_SUCCESS && !strcasecmp(text, bdf)) {
			*device = i;
			return 0;
		}
	}
	return gnv_fail(-ENODEV, "HIP does not see the GPU %s: HIP_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES hides it. Add it "
				"there, or unset both", bdf);
}

int gnv_hip_choose(const struct gnv_hip_api *api, int device, int *before)
{
	int error = api->current(before);

	if (!error)
		error = api->choose(device);
	return error ? gnv_hip_failed(api, "a GPU cannot be chosen", error) : 0;
}

void gnv_hip_choose_back(const struct gnv_hip_api *api, int before)
{
	if (api->choose(before))
		api->last_error();
}

int gnv_hip_device(const char *bdf, int *device)
{
	struct gnv_hip_api api;
	int ret = gnv_hip_load_6(symbols, &api);

	return ret ? ret : gnv_hip_find(&api, bdf, device);
}

static int map(const struct gnv_hip_api *api, int device, struct gnv_hip_bytes *bytes)
{
	const struct gnv_hip_access access = { { GNV_HIP_LOCATION_DEVICE, device }, GNV_HIP_READ_WRITE };
	int error = api->reserve(&bytes->va, bytes->len, 0, NULL, 0), fd = -1;

	if (error)
		return gnv_hip_failed(api, "no addresses for memory of the GPU", error);
	error = api->map(bytes->va, bytes->len, 0, bytes->handle, 0);
	if (error) {
		api->unreserve(bytes->va, bytes->len);
		return gnv_hip_failed(api, "memory of the GPU cannot be mapped", error);
	}
	error = api->set_access(bytes->va, bytes->len, &access, 1);
	if (!error)
		error = api->export_fd(&fd, bytes->handle, GNV_HIP_HANDLE_FD, 0);
	if (!error) {
		bytes->dmabuf = fd;
		return 0;
	}
	api->unmap(bytes->va, bytes->len);
	api->unreserve(bytes->va, bytes->len);
	return gnv_hip_failed(api, "memory of the GPU cannot be used or exported", error);
}

/* Return: HIP's error. */
static int create(const struct gnv_hip_api *api, int device, int type, size_t len, struct gnv_hip_bytes *bytes)
{
	const struct gnv_hip_prop prop = { .type = type,
					   .handle_types = GNV_HIP_HANDLE_FD,
					   .location = { GNV_HIP_LOCATION_DEVICE, device } };
	size_t unit = 0;
	int error = api->granularity(&unit, &prop, GNV_HIP_GRANULARITY_MINIMUM);

	if (error)
		return error;
	if (!gnv_is_pow2(unit) || len > SIZE_MAX - unit)
		return GNV_HIP_INVALID_VALUE;
	bytes->len = gnv_align_up(len, unit);
	return api->create(&bytes->handle, bytes->len, &prop, 0);
}

int gnv_hip_alloc(int device, size_t len, struct gnv_hip_bytes *bytes)
{
	struct gnv_hip_api api;
	int error, ret = gnv_hip_load_6(symbols, &api);

	if (ret)
		return ret;
	*bytes = (struct gnv_hip_bytes){ .dmabuf = -1 };
	error = create(&api, device, GNV_HIP_UNCACHED, len, bytes);
	if (error == GNV_HIP_INVALID_VALUE || error == GNV_HIP_NOT_SUPPORTED) /* before HIP 7 */
		error = create(&api, device, GNV_HIP_PINNED, len, bytes);
	if (error)
		return gnv_hip_failed(&api, "no memory of the GPU", error);
	ret = map(&api, device, bytes);
	if (ret)
		api.release(bytes->handle);
	return ret;
}

/* On the current GPU. From the host to the host HIP would not use it at all. */
static int copy_to_and_fro(const struct gnv_hip_api *api, void *ptr, size_t len)
{
	void *vram = NULL;
	int error = api->malloc(&vram, len);

	if (error)
		return gnv_hip_failed(api, "no memory of the GPU", error);
	error = api->copy(vram, ptr, len, GNV_HIP_COPY_DEFAULT);
	if (!error)
		error = api->copy(ptr, vram, len, GNV_HIP_COPY_DEFAULT);
	api->free(vram);
	return error ? gnv_hip_failed(api, "memory cannot be copied", error) : 0;
}

int gnv_hip_copy(const char *bdf, void *ptr, size_t len)
{
	struct gnv_hip_api api;
	int device, before, ret = gnv_hip_load(copy_symbols, &api);

	if (!ret)
		ret = gnv_hip_find(&api, bdf, &device);
	if (!ret)
		ret = gnv_hip_choose(&api, device, &before);
	if (ret)
		return ret;
	ret = copy_to_and_fro(&api, ptr, len);
	gnv_hip_choose_back(&api, before);
	return ret;
}

void gnv_hip_free(struct gnv_hip_bytes *bytes)
{
	struct gnv_hip_api api;

	if (gnv_hip_load_6(symbols, &api))
		return; /* it was loaded to make them */
	close(bytes->dmabuf);
	api.unmap(bytes->va, bytes->len);
	api.release(bytes->handle);
	api.unreserve(bytes->va, bytes->len);
}
