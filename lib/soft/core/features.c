/* SPDX-License-Identifier: MIT */
/* Set Features and Get Features (Base Specification 5.27, 5.15). Nothing can be saved: a controller in memory forgets. */
#include "soft/core/controller.h"
#include "soft/core/data.h"

#include "util/bits.h"

#define CAN_CHANGE 4u /* Get Features, SEL 3, dword 0 */

#define ARBITRATION_RESERVED 0x000000f8u
#define POWER_STATE 0x0000001fu
#define POWER_RESERVED 0xffffff00u
#define TEMP_TMPTH 0x0000ffffu
#define TEMP_TMPSEL 0x000f0000u
#define TEMP_TMPSEL_ALL 0x000f0000u
#define TEMP_THSEL 0x00300000u
#define TEMP_THSEL_UNDER 0x00100000u
#define TEMP_RESERVED 0xffc00000u
#define RECOVERY_TLER 0x0000ffffu
#define ASYNC_SUPPORTED (0x000000ffu | GNV_SOFT_OAES) /* critical warnings of the SMART log, notices */

#define WORD(vector) ((vector) / 32) /* of a bit for each vector */
#define BIT(vector) (1u << (vector) % 32)

enum { SEL_CURRENT, SEL_DEFAULT, SEL_SAVED, SEL_SUPPORTED };

static uint32_t all_queues(const struct gnv_soft *soft)
{
	uint32_t n_0b = soft->config.queues - 1;

	return GPUNVME_FIELD_PREP(GPUNVME_NUMQ_NSQ_0B, n_0b) | GPUNVME_FIELD_PREP(GPUNVME_NUMQ_NCQ_0B, n_0b);
}

static uint32_t deepest(const struct gnv_soft *soft)
{
	return gnv_soft_has(&soft->config.quirks, GNV_SOFT_SLEEPY) ? GNV_SOFT_DEEPEST : 0;
}

static struct gnv_soft_features defaults(const struct gnv_soft *soft)
{
	const bool hints = gnv_soft_has(&soft->config.quirks, GNV_SOFT_HINTS);

	return (struct gnv_soft_features){ .arbitration = hints ? 0x2 : 0x7, /* no limit */
					   .power = deepest(soft),
					   .temp_over = 350,
					   .queues = all_queues(soft) };
}

void gnv_soft_features_reset(struct gnv_soft *soft)
{
	soft->features = defaults(soft);
	__atomic_store_n(&soft->io.apst, deepest(soft) != 0, __ATOMIC_RELAXED);
	__atomic_store_n(&soft->io.write_back, true, __ATOMIC_RELAXED);
}

/* ---- Interrupt vectors ---- */

bool gnv_soft_is_at_once(const struct gnv_soft *soft, unsigned vector)
{
	return vector >= GNV_SOFT_VECTORS || __atomic_load_n(&soft->features.at_once[WORD(vector)], __ATOMIC_RELAXED) & BIT(vector);
}

/* Of a completion queue for I/O that exists. */
static bool is_used(const struct gnv_soft *soft, uint32_t vector)
{
	unsigned qid;

	for (qid = 1; qid <= soft->config.queues; qid++)
		if (soft->queue[qid].cq && soft->queue[qid].interrupts && soft->queue[qid].vector == vector)
			return vector < GNV_SOFT_VECTORS;
	return false;
}

static uint16_t set_vector(struct gnv_soft *soft, uint32_t value)
{
	uint32_t vector = GPUNVME_FIELD_GET(GPUNVME_VECTOR_IV, value);
	uint32_t *word;

	if (value & ~(GPUNVME_VECTOR_IV | GPUNVME_VECTOR_CD) || !is_used(soft, vector))
		return GPUNVME_SC_INVALID_FIELD;
	word = &soft->features.at_once[WORD(vector)];
	__atomic_store_n(word, value & GPUNVME_VECTOR_CD ? *word | BIT(vector) : *word & ~BIT(vector), __ATOMIC_RELAXED);
	return 0;
}

static bool get_vector(const struct gnv_soft *soft, uint32_t cdw11, bool current, uint32_t *value)
{
	uint32_t vector = GPUNVME_FIELD_GET(GPUNVME_VECTOR_IV, cdw11);

	if (cdw11 & ~GPUNVME_VECTOR_IV || !is_used(soft, vector))
		return false;
	*value = vector | (current && gnv_soft_is_at_once(soft, vector) ? GPUNVME_VECTOR_CD : 0);
	return true;
}

/* ---- Set ---- */

