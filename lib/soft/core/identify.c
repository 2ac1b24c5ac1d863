/* SPDX-License-Identifier: MIT */
/* Identify (Base Specification 5.17). Names are derived from the image, so that it keeps them from one run to the next. */
#include "soft/core/controller.h"
#include "soft/core/data.h"

#include <stdio.h>
#include <string.h>

#include <gpunvme/status.h>

#include "util/bits.h"

#define IDENTIFY_BYTES 4096u
#define LPA_EFFECTS 0x02u      /* there is a log of commands and their effects */
#define LPA_EXTENDED 0x04u     /* Get Log Page takes offsets */
#define ONCS_SAVE_SELECT 0x10u /* Get Features knows SEL, Set Features SV */
#define VWC_FLUSH_ALL 0x06u    /* Flush accepts the broadcast namespace */
#define SGLS_DWORD 2u
#define DLFEAT_UNSAID 0x08u /* Write Zeroes may deallocate */
#define DLFEAT_ZEROES 0x09u /* deallocated blocks read as zeroes, and Write Zeroes may deallocate */
#define KELVIN_WARNING 350u
#define KELVIN_CRITICAL 360u
#define RTD3E_US 10000000u
#define CNTRLTYPE_IO 1u
#define NSTAT_READY 1u

enum { NIDT_EUI64 = 1, NIDT_NGUID = 2 };

/* The identity of an image in 64 bits. */
static uint64_t image_id(const struct gnv_soft_part *part)
{
	return gnv_mix(gnv_mix(part->store->id[0] + 1) ^ part->store->id[1]);
}

static void put_be64(uint8_t *to, uint64_t v)
{
	unsigned i;

	for (i = 0; i < 8; i++)
		to[i] = (uint8_t)(v >> (56 - 8 * i));
}

/* A locally administered EUI-64. An NGUID is the same identity, twice as long. */
static void put_eui64(const struct gnv_soft *soft, const struct gnv_soft_part *part, uint8_t *to)
{
	put_be64(to, gnv_soft_has(&soft->config.quirks, GNV_SOFT_IDS) ? 1 : image_id(part));
	to[0] = (uint8_t)((to[0] & ~1u) | 2u);
}

static void put_nguid(const struct gnv_soft *soft, const struct gnv_soft_part *part, uint8_t *to)
{
	put_be64(to, gnv_soft_has(&soft->config.quirks, GNV_SOFT_IDS) ? 0 : gnv_mix(image_id(part)));
	put_eui64(soft, part, to + 8);
}

static void put_text(char *to, size_t size, const char *text)
{
	size_t len = gnv_min(strlen(text), size);

	memset(to, ' ', size);
	memcpy(to, text, len);
}

static void put_names(const struct gnv_soft *soft, struct gpunvme_id_ctrl *id)
{
	char text[32];

	snprintf(text, sizeof(text), "GNV%016llX", (unsigned long long)image_id(&soft->part[0]));
	put_text(id->sn, sizeof(id->sn), text);
	put_text(id->mn, sizeof(id->mn), "libgpunvme soft controller");
	snprintf(text, sizeof(text), "%d.%d.%d", GPUNVME_VERSION_MAJOR, GPUNVME_VERSION_MINOR, GPUNVME_VERSION_PATCH);
	put_text(id->fr, sizeof(id->fr), text);
	snprintf(id->subnqn, sizeof(id->subnqn), "nqn.2014-08.org.nvmexpress:uuid:%08llx-0000-4000-8000-%012llx",
		 (unsigned long long)image_id(&soft->part[0]) >> 32, (unsigned long long)(gnv_mix(image_id(&soft->part[0])) & 0xffffffffffffull));
}

/* Take over the guarantees of a drive that executes the commands, but not its identifiers and formats. */
static void adopt_ns(const struct gpunvme_id_ns *drive, struct gpunvme_id_ns *id)
{
	id->ncap = drive->ncap;
	id->nuse = drive->nuse;
	id->dlfeat = drive->dlfeat;
	id->nsfeat = drive->nsfeat & (GPUNVME_NSFEAT_ATOMICS | GPUNVME_NSFEAT_OPTIMAL);
	id->nawun_0b = drive->nawun_0b;
	id->nawupf_0b = drive->nawupf_0b;
	id->nacwu_0b = drive->nacwu_0b;
	id->nabsn_0b = drive->nabsn_0b;
	id->nabo = drive->nabo;
	id->nabspf_0b = drive->nabspf_0b;
	id->noiob = drive->noiob;
	id->npwg_0b = drive->npwg_0b;
	id->npwa_0b = drive->npwa_0b;
	id->npdg_0b = drive->npdg_0b;
	id->npda_0b = drive->npda_0b;
	id->nows_0b = drive->nows_0b;
}

