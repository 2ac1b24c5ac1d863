/* SPDX-License-Identifier: MIT */
/*
 * The machine: its NVMe controllers, and their distance to a GPU. Take a controller from the kernel's driver for
 * gpunvme_dev_open(), and return it. Find out why a controller or a GPU can or cannot be used.
 *
 *   gpunvme_pci_list, _get_path, _bind, _unbind      controllers on the PCI bus
 *   gpunvme_doctor, _doctor_gpu, _doctor_drive       conditions of opening, the state of an open drive
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
	char driver[32];      /* "nvme", "vfio-pci". "": none */
	char model[41];       /* as the nvme driver reports. "" with another driver */
	char serial[21];
	char link_speed[26];  /* "8.0 GT/s PCIe". "": not known */
	uint32_t link_width;  /* PCIe lanes. 0: not known */
	int32_t group;        /* IOMMU group. -1: no IOMMU */
	int32_t numa;         /* -1: not known */
	uint16_t vendor;
	uint16_t device;
	uint32_t namespaces;  /* block devices that the nvme driver made */
	uint32_t unseen;      /* processes that could not be checked, and may have one open. As root 0 */
	uint64_t bytes;       /* of all its namespaces */
	char group_other[16]; /* another device of the group that prevents VFIO. "": none */
	char in_use[128];     /* a user of a namespace (mount, holder, process), or why users are unknown. "": none was seen */
	uint32_t payload;      /* bytes of one packet on the link (Max_Payload_Size). Without root 0, as are the next two */
	uint32_t payload_most; /* the most that the drive and the port above it support */
	uint32_t read_request; /* most bytes of one read request of the drive (Max_Read_Request_Size) */
	int32_t aspm;          /* power states that the link enters by itself: 1 L0s, 2 L1, 3 both, 0 none. -1: not known, or not root */
	char link_speed_most[28]; /* the most that the drive supports, as link_speed */
	uint32_t link_width_most; /* the most PCIe lanes that the drive supports */
};

/* As gpunvme_pci_list(), for a caller whose elements have `stride` bytes each. Use the wrapper below. */
GPUNVME_API int gpunvme_pci_list_v(struct gpunvme_pci_info *list, uint32_t *count, size_t stride);

/**
 * gpunvme_pci_list() - list the NVMe controllers of this machine by address
 * @list:  room for *count elements
 * @count: in: room. Out: number of controllers, which may exceed the room
 *
 * Any thread may call it.
 * Return: 0; -EINVAL.
 */
static inline int gpunvme_pci_list(struct gpunvme_pci_info *list, uint32_t *count)
{
	return gpunvme_pci_list_v(list, count, sizeof(*list));
}

enum gpunvme_distance {
	GPUNVME_SAME_SWITCH = 1,   /* below one PCIe switch */
	GPUNVME_SAME_ROOT = 2,     /* below one root complex */
	GPUNVME_SAME_SOCKET = 3,   /* of one processor, as the firmware reports */
	GPUNVME_ACROSS_SOCKETS = 4
};

struct gpunvme_pci_path {
	size_t size;                    /* set by the caller to sizeof(struct gpunvme_pci_path) */
	uint32_t distance;              /* enum gpunvme_distance */
	int32_t redirect;               /* 1: a bridge between them redirects their traffic to the root (ACS). 0: no. -1: not known */
};

/**
 * gpunvme_pci_get_path() - get the distance of two PCI devices, for example a GPU and a controller
 * @a:    DDDD:BB:DD.F, or a URI with it (pci:...)
 * @b:    the other device
 * @path: filled. Set path->size before
 *
 * Only root can read from the configuration of bridges whether they redirect (PCI Express, Access Control Services). Any thread
 * may call it.
 * Return: 0; -EINVAL: a bad address, or path->size is too small; -ENODEV: no such device.
 */
GPUNVME_API int gpunvme_pci_get_path(const char *a, const char *b, struct gpunvme_pci_path *path);

/**
 * gpunvme_pci_bind() - bind a controller to vfio-pci
 * @address: DDDD:BB:DD.F, or a URI with it (pci:...), whose keys are ignored
 * @user:    give the device's nodes to this user: root, or a member of the group gpunvme, which may use /dev/iommu. NULL: no user
 *
 * Refuses a controller with a namespace that is mounted or held, or that a process has open: by its disk, a partition, ngXnY,
 * nvmeX, or another controller of the same drive. Refuses a controller whose IOMMU group has devices with other drivers. Processes
 * of other PID namespaces are not seen unless they mount it or open it exclusively. A disk may have a holder that is not seen, as
 * after a process was killed. The call waits up to ten seconds for that. On failure the former driver has the controller again.
 * Needs root. Any thread may call it.
 * Return:
 * - 0: also if vfio-pci has it already.
 * - -EINVAL: a bad address.
 * - -ENODEV: no such controller, or vfio-pci is not loaded.
 * - -EBUSY: it is in use.
 * - -EPERM: the IOMMU group prevents it, or the user is not in the group gpunvme.
 * - -EOPNOTSUPP: no IOMMU.
 * - -ENOENT: no such user or group, or a disk is not in /dev.
 * - -EACCES: not root, or not permitted to check all processes.
 * - -EAGAIN: the nvme driver has not made its nodes yet.
 */
