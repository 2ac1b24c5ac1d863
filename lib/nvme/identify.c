/* SPDX-License-Identifier: MIT */
/*
 * Identify: Base Specification 5.17, NVM Command Set Specification 4.1.5.
 * Invariant: each value of the controller is checked against the limits of the library before it is used.
 */
#include "nvme/identify.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "util/bits.h"
#include "util/opts.h"

#define SQE_SHIFT 6u
#define CQE_SHIFT 4u
#define STRIPE_BYTE 3 /* of the vendor's */
#define VERSION_2_0 0x00020000u
#define SHUTDOWN_MAX_MS 60000u

int gnv_identify(struct gnv_nvme *nvme, enum gpunvme_cns cns, uint32_t nsid, void *data)
{
	struct gpunvme_sqe cmd = { .opc = GPUNVME_ADMIN_IDENTIFY, .nsid = nsid, .cdw10 = cns };

	return gnv_admin_run(&nvme->admin, &cmd, data, 4096, false, NULL);
}

bool gnv_identify_knows(const struct gnv_nvme *nvme, enum gpunvme_cns cns)
{
	const uint32_t quirks = nvme->drive.quirks;

	return !(quirks & GNV_QUIRK_CNS_01 && cns > GPUNVME_CNS_CTRL) &&
	       !(quirks & GNV_QUIRK_NO_DESCRIPTORS && cns == GPUNVME_CNS_NS_DESC_LIST);
}

