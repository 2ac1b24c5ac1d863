/* SPDX-License-Identifier: MIT */
/*
 * Permanent faults of an emulated drive: some words of `fault=` in its URI, which fault.c parses. Each is known of real drives, or
 * named by the specification.
 */
#ifndef GNV_SOFT_FAULT_QUIRK_H
#define GNV_SOFT_FAULT_QUIRK_H

#include <stdbool.h>
#include <stdint.h>

enum gnv_soft_quirk {
	GNV_SOFT_LISTS_ROUND, /* a PRP list is looked for at the multiple of NUMBER below its address */
	GNV_SOFT_LISTS_FAIL,  /* a PRP list that does not begin at a multiple of NUMBER is an error */
	GNV_SOFT_LISTS_HANG,  /* ... is a command that never ends */
	GNV_SOFT_LISTS_AT,    /* a PRP list at byte NUMBER of its page is looked for at the page's start */
	GNV_SOFT_LISTS_HALF,  /* a PRP list that runs over the middle of its page goes on at the page's start */
	GNV_SOFT_SGL_SHORT,   /* data by an SGL is a block short */
	GNV_SOFT_SGL_STRICT,  /* an SGL that is longer than the data is an error */
	GNV_SOFT_CQE_PIECES,  /* writes a completion in pieces, the phase last, and reserved dwords never */
	GNV_SOFT_ZEROES,      /* Write Zeroes succeeds and writes nothing */
	GNV_SOFT_CNS,	      /* Identify knows CNS 0 and 1 */
	GNV_SOFT_IDS,	      /* every drive has the same EUI-64 and NGUID */
	GNV_SOFT_HASTY,	      /* enabled within two seconds of a reset it dies */
	GNV_SOFT_PRIO,	      /* submission queues must be of medium priority */
	GNV_SOFT_LOCKED,      /* reads and writes are denied: TCG Opal */
	GNV_SOFT_SANITIZING,
	GNV_SOFT_FORMATTING,
	GNV_SOFT_RESERVED,    /* by another host */
	GNV_SOFT_RESERVED_WRITE, /* the same, which lets others read */
	GNV_SOFT_ACTIVATING,  /* new firmware is at work, its namespace not yet ready */
	GNV_SOFT_OFFLINE,     /* a virtual function without queues */
	GNV_SOFT_WORN,        /* read-only, no reset ends it */
	GNV_SOFT_HOT,
	GNV_SOFT_SPARE,       /* few spare blocks are left */
	GNV_SOFT_UNRELIABLE,
	GNV_SOFT_BACKUP,      /* the backup power of its cache has failed */
	GNV_SOFT_DETACHED,    /* its namespace is not attached to this controller */
	GNV_SOFT_STAGED,      /* firmware waits for a reset */
	GNV_SOFT_SLOW_FORMAT, /* another format would be faster */
	GNV_SOFT_HINTS,	      /* reports preferred and atomic sizes of writes */
	GNV_SOFT_UNSAID,      /* does not report how deallocated blocks read */
	GNV_SOFT_SLEEPY, /* has three power states and goes to the last by itself */
	GNV_SOFT_NO_WAKE, /* with the one before: does not come back from there for an I/O command */
	GNV_SOFT_SLOW_WAKE, /* with the first: takes NUMBER us to come back */
	GNV_SOFT_HMB,	  /* requests NUMBER MiB of host memory, and dies if any other party writes to it */
	GNV_SOFT_HMB_WILD, /* with the one before: writes around that memory, and into it while it does not own it */
	GNV_SOFT_CMB_DATA,  /* data for memory of its own lands in another place */
	GNV_SOFT_CMB_LISTS, /* lists in memory of its own are errors, although it reports to accept them */
	GNV_SOFT_ADDR_48,     /* addresses have 48 bits, the others are ignored */
	GNV_SOFT_SQE_128,     /* I/O submission queues have entries of 128 bytes, regardless of CC */
	GNV_SOFT_ONE_COMMAND, /* dies of a second I/O command in flight */
	GNV_SOFT_SHARED_TAGS, /* dies of a command whose identifier is in flight in another queue */
	GNV_SOFT_UNFELT,      /* reports no temperature */
	GNV_SOFT_FEW_CIDS,    /* dies of an I/O command whose identifier is NUMBER or more */
	GNV_SOFT_ONE_VECTOR,  /* by vfio-user, one interrupt vector for all queues */
	GNV_SOFT_QUIRKS
};

struct gnv_soft_quirks {
	uint64_t set; /* 1 << enum gnv_soft_quirk */
	uint32_t number[GNV_SOFT_QUIRKS];
};

static inline bool gnv_soft_has(const struct gnv_soft_quirks *quirks, enum gnv_soft_quirk quirk)
{
	return quirks->set >> quirk & 1;
}

#endif
