/* SPDX-License-Identifier: MIT */
/*
 * The medium of a namespace, and whether a program may overwrite it without a question to its user. Invariant: only media known to
 * be made for the library are written without the question. A new kind of medium needs the question.
 */
#include <errno.h>
#include <stdio.h>

#include "nvme/identify.h"
#include "util/bits.h"

void gnv_identify_medium(const struct gnv_nvme *nvme, struct gpunvme_ns_info *ns)
{
	const struct gnv_medium *medium = &nvme->port->medium[gnv_min(ns->nsid, GNV_PORT_MEDIA) - 1];

	ns->medium = medium->kind;
	ns->medium_dev = medium->dev;
	ns->medium_ino = medium->ino;
}

/* Binary units, whole: a decimal point is another one elsewhere. */
static void put_size(uint64_t bytes, char *text, size_t room)
{
	static const char *const unit[] = { "bytes", "KiB", "MiB", "GiB", "TiB", "PiB" };
	unsigned i = 0;

	for (; bytes >= 10240 && i + 1 < GNV_ARRAY_LEN(unit); i++)
		bytes /= 1024;
	snprintf(text, room, "%llu %s", (unsigned long long)bytes, unit[i]);
}

static int refuse(const struct gnv_nvme *nvme, const struct gpunvme_ns_info *ns)
{
	char size[32];

	put_size(ns->nblocks * ns->lba_size, size, sizeof(size));
	return gnv_fail(-EPERM, "this would overwrite data on %s, serial %s, namespace %u of %s%s", nvme->info.model, nvme->info.serial,
			ns->nsid, size, gnv_medium_text(ns->medium));
}

int gnv_identify_may_overwrite(struct gnv_nvme *nvme, uint32_t nsid)
{
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	int ret = gnv_identify_namespace(nvme, nsid, &ns);

	if (ret)
		return ret;
	if (ns.read_only)
		return gnv_fail(-EROFS,
				"namespace %u of %s is read-only: make its image writable, leave ro=1 out of the URI, or end its write protection",
				ns.nsid, nvme->info.address);
	return gnv_medium_is_scratch(ns.medium) ? 0 : refuse(nvme, &ns);
}