int gnv_identify_ns(struct gnv_nvme *nvme, uint32_t nsid, struct gpunvme_id_ns *id)
{
	return gnv_identify(nvme, GPUNVME_CNS_NS, nsid, id);
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

/* The largest transfer, or Write Zeroes, in bytes. 0: no limit. Absurd exponents end at 2 GiB, more than a command can ask for. */
static uint32_t max_transfer(const struct gnv_ctrl *ctrl, uint8_t limit)
{
	unsigned shift = 12 + (unsigned)GPUNVME_FIELD_GET(GPUNVME_CAP_MPSMIN, ctrl->cap) + limit;

	if (!limit)
		return 0;
	return shift > 31 ? 1u << 31 : 1u << shift;
}

static int check_entry_size(const char *what, uint8_t sizes, unsigned shift)
{
	if ((sizes & 15u) <= shift && shift <= sizes >> 4)
		return 0;
	return gnv_fail(-EOPNOTSUPP,
			"the controller takes %s entries of %u to %u bytes, and this library makes them of %u: use another drive",
			what, 1u << (sizes & 15u), 1u << (sizes >> 4), 1u << shift);
}

static void set_shutdown_deadline(struct gnv_ctrl *ctrl, uint32_t rtd3e_us)
{
	uint32_t ms = rtd3e_us / 1000 + 1;

	if (ms > SHUTDOWN_MAX_MS)
		ms = SHUTDOWN_MAX_MS;
	if (ms > ctrl->shutdown_ms)
		ctrl->shutdown_ms = ms;
}

static uint32_t max_range(const struct gpunvme_id_ctrl_nvm *id)
{
	uint64_t most = id->dmrsl ? id->dmrsl : UINT32_MAX;

	return (uint32_t)(id->dmsl ? gnv_min(id->dmsl, most) : most);
}

/* The fourth of the vendor's bytes has it, in the form of MDTS, as Linux once read it. Today Linux takes the largest transfer. */
static uint32_t stripe(const struct gnv_nvme *nvme, const struct gpunvme_id_ctrl *id)
{
	if (!(nvme->drive.quirks & GNV_QUIRK_STRIPE))
		return 0;
	return max_transfer(&nvme->ctrl, id->vs[STRIPE_BYTE] ? id->vs[STRIPE_BYTE] : id->mdts);
}

/* How much one command deallocates, or sets to zero. A drive of the 2.0 kind that has no such page has no limit. */
static int identify_limits(struct gnv_nvme *nvme)
{
	const bool ranges = nvme->info.oncs & GPUNVME_ONCS_DSM, zeroes = nvme->info.oncs & GPUNVME_ONCS_WRITE_ZEROES;
	struct gpunvme_id_ctrl_nvm id;
	int ret;

	nvme->limits.deallocate = ranges ? UINT32_MAX : 0;
	nvme->limits.zeroes = 0;
	if (!(ranges || zeroes) || nvme->ctrl.vs < VERSION_2_0 || !gnv_identify_knows(nvme, GPUNVME_CNS_CTRL_NVM))
		return 0;
	ret = gnv_identify(nvme, GPUNVME_CNS_CTRL_NVM, 0, &id);
	if (ret)
		return ret < 0 ? ret : 0;
	nvme->limits.deallocate = ranges ? max_range(&id) : 0;
	nvme->limits.zeroes = max_transfer(&nvme->ctrl, id.wzsl);
	return 0;
}

int gnv_identify_ctrl(struct gnv_nvme *nvme)
{
	struct gpunvme_dev_info *info = &nvme->info;
	struct gpunvme_id_ctrl id;
	int ret = gnv_identify(nvme, GPUNVME_CNS_CTRL, 0, &id);

	if (ret)
		return ret;
	ret = check_entry_size("submission queue", id.sqes, SQE_SHIFT);
	if (ret)
		return ret;
	ret = check_entry_size("completion queue", id.cqes, CQE_SHIFT);
	if (ret)
		return ret;
	gnv_identify_string(id.mn, sizeof(id.mn), info->model);
	gnv_identify_string(id.sn, sizeof(id.sn), info->serial);
	gnv_identify_string(id.fr, sizeof(id.fr), info->firmware);
	if (memchr(id.subnqn, 0, sizeof(nvme->nqn))) /* else it is none, and Linux makes one up, too */
		memcpy(nvme->nqn, id.subnqn, sizeof(nvme->nqn));
	info->vid = id.vid;
	info->nn = id.nn;
	nvme->power.has_apst = id.apsta & 1;
	nvme->hmb.asked = info->hmb_asked = (uint64_t)id.hmpre << 12;
	nvme->hmb.least = (uint64_t)id.hmmin << 12;
	nvme->hmb.step = (uint64_t)id.hmminds << 12;
	info->max_transfer = max_transfer(&nvme->ctrl, id.mdts);
	nvme->limits.stripe = stripe(nvme, &id);
	info->oncs = nvme->drive.quirks & GNV_QUIRK_NO_WRITE_ZEROES ? id.oncs & ~GPUNVME_ONCS_WRITE_ZEROES : id.oncs;
	info->vwc = id.vwc & GPUNVME_VWC_PRESENT;
	nvme->limits.burst = id.rab;
	nvme->asks.oaes = id.oaes;
	nvme->asks.aers = id.aerl_0b + 1u;
	nvme->limits.awun_0b = id.awun_0b;
	nvme->limits.awupf_0b = id.awupf_0b;
	info->sgl = (id.sgls & GPUNVME_SGLS_SUPPORT) == 1 || (id.sgls & GPUNVME_SGLS_SUPPORT) == 2;
	set_shutdown_deadline(&nvme->ctrl, id.rtd3e);
	return identify_limits(nvme);
}

/*
 * Base Specification 5.17.2.3: descriptors of a type, a length, two reserved bytes and so many. A length of 0 ends the list.
 * Return: the bytes of the first one of @type and @len. NULL: there is none.
 */
static const uint8_t *descriptor(const uint8_t list[4096], uint8_t type, uint8_t len)
{
	size_t at;

	for (at = 0; at + 4 + len <= 4096 && list[at + 1]; at += 4u + list[at + 1])
		if (list[at] == type && list[at + 1] == len)
			return list + at + 4;
	return NULL;
}

static uint8_t command_set(const uint8_t list[4096])
{
	const uint8_t *csi = descriptor(list, GPUNVME_NIDT_CSI, 1);

	return csi ? *csi : GPUNVME_CSI_NVM;
}

int gnv_identify_uuid(struct gnv_nvme *nvme, uint32_t nsid, uint8_t uuid[16])
{
	const uint8_t *found;
	uint8_t list[4096];
	int ret = gnv_identify(nvme, GPUNVME_CNS_NS_DESC_LIST, nsid, list);

	found = ret ? NULL : descriptor(list, GPUNVME_NIDT_UUID, 16);
	if (found)
		memcpy(uuid, found, 16);
	return ret;
}

int gnv_identify_check_set(struct gnv_nvme *nvme, uint32_t nsid)
{
	static const char *const names[] = { "", "a key-value store", "zoned" };
	uint8_t list[4096], csi;
	int ret;

	if (!(nvme->ctrl.cap & GPUNVME_CAP_CSS_IO) || !gnv_identify_knows(nvme, GPUNVME_CNS_NS_DESC_LIST))
		return 0;
	ret = gnv_identify(nvme, GPUNVME_CNS_NS_DESC_LIST, nsid, list);
	csi = ret ? GPUNVME_CSI_NVM : command_set(list);
	if (csi == GPUNVME_CSI_NVM)
		return ret < 0 ? ret : 0;
	return gnv_fail(-EOPNOTSUPP,
			"namespace %u is %s (command set %u), and this library reads and writes blocks in any order (command set "
			"0). Name another with ns= in the URI",
			nsid, csi < GNV_ARRAY_LEN(names) ? names[csi] : "of another kind", csi);
}

/* The fastest of the formats without metadata, or -1. */
static int plain_format(const struct gpunvme_id_ns *id)
{
	int i, best = -1;

	for (i = 0; i <= id->nlbaf_0b && i < (int)GNV_ARRAY_LEN(id->lbaf); i++)
		if (!id->lbaf[i].ms && id->lbaf[i].lbads >= 9 && id->lbaf[i].lbads <= 16 &&
		    (best < 0 || (id->lbaf[i].rp & 3) < (id->lbaf[best].rp & 3)))
			best = i;
	return best;
}

static int refuse_metadata(const struct gpunvme_id_ns *id, uint32_t nsid, unsigned bytes)
{
	unsigned type = id->dps & GPUNVME_DPS_TYPE;
	char what[48] = "", remedy[160] = "The drive has no format without";
	int plain = plain_format(id);

	if (type)
		snprintf(what, sizeof(what), " with protection information of type %u", type);
	if (plain >= 0)
		snprintf(remedy, sizeof(remedy),
			 "Give the drive to the kernel (gpunvme unbind), and nvme format --namespace-id=%u --lbaf=%d%s (which "
			 "erases it)",
			 nsid, plain, type ? " --pi=0" : "");
	return gnv_fail(-EOPNOTSUPP, "namespace %u carries %u bytes of metadata per block%s, which this library does not use. %s",
			nsid,
			bytes, what, remedy);
}

/* NVM Command Set Specification 2.1.4 (atomic operation), 5.8.2 (granularity), 4.1.5.1 (the fields). */
static void parse_hints(const struct gnv_nvme *nvme, const struct gpunvme_id_ns *id, struct gpunvme_ns_info *ns)
{
	const bool own = id->nsfeat & GPUNVME_NSFEAT_ATOMICS;

	ns->boundary = nvme->drive.quirks & GNV_QUIRK_STRIPE ? nvme->limits.stripe / ns->lba_size : id->noiob;
	ns->deallocated = id->dlfeat & GPUNVME_DLFEAT_READ;
	if (ns->deallocated > GPUNVME_DEALLOCATED_ONES)
		ns->deallocated = GPUNVME_DEALLOCATED_UNKNOWN;
	ns->atomic = 1u + (own && id->nawun_0b ? id->nawun_0b : nvme->limits.awun_0b);
	ns->atomic_power = 1u + (own && id->nawupf_0b ? id->nawupf_0b : nvme->limits.awupf_0b);
	if (own && (id->nabspf_0b || id->nabsn_0b)) {
		ns->atomic_border = id->nabspf_0b ? 1u + id->nabspf_0b : 0;
		ns->atomic_seen_border = id->nabsn_0b ? 1u + id->nabsn_0b : 0;
		ns->atomic_first = id->nabo;
	}
	if (!(id->nsfeat & GPUNVME_NSFEAT_OPTIMAL))
		return;
	ns->write_step = 1u + id->npwg_0b;
	ns->write_align = 1u + id->npwa_0b;
	ns->write_best = 1u + id->nows_0b;
}

static int parse_ns(const struct gnv_nvme *nvme, const struct gpunvme_id_ns *id, struct gpunvme_ns_info *ns)
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
		return refuse_metadata(id, ns->nsid, format.ms);
	if (format.lbads < 9 || format.lbads > 16)
		return gnv_fail(-EOPNOTSUPP, "namespace %u has blocks of 2^%u bytes. Supported are 512 to 65536 bytes", ns->nsid,
				format.lbads);
	if (id->nsze > UINT64_MAX >> format.lbads)
		return gnv_fail(-EPROTO, "namespace %u claims %llu blocks, more bytes than 64 bits count", ns->nsid,
				(unsigned long long)id->nsze);
	ns->lba_size = 1u << format.lbads;
	ns->nblocks = id->nsze;
	ns->read_only = nvme->info.read_only || id->nsattr & GPUNVME_NSATTR_WP;
	parse_hints(nvme, id, ns);
	gnv_identify_medium(nvme, ns);
	if (nvme->drive.quirks & GNV_QUIRK_GARBAGE_IDS)
		return 0;
	memcpy(ns->nguid, id->nguid, sizeof(ns->nguid));
	memcpy(ns->eui64, id->eui64, sizeof(ns->eui64));
	return 0;
}

