/* SPDX-License-Identifier: MIT */
/*
 * The duties of an engine: all that the controller (core/) cannot do by itself, as it has no thread, no lock, no clock and no
 * system call. An engine fetches commands, has their data moved, completes them and interrupts the host. engine/ is one with
 * threads.
 *
 * Callers: the engine calls the controller, and the controller this table, from one thread at a time. That thread polls the
 * registers (gnv_soft_regs_poll()) and executes admin commands. So no two threads call a function here at once, unless its comment
 * allows it.
 *
 * Memory of the host is accessed by IOVA and length, through functions that are linked, not by this table (core/data.h).
 *
 * The engine raises interrupts. It calls config.irq.raise() for completions in a queue whose ring has `interrupts`, with the vector
 * of that ring. It does so at once, or later by features.coalescing and gnv_soft_is_at_once(). Only completions of queue 0 may not
 * wait.
 */
#ifndef GNV_SOFT_ENGINE_H
#define GNV_SOFT_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <gpunvme/spec.h>

#include "soft/core/config.h"
#include "soft/core/io.h"

struct gnv_soft;
struct gnv_soft_map; /* mem/space_soft.h */
struct gnv_space;

struct gnv_soft_ring {
	uint64_t iova;
	uint32_t entries;
	uint16_t qid;
	bool interrupts; /* of a completion queue, by this vector */
	uint16_t vector;
};

struct gnv_soft_engine_ops {
	const char *name;
	size_t size; /* of its structure, which begins with struct gnv_soft and is zeroed */
	bool far_rings; /* I/O queues may lie in memory of a device that has no CPU address */

	/* ---- Life ---- */

	/*
	 * The controller is described, its namespaces have their stores, its registers are there. Set soft->dma, by which admin
	 * commands reach memory of the host, and begin to look at registers and doorbells.
	 * @space: outlives the engine
	 * Return: 0; -errno, and gnv_fail() has the message: then nothing runs.
	 */
	int (*start)(struct gnv_soft *soft, struct gnv_space *space);
	/*
	 * End all that runs. Any thread calls it, and calls it again after false. Return: true the engine accesses no memory of the
	 * host and nothing of the controller; false I/O did not end within soft->patience_ms: all must stay.
	 */
	bool (*stop)(struct gnv_soft *soft);
	/* After stop(), or a start() that failed: give its own memory back, queues included, but not the structure. */
	void (*free)(struct gnv_soft *soft);

	/* ---- Queues ---- */

	/*
	 * Create a queue. Its ring is at ring->iova, which must be a multiple of the memory page size (else
	 * GPUNVME_SC_INVALID_PRP_OFFSET) and mapped whole (else GPUNVME_SC_DATA_TRANSFER). Its doorbell is gnv_soft_doorbell(),
	 * which is set to 0. A submission queue is polled once this returns. Its entries have 64 bytes, of GNV_SOFT_SQE_128 128,
	 * but for queue 0. Entries of a completion queue have 16 bytes, phase 1 first.
	 * Return: 0 or a status; then there is no queue.
	 */
	uint16_t (*cq_create)(struct gnv_soft *soft, const struct gnv_soft_ring *ring);
	uint16_t (*sq_create)(struct gnv_soft *soft, const struct gnv_soft_ring *ring, uint16_t cqid);
	/* Fetch nothing more from a queue. Parked commands end now. Completions that wait for room are discarded. */
	void (*sq_close)(struct gnv_soft *soft, uint16_t qid);
	/* Is no command of a queue that was closed in flight any more? Its completions are posted then. */
	bool (*sq_is_dry)(struct gnv_soft *soft, uint16_t qid);
	/* Delete a queue without commands in flight. A completion queue has no submission queue left. Its doorbell becomes 0. */
	void (*sq_delete)(struct gnv_soft *soft, uint16_t qid);
	void (*cq_delete)(struct gnv_soft *soft, uint16_t qid);

