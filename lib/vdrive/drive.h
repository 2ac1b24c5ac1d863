/* SPDX-License-Identifier: MIT */
/*
 * Internal functions of the engine, and their threads: functions of queues are called by thread 0 of lib/soft/engine, which polls
 * the admin queue. Functions of memory are called by any thread. The attendant reads what the kernel reports. All of them change
 * the structure in the GPU's memory by words, and increase its epoch afterwards. A worker that has seen the epoch has seen these
 * changes, and no longer uses what it loaded before.
 */
#ifndef GNV_VDRIVE_DRIVE_H
#define GNV_VDRIVE_DRIVE_H

#include <pthread.h>

#include "soft/engine/threads.h"
#include "vdrive/exec.h"
#include "vdrive/shared.h"

/* The host's state of a queue. */
struct gnv_vdrive_sq {
	const struct gnv_soft_map *map; /* NULL: no such queue */
	uint64_t memory; /* of the GPU: slots, times, numbers */
	uint32_t next, cq, flags;
	uint64_t closed; /* epoch of its closing */
	uint64_t aborts; /* abort requests so far */
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
	const struct gpunvme_mem *lent; /* memory of a GPU that its user may free. Under the lock `lending` */
};

/* The last observations of the attendant (watch.c). */
struct gnv_vdrive_watch {
	uint64_t looked, summed, judged;
	struct gnv_vd_pace pace;
	uint64_t runs[GNV_VD_WORKERS];
	uint64_t since[GNV_VD_WORKERS]; /* when a launch began to wait for this worker, or 0 */
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

	pthread_mutex_t lock; /* of the queues, for readers other than thread 0 */
	unsigned io_queues;
	uint32_t first[GNV_VD_WORKERS];
	struct gnv_vdrive_sq sq[GNV_VD_QUEUES];
	struct gnv_vdrive_cq cq[GNV_VD_QUEUES];

	/* Under the lock of the space. */
	struct gnv_vdrive_region region[GNV_VD_REGIONS];
	uint32_t place; /* the list in use */
	uint64_t switched; /* epoch of the change to it */
	uint32_t placed;
	struct gnv_vd_placed *order;

	pthread_mutex_t lending; /* protects what follows. Nothing waits for a launch with it */
	uint32_t lent[GNV_VD_REGIONS], lents; /* regions of memory that its user may free */
	uint32_t next_lent; /* to be looked at */

	pthread_t attendant;
	uint32_t end_attendant; /* atomic */
	bool attended;
	uint32_t looks; /* that failed since the last one that succeeded */
	struct gnv_vdrive_watch watch;
	uint32_t raised[GNV_SOFT_EVENTS]; /* events that were reported */
	bool silent;
	pthread_mutex_t collecting; /* protects errors */
	uint32_t errors;	    /* collected so far */
};

static inline struct gnv_vdrive *gnv_vdrive_of(const struct gnv_soft *soft)
{
	return (struct gnv_vdrive *)(uintptr_t)soft; /* t.soft is at offset 0 */
}

/* The GPU's address of a field of the structure. */
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

/* Announce a change to the workers. Return: its epoch. A worker that has seen the epoch has seen the change. */
uint64_t gnv_vdrive_change(struct gnv_vdrive *d);
/* Return: all workers have seen the epoch. */
bool gnv_vdrive_has_seen(struct gnv_vdrive *d, uint64_t epoch);
/* Announce a change, and wait until all workers have seen it. Return: false not within @ms. */
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
/* Copy the state of the controller that commands use to the GPU. There must be no I/O queues. */
int gnv_vdrive_describe(struct gnv_vdrive *d);

/* ---- regions.c: the same ---- */

int gnv_vdrive_map(struct gnv_soft *soft, const struct gnv_soft_map *map);
int gnv_vdrive_unmap(struct gnv_soft *soft, const struct gnv_soft_map *map);
/*
 * Before each launch, by the thread that makes it: take memory that its user has freed out of the table. The memory of
 * GNV_VDRIVE_LOOKS regions is looked at, that of the others before the next launches.
 */
#define GNV_VDRIVE_LOOKS 256u
void gnv_vdrive_look_at_lent(void *drive);

/* ---- refuse.c ---- */

/* Check that this engine can inject all faults of fault=. Return: 0; -EINVAL with an error message. */
int gnv_vdrive_check_faults(const struct gnv_soft_config *config);
enum gnv_vd_judged gnv_vdrive_judged(const struct gnv_soft_config *config);

/* ---- link.c ---- */

/*
 * Measure the link between the processor's memory and the host's, if these are two, and store its rate. It copies blocks, which
 * are zeroes then: call it before the image is loaded and the kernel runs.
 */
void gnv_vdrive_measure_link(struct gnv_vdrive *d);

/* ---- image.c ---- */

/*
 * Load a file into the first namespace, before the kernel runs. Return: 0; -EFBIG it is larger than the drive, or another -errno,
 * with an error message.
 */
int gnv_vdrive_load_image(struct gnv_vdrive *d, const char *path);

/* ---- attend.c ---- */

/* Start the attendant. Return: 0; -errno with an error message. */
int gnv_vdrive_attend(struct gnv_vdrive *d);
void gnv_vdrive_end_attendant(struct gnv_vdrive *d);
bool gnv_vdrive_is_still(struct gnv_soft *soft);
/* Set the fatal status of the controller. Return: false it had one already, or was not ready. */
bool gnv_vdrive_fail(struct gnv_vdrive *d);
/* Thread 0: take over the end of the controller by a command. Return: a command has ended it since the last look. */
bool gnv_vdrive_is_doomed(struct gnv_vdrive *d);
void gnv_vdrive_counters(struct gnv_soft *soft, struct gnv_soft_counters *sum);
uint64_t gnv_vdrive_errors(struct gnv_soft *soft, struct gpunvme_error_log *log);

/* ---- watch.c ---- */

/* The attendant: report a processor that is too slow for the model. End the queues if it does not run the kernel. */
void gnv_vdrive_watch(struct gnv_vdrive *d);

#endif
