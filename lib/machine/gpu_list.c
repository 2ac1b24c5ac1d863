/* SPDX-License-Identifier: MIT */
/*
 * Which GPUs there are. Invariant: no runtime is loaded and no GPU is opened, so listing has no effect, and a GPU that is asleep
 * sleeps on.
 */
#include "machine/gpu_list.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/kernels/code_object.h"
#include "gpu/kernels/ptx.h"
#include "os/amd/nodes.h"
#include "util/bits.h"
#include "util/opts.h"

#define VENDOR_AMD 0x1002
#define VENDOR_NVIDIA 0x10de

/* Is a variable set by which a runtime numbers its GPUs in another order than on the bus? */
static bool set(const char *variable)
{
	const char *value = getenv(variable);

	return value && *value;
}

static void describe_pci(const char *sys, struct gpunvme_gpu_entry *gpu)
{
	char card[GNV_BDF_BYTES];
	struct gnv_pci pci;

	gpu->numa = -1;
	gnv_kfd_card(sys, gpu->address, card);
	if (gnv_sysfs_pci(sys, card, &pci))
		return;
	memcpy(gpu->driver, pci.driver, sizeof(gpu->driver));
	gpu->vendor = pci.vendor;
	gpu->device = pci.device;
	gpu->numa = pci.numa;
}

/* The n-th that KFD lists. */
static int listed_amd(const char *sys, unsigned n, struct gpunvme_gpu_entry *gpu)
{
	struct gnv_code_object code;
	struct gnv_gpu_node node;

	if (gnv_kfd_gpu(sys, n, &node))
		return -ENOENT;
	gpu->kind = GPUNVME_GPU_HSA;
	gpu->node = node.node;
	memcpy(gpu->address, node.bdf, sizeof(gpu->address));
	describe_pci(sys, gpu);
	memcpy(gpu->gfx, node.gfx, sizeof(gpu->gfx));
	gpu->vram = node.vram;
	gpu->visible = node.visible;
	gpu->xgmi = node.xgmi;
	gpu->asleep = node.asleep;
	gpu->has_code = !gnv_code_object_find(node.gfx, &code);
	if (set("ROCR_VISIBLE_DEVICES"))
		snprintf(gpu->spec, sizeof(gpu->spec), "hsa:%s", gpu->address);
	else
		snprintf(gpu->spec, sizeof(gpu->spec), "hsa:%u", n);
	return 0;
}

static bool is_listed(const char *sys, const char *bdf)
{
	struct gnv_gpu_node node;
	unsigned n;

	for (n = 0; !gnv_kfd_gpu(sys, n, &node); n++)
		if (!strcmp(node.bdf, bdf))
			return true;
	return false;
}

/* The n-th PCI device that is a GPU of this vendor and that KFD does not list. */
static int pci_gpu(const char *sys, uint16_t vendor, unsigned n, struct gpunvme_gpu_entry *gpu)
{
	static const uint32_t classes[] = { 0x030000, 0x030200, 0x038000, 0x120000 }; /* VGA, 3D, other display, accelerator */
	struct gnv_pci pci;
	unsigned i, at;

	for (i = 0; i < GNV_ARRAY_LEN(classes); i++) {
		for (at = 0; !gnv_sysfs_nth(sys, classes[i], at, &pci); at++) {
			if (pci.vendor != vendor || is_listed(sys, pci.bdf) || n--)
				continue;
			memcpy(gpu->address, pci.bdf, sizeof(gpu->address));
			describe_pci(sys, gpu);
			return 0;
		}
	}
	return -ENOENT;
}

static int other_amd(const char *sys, unsigned n, struct gpunvme_gpu_entry *gpu)
{
	gpu->kind = GPUNVME_GPU_HSA;
	return pci_gpu(sys, VENDOR_AMD, n, gpu);
}

/* CUDA may number GPUs as it likes, unless a variable sets the order or there is only one. */
static int nvidia(const char *sys, unsigned n, struct gpunvme_gpu_entry *gpu)
{
	const char *order = getenv("CUDA_DEVICE_ORDER");
	struct gpunvme_gpu_entry second;

	gpu->kind = GPUNVME_GPU_CUDA;
	gpu->has_code = gnv_ptx() != NULL;
	if (pci_gpu(sys, VENDOR_NVIDIA, n, gpu))
		return -ENOENT;
	if (strcmp(gpu->driver, "nvidia") || set("CUDA_VISIBLE_DEVICES"))
		return 0;
	if ((order && !strcmp(order, "PCI_BUS_ID")) || pci_gpu(sys, VENDOR_NVIDIA, 1, &second))
		snprintf(gpu->spec, sizeof(gpu->spec), "cuda:%u", n);
	return 0;
}

int gnv_gpus_nth(const char *sys, unsigned n, struct gpunvme_gpu_entry *gpu)
{
	static int (*const find[])(const char *, unsigned, struct gpunvme_gpu_entry *) = { listed_amd, other_amd, nvidia };
	unsigned i, at;

	for (i = 0; i < GNV_ARRAY_LEN(find); i++) {
		for (at = 0;; at++) {
			*gpu = (struct gpunvme_gpu_entry){ 0 };
			if (find[i](sys, at, gpu))
				break;
			if (!n--)
				return 0;
		}
	}
	return -ENOENT;
}

GPUNVME_API int gpunvme_gpu_list_v(struct gpunvme_gpu_entry *to, uint32_t *count, size_t stride)
{
	struct gpunvme_gpu_entry gpu;
	struct gnv_list list;
	int ret = gnv_list_begin(&list, to, count, stride, "gpunvme_gpu_entry");

	if (ret)
		return ret;
	while (!gnv_gpus_nth(GNV_SYSFS, list.count, &gpu))
		gnv_list_add(&list, &gpu, sizeof(gpu));
	*count = list.count;
	return 0;
}