int gnv_identify_namespace(struct gnv_nvme *nvme, uint32_t nsid, struct gpunvme_ns_info *info)
{
	struct gpunvme_ns_info ns = { .size = sizeof(ns) };
	struct gpunvme_id_ns id;
	int ret;

	ret = gnv_size_check(info->size, "gpunvme_ns_info");
	if (ret)
		return ret;
	ns.nsid = nsid ? nsid : nvme->info.default_ns;
	if (ns.nsid > nvme->info.nn)
		return gnv_fail(-ENOENT, "namespace %u does not exist. Use one of 1 to %u", ns.nsid, nvme->info.nn);
	ret = gnv_identify_check_set(nvme, ns.nsid);
	if (!ret)
		ret = gnv_identify(nvme, GPUNVME_CNS_NS, ns.nsid, &id);
	if (ret > 0 && (ret & GPUNVME_ST_CODE) == GPUNVME_SC_INVALID_NS)
		return gnv_fail(-ENOENT, "namespace %u does not exist", ns.nsid);
	if (ret)
		return ret;
	if (!id.nsze)
		return gnv_fail(-ENOENT, "namespace %u is not active. Attach it (nvme attach-ns), or name another with ns= in the "
					 "URI",
				ns.nsid);
	ret = parse_ns(nvme, &id, &ns);
	if (ret)
		return ret;
	return gnv_info_copy(info, &ns, gpunvme_ns_info);
}