GPUNVME_API int gpunvme_pci_bind(const char *address, const char *user);

/**
 * gpunvme_pci_unbind() - return a controller to the kernel, which chooses its driver
 * @address: DDDD:BB:DD.F, or a URI with it (pci:...), whose keys are ignored
 *
 * Refuses a controller that a process has open through VFIO, this process included: by its node, or by the node of its IOMMU group,
 * even if that process uses another device of the group. Processes of other PID namespaces, and processes that have closed the node
 * of the group, are not seen. For those, and for a process that opens it meanwhile, the call waits until they let go. libgpunvme
 * does that by itself, and its commands fail. Needs root. Any thread may call it.
 * Return:
 * - 0.
 * - -EINVAL: a bad address, or vfio-pci does not have it.
 * - -ENODEV: no such controller.
 * - -EBUSY: a process has it open.
 * - -EACCES: not root, or not permitted to check all processes.
 */
GPUNVME_API int gpunvme_pci_unbind(const char *address);

/* Result of a check. The checks are those that gpunvme_dev_open(), gpunvme_gpu_open() and gpunvme_queue_create() make. */
enum gpunvme_check_result {
	GPUNVME_CHECK_OK = 0,
	GPUNVME_CHECK_LIMIT = 1,  /* works with restrictions */
	GPUNVME_CHECK_FAILED = 2,
	GPUNVME_CHECK_SKIPPED = 3 /* not run, because an earlier check failed */
};

struct gpunvme_check {
	char name[16];
	uint32_t result; /* enum gpunvme_check_result */
	char reason[256];
	char remedy[256]; /* "" if there is none or none is needed */
};

/* Room for all checks of a call. */
#define GPUNVME_MAX_CHECKS 32

/* As gpunvme_doctor(), for a caller whose checks have `stride` bytes each. Use the wrapper below. */
GPUNVME_API int gpunvme_doctor_v(const char *address, struct gpunvme_check *checks, uint32_t *count, size_t stride);

/* As gpunvme_doctor_gpu(), for a caller whose checks have `stride` bytes each. Use the wrapper below. */
GPUNVME_API int gpunvme_doctor_gpu_v(unsigned n, const char *controller, struct gpunvme_check *checks, uint32_t *count,
				     size_t stride);

/* As gpunvme_doctor_drive(), for a caller whose checks have `stride` bytes each. Use the wrapper below. */
GPUNVME_API int gpunvme_doctor_drive_v(struct gpunvme_dev *dev, struct gpunvme_check *checks, uint32_t *count, size_t stride);

/**
 * gpunvme_doctor() - check whether a controller can be opened
 * @address: DDDD:BB:DD.F or a URI with it (pci:...). Or another URI, with the check whether it can be opened and few others
 * @checks:  room for *count checks
 * @count:   in: room. Out: number of checks, which may exceed the room
 *
 * If no check fails, it opens the device, which resets it, and tests the export of its doorbells and their mapping. It does not
 * access the media. Any thread may call it.
 * Return: 0: it can be opened; -EINVAL: a bad address; -ENODEV: no such device; otherwise as gpunvme_dev_open() would return.
 */
static inline int gpunvme_doctor(const char *address, struct gpunvme_check *checks, uint32_t *count)
{
	return gpunvme_doctor_v(address, checks, count, sizeof(*checks));
}

/**
 * gpunvme_doctor_gpu() - check whether threads of a GPU can use controllers
 * @n:          number in the list of gpunvme_gpu_list()
 * @controller: URI or PCI address of a controller to test it with, or NULL
 * @checks:     room for *count checks
 * @count:      in: room. Out: number of checks, which may exceed the room
 *
 * Loads the GPU's runtime and runs a kernel. With a controller that can be opened it creates and destroys a queue, and one check
 * has its placement. That resets the controller and reads one block of it. Any thread may call it.
 * Return: 0: the GPU can be opened; -ENOENT: there is no GPU @n; -EINVAL; otherwise as gpunvme_gpu_open() would return.
 */
static inline int gpunvme_doctor_gpu(unsigned n, const char *controller, struct gpunvme_check *checks, uint32_t *count)
{
	return gpunvme_doctor_gpu_v(n, controller, checks, count, sizeof(*checks));
}

/**
 * gpunvme_doctor_drive() - check an open drive for states that prevent its use
 * @dev:    an open device
 * @checks: room for *count checks
 * @count:  in: room. Out: number of checks, which may exceed the room
 *
 * Checks its namespace and format, and whether blocks could be read when it was opened. A drive may be locked, erasing itself, or
 * reserved by another host. Also checks its PRP lists, known defects of its model, its warnings, firmware that waits for a reset,
 * and its write cache. Reads no media. Any thread may call it.
 * Return: 0; -EINVAL; -ENODEV, -ESHUTDOWN: the controller is gone or dead.
 */
static inline int gpunvme_doctor_drive(struct gpunvme_dev *dev, struct gpunvme_check *checks, uint32_t *count)
{
	return gpunvme_doctor_drive_v(dev, checks, count, sizeof(*checks));
}

#ifdef __cplusplus
}
#endif
#endif
