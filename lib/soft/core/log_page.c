/* SPDX-License-Identifier: MIT */
/* Get Log Page (Base Specification 5.16), and the records that pages show. */
#include "soft/core/controller.h"
#include "soft/core/data.h"

#include <stdio.h>
#include <string.h>

#include <gpunvme/status.h>

#include "util/bits.h"

#define LOG_RAE 0x00008000u
#define MOST (65536u * 512) /* bytes of a page, where transfers have no limit */
#define WARN_TEMPERATURE 0x02u
#define WARN_SPARE 0x01u
#define WARN_RELIABILITY 0x04u
#define WARN_READ_ONLY 0x08u
#define WARN_BACKUP 0x10u
#define NO_LOCATION 0xffffu
#define NS_PER_MINUTE 60000000000ull
#define NS_PER_HOUR (60 * NS_PER_MINUTE)

void gnv_soft_errors_add(struct gnv_soft_errors *errors, const struct gnv_soft_cmd *cmd, uint16_t status)
{
	struct gpunvme_error_log entry = { .error_count = ++errors->count,
					   .sqid = cmd->qid,
					   .cid = cmd->sqe.cid,
					   .status = (uint16_t)(status << 1),
					   .location = NO_LOCATION,
					   .nsid = cmd->sqe.nsid };

	if (cmd->qid)
		entry.lba = cmd->sqe.cdw10 | (uint64_t)cmd->sqe.cdw11 << 32;
	errors->entry[entry.error_count % GNV_SOFT_ERRORS] = entry;
}

void gnv_soft_errors_copy(const struct gnv_soft_errors *errors, struct gpunvme_error_log log[GNV_SOFT_ERRORS])
{
	uint64_t i;

	for (i = 0; i < GNV_SOFT_ERRORS && i < errors->count; i++)
		log[i] = errors->entry[(errors->count - i) % GNV_SOFT_ERRORS];
}

uint8_t gnv_soft_critical_warning(const struct gnv_soft *soft)
{
	const struct gnv_soft_features *f = &soft->features;
	const struct gnv_soft_quirks *t = &soft->config.quirks;
	uint8_t warning = GNV_SOFT_TEMPERATURE >= f->temp_over || GNV_SOFT_TEMPERATURE <= f->temp_under ? WARN_TEMPERATURE : 0;

	warning |= gnv_soft_has(t, GNV_SOFT_HOT) ? WARN_TEMPERATURE : 0;
	warning |= gnv_soft_has(t, GNV_SOFT_SPARE) ? WARN_SPARE : 0;
	warning |= gnv_soft_has(t, GNV_SOFT_UNRELIABLE) ? WARN_RELIABILITY : 0;
	warning |= gnv_soft_has(t, GNV_SOFT_BACKUP) ? WARN_BACKUP : 0;
	warning |= gnv_soft_has(t, GNV_SOFT_WORN) ? WARN_READ_ONLY : 0;
	return warning;
}

static uint64_t thousands(uint64_t units)
{
	return (units + 999) / 1000;
}

static size_t fill_smart(struct gnv_soft *soft, struct gpunvme_smart_log *log)
{
	const unsigned kelvin = gnv_soft_has(&soft->config.quirks, GNV_SOFT_UNFELT) ? 0 : GNV_SOFT_TEMPERATURE;
	struct gnv_soft_counters c = { 0 };

	soft->engine->counters(soft, &c);
	log->critical_warning = gnv_soft_critical_warning(soft);
	log->temperature[0] = (uint8_t)kelvin;
	log->temperature[1] = (uint8_t)(kelvin >> 8);
	log->avail_spare = 100;
	log->spare_thresh = 10;
	log->data_units_read[0] = thousands(c.sectors_read);
	log->data_units_written[0] = thousands(c.sectors_written);
	log->host_reads[0] = c.reads;
	log->host_writes[0] = c.writes;
	log->controller_busy_time[0] = c.busy_ns / NS_PER_MINUTE;
	log->power_cycles[0] = 1;
	log->power_on_hours[0] = (soft->engine->now(soft) - soft->born_ns) / NS_PER_HOUR;
	log->media_errors[0] = c.media_errors;
	log->error_log_entries[0] = soft->engine->errors(soft, NULL);
	return sizeof(*log);
}

static size_t fill_firmware(const struct gnv_soft *soft, struct gpunvme_firmware_log *log)
{
	char text[16];

	log->afi = gnv_soft_has(&soft->config.quirks, GNV_SOFT_STAGED) ? 1 | 2 << 4 : 1;
	snprintf(text, sizeof(text), "%d.%d.%d", GPUNVME_VERSION_MAJOR, GPUNVME_VERSION_MINOR, GPUNVME_VERSION_PATCH);
	memset(log->frs[0], ' ', sizeof(log->frs[0]));
	memcpy(log->frs[0], text, gnv_min(strlen(text), sizeof(log->frs[0])));
	return sizeof(*log);
}

/* ---- Supported commands, features and log pages ---- */

#define COMMANDS 256u /* of each kind. There are 256 features and 256 log pages, too */

static bool has_log(const struct gnv_soft *soft, unsigned lid)
{
	switch (lid) {
	case GPUNVME_LID_ERROR:
	case GPUNVME_LID_SMART:
	case GPUNVME_LID_FIRMWARE:
	case GPUNVME_LID_CHANGED_NS:
	case GPUNVME_LID_EFFECTS:
		return true;
	case GPUNVME_LID_SUPPORTED:
	case GPUNVME_LID_FEATURES:
		return soft->version >= GNV_SOFT_2_0;
	default:
		return false;
	}
}

