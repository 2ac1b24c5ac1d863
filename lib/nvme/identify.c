/* SPDX-License-Identifier: MIT */
/*
 * Identify: Base Specification 5.17, NVM Command Set Specification 4.1.5.
 * Invariant: nothing the controller says is used before it was checked against what the rest of the library can carry.
 */
#include "nvme/identify.h"

#include <errno.h>
#include <string.h>

#include "util/bits.h"
#include "util/opts.h"

#define SQE_SHIFT 6u
#define CQE_SHIFT 4u
#define SHUTDOWN_MAX_MS 60000u
#define LIST_ENTRIES 1024u

static int identify(struct gpunvme_dev *dev, enum gpunvme_cns cns, uint32_t nsid, void *data)
{
	struct gpunvme_sqe cmd = { .opc = GPUNVME_ADMIN_IDENTIFY, .nsid = nsid, .cdw10 = cns };

	return gnv_admin_run(&dev->admin, &cmd, data, 4096, false, NULL);
}

void gnv_identify_string(const char *from, size_t len, char *to)
{
	size_t i;

	while (len && (from[len - 1] == ' ' || !from[len - 1]))
		len--;
	for (i = 0; i < len; i++)
		to[i] = from[i] >= ' ' && from[i] <= '~' ? from[i] : '?';
	to[len] = 0;
}

/* The largest transfer in bytes, 0 for no limit; absurd exponents end at 2 GiB, more than a command can ask for. */
static uint32_t max_transfer(const struct gnv_ctrl *ctrl, uint8_t mdts)
{
	unsigned shift = 12 + (unsigned)GPUNVME_FIELD_GET(GPUNVME_CAP_MPSMIN, ctrl->cap) + mdts;

	if (!mdts)
		return 0;
	return shift > 31 ? 1u << 31 : 1u << shift;
}

static int check_entry_size(const char *what, uint8_t sizes, unsigned shift)
{
	if ((sizes & 15u) <= shift && shift <= sizes >> 4)
		return 0;
	return gnv_fail(-EOPNOTSUPP, "the controller wants %s entries of 2^%u to 2^%u bytes, not of 2^%u", what, sizes & 15u,
			sizes >> 4, shift);
}

static void set_shutdown_deadline(struct gnv_ctrl *ctrl, uint32_t rtd3e_us)
{
	uint32_t ms = rtd3e_us / 1000 + 1;

	if (ms > SHUTDOWN_MAX_MS)
		ms = SHUTDOWN_MAX_MS;
	if (ms > ctrl->shutdown_ms)
		ctrl->shutdown_ms = ms;
}

int gnv_identify_ctrl(struct gpunvme_dev *dev)
{
	struct gpunvme_dev_info *info = &dev->info;
	struct gpunvme_id_ctrl id;
	int ret = identify(dev, GPUNVME_CNS_CTRL, 0, &id);

	if (!ret)
		ret = check_entry_size("submission queue", id.sqes, SQE_SHIFT);
	if (!ret)
		ret = check_entry_size("completion queue", id.cqes, CQE_SHIFT);
	if (ret)
		return ret;
	gnv_identify_string(id.mn, sizeof(id.mn), info->model);
	gnv_identify_string(id.sn, sizeof(id.sn), info->serial);
	gnv_identify_string(id.fr, sizeof(id.fr), info->firmware);
	info->vid = id.vid;
	info->nn = id.nn;
	info->max_transfer = max_transfer(&dev->ctrl, id.mdts);
	info->oncs = id.oncs;
	info->vwc = id.vwc & GPUNVME_VWC_PRESENT;
	info->sgl = (id.sgls & GPUNVME_SGLS_SUPPORT) == 1 || (id.sgls & GPUNVME_SGLS_SUPPORT) == 2;
	set_shutdown_deadline(&dev->ctrl, id.rtd3e);
	return 0;
}

