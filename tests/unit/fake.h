/* SPDX-License-Identifier: MIT */
/*
 * A port for tests: a page that plays BAR0, an address space that counts, and a thread that plays as much of a controller as
 * lib/nvme needs, and misbehaves as told. I/O it does where a test has a function for it. In programs with virtual time
 * (common/virtual.h) it has no thread but turns there.
 */
#ifndef TESTS_UNIT_FAKE_H
#define TESTS_UNIT_FAKE_H

#include <gpunvme/gpunvme.h>
#include <pthread.h>
#include <stdbool.h>

#include "common/leak.h"
#include "dev/dev.h"

#define FAKE_BAR_BYTES 0x2000u
#define FAKE_IOVA_TAG 0x5a00000000000000ull
#define FAKE_CMB_IOVA 0x5b00000000000000ull
#define FAKE_CMB_BAR (16u << 20) /* in which it lies, unless told otherwise */
#define FAKE_MAX_NS 3000u

enum fake_fault {
	FAKE_WELL,
	FAKE_NEVER_READY,
	FAKE_FATAL_AT_ENABLE,
	FAKE_GONE_AT_ENABLE,
	FAKE_NEVER_DISABLED,
	/* The rest strike at the admin command fault_opc. */
	FAKE_SILENT,
	FAKE_WRONG_CID,
	FAKE_WRONG_SQID,
	FAKE_WRONG_SQHD,
	FAKE_STATUS,
	FAKE_FATAL,
	FAKE_STOPPED, /* by somebody else */
	FAKE_GONE
};

#define FAKE_IO_QUEUES 4u /* the highest of those that have any */

struct fake_ioq {
	uint64_t sq, cq; /* 0: there is none */
	uint32_t sq_entries, cq_entries;
	uint32_t head, cq_tail, phase;
};

struct fake;

/* An I/O command, on the thread of the controller. Return: false, it is never answered. */
typedef bool fake_io_fn(struct fake *fake, const struct gpunvme_sqe *cmd, uint16_t *status);

/* An admin command, before the fake executes it. Return: true, it has its status already. */
typedef bool fake_admin_fn(struct fake *fake, const struct gpunvme_sqe *cmd, uint16_t *status);

struct fake {
	struct gnv_port port;
	struct gnv_space space;
	struct gpunvme_mem bar0;
	_Alignas(4096) unsigned char bar[FAKE_BAR_BYTES];

	/* What it plays; set before the device is created, or under the lock. */
	pthread_mutex_t lock;
	enum fake_fault fault;
	uint8_t fault_opc;
	uint16_t status;
	struct gpunvme_id_ctrl id;
	struct gpunvme_id_ns ns;
	uint8_t desc[4096]; /* CNS 03h */
	const uint8_t *plain; /* of namespaces after the first; NULL: the same */
	bool no_desc;	    /* Invalid Field for it */
	struct gpunvme_id_ctrl_nvm limits; /* CNS 06h */
	bool no_limits;	    /* Invalid Field for it */
	bool no_list;	    /* and for the list of namespaces, */
	uint16_t list_status; /* or this */
	uint32_t slow_us;   /* Identify takes so long */
	uint32_t admin_ms;  /* of fake_open() */
	gpunvme_log_fn *log; /* and this */
	fake_io_fn *io;	    /* NULL: I/O commands are not looked at */
	fake_admin_fn *admin; /* or NULL */
	uint32_t *ns_list;
	uint32_t ns_count;
	uint32_t granted; /* dword 0 of Set Features, number of queues */
	bool halt_fails;
	int reset_ret;	/* of the function reset; 0 also ends the fault */
	bool reset_in_vain; /* 0 does not end it */
	bool no_shutdown;
	unsigned map_fails_at; /* the how-manieth map is refused; 0: none */
	bool unmap_busy;
	size_t cmb_room; /* of the BAR of memory in the controller, which may say to have more; 0: FAKE_CMB_BAR */
	bool no_cmb; /* memory in the controller cannot be reached */
	bool cmb_stays; /* GPUs do not let go of it */

	/* What happened. */
	unsigned maps;	 /* mappings alive */
	unsigned mapped; /* ever */
	unsigned cuts;
	unsigned closed;
	unsigned halted;
	struct gnv_port_cmb cmb; /* memory in the controller that was asked for */
	unsigned enable_dma;	 /* allowed to make DMA, while disabled */
	unsigned resets; /* of the function */
	unsigned shutdowns; /* normal ones that were asked for (atomic) */
	gnv_port_lost_fn *lost; /* as the device watches the port */
	void *lost_ctx;
	unsigned commands;
	uint32_t cns; /* that Identify was asked for, as bits */
	unsigned cqs, sqs;	 /* that exist */
	unsigned char order[64]; /* opcodes of queue commands, as they came */
	unsigned orders;
	struct gpunvme_sqe last;		/* command */
	unsigned char data[GNV_ADMIN_MAX_DATA]; /* that passed */

	/* Its own. */
	pthread_t thread;
	bool stop;
	uint32_t cc;
	uint32_t head, cq_tail, phase;
	struct fake_ioq ioq[FAKE_IO_QUEUES + 1];
};

/* What lies at an address that it was given. */
void *fake_dma(uint64_t iova);

struct fake *fake_new(void);
void fake_set_cap(struct fake *fake, uint64_t cap);
#define FAKE_CAP (1023ull | 40ull << 24 | GPUNVME_CAP_CSS_NVM | GPUNVME_CAP_CQR) /* it may take 20 s, on a machine with other work */

/* Create a device on it, with an admin time-out of as much. */
int fake_open(struct fake *fake, struct gpunvme_dev **dev);

/* For a test in which it does not reply: a command may take 300 ms, CC.EN 500. @dev: NULL before it is opened. */
void fake_hurry(struct fake *fake, struct gpunvme_dev *dev);

/* Stop the thread, check that nothing is left mapped and the port was closed once (unless told that a leak is expected), free it. */
void fake_delete(struct fake *fake, bool leaked);

#endif
