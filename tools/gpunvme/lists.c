/* SPDX-License-Identifier: MIT */
#include "lists.h"

#include <stdlib.h>
#include <string.h>

/* Entries that are added between the two calls are left out. */
#define LIST_ALL(name, type, list_some) \
	uint32_t name(struct type **list) \
	{ \
		uint32_t room = 0, count; \
 \
		*list = NULL; \
		if (list_some(NULL, &room)) \
			return 0; \
		*list = calloc(room + 1, sizeof(**list)); \
		count = *list ? room : 0; \
		if (list_some(*list, &count)) \
			return 0; \
		return *list ? count < room ? count : room : 0; \
	}

LIST_ALL(list_controllers, gpunvme_pci_info, gpunvme_pci_list)
LIST_ALL(list_gpus, gpunvme_gpu_entry, gpunvme_gpu_list)
LIST_ALL(list_faults, gpunvme_fault, gpunvme_fault_list)

bool find_controller(const char *address, struct gpunvme_pci_info *info)
{
	struct gpunvme_pci_info *list;
	uint32_t count = list_controllers(&list), i;
	bool found = false;

	for (i = 0; i < count && !found; i++) {
		found = !strcmp(list[i].address, address);
		*info = list[i];
	}
	free(list);
	return found;
}