static uint16_t set_queues(struct gnv_soft *soft, uint32_t value, uint32_t *dw0)
{
	uint32_t nsq = GPUNVME_FIELD_GET(GPUNVME_NUMQ_NSQ_0B, value);
	uint32_t ncq = GPUNVME_FIELD_GET(GPUNVME_NUMQ_NCQ_0B, value);
	uint32_t most = soft->config.queues - 1;

	if (soft->io_queues)
		return GPUNVME_SC_COMMAND_SEQUENCE;
	if (nsq == 0xffff || ncq == 0xffff)
		return GPUNVME_SC_INVALID_FIELD;
	nsq = (uint32_t)gnv_min(nsq, most);
	ncq = (uint32_t)gnv_min(ncq, most);
	soft->features.queues = GPUNVME_FIELD_PREP(GPUNVME_NUMQ_NSQ_0B, nsq) | GPUNVME_FIELD_PREP(GPUNVME_NUMQ_NCQ_0B, ncq);
	*dw0 = soft->features.queues;
	return 0;
}

static uint16_t set_temperature(struct gnv_soft *soft, uint32_t value)
{
	uint32_t sensor = value & TEMP_TMPSEL;

	if ((value & TEMP_RESERVED) || (value & TEMP_THSEL) > TEMP_THSEL_UNDER || (sensor && sensor != TEMP_TMPSEL_ALL))
		return GPUNVME_SC_INVALID_FIELD;
	if (value & TEMP_THSEL)
		soft->features.temp_under = value & TEMP_TMPTH;
	else
		soft->features.temp_over = value & TEMP_TMPTH;
	if (gnv_soft_critical_warning(soft))
		gnv_soft_raise(soft, GNV_SOFT_EVENT_TEMPERATURE);
	return 0;
}

/* Store a value that has no bits but those of `mask`. */
static uint16_t set_plain(uint32_t *feature, uint32_t value, uint32_t mask)
{
	if (value & ~mask)
		return GPUNVME_SC_INVALID_FIELD;
	*feature = value;
	return 0;
}

/* Server threads look at it. */
static uint16_t set_coalescing(struct gnv_soft *soft, uint32_t value)
{
	if (value & ~(GPUNVME_COALESCING_TIME | GPUNVME_COALESCING_THR_0B))
		return GPUNVME_SC_INVALID_FIELD;
	__atomic_store_n(&soft->features.coalescing, value, __ATOMIC_RELAXED);
	return 0;
}

static uint16_t set_write_cache(struct gnv_soft *soft, uint32_t value)
{
	if (value & ~GPUNVME_VWC_WCE)
		return GPUNVME_SC_INVALID_FIELD;
	__atomic_store_n(&soft->io.write_back, value & GPUNVME_VWC_WCE, __ATOMIC_RELAXED);
	return 0;
}

static uint16_t set_async_event(struct gnv_soft *soft, uint32_t value)
{
	uint16_t status = set_plain(&soft->features.async_event, value, ASYNC_SUPPORTED);

	if (!status && gnv_soft_critical_warning(soft))
		gnv_soft_raise(soft, GNV_SOFT_EVENT_TEMPERATURE);
	return status;
}

/* With a table of 256 bytes, which is kept to be shown. */
static uint16_t set_apst(struct gnv_soft *soft, struct gnv_soft_cmd *cmd)
{
	uint16_t status;

	if (cmd->sqe.cdw11 & ~1u)
		return GPUNVME_SC_INVALID_FIELD;
	status = gnv_soft_receive(cmd, soft->features.apst_table, sizeof(soft->features.apst_table));
	if (!status)
		__atomic_store_n(&soft->io.apst, cmd->sqe.cdw11, __ATOMIC_RELAXED); /* I/O queues look at it */
	return status;
}

/* The workload hint is taken and ignored. */
static uint16_t set_power(struct gnv_soft *soft, uint32_t value)
{
	const uint32_t state = value & POWER_STATE;

	if (state > deepest(soft))
		return GPUNVME_SC_INVALID_FIELD;
	__atomic_store_n(&soft->io.asleep, state && gnv_soft_has(&soft->config.quirks, GNV_SOFT_SLOW_WAKE), __ATOMIC_RELAXED);
	return set_plain(&soft->features.power, value, ~POWER_RESERVED);
}

static uint16_t set_value(struct gnv_soft *soft, uint8_t fid, uint32_t value, uint32_t *dw0)
{
	switch (fid) {
	case GPUNVME_FID_ARBITRATION:
		return set_plain(&soft->features.arbitration, value, ~ARBITRATION_RESERVED);
	case GPUNVME_FID_POWER:
		return set_power(soft, value);
	case GPUNVME_FID_TEMP_THRESHOLD:
		return set_temperature(soft, value);
	case GPUNVME_FID_ERROR_RECOVERY:
		return set_plain(&soft->features.error_recovery, value, RECOVERY_TLER);
	case GPUNVME_FID_VWC:
		return set_write_cache(soft, value);
	case GPUNVME_FID_NUM_QUEUES:
		return set_queues(soft, value, dw0);
	case GPUNVME_FID_COALESCING:
		return set_coalescing(soft, value);
	case GPUNVME_FID_VECTOR:
		return set_vector(soft, value);
	case GPUNVME_FID_WRITE_ATOMICITY:
		return set_plain(&soft->features.write_atomicity, value, GPUNVME_ATOMICITY_DN);
	case GPUNVME_FID_ASYNC_EVENT:
		return set_async_event(soft, value);
	default:
		return GPUNVME_SC_INVALID_FIELD;
	}
}

