/* SPDX-License-Identifier: MIT */
/* Invariant: what was made is undone in reverse: access and mapping, handle, addresses. */
#include "os/amd/hip.h"

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "os/amd/uapi/hip.h"
#include "os/linux/dl.h"
#include "util/bits.h"
#include "util/log.h"

struct api {
	gnv_hip_count_fn *count;
	gnv_hip_version_fn *version;
	gnv_hip_bus_id_fn *bus_id;
	gnv_hip_error_fn *error;
	gnv_hip_granularity_fn *granularity;
	gnv_hip_create_fn *create;
	gnv_hip_release_fn *release;
	gnv_hip_reserve_fn *reserve;
	gnv_hip_unreserve_fn *unreserve;
	gnv_hip_map_fn *map;
	gnv_hip_unmap_fn *unmap;
	gnv_hip_set_access_fn *set_access;
	gnv_hip_export_fn *export_fd;
	gnv_hip_current_fn *current;
	gnv_hip_choose_fn *choose;
	gnv_hip_malloc_fn *malloc;
	gnv_hip_free_fn *free;
	gnv_hip_copy_fn *copy;
};

#define FUNCTION(field, name)                                                                                                      \
	{                                                                                                                          \
		name, offsetof(struct api, field), false                                                                           \
	}
static const struct gnv_dl_symbol symbols[] = {
	FUNCTION(count, "hipGetDeviceCount"),
	FUNCTION(version, "hipRuntimeGetVersion"),
	FUNCTION(bus_id, "hipDeviceGetPCIBusId"),
	FUNCTION(error, "hipGetErrorString"),
	FUNCTION(granularity, "hipMemGetAllocationGranularity"),
	FUNCTION(create, "hipMemCreate"),
	FUNCTION(release, "hipMemRelease"),
	FUNCTION(reserve, "hipMemAddressReserve"),
	FUNCTION(unreserve, "hipMemAddressFree"),
	FUNCTION(map, "hipMemMap"),
	FUNCTION(unmap, "hipMemUnmap"),
	FUNCTION(set_access, "hipMemSetAccess"),
	FUNCTION(export_fd, "hipMemExportToShareableHandle"),
	{ NULL, 0, false },
};
static const struct gnv_dl_symbol copy_symbols[] = {
	FUNCTION(count, "hipGetDeviceCount"),
	FUNCTION(bus_id, "hipDeviceGetPCIBusId"),
	FUNCTION(error, "hipGetErrorString"),
	FUNCTION(current, "hipGetDevice"),
	FUNCTION(choose, "hipSetDevice"),
	FUNCTION(malloc, "hipMalloc"),
	FUNCTION(free, "hipFree"),
	FUNCTION(copy, "hipMemcpy"),
	{ NULL, 0, false },
};
static const char *const files[] = { "libamdhip64.so.7", "libamdhip64.so.6", "libamdhip64.so", "libamdhip64.so.5",
				     "/opt/rocm/lib/libamdhip64.so", NULL };
static const struct gnv_dl library = { "HIP (libamdhip64)", "GPUNVME_HIP_LIBRARY", files, symbols };
static const struct gnv_dl copy_library = { "HIP (libamdhip64)", "GPUNVME_HIP_LIBRARY", files, copy_symbols };

static int load(struct api *api, int *version)
{
	int ret = gnv_dl_load(&library, api);

	if (!ret && api->version(version) != GNV_HIP_SUCCESS)
		ret = gnv_fail(-EOPNOTSUPP, "HIP does not tell its version");
	return ret;
}

int gnv_hip_version(int *version)
{
	struct api api;

	return load(&api, version);
}

static int open_api(struct api *api)
{
	int version, ret = load(api, &version);

	if (ret)
		return ret;
	if (version < GNV_HIP_VERSION(6))
		return gnv_fail(-EOPNOTSUPP, "HIP %d is too old to export its memory; use ROCm 6 or newer",
				version / GNV_HIP_VERSION(1));
	return 0;
}

static int failed(const struct api *api, const char *what, int error)
{
	int ret = error == GNV_HIP_OUT_OF_MEMORY ? -ENOMEM : error == GNV_HIP_NOT_SUPPORTED ? -EOPNOTSUPP : -EIO;
	const char *text = api->error(error);

	return gnv_fail(ret, "HIP: %s: %s (%d)", what, text ? text : "unknown", error);
}

