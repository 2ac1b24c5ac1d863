/* SPDX-License-Identifier: MIT */
/*
 * Faults: what the controller in software does wrong when it is asked to, for programs that want to see how they fare.
 *
 *   soft:PATH?fault=WORD[:NUMBER][:CONDITION=VALUE...][,WORD...]
 *
 * A state lasts for the controller's whole life. A fault of commands hits each command that meets all its conditions, or a
 * share of them that a seed decides, so that a run can be repeated. Of several faults the first one that hits a command counts.
 */
#ifndef GPUNVME_FAULT_H
#define GPUNVME_FAULT_H

#include <gpunvme/status.h>

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum gpunvme_fault_kind {
	GPUNVME_FAULT_STATE,     /* what the drive is, from the beginning to its end */
	GPUNVME_FAULT_MISHAP,    /* of commands, or of the controller when it is switched on or off */
	GPUNVME_FAULT_CONDITION  /* which commands have the fault */
};

struct gpunvme_fault {
	size_t size;        /* sizeof(struct gpunvme_fault) */
	uint32_t kind;      /* enum gpunvme_fault_kind */
	uint32_t max;       /* the largest number that the word takes; 0: it takes none, or is a condition */
	char word[24];      /* as it is written in the URI */
	char number[24];    /* what its number or value is, in capitals: "US"; "" it takes none */
	char text[160];     /* what it does, a sentence without its full stop */
};
#define GPUNVME_FAULT_INIT { sizeof(struct gpunvme_fault), 0, 0, "", "", "" }

/**
 * gpunvme_fault_nth() - the n-th word of fault= in a URI of the software controller
 * @n:     0 for the first
 * @fault: filled; fault->size must be set
 *
 * The table is the one that gpunvme_dev_open() reads the URI by. Any thread may call it.
 * Return: 0; -ENOENT there are not so many; -EINVAL when fault->size is too small.
 */
GPUNVME_API int gpunvme_fault_nth(unsigned n, struct gpunvme_fault *fault);

#ifdef __cplusplus
}
#endif
#endif