static bool get_value(const struct gnv_soft_features *f, bool write_back, uint8_t fid, uint32_t cdw11, uint32_t *value)
{
	switch (fid) {
	case GPUNVME_FID_ARBITRATION:
		*value = f->arbitration;
		return true;
	case GPUNVME_FID_POWER:
		*value = f->power;
		return true;
	case GPUNVME_FID_TEMP_THRESHOLD:
		*value = cdw11 & TEMP_THSEL ? f->temp_under : f->temp_over;
		return !(cdw11 & (TEMP_RESERVED | TEMP_TMPSEL)) && (cdw11 & TEMP_THSEL) <= TEMP_THSEL_UNDER;
	case GPUNVME_FID_ERROR_RECOVERY:
		*value = f->error_recovery;
		return true;
	case GPUNVME_FID_VWC:
		*value = write_back ? GPUNVME_VWC_WCE : 0;
		return true;
	case GPUNVME_FID_NUM_QUEUES:
		*value = f->queues;
		return true;
	case GPUNVME_FID_COALESCING:
		*value = f->coalescing;
		return true;
	case GPUNVME_FID_WRITE_ATOMICITY:
		*value = f->write_atomicity;
		return true;
	case GPUNVME_FID_ASYNC_EVENT:
		*value = f->async_event;
		return true;
	default:
		return false;
	}
}

bool gnv_soft_has_feature(const struct gnv_soft *soft, uint8_t fid)
{
	uint32_t ignored;

	switch (fid) {
	case GPUNVME_FID_VECTOR:
		return true;
	case GPUNVME_FID_APST:
		return deepest(soft);
	case GPUNVME_FID_HMB:
		return gnv_soft_has(&soft->config.quirks, GNV_SOFT_HMB);
	default:
		return get_value(&soft->features, true, fid, 0, &ignored);
	}
}

uint16_t gnv_soft_set_features(struct gnv_soft *soft, struct gnv_soft_cmd *cmd)
{
	uint8_t fid = (uint8_t)cmd->sqe.cdw10;

	if (!gnv_soft_has_feature(soft, fid))
		return GPUNVME_SC_INVALID_FIELD;
	if (fid == GPUNVME_FID_APST)
		return set_apst(soft, cmd);
	if (fid == GPUNVME_FID_HMB)
		return gnv_soft_hmb_set(soft, &cmd->sqe);
	if (cmd->sqe.cdw10 & GPUNVME_FEAT_SV)
		return GPUNVME_SC_FEATURE_NOT_SAVEABLE;
	if (cmd->sqe.nsid && cmd->sqe.nsid != GPUNVME_NSID_ALL)
		return GPUNVME_SC_FEATURE_NOT_NS;
	return set_value(soft, fid, cmd->sqe.cdw11, &cmd->dw0);
}

/* A value that cannot be saved reads as its default. */
static bool select_value(const struct gnv_soft *soft, uint8_t fid, uint32_t sel, uint32_t cdw11, uint32_t *value)
{
	bool write_back = __atomic_load_n(&soft->io.write_back, __ATOMIC_RELAXED);
	struct gnv_soft_features initial = defaults(soft);

	*value = CAN_CHANGE;
	if (fid == GPUNVME_FID_VECTOR)
		return sel == SEL_SUPPORTED || get_vector(soft, cdw11, sel == SEL_CURRENT, value);
	if (sel == SEL_CURRENT)
		return get_value(&soft->features, write_back, fid, cdw11, value);
	return get_value(&initial, true, fid, cdw11, value);
}

uint16_t gnv_soft_get_features(struct gnv_soft *soft, struct gnv_soft_cmd *cmd)
{
	uint32_t sel = GPUNVME_FIELD_GET(GPUNVME_FEAT_SEL, cmd->sqe.cdw10);
	uint8_t fid = (uint8_t)cmd->sqe.cdw10;
	uint32_t value;

	if (fid == GPUNVME_FID_APST && deepest(soft) && sel == SEL_CURRENT) {
		cmd->dw0 = soft->io.apst;
		return gnv_soft_reply(soft, cmd, soft->features.apst_table, sizeof(soft->features.apst_table),
				      sizeof(soft->features.apst_table));
	}
	if (fid == GPUNVME_FID_HMB && sel == SEL_CURRENT)
		return gnv_soft_hmb_get(soft, cmd);
	if (!select_value(soft, fid, sel, cmd->sqe.cdw11, &value) || sel > SEL_SUPPORTED)
		return GPUNVME_SC_INVALID_FIELD;
	cmd->dw0 = sel == SEL_SUPPORTED ? CAN_CHANGE : value;
	return 0;
}