/* A command that one namespace's drive lacks is not offered at all. */
uint16_t gnv_soft_oncs(const struct gnv_soft *soft)
{
	uint16_t oncs = GPUNVME_ONCS_COMPARE | GPUNVME_ONCS_DSM | GPUNVME_ONCS_WRITE_ZEROES | ONCS_SAVE_SELECT;
	unsigned i;

	for (i = 0; i < soft->parts; i++)
		if (soft->part[i].store->drive)
			oncs &= (uint16_t)(soft->part[i].store->drive->ctrl.oncs | ONCS_SAVE_SELECT);
	return oncs;
}

/* Take over atomic writes and the cache of the only drive. */
static void adopt_ctrl(const struct gpunvme_id_ctrl *drive, struct gpunvme_id_ctrl *id)
{
	id->vwc = (uint8_t)((drive->vwc & GPUNVME_VWC_PRESENT) | VWC_FLUSH_ALL);
	id->awun_0b = drive->awun_0b;
	id->awupf_0b = drive->awupf_0b;
	id->acwu = drive->acwu;
}

static void fill_ctrl(const struct gnv_soft *soft, struct gpunvme_id_ctrl *id)
{
	put_names(soft, id);
	id->vid = soft->config.vendor;
	id->ssvid = soft->config.vendor;
	id->mdts = (uint8_t)soft->config.mdts;
	id->ver = soft->version;
	id->rtd3e = RTD3E_US;
	id->cntrltype = CNTRLTYPE_IO;
	id->acl_0b = GNV_SOFT_ABORTS - 1;
	id->oaes = GNV_SOFT_OAES;
	id->aerl_0b = GNV_SOFT_AERS - 1;
	id->frmw = 0x03; /* one slot, read-only */
	id->lpa = LPA_EFFECTS | LPA_EXTENDED;
	id->elpe_0b = GNV_SOFT_ERRORS - 1;
	id->wctemp = KELVIN_WARNING;
	id->cctemp = KELVIN_CRITICAL;
	if (gnv_soft_has(&soft->config.quirks, GNV_SOFT_SLEEPY)) {
		id->npss_0b = GNV_SOFT_DEEPEST;
		id->apsta = 1;
		id->psd[GNV_SOFT_DEEPEST] = (struct gpunvme_power_state){ .flags = GPUNVME_PSD_NOPS, .enlat = 500, .exlat = 1000 };
	}
	if (gnv_soft_has(&soft->config.quirks, GNV_SOFT_HINTS))
		id->rab = 5;
	gnv_soft_hmb_describe(soft, id);
	id->sqes = 0x66;
	id->cqes = 0x44;
	id->nn = soft->parts;
	id->oncs = gnv_soft_oncs(soft);
	id->vwc = GPUNVME_VWC_PRESENT | VWC_FLUSH_ALL;
	id->sgls = SGLS_DWORD | (gnv_soft_has(&soft->config.quirks, GNV_SOFT_SGL_STRICT) ? 0 : GPUNVME_SGLS_LONGER);
	if (soft->parts == 1 && soft->part[0].store->drive)
		adopt_ctrl(&soft->part[0].store->drive->ctrl, id);
}

/* NVM Command Set Specification 4.1.5.1, of a drive with pages of 8 blocks and stripes of 256. */
static void fill_hints(struct gpunvme_id_ns *id)
{
	id->nsfeat = GPUNVME_NSFEAT_ATOMICS | GPUNVME_NSFEAT_OPTIMAL;
	id->noiob = 256;
	id->npwg_0b = id->npwa_0b = 7;
	id->nows_0b = 63;
	id->nawun_0b = 31;
	id->nawupf_0b = 15;
	id->nabspf_0b = 127;
	id->nabo = 8;
}

static void fill_ns(const struct gnv_soft *soft, const struct gnv_soft_part *part, struct gpunvme_id_ns *id)
{
	id->ncap = part->ns.blocks;
	id->nuse = part->ns.blocks;
	id->dlfeat = part->store->keeps_old || gnv_soft_has(&soft->config.quirks, GNV_SOFT_UNSAID) ? DLFEAT_UNSAID : DLFEAT_ZEROES;
	if (part->store->drive)
		adopt_ns(&part->store->drive->ns, id);
	id->nsze = part->ns.blocks;
	id->nsattr = part->ns.read_only ? GPUNVME_NSATTR_WP : 0;
	put_nguid(soft, part, id->nguid);
	put_eui64(soft, part, id->eui64);
	id->lbaf[0].lbads = (uint8_t)part->ns.lba_shift;
	if (gnv_soft_has(&soft->config.quirks, GNV_SOFT_HINTS))
		fill_hints(id);
	if (gnv_soft_has(&soft->config.quirks, GNV_SOFT_SLOW_FORMAT)) {
		id->nlbaf_0b = 1;
		id->lbaf[0].rp = 2;
		id->lbaf[1].lbads = (uint8_t)(part->ns.lba_shift == 9 ? 12 : 9);
	}
}

