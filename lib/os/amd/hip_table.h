/* SPDX-License-Identifier: MIT */
/* HIP's functions, and common steps of their users. For hip.c and hip_module.c only. */
#ifndef GNV_OS_AMD_HIP_TABLE_H
#define GNV_OS_AMD_HIP_TABLE_H

#include <stddef.h>

#include "os/amd/uapi/hip.h"
#include "os/linux/dl.h"

/* A user gets the functions that it names to gnv_hip_load(). The others are not set. */
struct gnv_hip_api {
	gnv_hip_count_fn *count;
	gnv_hip_version_fn *version;
	gnv_hip_bus_id_fn *bus_id;
	gnv_hip_error_fn *error;
	gnv_hip_last_error_fn *last_error;
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
	gnv_hip_module_load_fn *module_load;
	gnv_hip_module_unload_fn *module_unload;
	gnv_hip_module_function_fn *module_function;
	gnv_hip_launch_fn *launch;
	gnv_hip_stream_device_fn *stream_device;
	gnv_hip_capture_mode_fn *capture_mode;
};

#define GNV_HIP_FUNCTION(field, name)                                                                                              \
	{                                                                                                                          \
		name, offsetof(struct gnv_hip_api, field), false                                                                   \
	}

/* Return: 0; -ENODEV there is no HIP; -EOPNOTSUPP it lacks one of the functions. gnv_fail() has the message. */
int gnv_hip_load(const struct gnv_dl_symbol *symbols, struct gnv_hip_api *api);

/* The same, of HIP 6 or newer. `symbols` has the version. */
int gnv_hip_load_6(const struct gnv_dl_symbol *symbols, struct gnv_hip_api *api);

/*
 * The sentence for an error of HIP's. HIP keeps each error until hipGetLastError(), by which a program looks for failures of its
 * own launches, so this takes it. Return: -ENOMEM, -EOPNOTSUPP, or -EIO.
 */
int gnv_hip_failed(const struct gnv_hip_api *api, const char *what, int error);

/* HIP's number of the GPU at a PCI address. Needs count, bus_id and error. Return: as gnv_hip_device(). */
int gnv_hip_find(const struct gnv_hip_api *api, const char *bdf, int *device);

/* Choose a GPU for this thread. *before: the earlier one. Needs current, choose and error. Return: 0, -EIO. */
int gnv_hip_choose(const struct gnv_hip_api *api, int device, int *before);

/* This thread uses that GPU again. Needs choose and last_error. */
void gnv_hip_choose_back(const struct gnv_hip_api *api, int before);

#endif
