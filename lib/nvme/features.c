/* SPDX-License-Identifier: MIT */
/*
 * Features (Base Specification 5.15, 5.27), log pages (5.16) and the caller's own admin commands.
 * Invariant: no command passes here that would create, delete or move a queue, or write media of a read-only device.
 */
#include "nvme/features.h"

#include <errno.h>
#include <string.h>

#include "nvme/settings.h"
#include "util/bits.h"

#define BURST 7u /* Arbitration, bits 2:0. 7: no limit */

/* Opcodes that only matter here. */
#define OPC_KEEP_ALIVE 0x18
#define OPC_DIRECTIVE_RECEIVE 0x1a
#define OPC_VIRTUALIZATION 0x1c
#define OPC_DOORBELL_BUFFER 0x7c
#define OPC_SECURITY_RECEIVE 0x82
#define OPC_GET_LBA_STATUS 0x86

int gnv_features_queues(struct gnv_nvme *nvme, uint32_t want, uint32_t *granted)
{
	struct gpunvme_sqe cmd = { .opc = GPUNVME_ADMIN_SET_FEATURES, .cdw10 = GPUNVME_FID_NUM_QUEUES };
	uint32_t result = 0, sqs, cqs;
	int ret;

	cmd.cdw11 = GPUNVME_FIELD_PREP(GPUNVME_NUMQ_NSQ_0B, want - 1) | GPUNVME_FIELD_PREP(GPUNVME_NUMQ_NCQ_0B, want - 1);
	ret = gnv_admin_run(&nvme->admin, &cmd, NULL, 0, false, &result);
	if (ret)
		return ret;
	sqs = GPUNVME_FIELD_GET(GPUNVME_NUMQ_NSQ_0B, result) + 1;
	cqs = GPUNVME_FIELD_GET(GPUNVME_NUMQ_NCQ_0B, result) + 1;
	*granted = (uint32_t)gnv_min(want, gnv_min(sqs, cqs));
	return 0;
}

int gnv_features_arbitration(struct gnv_nvme *nvme, uint32_t recommended)
{
	uint32_t now;
	int ret = gnv_features_get(nvme, 0, GPUNVME_FID_ARBITRATION, &now);

	if (ret || recommended > BURST || (now & BURST) >= recommended)
		return ret < 0 ? ret : 0;
	ret = gnv_features_set(nvme, 0, GPUNVME_FID_ARBITRATION, (now & ~BURST) | recommended);
	return ret < 0 ? ret : 0;
}

static const char *refusal(const struct gpunvme_sqe *cmd)
{
	switch (cmd->opc) {
	case GPUNVME_ADMIN_DELETE_SQ:
	case GPUNVME_ADMIN_CREATE_SQ:
	case GPUNVME_ADMIN_DELETE_CQ:
	case GPUNVME_ADMIN_CREATE_CQ:
		return "queues are made by gpunvme_queue_create()";
	case GPUNVME_ADMIN_ASYNC_EVENT_REQUEST:
		return "the library sends them for programs that ask for events (gpunvme_dev_event_fd())";
	case OPC_DOORBELL_BUFFER:
	case OPC_VIRTUALIZATION:
		return "it would take queues away from their owner";
	case GPUNVME_ADMIN_SET_FEATURES:
		if ((cmd->cdw10 & 0xff) == GPUNVME_FID_NUM_QUEUES)
			return "the number of queues is set when the device is opened (gpunvme_dev_opts.queues)";
		if ((cmd->cdw10 & 0xff) == GPUNVME_FID_HMB)
			return "the drive gets its memory when it is opened (hmb= in the URI)";
		return NULL;
	default:
		return NULL;
	}
}

/* Commands that a read-only device may get: a list of the harmless, since the harmful have no end (vendors add to them). */
static bool harmless(uint8_t opc)
{
	static const uint8_t list[] = { GPUNVME_ADMIN_GET_LOG_PAGE, GPUNVME_ADMIN_IDENTIFY,	GPUNVME_ADMIN_ABORT,
					GPUNVME_ADMIN_SET_FEATURES, GPUNVME_ADMIN_GET_FEATURES, OPC_KEEP_ALIVE,
					OPC_DIRECTIVE_RECEIVE,	    OPC_SECURITY_RECEIVE,	OPC_GET_LBA_STATUS };

	return memchr(list, opc, sizeof(list));
}

static int check_command(const struct gnv_nvme *nvme, const struct gpunvme_sqe *cmd)
{
	const char *why = refusal(cmd);

	if (why)
		return gnv_fail(-EPERM, "admin command 0x%02x is refused: %s", cmd->opc, why);
	if (nvme->info.read_only && !harmless(cmd->opc))
		return gnv_fail(-EPERM, "admin command 0x%02x is refused: the device is read-only, and it may write media",
				cmd->opc);
	if (cmd->flags)
		return gnv_fail(-EINVAL, "the flags of an admin command (0x%02x) must be 0", cmd->flags);
	return 0;
}

static bool sets(const struct gpunvme_sqe *cmd)
{
	return cmd->opc == GPUNVME_ADMIN_SET_FEATURES;
}

