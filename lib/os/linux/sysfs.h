/* SPDX-License-Identifier: MIT */
/*
 * PCI devices as sysfs shows them. Every function takes the root of sysfs, "/sys" but in tests.
 */
#ifndef GNV_OS_LINUX_SYSFS_H
#define GNV_OS_LINUX_SYSFS_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define GNV_SYSFS "/sys"
#define GNV_BDF_BYTES 16       /* "DDDD:BB:DD.F" and its NUL. Domains may have more digits */
#define GNV_CLASS_NVME 0x010802u
#define GNV_CLASS_BRIDGE 0x06u /* base class */

struct gnv_pci {
	char bdf[GNV_BDF_BYTES];
	char driver[32];   /* "" when no driver is bound */
	char cdev[32];     /* "vfio0", of a device bound to a VFIO driver, else "" */
	uint32_t class_code;
	uint16_t vendor;
	uint16_t device;
	int group;         /* IOMMU group, -1 without an IOMMU */
	int numa;          /* -1 unknown */
	unsigned link_width;
	char link_speed[32]; /* "8.0 GT/s PCIe", "" unknown */
	unsigned max_width;  /* limit of the device */
	char max_speed[32];
};

struct gnv_range {
	uint64_t start;
	uint64_t last;
};

/* Does the error of a look at sysfs mean that there is no such thing, or no longer? Other errors leave open what there is. */
static inline bool gnv_sysfs_absent(int ret)
{
	return !ret || ret == -ENOENT || ret == -ENOTDIR || ret == -ENODEV || ret == -ENXIO;
}

/* BB:DD.F or DDDD:BB:DD.F, to the form sysfs uses. Return: 0, -EINVAL. */
int gnv_pci_parse(const char *text, char bdf[GNV_BDF_BYTES]);

/* Return: 0; -ENODEV no such device. */
int gnv_sysfs_pci(const char *sys, const char *bdf, struct gnv_pci *pci);

/*
 * gnv_sysfs_group_member() - the n-th other device of the IOMMU group that matters to VFIO, bridges left out
 * Return: 0; -ENOENT there are fewer; another errno: they cannot be listed.
 */
int gnv_sysfs_group_member(const char *sys, const struct gnv_pci *pci, unsigned n, struct gnv_pci *member);

/* True when VFIO tolerates the device in a group it owns: its driver is VFIO's or none. */
bool gnv_sysfs_tolerated(const struct gnv_pci *member);

/* The n-th device, by address, whose class is `class_code`. Return: 0; -ENOENT; another errno: they cannot be listed. */
int gnv_sysfs_nth(const char *sys, uint32_t class_code, unsigned n, struct gnv_pci *pci);

/*
 * gnv_sysfs_mmio() - where PCI devices and bridges have their memory windows
 * An IOVA equal to one of them could be routed to that device by a switch instead of to memory.
 * Return: how many there are, of which at most `room` are stored; a negative errno: they cannot be listed.
 */
int gnv_sysfs_mmio(const char *sys, struct gnv_range *range, unsigned room);

/*
 * The first entry, by name, of a folder that begins with `prefix` and that is it.
 * Return: 0; -ENOENT; another errno: the folder cannot be read, so it is not known what is in it.
 */
int gnv_sysfs_find(const char *path, const char *prefix, bool (*is)(void *ctx, const char *name), void *ctx, char *name,
		   size_t size);

/* The n-th one. Return: the same. */
int gnv_sysfs_entry(const char *path, const char *prefix, unsigned n, char *name, size_t size);

/* The folder of the controller that the nvme driver made of the device. Return: as gnv_sysfs_find(). */
int gnv_sysfs_nvme_folder(const char *sys, const struct gnv_pci *pci, char *path, size_t size);

/*
 * gnv_sysfs_disk() - find the n-th namespace in the folder of a controller
 * @entry: its name there, "nvme0n1" or, with multipath, "nvme0c1n1". @disk: of the disk, "nvme0n1". Both have @size bytes
 * Return: as gnv_sysfs_find().
 */
int gnv_sysfs_disk(const char *folder, unsigned n, char *entry, char *disk, size_t size);

/* The n-th block device of a controller bound to the nvme driver, as "nvme0n1". Return: 0, -ENOENT. */
int gnv_sysfs_namespace(const char *sys, const struct gnv_pci *pci, unsigned n, char *name, size_t size);

/* An attribute of the controller the nvme driver made of the device: "model", "serial". Return: 0, -ENOENT. */
int gnv_sysfs_nvme_text(const char *sys, const struct gnv_pci *pci, const char *attribute, char *text, size_t size);

/* The text of a file, without the white space at its end, or "" on failure. Return: 0 or a negative errno. */
int gnv_sysfs_read(const char *path, char *text, size_t size);

/* The same of a file that need not be there. Return: 1; 0 it is not there; a negative errno. */
static inline int gnv_sysfs_has(const char *path, char *text, size_t size)
{
	const int ret = gnv_sysfs_read(path, text, size);

	return gnv_sysfs_absent(ret) ? !ret : ret;
}

/* Does the kernel hand out devices without IOMMU? Return: 1 or 0; -ENOENT it has no such switch. */
int gnv_sysfs_unsafe_noiommu(const char *sys);

/* Write one line to a file below sysfs. Return: 0 or a negative errno. */
int gnv_sysfs_write(const char *sys, const char *path, const char *text);

/* May this process write to a file below sysfs? Return: 0 or a negative errno. */
int gnv_sysfs_may_write(const char *sys, const char *path);

/* The configuration space of a device, as much of it as this process may read. Return: bytes read, 0 on failure. */
size_t gnv_sysfs_config(const char *sys, const char *bdf, void *config, size_t size);

/* The path of the device below /sys/devices, with every bridge above it. `path` has PATH_MAX bytes. Return: 0, -errno. */
int gnv_sysfs_place(const char *sys, const char *bdf, char *path);

/* Size in bytes of a block device. */
uint64_t gnv_sysfs_block_size(const char *sys, const char *name);

#endif
