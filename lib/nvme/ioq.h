/* SPDX-License-Identifier: MIT */
/*
 * An I/O queue pair that the host drives itself, one batch of commands after the other. For tests before threads use the drive.
 */
#ifndef GNV_NVME_IOQ_H
#define GNV_NVME_IOQ_H

#include "nvme/nvme.h"

#define GNV_IOQ_BATCH 32u

struct gnv_ioq {
	struct gnv_nvme *nvme;
	uint32_t qid;
	struct gnv_block sq;
	struct gnv_block cq;
	uint32_t entries; /* of each ring */
	uint16_t tail;
	uint16_t head;
	uint16_t phase; /* of a new completion: 1 or 0 */
	bool cq_exists, sq_exists;
};

/* The admin commands that create a queue whose ring lies at `iova`. The caller handles their status. */
struct gpunvme_sqe gnv_ioq_create_cq(uint32_t qid, uint64_t iova, uint32_t entries);
struct gpunvme_sqe gnv_ioq_create_sq(const struct gnv_nvme *nvme, uint32_t qid, uint64_t iova, uint32_t entries);

/* @qid is free. After a failure, too, call gnv_ioq_close(). Return: 0, -ENOMEM, or errors of gnv_admin_run(). */
int gnv_ioq_open(struct gnv_ioq *q, struct gnv_nvme *nvme, uint32_t qid);

/*
 * gnv_ioq_run() - send @count commands, at most GNV_IOQ_BATCH, and wait for all
 * Return: 0; the first status that was none of success; -ETIMEDOUT, -EPROTO, -ESHUTDOWN it died: the controller may still have
 * commands of the queue, until it is reset; -ENODEV.
 */
int gnv_ioq_run(struct gnv_ioq *q, struct gpunvme_sqe *cmds, uint32_t count, uint32_t timeout_ms);

/*
 * gnv_ioq_run_witnessed() - the same with one command that a controller may never complete: other commands show whether it is late
 * @witness: a command that it completes, sent again and again after @cmd timed out. Each is waited for @witness_ms
 * Return: as gnv_ioq_run(); -ETIMEDOUT it completed the witnesses but not @cmd, or not even a witness.
 */
int gnv_ioq_run_witnessed(struct gnv_ioq *q, struct gpunvme_sqe *cmd, const struct gpunvme_sqe *witness, uint32_t timeout_ms,
			  uint32_t witness_ms);

/* The controller was reset: it knows of no queue. */
void gnv_ioq_forget(struct gnv_ioq *q);

/* Delete and release it. Return: 0. Otherwise the controller keeps its rings, and so does the arena. */
int gnv_ioq_close(struct gnv_ioq *q);

#endif
