/* SPDX-License-Identifier: MIT */
/* Complete lists of the library: controllers and GPUs of this machine, and the words of fault=. The caller frees a list. */
#ifndef GPUNVME_LISTS_H
#define GPUNVME_LISTS_H

#include <stdbool.h>

#include <gpunvme/gpunvme.h>
#include <gpunvme/unstable.h>

/* Return: how many there are; 0 also without memory. */
uint32_t list_controllers(struct gpunvme_pci_info **list);
uint32_t list_gpus(struct gpunvme_gpu_entry **list);
uint32_t list_faults(struct gpunvme_fault **list);

/* The controller at an address. */
bool find_controller(const char *address, struct gpunvme_pci_info *info);

#endif
