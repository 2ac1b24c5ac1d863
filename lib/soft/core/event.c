/* SPDX-License-Identifier: MIT */
/* Asynchronous events (Base Specification 5.2). Any thread raises them, thread 0 reports them. */
#include "soft/core/controller.h"

#define TYPE_ERROR 0u
#define TYPE_SMART 1u
#define TYPE_NOTICE 2u

static const struct {
	uint8_t type, info, lid;
	uint32_t config; /* its bit of the Asynchronous Event Configuration, or 0: always on */
} events[GNV_SOFT_EVENTS] = {
	[GNV_SOFT_EVENT_DOORBELL_REGISTER] = { TYPE_ERROR, 0, GPUNVME_LID_ERROR, 0 },
	[GNV_SOFT_EVENT_DOORBELL_VALUE] = { TYPE_ERROR, 1, GPUNVME_LID_ERROR, 0 },
	[GNV_SOFT_EVENT_TEMPERATURE] = { TYPE_SMART, 1, GPUNVME_LID_SMART, 0x02 },
	[GNV_SOFT_EVENT_NAMESPACE] = { TYPE_NOTICE, 0, GPUNVME_LID_CHANGED_NS, 0x100 },
	[GNV_SOFT_EVENT_FIRMWARE] = { TYPE_NOTICE, 1, GPUNVME_LID_FIRMWARE, 0x200 },
};

void gnv_soft_raise(struct gnv_soft *soft, enum gnv_soft_event event)
{
	gnv_soft_io_raise(&soft->io, event);
}

uint16_t gnv_soft_async_request(struct gnv_soft *soft, struct gnv_soft_cmd *cmd, bool *kept)
{
	if (soft->aers == GNV_SOFT_AERS)
		return GPUNVME_SC_AER_LIMIT;
	soft->aer[soft->aers++] = cmd;
	*kept = true;
	return 0;
}

/* Requests complete in the order in which they came. */
static struct gnv_soft_cmd *take_aer(struct gnv_soft *soft, unsigned at)
{
	struct gnv_soft_cmd *cmd = soft->aer[at];

	soft->aers--;
	for (; at < soft->aers; at++)
		soft->aer[at] = soft->aer[at + 1];
	return cmd;
}

/* An event type that was reported stays quiet until its log page is read. */
static bool may_report(const struct gnv_soft *soft, unsigned event)
{
	return !(soft->events_masked & 1u << events[event].type);
}

static bool is_wanted(const struct gnv_soft *soft, unsigned event)
{
	return !events[event].config || (soft->features.async_event & events[event].config);
}

unsigned gnv_soft_events_poll(struct gnv_soft *soft)
{
	uint32_t raised = __atomic_load_n(&soft->io.events, __ATOMIC_RELAXED);
	struct gnv_soft_cmd *cmd;
	unsigned event, n = 0;

	for (event = 0; event < GNV_SOFT_EVENTS && raised; event++) {
		if (!(raised & 1u << event))
			continue;
		if (!is_wanted(soft, event)) {
			__atomic_fetch_and(&soft->io.events, ~(1u << event), __ATOMIC_RELAXED);
			continue;
		}
		if (!soft->aers || !may_report(soft, event))
			continue;
		__atomic_fetch_and(&soft->io.events, ~(1u << event), __ATOMIC_RELAXED);
		soft->events_masked |= 1u << events[event].type;
		cmd = take_aer(soft, 0);
		cmd->dw0 = events[event].type | (uint32_t)events[event].info << 8 | (uint32_t)events[event].lid << 16;
		soft->engine->complete(soft, cmd, 0);
		n++;
	}
	return n;
}

void gnv_soft_events_read(struct gnv_soft *soft, uint8_t lid)
{
	unsigned event;

	for (event = 0; event < GNV_SOFT_EVENTS; event++)
		if (events[event].lid == lid)
			soft->events_masked &= ~(1u << events[event].type);
}

bool gnv_soft_abort_aer(struct gnv_soft *soft, uint16_t cid)
{
	unsigned i;

	for (i = 0; i < soft->aers; i++)
		if (soft->aer[i]->sqe.cid == cid) {
			soft->engine->complete(soft, take_aer(soft, i), GPUNVME_SC_ABORT_REQUESTED);
			return true;
		}
	return false;
}

void gnv_soft_events_reset(struct gnv_soft *soft)
{
	while (soft->aers)
		soft->engine->discard(soft, take_aer(soft, 0));
	soft->events_masked = 0;
	__atomic_store_n(&soft->io.events, 0, __ATOMIC_RELAXED);
}