static int parse_ns(const struct gpunvme_dev *dev, const struct gpunvme_id_ns *id, struct gpunvme_ns_info *ns)
{
	unsigned index = id->flbas & GPUNVME_FLBAS_INDEX_LOW;
	struct gpunvme_lbaf format;

	if (id->nlbaf_0b > 15) /* only then do the high bits count */
		index |= (unsigned)GPUNVME_FIELD_GET(GPUNVME_FLBAS_INDEX_HIGH, id->flbas) << 4;
	if (index > id->nlbaf_0b || index >= GNV_ARRAY_LEN(id->lbaf))
		return gnv_fail(-EPROTO, "namespace %u is in format %u of %u, which does not exist", ns->nsid, index,
				id->nlbaf_0b + 1u);
	format = id->lbaf[index];
	if (format.ms)
		return gnv_fail(-EOPNOTSUPP, "namespace %u carries %u bytes of metadata per block; format it without", ns->nsid,
				format.ms);
	if (format.lbads < 9 || format.lbads > 16)
		return gnv_fail(-EOPNOTSUPP, "namespace %u has blocks of 2^%u bytes; supported are 512 to 65536 bytes", ns->nsid,
				format.lbads);
	if (id->nsze > UINT64_MAX >> format.lbads)
		return gnv_fail(-EPROTO, "namespace %u claims %llu blocks, more bytes than 64 bits count", ns->nsid,
				(unsigned long long)id->nsze);
	ns->lba_size = 1u << format.lbads;
	ns->nblocks = id->nsze;
	ns->read_only = dev->info.read_only || id->nsattr & GPUNVME_NSATTR_WP;
	memcpy(ns->nguid, id->nguid, sizeof(ns->nguid));
	memcpy(ns->eui64, id->eui64, sizeof(ns->eui64));
	return 0;
}

GPUNVME_API int gpunvme_ns_info(struct gpunvme_dev *dev, uint32_t nsid, struct gpunvme_ns_info *info)
{
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	struct gpunvme_id_ns id;
	int ret;

	if (!dev || !info || info->size < sizeof(*info))
		return gnv_fail(-EINVAL, "gpunvme_ns_info: dev and info must not be NULL, info.size must be set");
	ns.nsid = nsid ? nsid : dev->info.default_ns;
	if (ns.nsid > dev->info.nn)
		return gnv_fail(-ENOENT, "namespace %u does not exist: the controller has %u", ns.nsid, dev->info.nn);
	ret = identify(dev, GPUNVME_CNS_NS, ns.nsid, &id);
	if (ret > 0 && (ret & GPUNVME_ST_CODE) == GPUNVME_SC_INVALID_NS)
		return gnv_fail(-ENOENT, "namespace %u does not exist", ns.nsid);
	if (ret)
		return ret;
	if (!id.nsze)
		return gnv_fail(-ENOENT, "namespace %u is not active", ns.nsid);
	ret = parse_ns(dev, &id, &ns);
	return ret ? ret : gnv_info_copy(info, &ns, sizeof(ns), "gpunvme_ns_info");
}

GPUNVME_API int gpunvme_ns_list(struct gpunvme_dev *dev, uint32_t *nsids, uint32_t *count)
{
	uint32_t list[LIST_ENTRIES], last = 0, found = 0, room, i;

	if (!dev || !count || (*count && !nsids))
		return gnv_fail(-EINVAL, "gpunvme_ns_list: dev, count and nsids must not be NULL");
	room = *count;
	do { /* each round asks for those above the last, so it ends */
		int ret = identify(dev, GPUNVME_CNS_ACTIVE_NS_LIST, last, list);

		if (ret)
			return ret;
		for (i = 0; i < LIST_ENTRIES && list[i]; i++) {
			if (list[i] <= last || list[i] > dev->info.nn)
				return gnv_fail(-EPROTO, "the controller's list of namespaces is not in order: %u after %u, of %u",
						list[i], last, dev->info.nn);
			if (found < room)
				nsids[found] = list[i];
			found++;
			last = list[i];
		}
	} while (i == LIST_ENTRIES && last < dev->info.nn);
	*count = found;
	return 0;
}