static uint64_t lesser(uint64_t a, uint64_t b)
{
	return a && b ? gnv_min(a, b) : a | b;
}

/* For all namespaces at once, so the least of any, or 0: none. */
static void fill_limits(const struct gnv_soft *soft, struct gpunvme_id_ctrl_nvm *limits)
{
	const struct gnv_soft_drive *drive;
	unsigned i;

	limits->dmrsl = soft->part[0].ns.max_range;
	limits->wzsl = limits->dmrsl ? GNV_SOFT_WZSL : 0;
	for (i = 0; i < soft->parts; i++) {
		drive = soft->part[i].store->drive;
		if (!drive)
			continue;
		limits->wzsl = (uint8_t)lesser(limits->wzsl, drive->limits.wzsl);
		limits->dmrl = (uint8_t)lesser(limits->dmrl, drive->limits.dmrl);
		limits->dmrsl = (uint32_t)lesser(limits->dmrsl, drive->limits.dmrsl);
		limits->dmsl = lesser(limits->dmsl, drive->limits.dmsl);
	}
}

static void fill_descriptors(const struct gnv_soft *soft, const struct gnv_soft_part *part, uint8_t *list)
{
	list[0] = NIDT_EUI64;
	list[1] = 8;
	put_eui64(soft, part, list + 4);
	list[12] = NIDT_NGUID;
	list[13] = 16;
	put_nguid(soft, part, list + 16);
}

/* Namespace attributes and status, where every command set has them (Base Specification 2.0, 5.17.2.8). */
static void fill_common(const struct gnv_soft_part *part, uint8_t *common)
{
	common[8] = part->ns.read_only ? GPUNVME_NSATTR_WP : 0;
	common[14] = NSTAT_READY;
}

/* Those after @nsid. */
static void fill_list(const struct gnv_soft *soft, uint32_t nsid, uint32_t *list)
{
	while (nsid < soft->parts)
		*list++ = ++nsid;
}

uint16_t gnv_soft_identify(struct gnv_soft *soft, struct gnv_soft_cmd *cmd)
{
	union {
		uint8_t bytes[IDENTIFY_BYTES];
		uint32_t nsids[IDENTIFY_BYTES / 4];
		struct gpunvme_id_ctrl ctrl;
		struct gpunvme_id_ns ns;
		struct gpunvme_id_ctrl_nvm limits;
	} data;
	const uint32_t nsid = cmd->sqe.nsid;
	const struct gnv_soft_part *part = nsid && nsid <= soft->parts ? &soft->part[nsid - 1] : NULL;

	memset(&data, 0, sizeof(data));
	if (gnv_soft_has(&soft->config.quirks, GNV_SOFT_CNS) && (cmd->sqe.cdw10 & 0xffu) > GPUNVME_CNS_CTRL)
		return GPUNVME_SC_INVALID_FIELD;
	switch (cmd->sqe.cdw10 & 0xffu) {
	case GPUNVME_CNS_CTRL:
		fill_ctrl(soft, &data.ctrl);
		break;
	case GPUNVME_CNS_NS:
		if (!part)
			return GPUNVME_SC_INVALID_NS;
		if (!gnv_soft_has(&soft->config.quirks, GNV_SOFT_DETACHED))
			fill_ns(soft, part, &data.ns);
		break;
	case GPUNVME_CNS_ACTIVE_NS_LIST:
		if (nsid >= GPUNVME_NSID_ALL - 1)
			return GPUNVME_SC_INVALID_NS;
		if (!gnv_soft_has(&soft->config.quirks, GNV_SOFT_DETACHED))
			fill_list(soft, nsid, data.nsids);
		break;
	case GPUNVME_CNS_NS_DESC_LIST:
		if (!part)
			return GPUNVME_SC_INVALID_NS;
		fill_descriptors(soft, part, data.bytes);
		break;
	case GPUNVME_CNS_CTRL_NVM:
		if (soft->version < GNV_SOFT_2_0 || cmd->sqe.cdw11 >> 24)
			return GPUNVME_SC_INVALID_FIELD;
		fill_limits(soft, &data.limits);
		break;
	case GPUNVME_CNS_NS_COMMON:
		if (soft->version < GNV_SOFT_2_0)
			return GPUNVME_SC_INVALID_FIELD;
		if (!part)
			return GPUNVME_SC_INVALID_NS;
		if (!gnv_soft_has(&soft->config.quirks, GNV_SOFT_DETACHED))
			fill_common(part, data.bytes);
		break;
	default:
		return GPUNVME_SC_INVALID_FIELD;
	}
	return gnv_soft_reply(soft, cmd, &data, sizeof(data), sizeof(data));
}
