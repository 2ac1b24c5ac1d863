/* SPDX-License-Identifier: MIT */
/*
 * The inside of the engine. Who calls: thread 0 of the threads that serve the admin queue calls what concerns queues; any
 * thread what concerns memory; the attendant looks at what the kernel has to say. All of them change the structure in the GPU's
 * memory by words, then add to its epoch; a worker that has seen the epoch has seen them, and has nothing in hand of the time
 * before.
 */
#ifndef GNV_VDRIVE_DRIVE_H
#define GNV_VDRIVE_DRIVE_H

#include <pthread.h>

#include "soft/engine/threads.h"
#include "vdrive/exec.h"
#include "vdrive/shared.h"

/* What the host knows of a queue. */
struct gnv_vdrive_sq {
	const struct gnv_soft_map *map; /* NULL: there is none */
	uint64_t memory; /* of the GPU: slots, times, numbers */
	uint32_t next, cq, flags;
	uint64_t closed; /* epoch of closing it */
	uint64_t aborts; /* requests so far */
};

struct gnv_vdrive_cq {
	const struct gnv_soft_map *map;
	bool interrupts;
	uint16_t vector;
	uint64_t reported; /* completions that an interrupt was raised for */
};

struct gnv_vdrive_region {
	uint64_t iova, at;
	void *cookie;
	bool shown, placed, known;
};

/* What the attendant saw last (watch.c). */
struct gnv_vdrive_watch {
	uint64_t looked, summed, judged;
	struct gnv_vd_pace pace;
	uint64_t runs[GNV_VD_WORKERS];
	uint64_t since[GNV_VD_WORKERS]; /* so long a worker has not begun a launch that waits; 0: none waits */
};

struct gnv_vdrive {
	struct gnv_soft_threads t; /* first: begins with struct gnv_soft */
	struct gnv_vd_exec *exec;
	uint64_t vd; /* the structure, in the GPU's memory */
	uint64_t epoch; /* atomic */
	uint32_t workers;
	bool started, stopped; /* atomic */
	bool served; /* atomic: thread 0 looks at the registers */
	bool dead; /* atomic: the GPU's context has ended, and the kernel with it */
	bool bar_shown;
	pthread_mutex_t epochs; /* taken last */
	uint64_t bar;
	void *bar_cookie;
	uint64_t flash[GNV_SOFT_NAMESPACES];
	uint64_t quiet; /* epoch of gnv_vdrive_quiesce() */
	struct gnv_soft_fault hook;

	pthread_mutex_t lock; /* of the queues, for those that ask from other threads */
	unsigned io_queues;
	uint32_t first[GNV_VD_WORKERS];
	struct gnv_vdrive_sq sq[GNV_VD_QUEUES];
	struct gnv_vdrive_cq cq[GNV_VD_QUEUES];

	/* Under the lock of the space. */
	struct gnv_vdrive_region region[GNV_VD_REGIONS];
	uint32_t place; /* in use */
	uint64_t switched; /* the epoch since which it is */
	uint32_t placed;
	struct gnv_vd_placed *order;

	pthread_t attendant;
	uint32_t end_attendant; /* atomic */
	bool attended;
	uint32_t looks; /* that failed, since one did not */
	struct gnv_vdrive_watch watch;
	uint32_t raised[GNV_SOFT_EVENTS]; /* events that were reported */
	bool silent;
	pthread_mutex_t collecting; /* of the next */
	uint32_t errors;	    /* that were collected */
};

static inline struct gnv_vdrive *gnv_vdrive_of(const struct gnv_soft *soft)
{
	return (struct gnv_vdrive *)(uintptr_t)soft; /* its first member's first */
}

/* Where a field of the structure lies for the GPU. */
#define GNV_VD_AT(drive, field) ((drive)->vd + offsetof(struct gnv_vd, field))

static inline int gnv_vdrive_poke32(struct gnv_vdrive *d, uint64_t at, uint32_t value)
{
	return d->exec->ops->poke(d->exec, at, &value, sizeof(value));
}

