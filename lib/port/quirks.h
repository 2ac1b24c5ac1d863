/* SPDX-License-Identifier: MIT */
/*
 * Drives that deviate from the specification, by vendor and device of their PCI function. The lookup needs no device.
 *
 * The facts are from Linux 7 (drivers/nvme/host/pci.c: nvme_id_table, and nvme.h: enum nvme_quirks). Left out are those that
 * concern interrupts, suspend and temperature alarms, which this library does not use.
 */
#ifndef GNV_PORT_QUIRKS_H
#define GNV_PORT_QUIRKS_H

#include <stddef.h>
#include <stdint.h>

enum gnv_quirk {
	GNV_QUIRK_SLOW_READY = 1u << 0,	     /* registers must be left alone for a while after CC.EN was cleared */
	GNV_QUIRK_NO_WRITE_ZEROES = 1u << 1, /* the command is offered, and broken */
	GNV_QUIRK_CNS_01 = 1u << 2,	     /* Identify supports CNS 0 and 1 only */
	GNV_QUIRK_NO_DESCRIPTORS = 1u << 3,  /* no list of Namespace Identification Descriptors (CNS 3) */
	GNV_QUIRK_GARBAGE_IDS = 1u << 4,     /* EUI-64, NGUID and UUID are not unique: drives of the model share them */
	GNV_QUIRK_GARBAGE_NQN = 1u << 5,     /* nor is the name of the subsystem */
	GNV_QUIRK_STRIPE = 1u << 6,	     /* commands that cross a multiple of the largest transfer are slow */
	GNV_QUIRK_LISTS_512 = 1u << 7,	     /* a PRP list must begin at a multiple of 512 bytes */
	GNV_QUIRK_ADDR_48 = 1u << 8,	     /* addresses have 48 bits */
	GNV_QUIRK_MEDIUM_PRIO = 1u << 9,     /* submission queues must be of medium priority */
	GNV_QUIRK_NO_DEEPEST_PS = 1u << 10,  /* does not come back from its deepest power state */
	GNV_QUIRK_ONE_COMMAND = 1u << 11,    /* loses data with two commands in flight */
	GNV_QUIRK_SQE_128 = 1u << 12,	     /* entries of submission queues have 128 bytes */
	GNV_QUIRK_SHARED_TAGS = 1u << 13,    /* a command identifier is one of all queues, the admin queue included */
	GNV_QUIRK_FEW_CIDS = 1u << 14,	     /* command identifiers above the depth of the queue are not understood */
};

/* With one of these a drive is not used. */
#define GNV_QUIRKS_REFUSED (GNV_QUIRK_ONE_COMMAND | GNV_QUIRK_SQE_128 | GNV_QUIRK_SHARED_TAGS)

#define GNV_QUIRKS_TEXT 224 /* bytes of the words of all quirks */

struct gnv_drive {
	uint32_t quirks;  /* enum gnv_quirk */
	const char *name; /* of the model, or "" for a drive that is not in the table */
};

/*
 * gnv_quirks_look() - find the quirks of a drive
 * @vendor, @device: of its PCI function, or 0 and 0: it has none
 * @words: replaces the table, for experiments: WORD[,WORD...] for every drive, or VVVV:DDDD=WORD[,WORD...] for one. ";" separates
 *         several, of which the last that matches counts. The word "none" stands for no quirk. NULL or "": the table
 * Return: 0; -EINVAL @words is malformed; gnv_fail() has the message.
 */
int gnv_quirks_look(uint16_t vendor, uint16_t device, const char *words, struct gnv_drive *drive);

/* The same with the words of GPUNVME_QUIRKS in the environment. */
int gnv_quirks_find(uint16_t vendor, uint16_t device, struct gnv_drive *drive);

/* Return: 0; -EOPNOTSUPP this library cannot drive it; gnv_fail() has the message. */
int gnv_quirks_refuse(const struct gnv_drive *drive);

/* "no-write-zeroes,lists-512", as gnv_quirks_look() takes it, or "" for none. */
void gnv_quirks_text(uint32_t quirks, char text[GNV_QUIRKS_TEXT]);

/* The lowest of @quirks as text: the deviation, and what the library does about it. */
const char *gnv_quirk_message(uint32_t quirks);

#endif