	/* ---- Commands in flight, which live in memory of the engine ---- */

	/*
	 * End a command of an I/O queue before its time, with GPUNVME_SC_ABORT_REQUESTED. Return: false it is under way, or over.
	 */
	bool (*abort)(struct gnv_soft *soft, uint16_t sqid, uint16_t cid);
	/* Fetch nothing more, and discard parked and held commands. With @dead, commands in flight end without completions. */
	void (*quiesce)(struct gnv_soft *soft, bool dead);
	/* After quiesce(): is nothing in flight any more, and is flush() done? */
	bool (*is_quiet)(struct gnv_soft *soft);
	/*
	 * Begin to write the caches of stores whose namespaces are not read-only. is_quiet() returns true when that has ended. Then
	 * soft->flush_failed is the status of the last one that failed.
	 */
	void (*flush)(struct gnv_soft *soft);
	/* An admin command that was kept (gnv_soft_admin()) is over: post its completion, with cmd->dw0. */
	void (*complete)(struct gnv_soft *soft, struct gnv_soft_cmd *cmd, uint16_t status);
	/* The same without a completion. */
	void (*discard)(struct gnv_soft *soft, struct gnv_soft_cmd *cmd);

	/*
	 * ---- Memory, by any thread, one call at a time, under a lock of the address space: nothing is mapped or unmapped there
	 * ----
	 */

	/*
	 * Memory is mapped, and the host does not know its address yet: make it accessible to the engine. Called for all mappings
	 * after start(), then for each new one. @map is constant, and stays until unmap().
	 * Return: 0; -errno with an error message: then it is not mapped.
	 */
	int (*map)(struct gnv_soft *soft, const struct gnv_soft_map *map);
	/*
	 * Memory is unmapped. References in the space (store/dma.h) are gone, and there will be no new ones. map() may not have
	 * been called for it. Also called after stop(), for each mapping. Return: 0 no command in flight accesses it any more;
	 * -EBUSY one does: it is called again; -EAGAIN, with an error message: the same, for another reason; -EOWNERDEAD, with an
	 * error message: none does, but the bytes must stay until the process ends.
	 */
	int (*unmap)(struct gnv_soft *soft, const struct gnv_soft_map *map);

	/*
	 * Does a queue lie in memory that was mapped within [iova, iova + len)? Called by any thread before that is unmapped.
	 * Return: also true when it is not known within a second.
	 */
	bool (*has_ring)(struct gnv_soft *soft, uint64_t iova, uint64_t len);

	/*
	 * Does no I/O that was begun reach memory of the host any more? With gnv_soft_is_silent() none is begun. Called by any
	 * thread.
	 */
	bool (*is_still)(struct gnv_soft *soft);

	/* ---- Its state ---- */

	/* Sums over all that it has carried out since start(). */
	void (*counters)(struct gnv_soft *soft, struct gnv_soft_counters *sum);
	/*
	 * Copy the last errors, the newest first (gnv_soft_errors_copy()).
	 * @log: GNV_SOFT_ERRORS zeroed entries, or NULL
	 * Return: the number of all errors so far.
	 */
	uint64_t (*errors)(struct gnv_soft *soft, struct gpunvme_error_log *log);
	/* Nanoseconds of a clock that never goes back. Any thread. */
	uint64_t (*now)(const struct gnv_soft *soft);

	/* ---- For tests, any thread ---- */

	/* While it is held the controller is not called, so its fields may be changed. */
	void (*hold)(struct gnv_soft *soft);
	void (*release)(struct gnv_soft *soft);
	/* Decide about I/O commands by this function, or by the rules if it is NULL. */
	void (*set_fault)(struct gnv_soft *soft, const struct gnv_soft_fault *fault);
};

/* Threads of this process, config.threads of them (engine/). */
extern const struct gnv_soft_engine_ops gnv_soft_engine_threads;

#endif
