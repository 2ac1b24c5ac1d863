/* SPDX-License-Identifier: MIT */
/*
 * The machine: its NVMe controllers, and how far they are from a GPU. Take a controller from the kernel's driver for
 * gpunvme_dev_open(), and return it. Find out why a controller or a GPU can or cannot be used.
 *
 *   gpunvme_pci_list, _get_path, _bind, _unbind         controllers on the PCI bus
 *   gpunvme_doctor, _doctor_gpu, _doctor_drive          conditions of opening, the state of an open drive
 */
#ifndef GPUNVME_ADMIN_H
#define GPUNVME_ADMIN_H

#include <gpunvme/status.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpunvme_dev;

struct gpunvme_pci_info {
	char address[16];     /* DDDD:BB:DD.F */
	char driver[32];      /* "nvme", "vfio-pci", "" none */
	char model[41];       /* as the nvme driver says; "" with another one */
	char serial[21];
	char link_speed[26];  /* "8.0 GT/s PCIe"; "" unknown */
	uint32_t link_width;  /* lanes; 0 unknown */
	int32_t group;        /* IOMMU group; -1: no IOMMU */
	int32_t numa;         /* -1 unknown */
	uint16_t vendor;
	uint16_t device;
	uint32_t namespaces;  /* that the nvme driver made block devices of */
	uint32_t unseen;      /* processes that could not be looked at, and may have one open; as root 0 */
	uint64_t bytes;       /* of all of them */
	char group_other[16]; /* another device of the group that keeps VFIO away; "" none */
	char in_use[128];     /* users of a namespace: mounts, holders, processes that have it open; "" none was seen */
	uint32_t payload;      /* bytes of one packet on the link (Max_Payload_Size); 0, as all that follows: only root may know; none */
	uint32_t payload_most; /* that the drive and the port above it can do */
	uint32_t read_request; /* bytes that one read of the drive asks for at most (Max_Read_Request_Size) */
	int32_t aspm;          /* power states the link goes to by itself: 1 L0s, 2 L1, 3 both, 0 none; -1 unknown */
	char link_speed_most[28]; /* that the drive can do, as link_speed */
	uint32_t link_width_most; /* and how many lanes */
};

/* As gpunvme_pci_list(), for a caller whose elements have `stride` bytes each. Use the wrapper below. */
GPUNVME_API int gpunvme_pci_list_v(struct gpunvme_pci_info *list, uint32_t *count, size_t stride);

/**
 * gpunvme_pci_list() - the NVMe controllers of this machine, in the order of addresses
 * @list:  room for *count elements
 * @count: in: room; out: how many there are, which may be more than there was room for
 *
 * Any thread may call it. Return: 0; -EINVAL.
 */
static inline int gpunvme_pci_list(struct gpunvme_pci_info *list, uint32_t *count)
{
	return gpunvme_pci_list_v(list, count, sizeof(*list));
}

enum gpunvme_distance {
	GPUNVME_SAME_SWITCH = 1,   /* below one PCIe switch */
	GPUNVME_SAME_ROOT = 2,     /* below one root complex */
	GPUNVME_SAME_SOCKET = 3,   /* of one processor, as far as the firmware tells */
	GPUNVME_ACROSS_SOCKETS = 4
};

struct gpunvme_pci_path {
	size_t size;                    /* set by the caller to sizeof(struct gpunvme_pci_path) */
	uint32_t distance;              /* enum gpunvme_distance */
	int32_t redirect;               /* a bridge between them sends what peers exchange up to the root (ACS): 1, 0, -1 unknown */
};

/**
 * gpunvme_pci_get_path() - what lies between two PCI devices, for example a GPU and a controller
 * @a:    DDDD:BB:DD.F, or a URI of that (pci:...)
 * @b:    the other
 * @path: filled; path->size must be set
 *
 * Whether bridges redirect is read from their configuration, by root only. Any thread may call it.
 * Return: 0; -EINVAL bad address, or path->size is too small; -ENODEV no such device.
 */
GPUNVME_API int gpunvme_pci_get_path(const char *a, const char *b, struct gpunvme_pci_path *path);

/**
 * gpunvme_pci_bind() - give a controller to vfio-pci
 * @address: DDDD:BB:DD.F, or a URI of that (pci:...), whose keys are not looked at
 * @user:    hand the device's nodes to this user: root, or a member of the group gpunvme, which may use /dev/iommu;
 *           NULL for no user
 *
 * Refuses a controller if one of its namespaces is mounted or held, or if a process has it open: by its disk, a partition, ngXnY or
 * nvmeX, or through another controller of the same drive. Refuses a controller whose IOMMU group has devices with other drivers.
 * Processes of other PID namespaces are not seen unless they mount it or open it exclusively. A disk whose holder is not seen, as
 * after a process was killed, is waited for, ten seconds at most. On failure the former driver has it again. Needs root.
 * Return: 0, also when vfio-pci has it already; -EINVAL bad address; -ENODEV no such controller, or vfio-pci is not loaded; -EBUSY
 * in use; -EPERM the IOMMU group, or the user is not in the group gpunvme; -EOPNOTSUPP no IOMMU; -ENOENT no such user or group, or
 * a disk is not in /dev; -EACCES not root, or not allowed to look at all processes.
 */