static inline int gnv_vdrive_poke64(struct gnv_vdrive *d, uint64_t at, uint64_t value)
{
	return d->exec->ops->poke(d->exec, at, &value, sizeof(value));
}

/* ---- drive.c ---- */

/* Let workers know that something changed. Return: the epoch that a worker has seen when it knows. */
uint64_t gnv_vdrive_change(struct gnv_vdrive *d);
/* Have all of them seen it? */
bool gnv_vdrive_has_seen(struct gnv_vdrive *d, uint64_t epoch);
/* The same, waiting. Return: false not within that time. */
bool gnv_vdrive_sync(struct gnv_vdrive *d, uint32_t ms);

/* ---- queues.c: slots of the table ---- */

uint16_t gnv_vdrive_cq_create(struct gnv_soft *soft, const struct gnv_soft_ring *ring);
uint16_t gnv_vdrive_sq_create(struct gnv_soft *soft, const struct gnv_soft_ring *ring, uint16_t cqid);
void gnv_vdrive_sq_close(struct gnv_soft *soft, uint16_t qid);
bool gnv_vdrive_sq_is_dry(struct gnv_soft *soft, uint16_t qid);
void gnv_vdrive_sq_delete(struct gnv_soft *soft, uint16_t qid);
void gnv_vdrive_cq_delete(struct gnv_soft *soft, uint16_t qid);
bool gnv_vdrive_abort(struct gnv_soft *soft, uint16_t sqid, uint16_t cid);
void gnv_vdrive_quiesce(struct gnv_soft *soft, bool dead);
bool gnv_vdrive_is_quiet(struct gnv_soft *soft);
bool gnv_vdrive_has_ring(struct gnv_soft *soft, uint64_t iova, uint64_t len);
/* What commands see of their controller, while there are no queues. */
int gnv_vdrive_describe(struct gnv_vdrive *d);

/* ---- regions.c: the same ---- */

int gnv_vdrive_map(struct gnv_soft *soft, const struct gnv_soft_map *map);
int gnv_vdrive_unmap(struct gnv_soft *soft, const struct gnv_soft_map *map);

/* ---- refuse.c ---- */

/* Can this engine inject all faults of fault=? Return: 0; -EINVAL with an error message. */
int gnv_vdrive_check_faults(const struct gnv_soft_config *config);

/* ---- link.c ---- */

/*
 * Measure how fast data moves between the processor's memory and the host's, where these are two, and note it. Before the kernel
 * runs, in blocks, which are zeroes.
 */
void gnv_vdrive_measure_link(struct gnv_vdrive *d);

/* ---- image.c ---- */

/* Before the kernel runs. Return: 0; -EFBIG it is larger than the drive, or another errno, with an error message. */
int gnv_vdrive_load_image(struct gnv_vdrive *d, const char *path);

/* ---- attend.c ---- */

/* Return: 0; -errno with an error message. */
int gnv_vdrive_attend(struct gnv_vdrive *d);
void gnv_vdrive_end_attendant(struct gnv_vdrive *d);
bool gnv_vdrive_is_still(struct gnv_soft *soft);
/* The controller has a fatal status from now on. Return: false it had one already, or was not ready. */
bool gnv_vdrive_fail(struct gnv_vdrive *d);
/* Thread 0: has a command ended the controller, and nobody knows yet? Then it is known now. */
bool gnv_vdrive_is_doomed(struct gnv_vdrive *d);
void gnv_vdrive_counters(struct gnv_soft *soft, struct gnv_soft_counters *sum);
uint64_t gnv_vdrive_errors(struct gnv_soft *soft, struct gpunvme_error_log *log);

/* ---- watch.c ---- */

/* The attendant: report a processor that is too slow for the model, and end the queues of one that does not run the kernel. */
void gnv_vdrive_watch(struct gnv_vdrive *d);

#endif
