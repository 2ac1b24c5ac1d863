/* SPDX-License-Identifier: MIT */
/* Identify: the data of a controller and its namespaces, checked and cleaned. */
#ifndef GNV_NVME_IDENTIFY_H
#define GNV_NVME_IDENTIFY_H

#include "nvme/nvme.h"

/* Run Identify. @data: 4096 bytes. Return: as gnv_admin_run(). */
int gnv_identify(struct gnv_nvme *nvme, enum gpunvme_cns cns, uint32_t nsid, void *data);

/* Fill nvme->info from Identify Controller, and the shutdown deadline. Return: 0; -EOPNOTSUPP; errors of gnv_admin_run(). */
int gnv_identify_ctrl(struct gnv_nvme *nvme);

/* Whether the drive may be asked that: some err with most of Identify (port/quirks.h). */
bool gnv_identify_knows(const struct gnv_nvme *nvme, enum gpunvme_cns cns);

/* Identify Namespace, unchecked. Return: as gnv_admin_run(). */
int gnv_identify_ns(struct gnv_nvme *nvme, uint32_t nsid, struct gpunvme_id_ns *id);

/* Its UUID, from the list of descriptors. Not written if it has none. Return: as gnv_admin_run(). */
int gnv_identify_uuid(struct gnv_nvme *nvme, uint32_t nsid, uint8_t uuid[16]);

/* Return: 0 the namespace has the command set of this library, or the controller does not say; -EOPNOTSUPP another one. */
int gnv_identify_check_set(struct gnv_nvme *nvme, uint32_t nsid);

/* As gpunvme_ns_get_info() and gpunvme_ns_list(), with pointers that are not NULL. */
int gnv_identify_namespace(struct gnv_nvme *nvme, uint32_t nsid, struct gpunvme_ns_info *info);
int gnv_identify_list(struct gnv_nvme *nvme, uint32_t *nsids, uint32_t *count);

/*
 * gnv_identify_default() - choose the namespace for programs that name none
 * It is namespace 1. Where that has another command set (zoned, key-value), it is the first active one that has this library's.
 * Does nothing if nvme->info.default_ns is not 0. Return: 0; a negative errno of gnv_admin_run().
 */
int gnv_identify_default(struct gnv_nvme *nvme);

/* Fill in the medium of namespace ns->nsid. */
void gnv_identify_medium(const struct gnv_nvme *nvme, struct gpunvme_ns_info *ns);

/* As gpunvme_ns_may_overwrite(). */
int gnv_identify_may_overwrite(struct gnv_nvme *nvme, uint32_t nsid);

/* Copy a padded, perhaps hostile string of `len` bytes. `to` has len + 1. */
void gnv_identify_string(const char *from, size_t len, char *to);

#endif