static int find_device(const struct api *api, const char *bdf, int *device)
{
	int count = 0, i, error = api->count(&count);
	char text[32];

	if (error == GNV_HIP_NO_DEVICE || error == GNV_HIP_INVALID_DEVICE || (!error && !count))
		return gnv_fail(-ENODEV, "HIP sees no AMD GPU; load amdgpu, and add your user to the group render");
	if (error)
		return failed(api, "GPUs cannot be counted", error);
	for (i = 0; i < count; i++) {
		if (api->bus_id(text, sizeof(text), i) == GNV_HIP_SUCCESS && !strcasecmp(text, bdf)) {
			*device = i;
			return 0;
		}
	}
	return gnv_fail(-ENODEV, "HIP does not see the GPU %s; HIP_VISIBLE_DEVICES or ROCR_VISIBLE_DEVICES hides it", bdf);
}

int gnv_hip_device(const char *bdf, int *device)
{
	struct api api;
	int ret = open_api(&api);

	return ret ? ret : find_device(&api, bdf, device);
}

static int map(const struct api *api, int device, struct gnv_hip_bytes *bytes)
{
	const struct gnv_hip_access access = { { GNV_HIP_LOCATION_DEVICE, device }, GNV_HIP_READ_WRITE };
	int error = api->reserve(&bytes->va, bytes->len, 0, NULL, 0), fd = -1;

	if (error)
		return failed(api, "no addresses for memory of the GPU", error);
	error = api->map(bytes->va, bytes->len, 0, bytes->handle, 0);
	if (error) {
		api->unreserve(bytes->va, bytes->len);
		return failed(api, "memory of the GPU cannot be mapped", error);
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
	return failed(api, "memory of the GPU cannot be used or exported", error);
}

/* Return: HIP's error. */
static int create(const struct api *api, int device, int type, size_t len, struct gnv_hip_bytes *bytes)
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
	struct api api;
	int error, ret = open_api(&api);

	if (ret)
		return ret;
	*bytes = (struct gnv_hip_bytes){ .dmabuf = -1 };
	error = create(&api, device, GNV_HIP_UNCACHED, len, bytes);
	if (error == GNV_HIP_INVALID_VALUE || error == GNV_HIP_NOT_SUPPORTED) /* before HIP 7 */
		error = create(&api, device, GNV_HIP_PINNED, len, bytes);
	if (error)
		return failed(&api, "no memory of the GPU", error);
	ret = map(&api, device, bytes);
	if (ret)
		api.release(bytes->handle);
	return ret;
}

/* On the current GPU. From the host to the host HIP would not use it at all. */
static int copy_to_and_fro(const struct api *api, void *ptr, size_t len)
{
	void *vram = NULL;
	int error = api->malloc(&vram, len);

	if (error)
		return failed(api, "no memory of the GPU", error);
	error = api->copy(vram, ptr, len, GNV_HIP_COPY_DEFAULT);
	if (!error)
		error = api->copy(ptr, vram, len, GNV_HIP_COPY_DEFAULT);
	api->free(vram);
	return error ? failed(api, "memory cannot be copied", error) : 0;
}

int gnv_hip_copy(const char *bdf, void *ptr, size_t len)
{
	struct api api;
	int device, before, error, ret = gnv_dl_load(&copy_library, &api);

	if (!ret)
		ret = find_device(&api, bdf, &device);
	if (ret)
		return ret;
	error = api.current(&before);
	if (!error)
		error = api.choose(device);
	if (error)
		return failed(&api, "a GPU cannot be chosen", error);
	ret = copy_to_and_fro(&api, ptr, len);
	api.choose(before);
	return ret;
}

void gnv_hip_free(struct gnv_hip_bytes *bytes)
{
	struct api api;

	if (open_api(&api))
		return; /* it was loaded to make them */
	close(bytes->dmabuf);
	api.unmap(bytes->va, bytes->len);
	api.release(bytes->handle);
	api.unreserve(bytes->va, bytes->len);
}
