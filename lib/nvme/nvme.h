/* SPDX-License-Identifier: MIT */
/*
 * An NVMe controller in operation: its port, its registers, its admin queue and its log, the data that it reported, and the
 * settings agreed with it. It knows no I/O queue except those of its own tests, and no mapping.
 */
#ifndef GNV_NVME_NVME_H
#define GNV_NVME_NVME_H

#include <gpunvme/gpunvme.h>

#include "mem/arena.h"
#include "nvme/admin.h"
#include "nvme/ctrl.h"
#include "nvme/prp.h"
#include "port/port.h"
#include "port/quirks.h"
#include "util/log.h"

struct gnv_setting;

enum gnv_cmb_place { GNV_CMB_ABOVE = 1, GNV_CMB_BELOW, GNV_CMB_OPEN }; /* open: a measurement is under way */

struct gnv_nvme {
	struct gnv_log log;
	struct gnv_port *port;
	struct gnv_ctrl ctrl;
	struct gnv_arena *arena; /* host memory that is mapped to it */
	struct gnv_admin admin;
	struct gpunvme_dev_info info; /* constant once open */
	struct gnv_drive drive;	      /* what is known of its model. Constant once open */
	char nqn[224];		      /* of its subsystem, as it says */
	pthread_mutex_t bar0_lock;    /* serialises showing BAR0 to GPUs. The port's threads take it only to fence it off */
	struct {
		uint16_t awun_0b, awupf_0b; /* blocks that it writes whole */
		uint32_t deallocate;	    /* blocks of one range of Dataset Management. 0: the controller has no such command */
		uint32_t zeroes;	    /* bytes of one Write Zeroes. 0: no limit but that of the command */
		uint32_t burst;		    /* recommended, as a power of two (RAB) */
		uint32_t stripe; /* transfers should end at multiples of so many bytes, on drives known for it. 0: not known */
	} limits; /* constant once open */
	struct {
		uint32_t oaes; /* optional events that it reports */
		uint32_t aers; /* requests for events that it takes */
	} asks; /* constant once open */
	struct {
		bool has_apst;
		uint32_t state, apst; /* as they were found, where they were changed */
		uint64_t table[32];   /* of autonomous transitions */
	} power;
	struct {
		uint64_t asked, least, step; /* bytes: wanted, needed, and the least at one place. Constant once open */
		struct gpunvme_mem *mem;
		uint64_t iova;
		struct gnv_block list; /* its descriptor, which the drive reads */
		uint64_t size;	       /* 0: nothing is mapped */
		bool on;	       /* the drive has it (atomic) */
		bool named;	       /* the URI gives the size. Constant once open */
		bool shared;	       /* others reach its address space, or have: it gets none (atomic) */
	} hmb;
	struct {
		struct gnv_arena *arena; /* memory in the controller. NULL: none. Constant once open */
		uint32_t place[3]; /* of queues there, by the kind of GPU: 0 not known, enum gnv_cmb_place (atomic) */
		bool lists_proven; /* it reads lists that lie there as it should (atomic) */
	} cmb;
	struct {
		enum gnv_lists form; /* that it reads as it should. Constant once open */
		bool unproven;	     /* so is believed only */
		int read_status;     /* of the first read, while it was opened. Constant once open */
	} lists;
	struct {
		pthread_mutex_t lock; /* protects the list. Held over admin commands */
		struct gnv_setting *first;
	} settings; /* features that were set */
};

/* @port is open, and still unused. Both are the caller's. The log is copied. */
void gnv_nvme_init(struct gnv_nvme *nvme, struct gnv_port *port, const struct gnv_log *log);

/*
 * What is known of its model, and its capabilities: all that disabling it depends on. Return: 0; -EINVAL GPUNVME_QUIRKS is
 * malformed; errors of gnv_quirks_refuse() and gnv_ctrl_init().
 */
int gnv_nvme_look(struct gnv_nvme *nvme);

/* Only the locks and the features that were set are left. */
void gnv_nvme_fini(struct gnv_nvme *nvme);

/* Reset, identified, and its number of queues set. @opts: complete. Return: as gpunvme_dev_open(). */
int gnv_nvme_bring_up(struct gnv_nvme *nvme, const struct gpunvme_dev_opts *opts);

/*
 * GPUs that ring BAR0 may go on although the controller is reset: their stores have no effect. Called before the reset, and after
 * it (@reset). Any thread. If a GPU cannot, the log says so.
 */
void gnv_nvme_fence_off(struct gnv_nvme *nvme, bool reset);

/* Return: true when the controller makes no DMA any more. */
bool gnv_nvme_stop_dma(struct gnv_nvme *nvme);

/* Fill in the part of info that is known without the controller. */
void gnv_nvme_describe(struct gnv_nvme *nvme, uint32_t default_ns);

#endif
