/* SPDX-License-Identifier: MIT */
/*
 * Admin commands: Base Specification 3.3 (queues), 4.1.1 (PRPs), 5 (commands).
 * Invariant: but for requests for events at most one command is in flight, and only while the lock is held. After a command without
 * a valid completion no other is sent.
 */
#include "nvme/admin.h"

#include <errno.h>
#include <string.h>

#include "util/bits.h"
#include "util/clock.h"
#include "util/mmio.h"
#include "util/process.h"

#define ENTRIES 32u
#define FIRST_AER 0xff00u /* command identifiers of requests for events. Other commands have lower ones */

int gnv_admin_init(struct gnv_admin *admin, struct gnv_ctrl *ctrl, struct gnv_arena *arena, uint32_t timeout_ms)
{
	int ret;

	memset(admin, 0, sizeof(*admin));
	pthread_mutex_init(&admin->lock, NULL);
	admin->process = gnv_process();
	admin->ctrl = ctrl;
	admin->arena = arena;
	admin->timeout_ms = timeout_ms;
	admin->phase = 1;
	ret = gnv_arena_alloc(arena, ENTRIES * sizeof(struct gpunvme_sqe), NULL, &admin->sq);
	if (ret)
		return ret;
	ret = gnv_arena_alloc(arena, ENTRIES * sizeof(struct gpunvme_cqe), NULL, &admin->cq);
	if (ret)
		return ret;
	return gnv_arena_alloc(arena, 4096, NULL, &admin->data);
}

int gnv_admin_restart(struct gnv_admin *admin)
{
	struct gnv_ctrl *ctrl = admin->ctrl;
	int ret;

	__atomic_fetch_add(&admin->restarts, 1, __ATOMIC_RELEASE);
	pthread_mutex_lock(&admin->lock);
	__atomic_fetch_sub(&admin->restarts, 1, __ATOMIC_RELAXED);
	ret = gnv_ctrl_kept(ctrl);
	if (!ret)
		ret = gnv_ctrl_disable(ctrl);
	if (!ret) {
		gnv_arena_free(admin->arena, &admin->late);
		memset(admin->sq.cpu, 0, admin->sq.len);
		memset(admin->cq.cpu, 0, admin->cq.len);
		admin->tail = admin->head = 0;
		admin->phase = 1;
		memset(&admin->aer, 0, sizeof(admin->aer));
		ret = gnv_ctrl_enable(ctrl, admin->sq.iova, admin->cq.iova, ENTRIES);
	}
	if (ret)
		gnv_ctrl_kill(ctrl, ret == -ENODEV ? ret : -ESHUTDOWN, gpunvme_errmsg());
	else if ((ret = gnv_ctrl_revive(ctrl)))
		gnv_ctrl_disable(ctrl);
	pthread_mutex_unlock(&admin->lock);
	return ret;
}

void gnv_admin_fini(struct gnv_admin *admin)
{
	gnv_arena_free(admin->arena, &admin->late);
	gnv_arena_free(admin->arena, &admin->data);
	gnv_arena_free(admin->arena, &admin->cq);
	gnv_arena_free(admin->arena, &admin->sq);
	pthread_mutex_destroy(&admin->lock);
}

/* @bell: rings instead of the CPU. NULL: the CPU rings. Return: an error of @bell: then the command was not sent. */
static int submit(struct gnv_admin *admin, const struct gpunvme_sqe *cmd, const struct gnv_bell *bell)
{
	struct gpunvme_sqe *ring = admin->sq.cpu;
	uint16_t tail = (uint16_t)((admin->tail + 1) % ENTRIES);
	int ret = 0;

	ring[admin->tail] = *cmd;
	if (bell) {
		__atomic_thread_fence(__ATOMIC_SEQ_CST); /* the entry, before any word that makes another processor ring */
		ret = bell->ring(bell->ctx, tail);
	} else {
		gnv_mmio_write32(admin->ctrl->bar + gnv_ctrl_sq_doorbell(admin->ctrl, 0), tail);
	}
	if (!ret)
		admin->tail = tail;
	return ret;
}

/* A controller that is gone or has failed will never post a completion. */
static int check_alive(struct gnv_admin *admin)
{
	uint32_t csts;
	int ret = gnv_ctrl_status(admin->ctrl, &csts);

	if (ret)
		return ret;
	if (csts & GPUNVME_CSTS_CFS)
		gnv_ctrl_kill(admin->ctrl, -ESHUTDOWN, "it reports a fatal error (CSTS.CFS)");
	else if (!(csts & GPUNVME_CSTS_RDY))
		gnv_ctrl_kill(admin->ctrl, -ESHUTDOWN, "it was stopped or reset by another (CSTS.RDY is 0)");
	return gnv_ctrl_check(admin->ctrl);
}

