/* SPDX-License-Identifier: MIT */
/*
 * An open controller, as lib/nvme and lib/queue share it. Opening and closing it is queue/life.c.
 *
 * Locks, in the order they are taken: queues_lock, a memory's lock, dev->lock, then those inside the arena and the space. Over an
 * admin command only queues_lock is held, and the admin queue's own.
 */
#ifndef GNV_NVME_DEV_H
#define GNV_NVME_DEV_H

#include <gpunvme/gpunvme.h>

#include "mem/arena.h"
#include "nvme/admin.h"
#include "nvme/async.h"
#include "nvme/ctrl.h"
#include "nvme/event.h"
#include "nvme/forward.h"
#include "nvme/prp.h"
#include "port/port.h"
#include "port/quirks.h"
#include "util/log.h"

struct gnv_cache;
struct gnv_mapping;
struct gnv_place;
struct gnv_setting;
struct gnv_soft;
struct gnv_watchdog;

enum gnv_cmb_place { GNV_CMB_ABOVE = 1, GNV_CMB_BELOW, GNV_CMB_OPEN }; /* open: somebody measures */

struct gpunvme_dev {
	uint64_t process; /* that opened it (util/process.h) */
	uint32_t number; /* which of this process' devices; never 0 */
	struct gnv_log log;
	struct gnv_port *port;
	struct gnv_ctrl ctrl;
	struct gnv_arena *arena;
	struct gnv_cache *cache; /* of what gpunvme_mem_get() has mapped */
	struct gnv_admin admin;
	struct gnv_forward forward;
	struct gnv_events events;
	struct gnv_async async;
	struct gnv_watchdog *watchdog; /* NULL: there is none */
	struct gpunvme_dev_info info; /* constant once open */
	uint16_t awun_0b, awupf_0b;   /* and so are these */
	uint32_t deallocate; /* blocks of one range of Dataset Management; 0: the controller has no such command */
	uint32_t zeroes; /* bytes of one Write Zeroes; 0: no limit but that of the command */
	uint32_t oaes;
	uint32_t burst; /* recommended, as a power of two (RAB) */
	uint32_t stripe; /* bytes at whose multiples transfers had better end, of drives that are known for it; 0: nothing is known */
	char nqn[224]; /* of its subsystem, as it says */
	uint32_t aers; /* requests for events that it takes */
	struct gnv_drive drive; /* what is known of it; constant once open */
	struct {
		bool has_apst;
		uint32_t state, apst; /* as they were found, where they were changed */
		uint64_t table[32]; /* of autonomous transitions */
	} power;
	struct {
		uint64_t asked, least, step; /* bytes: as much as it likes and needs, and the least at one place; constant once open */
		struct gpunvme_mem *mem;
		uint64_t iova;
		struct gnv_block list; /* that tells the drive of it */
		uint64_t size;	       /* 0: nothing is mapped */
		bool on;	       /* the drive has it (atomic) */
		bool named;	       /* the URI says how much; constant once open */
		bool shared;	       /* others reach its address space, or have: it gets none (atomic) */
	} hmb;
	struct gnv_arena *cmb; /* memory in the controller; NULL: none; constant once open */
	uint32_t cmb_place[3]; /* of queues there, by the kind of lanes: 0 not known, enum gnv_cmb_place (atomic) */
	bool cmb_lists_proven; /* it reads lists that lie there as it should (atomic) */
	unsigned inner_given;  /* memories of users that lie there (atomic) */
	int read_status; /* of the first read, while it was opened; constant once open */
	enum gnv_lists lists; /* that it reads as it should; constant once open */
	bool lists_unproven;  /* so is believed only */

	uint32_t rings;	       /* doorbells of a test of them (queue/ringtest.h) */
	uint64_t ring_late_ns; /* one that lanes ring and that is seen after this is late */
	uint64_t ring_lost_ns; /* and lost after this */
	pthread_mutex_t queues_lock; /* held while a queue is created, destroyed or recovered; the outermost of all */
	pthread_mutex_t bar0_lock; /* serialises who shows BAR0 to lanes; never taken by the port's threads */
	pthread_mutex_t place_lock; /* protects places; taken before those inside arenas and spaces */
	struct gnv_place *places;  /* of GPUs */
	pthread_mutex_t settings_lock; /* protects settings; held over admin commands, and inside queues_lock */
	struct gnv_setting *settings;  /* features that were set */
	pthread_mutex_t lock;     /* protects all below */
	struct gpunvme_qp *qps;   /* alive, and those whose deletion failed */
	struct gnv_mapping *maps;
	struct {
		struct gnv_mapping *marked, *fresh;
	} late; /* PRP lists that commands in flight may need (queue/late.h) */
	uint64_t *qids;           /* one bit per queue id, set while used; bit 0 is the admin queue */
	uint16_t incarnation;     /* of the queue created last */
	bool closing;             /* nothing is begun any more; under queues_lock */
	bool unstoppable;         /* closing it has failed: it may make DMA for ever (atomic) */
};

/* Reset, identified, and its number of queues settled. @opts: complete. Return: as gpunvme_dev_open(). */
int gnv_dev_bring_up(struct gpunvme_dev *dev, const struct gpunvme_dev_opts *opts);

/*
 * Lanes that ring BAR0 may go on although the device is reset: what they store goes nowhere. Before the reset, and behind it
 * (@reset). Any thread; where a GPU cannot the log says so.
 */
void gnv_dev_blind(struct gpunvme_dev *dev, bool reset);

/* Return: true when the controller makes no DMA any more. */
bool gnv_dev_stop_dma(struct gpunvme_dev *dev);

/* Fill in dev->info what is known before the controller is asked. */
void gnv_dev_describe(struct gpunvme_dev *dev, uint32_t default_ns);

/* The software controller behind a soft: device, for tests and benchmarks; NULL for others. */
struct gnv_soft *gnv_dev_soft(struct gpunvme_dev *dev);

#endif