int gnv_features_admin(struct gnv_nvme *nvme, const struct gpunvme_sqe *cmd, void *buf, size_t len, bool to_device,
		       uint32_t *result)
{
	struct gpunvme_sqe sqe;
	int ret;

	if (len > GNV_ADMIN_MAX_DATA || (nvme->info.max_transfer && len > nvme->info.max_transfer))
		return gnv_fail(-EINVAL,
				"%zu bytes are too many for one admin command. The limits are %zu, and the largest transfer", len,
				GNV_ADMIN_MAX_DATA);
	ret = check_command(nvme, cmd);
	if (ret)
		return ret;
	sqe = *cmd;
	sqe.mptr = 0;
	sqe.prp1 = 0;
	sqe.prp2 = 0;
	if (sets(&sqe))
		gnv_settings_begin(nvme);
	ret = gnv_admin_run(&nvme->admin, &sqe, len ? buf : NULL, len, to_device, result);
	if (sets(&sqe))
		gnv_settings_end(nvme, &sqe, buf, len, ret);
	return ret;
}

int gnv_features_admin_doorbell(struct gnv_nvme *nvme, const struct gpunvme_sqe *cmd, const struct gpunvme_dbuf *page,
				const struct gnv_bell *bell, uint32_t *result)
{
	struct gpunvme_sqe sqe;
	int ret;

	if (page && (page->len < nvme->ctrl.page_size || page->iova % nvme->ctrl.page_size))
		return gnv_fail(-EINVAL, "the buffer of an admin command must be a page of the controller, %u bytes, or more",
				nvme->ctrl.page_size);
	ret = check_command(nvme, cmd);
	if (ret)
		return ret;
	sqe = *cmd;
	sqe.mptr = 0;
	sqe.prp1 = page ? page->iova : 0;
	sqe.prp2 = 0;
	if (sets(&sqe))
		gnv_settings_begin(nvme);
	ret = gnv_admin_run_doorbell(&nvme->admin, &sqe, bell, result);
	if (sets(&sqe))
		gnv_settings_end(nvme, &sqe, NULL, page ? nvme->ctrl.page_size : 0, ret);
	return ret;
}

int gnv_features_log_page(struct gnv_nvme *nvme, uint8_t lid, uint32_t nsid, void *buf, size_t len)
{
	struct gpunvme_sqe cmd = { .opc = GPUNVME_ADMIN_GET_LOG_PAGE, .nsid = nsid };

	if (!len || len % 4 || len > 4096)
		return gnv_fail(-EINVAL, "a log page of %zu bytes: the length must be a multiple of 4 from 4 to 4096", len);
	cmd.cdw10 = lid | GPUNVME_FIELD_PREP(GPUNVME_LOG_NUMDL_0B, (uint32_t)(len / 4 - 1));
	return gnv_admin_run(&nvme->admin, &cmd, buf, len, false, NULL);
}

/*
 * Features with a structure as well as dword 11: LBA ranges, APST, HMB, time, predictable latency, host behaviour, performance,
 * FDP events, namespace label, addresses for management, host metadata, host identifier. Base Specification 5.27.1, and 5.1.25.1
 * of revision 2.1. NVM Command Set Specification 4.1.3.
 */
static bool has_data(uint8_t fid)
{
	static const uint8_t list[] = { 0x03, GPUNVME_FID_APST, GPUNVME_FID_HMB, 0x0e, 0x13, 0x16, 0x1c, 0x1e,
					0x1f, 0x78,		0x79,		 0x7d, 0x7e, 0x7f, 0x81 };

	return memchr(list, fid, sizeof(list));
}

/* Features that may have data: those that no revision before 2.1 knows, and the vendors' own. */
static bool may_have_data(uint8_t fid)
{
	return has_data(fid) || (fid > 0x1a && fid < 0x80) || fid > 0x84;
}

/* The data that comes with the value is not needed, but needs a buffer: otherwise the drive would write it to address 0. */
int gnv_features_get(struct gnv_nvme *nvme, uint32_t nsid, uint8_t fid, uint32_t *value)
{
	struct gpunvme_sqe cmd = { .opc = GPUNVME_ADMIN_GET_FEATURES, .nsid = nsid, .cdw10 = fid };
	char data[4096];

	return gnv_features_admin(nvme, &cmd, data, may_have_data(fid) ? sizeof(data) : 0, 0, value);
}

int gnv_features_set(struct gnv_nvme *nvme, uint32_t nsid, uint8_t fid, uint32_t value)
{
	struct gpunvme_sqe cmd = { .opc = GPUNVME_ADMIN_SET_FEATURES, .nsid = nsid, .cdw10 = fid, .cdw11 = value };

	if (has_data(fid) && fid != GPUNVME_FID_HMB) /* which is refused as such */
		return gnv_fail(-EINVAL, "feature 0x%02x has data, not a value alone: set it by gpunvme_dev_admin()", fid);
	return gnv_features_admin(nvme, &cmd, NULL, 0, 0, NULL);
}