GPUNVME_API int gpunvme_pci_bind(const char *address, const char *user);

/**
 * gpunvme_pci_unbind() - let the kernel choose the driver of a controller again
 * @address: DDDD:BB:DD.F, or a URI of that (pci:...), whose keys are not looked at
 *
 * Waits for a process that has it open. libgpunvme lets go by itself. Needs root.
 * Return: 0; -EINVAL bad address, or vfio-pci does not have it; -ENODEV; -EACCES not root.
 */
GPUNVME_API int gpunvme_pci_unbind(const char *address);

/* The predicates are those that gpunvme_dev_open(), gpunvme_gpu_open() and gpunvme_queue_create() themselves ask. */
enum gpunvme_verdict {
	GPUNVME_VERDICT_OK = 0,
	GPUNVME_VERDICT_LIMIT = 1,  /* works, but not for everything */
	GPUNVME_VERDICT_FAILED = 2,
	GPUNVME_VERDICT_SKIPPED = 3 /* could not be asked, because of an earlier one */
};

struct gpunvme_check {
	char name[16];
	uint32_t verdict; /* enum gpunvme_verdict */
	char reason[256];
	char remedy[256]; /* "" where there is none or none is needed */
};

/* More than there are checks. */
#define GPUNVME_MAX_CHECKS 32

/* As gpunvme_doctor(), for a caller whose checks have `stride` bytes each. Use the wrapper below. */
GPUNVME_API int gpunvme_doctor_v(const char *address, struct gpunvme_check *checks, uint32_t *count, size_t stride);

/* As gpunvme_doctor_gpu(), for a caller whose checks have `stride` bytes each. Use the wrapper below. */
GPUNVME_API int gpunvme_doctor_gpu_v(unsigned n, const char *controller, struct gpunvme_check *checks, uint32_t *count,
				     size_t stride);

/* As gpunvme_doctor_drive(), for a caller whose checks have `stride` bytes each. Use the wrapper below. */
GPUNVME_API int gpunvme_doctor_drive_v(struct gpunvme_dev *dev, struct gpunvme_check *checks, uint32_t *count, size_t stride);

/**
 * gpunvme_doctor() - ask every predicate of opening a controller
 * @address: DDDD:BB:DD.F, a URI of that (pci:...), or another URI, of which all that is asked is whether it can be opened
 * @checks:  room for *count of them
 * @count:   in: room; out: how many there are, which may be more than there was room for
 *
 * When nothing stands against it the device is opened, which resets it, to try the export of its doorbells and their mapping. Its
 * media is not touched. Any thread may call it.
 * Return: 0 it can be opened; -EINVAL bad address; -ENODEV no such device; otherwise as gpunvme_dev_open() would.
 */
static inline int gpunvme_doctor(const char *address, struct gpunvme_check *checks, uint32_t *count)
{
	return gpunvme_doctor_v(address, checks, count, sizeof(*checks));
}

/**
 * gpunvme_doctor_gpu() - ask every predicate of running lanes on a GPU
 * @n:          number in the list of gpunvme_gpu_list()
 * @controller: URI or PCI address of a controller to try it with, or NULL
 * @checks:     room for *count of them
 * @count:      in: room; out: how many there are, which may be more than there was room for
 *
 * The GPU's runtime is loaded, a kernel runs, and with a controller that can be opened a queue is made and goes again: the rung of
 * the ladder that it reached is one of the predicates. That resets the controller and reads one block of it. Any thread may call.
 * Return: 0 the GPU can be opened; -ENOENT there are not so many; -EINVAL; otherwise as gpunvme_gpu_open() would.
 */
static inline int gpunvme_doctor_gpu(unsigned n, const char *controller, struct gpunvme_check *checks, uint32_t *count)
{
	return gpunvme_doctor_gpu_v(n, controller, checks, count, sizeof(*checks));
}

/**
 * gpunvme_doctor_drive() - what state an open drive is in, where that stands in the way of using it
 * @dev:    an open device
 * @checks: room for *count of them
 * @count:  in: room; out: how many there are, which may be more than there was room for
 *
 * Checks its namespace and format, and whether blocks could be read when it was opened (it may be locked, erasing itself, or
 * reserved by another host). Also checks its PRP lists, known faults of its model, its warnings, firmware that waits for a reset,
 * and its write cache. Reads no media. Any thread may call.
 * Return: 0; -EINVAL; -ENODEV, -ESHUTDOWN the controller is gone or dead.
 */
static inline int gpunvme_doctor_drive(struct gpunvme_dev *dev, struct gpunvme_check *checks, uint32_t *count)
{
	return gpunvme_doctor_drive_v(dev, checks, count, sizeof(*checks));
}

#ifdef __cplusplus
}
#endif
#endif
