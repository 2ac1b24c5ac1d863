/* SPDX-License-Identifier: MIT */
#include "nvme/multipath.h"

#include <errno.h>
#include <string.h>

#include "nvme/identify.h"
#include "util/bits.h"
#include "util/clock.h"

#define ASKED 1024u /* namespaces */
#define VS_1_3 0x10300u

struct shelf {
	struct gnv_nvme *nvme;
	uint32_t nsid[ASKED];
	uint32_t count;
	bool filled;
	uint64_t end; /* of all questions together */
};

static int fill(struct shelf *shelf)
{
	uint32_t count = ASKED;
	int ret = shelf->filled ? 0 : gnv_identify_list(shelf->nvme, shelf->nsid, &count);

	if (ret > 0)
		ret = gnv_fail(-EIO, "whether its namespaces are in use through another controller is unknown: %.150s",
			       gpunvme_errmsg());
	if (!ret && !shelf->filled)
		shelf->count = (uint32_t)gnv_min(count, ASKED);
	shelf->filled = !ret;
	return ret;
}

/* An identifier that cannot be read counts as none. */
static int nth(void *ctx, uint32_t n, struct gnv_identity_ns *ns)
{
	struct shelf *shelf = ctx;
	struct gnv_nvme *nvme = shelf->nvme;
	struct gpunvme_id_ns id;
	int ret = fill(shelf);

	if (ret)
		return ret;
	if (n >= shelf->count)
		return -ENOENT;
	if (gnv_clock_ns() > shelf->end)
		return gnv_fail(-ETIMEDOUT, "the drive takes too long to identify its namespaces, which another controller may "
					    "offer, too");
	memset(ns, 0, sizeof(*ns));
	ns->nsid = shelf->nsid[n];
	if (nvme->drive.quirks & GNV_QUIRK_GARBAGE_IDS)
		return 0;
	ret = gnv_identify_ns(nvme, ns->nsid, &id);
	if (!ret) {
		memcpy(ns->nguid, id.nguid, sizeof(ns->nguid));
		memcpy(ns->eui64, id.eui64, sizeof(ns->eui64));
	}
	if (ret >= 0 && nvme->ctrl.vs >= VS_1_3 && gnv_identify_knows(nvme, GPUNVME_CNS_NS_DESC_LIST))
		ret = gnv_identify_uuid(nvme, ns->nsid, ns->uuid);
	return ret < 0 ? ret : 0;
}

int gnv_multipath_hold(struct gnv_nvme *nvme)
{
	struct shelf shelf = { .nvme = nvme, .end = gnv_clock_ns() + nvme->admin.timeout_ms * GNV_NS_PER_MS };
	struct gnv_identity drive = { .nth = nth, .ctx = &shelf };

	memcpy(drive.serial, nvme->info.serial, sizeof(drive.serial));
	memcpy(drive.model, nvme->info.model, sizeof(drive.model));
	if (!(nvme->drive.quirks & GNV_QUIRK_GARBAGE_NQN))
		memcpy(drive.nqn, nvme->nqn, sizeof(drive.nqn));
	return gnv_port_hold_paths(nvme->port, &drive);
}
