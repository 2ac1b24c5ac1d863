/* SPDX-License-Identifier: MIT */
/* Open devices that lend their BARs. mem/mem_bar.c uses them. */
#include <errno.h>
#include <string.h>

#include "mem/mem_bar.h"
#include "port/uri.h"
#include "port/refusals.h"
#include "port/vfio_device.h"
#include "util/entry.h"
#include "util/opts.h"

static int open_parsed(struct gnv_uri *uri, const struct gnv_log *log, struct gpunvme_bar **bar)
{
	const struct gnv_vfio_way *way;
	char bdf[GNV_BDF_BYTES];
	struct gnv_pci pci;
	const char *name;
	int ret = 0;

	gnv_uri_take(uri, "port", &name);
	if (strcmp(uri->scheme, "pci"))
		ret = gnv_fail(-EINVAL, "only PCI devices lend their BARs. Valid scheme: pci");
	if (!ret)
		ret = gnv_uri_check_taken(uri);
	if (!ret)
		ret = gnv_pci_parse(uri->address, bdf);
	if (!ret)
		ret = gnv_sysfs_pci(GNV_SYSFS, bdf, &pci);
	if (!ret)
		ret = gnv_vfio_check_any(GNV_SYSFS, &pci);
	if (!ret)
		ret = gnv_vfio_choose(name, &pci, &way);
	if (!ret)
		ret = gnv_bar_dev_open(way->take, &pci, log, bar);
	return ret;
}

GPUNVME_API int gpunvme_bar_open(const char *text, const struct gpunvme_bar_opts *user, struct gpunvme_bar **bar)
{
	struct gpunvme_bar_opts opts = GPUNVME_BAR_OPTS_INIT;
	struct gnv_log log;
	struct gnv_uri uri;
	int ret;

	if (!text || !bar)
		return gnv_null("uri and bar");
	ret = gnv_opts_copy(&opts, user, gpunvme_bar_opts);
	if (!ret)
		ret = gnv_uri_parse(text, &uri);
	if (ret)
		return ret;
	log = (struct gnv_log){ .fn = opts.log, .ctx = opts.log_ctx };
	ret = open_parsed(&uri, &log, bar);
	gnv_uri_fini(&uri);
	return ret;
}