static bool completion_waits(const struct gnv_admin *admin)
{
	const struct gpunvme_cqe *entry = (const struct gpunvme_cqe *)admin->cq.cpu + admin->head;

	return GPUNVME_FIELD_GET(GPUNVME_CQE_DW3_PHASE, gnv_word_read32((const char *)entry + 12)) == admin->phase;
}

static void next_completion(struct gnv_admin *admin)
{
	admin->head = (uint16_t)((admin->head + 1) % ENTRIES);
	if (!admin->head)
		admin->phase ^= 1;
	gnv_mmio_write32(admin->ctrl->bar + gnv_ctrl_cq_doorbell(admin->ctrl, 0), admin->head);
}

/* Return: true when the completion at the head was that of a request for an event. */
static bool take_event(struct gnv_admin *admin)
{
	struct gpunvme_cqe cqe = ((const struct gpunvme_cqe *)admin->cq.cpu)[admin->head];
	uint32_t i = cqe.cid - FIRST_AER;

	if (cqe.cid < FIRST_AER || i >= GNV_ADMIN_AERS || !(admin->aer.sent >> i & 1) || cqe.sqid || cqe.sqhd >= ENTRIES)
		return false;
	admin->aer.sent &= ~(1u << i);
	if (cqe.status >> 1 & GPUNVME_ST_CODE)
		admin->aer.refused |= 1u << i;
	else
		admin->aer.answered |= 1u << i;
	admin->aer.dw0[i] = cqe.dw0;
	next_completion(admin);
	return true;
}

/* The controller is being reset, and forgets the command. Until then it may execute the command. */
static int check_wanted(struct gnv_admin *admin, uint8_t opc)
{
	if (!__atomic_load_n(&admin->restarts, __ATOMIC_ACQUIRE))
		return 0;
	gnv_ctrl_kill(admin->ctrl, -ESHUTDOWN, NULL);
	return gnv_fail(-ESHUTDOWN, "admin command 0x%02x was ended by a reset of the controller. Send it again", opc);
}

static int wait_completion(struct gnv_admin *admin, uint8_t opc)
{
	struct gnv_deadline deadline = gnv_deadline_in(admin->timeout_ms);

	do {
		int ret;

		while (completion_waits(admin))
			if (!take_event(admin))
				return 0;
		ret = check_alive(admin);
		if (!ret)
			ret = check_wanted(admin, opc);
		if (ret)
			return ret;
	} while (gnv_deadline_poll_again(&deadline));
	gnv_fail(-ETIMEDOUT, "the controller did not complete admin command 0x%02x within %u ms. Reset it, or close and open it",
		 opc,
		 admin->timeout_ms);
	gnv_ctrl_kill(admin->ctrl, -ESHUTDOWN, gpunvme_errmsg());
	return -ETIMEDOUT;
}

static int broke(struct gnv_admin *admin, const struct gpunvme_cqe *cqe)
{
	gnv_fail(-EPROTO,
		 "the controller broke the protocol: admin completion of command %u, queue %u, head %u. The last command was %u of "
		 "queue 0",
		 cqe->cid, cqe->sqid, cqe->sqhd, admin->cid);
	gnv_ctrl_kill(admin->ctrl, -ESHUTDOWN, gpunvme_errmsg());
	return -EPROTO;
}

/* Take the completion at the head. It comes from the device, so all of it is checked. */
static int take_completion(struct gnv_admin *admin, uint32_t *result)
{
	struct gpunvme_cqe cqe = ((const struct gpunvme_cqe *)admin->cq.cpu)[admin->head];
	uint32_t status = cqe.status >> 1;

	if (cqe.cid != admin->cid || cqe.sqid || cqe.sqhd >= ENTRIES)
		return broke(admin, &cqe);
	next_completion(admin);
	if (result)
		*result = cqe.dw0;
	return status & GPUNVME_ST_CODE ? (int)status : 0;
}

/* PRP1 and PRP2 for `len` bytes of a page-aligned block. The list, if there is one, follows the data. */
static void point_at(const struct gnv_block *data, size_t len, size_t page, struct gpunvme_sqe *cmd)
{
	size_t pages = (len + page - 1) / page, i;
	uint64_t *list = (uint64_t *)(void *)((char *)data->cpu + pages * page);

	cmd->prp1 = data->iova;
	cmd->prp2 = 0;
	if (pages == 2)
		cmd->prp2 = data->iova + page;
	if (pages <= 2)
		return;
	for (i = 1; i < pages; i++)
		list[i - 1] = data->iova + i * page;
	cmd->prp2 = data->iova + pages * page;
}

