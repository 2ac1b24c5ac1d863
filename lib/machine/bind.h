/* SPDX-License-Identifier: MIT */
/*
 * Take a PCI device from its driver and give it back. Needs root. Functions take the roots of sysfs and procfs, "/sys" and "/proc"
 * except in tests.
 */
#ifndef GNV_MACHINE_BIND_H
#define GNV_MACHINE_BIND_H

#include "os/linux/sysfs.h"

/*
 * gnv_bind_vfio() - give a controller to vfio-pci, unless its namespaces are in use
 * Its namespaces are held exclusively from the check until the nvme driver has let go. On failure the former driver has it again.
 * Return: 0, also when it has it already; -EBUSY, -EACCES, -ENODEV, another negative errno. gnv_fail() has the message.
 */
int gnv_bind_vfio(const char *sys, const struct gnv_pci *pci);

/*
 * Let a user open the device: its nodes become theirs, those every VFIO user shares become usable.
 * Return: 0, -ENOENT, -errno.
 */
int gnv_bind_hand_over(const struct gnv_pci *pci, const char *user);

/*
 * gnv_bind_default() - take it from vfio-pci and let the kernel choose its driver again, unless a process has it open
 * Waits for a process that opens it after the check, until that lets go. Strict: it fails if a process cannot be checked.
 * Return: as gnv_bind_vfio(); -EINVAL vfio-pci does not have it.
 */
int gnv_bind_default(const char *sys, const char *proc, const struct gnv_pci *pci);

#endif