static size_t fill_logs(const struct gnv_soft *soft, uint32_t *log)
{
	unsigned lid;

	for (lid = 0; lid < COMMANDS; lid++)
		log[lid] = has_log(soft, lid) ? GPUNVME_EFFECT_SUPPORTED : 0;
	return COMMANDS * sizeof(*log);
}

static size_t fill_features(const struct gnv_soft *soft, uint32_t *log)
{
	unsigned fid;

	for (fid = 0; fid < COMMANDS; fid++)
		log[fid] = gnv_soft_has_feature(soft, (uint8_t)fid) ? GPUNVME_EFFECT_SUPPORTED | GPUNVME_EFFECT_CONTROLLER : 0;
	return COMMANDS * sizeof(*log);
}

/* Base Specification 5.16.1.6: admin commands, then I/O commands, 4096 bytes. */
static size_t fill_effects(const struct gnv_soft *soft, uint32_t *log)
{
	static const uint8_t admin[] = { GPUNVME_ADMIN_DELETE_SQ,    GPUNVME_ADMIN_CREATE_SQ,	 GPUNVME_ADMIN_GET_LOG_PAGE,
					 GPUNVME_ADMIN_DELETE_CQ,    GPUNVME_ADMIN_CREATE_CQ,	 GPUNVME_ADMIN_IDENTIFY,
					 GPUNVME_ADMIN_ABORT,	     GPUNVME_ADMIN_SET_FEATURES, GPUNVME_ADMIN_GET_FEATURES,
					 GPUNVME_ADMIN_ASYNC_EVENT_REQUEST };
	const uint32_t changes = GPUNVME_EFFECT_SUPPORTED | GPUNVME_EFFECT_CONTENT;
	const uint16_t oncs = gnv_soft_oncs(soft);
	uint32_t *io = log + COMMANDS;
	unsigned i;

	for (i = 0; i < GNV_ARRAY_LEN(admin); i++)
		log[admin[i]] = GPUNVME_EFFECT_SUPPORTED;
	io[GPUNVME_IO_FLUSH] = GPUNVME_EFFECT_SUPPORTED;
	io[GPUNVME_IO_READ] = GPUNVME_EFFECT_SUPPORTED;
	io[GPUNVME_IO_WRITE] = changes;
	io[GPUNVME_IO_COMPARE] = oncs & GPUNVME_ONCS_COMPARE ? GPUNVME_EFFECT_SUPPORTED : 0;
	io[GPUNVME_IO_WRITE_ZEROES] = oncs & GPUNVME_ONCS_WRITE_ZEROES ? changes : 0;
	io[GPUNVME_IO_DSM] = oncs & GPUNVME_ONCS_DSM ? changes : 0;
	return 4096;
}

union log_data {
	uint8_t bytes[GNV_SOFT_ERRORS * sizeof(struct gpunvme_error_log)];
	struct gpunvme_error_log errors[GNV_SOFT_ERRORS];
	struct gpunvme_smart_log smart;
	struct gpunvme_firmware_log firmware;
	uint32_t words[1024]; /* changed namespaces (always none), effects, or supported pages */
};

/* Size of the page, or 0: there is no such page. */
static size_t fill(struct gnv_soft *soft, uint8_t lid, union log_data *data)
{
	memset(data, 0, sizeof(*data));
	if (!has_log(soft, lid))
		return 0;
	switch (lid) {
	case GPUNVME_LID_ERROR:
		soft->engine->errors(soft, data->errors);
		return sizeof(data->errors);
	case GPUNVME_LID_SMART:
		return fill_smart(soft, &data->smart);
	case GPUNVME_LID_FIRMWARE:
		return fill_firmware(soft, &data->firmware);
	case GPUNVME_LID_CHANGED_NS:
		return sizeof(data->words);
	case GPUNVME_LID_EFFECTS:
		return fill_effects(soft, data->words);
	case GPUNVME_LID_FEATURES:
		return fill_features(soft, data->words);
	default: /* GPUNVME_LID_SUPPORTED */
		return fill_logs(soft, data->words);
	}
}

uint16_t gnv_soft_get_log_page(struct gnv_soft *soft, struct gnv_soft_cmd *cmd)
{
	const struct gpunvme_sqe *sqe = &cmd->sqe;
	uint64_t numd_0b = GPUNVME_FIELD_GET(GPUNVME_LOG_NUMDL_0B, sqe->cdw10) |
			   (uint64_t)GPUNVME_FIELD_GET(GPUNVME_LOG_NUMDU, sqe->cdw11) << 16;
	uint64_t offset = sqe->cdw12 | (uint64_t)sqe->cdw13 << 32;
	uint64_t most = soft->max_transfer ? soft->max_transfer : MOST;
	uint64_t want = (numd_0b + 1) * 4;
	uint8_t lid = (uint8_t)sqe->cdw10;
	union log_data data;
	size_t len = fill(soft, lid, &data);
	uint16_t status;

	if (!len)
		return GPUNVME_SC_INVALID_LOG_PAGE;
	if ((sqe->nsid && sqe->nsid != GPUNVME_NSID_ALL) || offset % 4 || offset > len || want > most)
		return GPUNVME_SC_INVALID_FIELD;
	status = gnv_soft_reply(soft, cmd, data.bytes + offset, (size_t)(len - offset), want);
	if (!status && !(sqe->cdw10 & LOG_RAE))
		gnv_soft_events_read(soft, lid);
	return status;
}