/* A block for the data of one command: the standing page, or one of its own with room for a PRP list. */
static int data_get(struct gnv_admin *admin, size_t len, struct gnv_block *data)
{
	size_t page = admin->ctrl->page_size;

	if (len > admin->data.len)
		return gnv_arena_alloc(admin->arena, gnv_align_up(len, page) + page, NULL, data);
	*data = admin->data;
	return 0;
}

/* There is one late block at most: after it a restart follows, or nothing. */
static void data_put(struct gnv_admin *admin, struct gnv_block *data)
{
	if (!data->chunk || data->iova == admin->data.iova)
		return;
	if (gnv_ctrl_dead(admin->ctrl))
		admin->late = *data;
	else
		gnv_arena_free(admin->arena, data);
}

/* One command with the lock held and its data, if any, in place. */
static int exchange(struct gnv_admin *admin, struct gpunvme_sqe *cmd, const struct gnv_bell *bell, uint32_t *result)
{
	uint8_t opc = cmd->opc;
	int ret = check_alive(admin);

	if (ret)
		return ret;
	cmd->cid = admin->cid = (uint16_t)((admin->cid + 1) % FIRST_AER);
	ret = submit(admin, cmd, bell);
	if (ret)
		return ret;
	ret = wait_completion(admin, opc);
	if (ret)
		return ret;
	ret = take_completion(admin, result);
	if (ret > 0)
		gnv_fail(ret, "the controller refused admin command 0x%02x with status 0x%x: %s", opc, (unsigned)ret,
			 gpunvme_strerror(ret));
	return ret;
}

/* Return: 0 when another command may be sent. */
static int check_usable(const struct gnv_admin *admin)
{
	return gnv_ctrl_check(admin->ctrl);
}

int gnv_admin_run_doorbell(struct gnv_admin *admin, const struct gpunvme_sqe *cmd, const struct gnv_bell *bell, uint32_t *result)
{
	struct gpunvme_sqe sqe = *cmd;
	int ret;

	if (gnv_foreign(admin->process))
		return -ECHILD;
	pthread_mutex_lock(&admin->lock);
	ret = check_usable(admin);
	if (!ret)
		ret = exchange(admin, &sqe, bell, result);
	pthread_mutex_unlock(&admin->lock);
	return ret;
}

int gnv_admin_run(struct gnv_admin *admin, const struct gpunvme_sqe *cmd, void *buf, size_t len, bool to_device, uint32_t *result)
{
	struct gpunvme_sqe sqe = *cmd;
	struct gnv_block data = { 0 };
	int ret;

	if (gnv_foreign(admin->process))
		return -ECHILD;
	pthread_mutex_lock(&admin->lock);
	ret = check_usable(admin);
	if (ret)
		goto unlock;
	if (len) {
		ret = data_get(admin, len, &data);
		if (ret)
			goto unlock;
		memset(data.cpu, 0, len); /* what a controller leaves out must not be of an earlier command */
		if (to_device)
			memcpy(data.cpu, buf, len);
		point_at(&data, len, admin->ctrl->page_size, &sqe);
	}
	ret = exchange(admin, &sqe, NULL, result);
	if (!ret && len && !to_device)
		memcpy(buf, data.cpu, len);
	data_put(admin, &data);
unlock:
	pthread_mutex_unlock(&admin->lock);
	return ret;
}

/* ---- Requests for events ---- */

void gnv_admin_request_events(struct gnv_admin *admin, unsigned want)
{
	struct gpunvme_sqe cmd = { .opc = GPUNVME_ADMIN_ASYNC_EVENT_REQUEST };
	unsigned i;

	pthread_mutex_lock(&admin->lock);
	for (i = 0; i < want && i < GNV_ADMIN_AERS && !gnv_ctrl_dead(admin->ctrl); i++) {
		if ((admin->aer.sent | admin->aer.answered | admin->aer.refused) >> i & 1)
			continue;
		cmd.cid = (uint16_t)(FIRST_AER + i);
		admin->aer.sent |= 1u << i;
		submit(admin, &cmd, NULL);
	}
	pthread_mutex_unlock(&admin->lock);
}

unsigned gnv_admin_take_events(struct gnv_admin *admin, uint32_t events[GNV_ADMIN_AERS])
{
	unsigned i, n = 0;

	pthread_mutex_lock(&admin->lock);
	while (!gnv_ctrl_dead(admin->ctrl) && completion_waits(admin))
		if (!take_event(admin)) /* and no command is in flight that it could complete */
			broke(admin, (const struct gpunvme_cqe *)admin->cq.cpu + admin->head);
	for (i = 0; i < GNV_ADMIN_AERS; i++)
		if (admin->aer.answered >> i & 1)
			events[n++] = admin->aer.dw0[i];
	admin->aer.answered = 0;
	pthread_mutex_unlock(&admin->lock);
	return n;
}
