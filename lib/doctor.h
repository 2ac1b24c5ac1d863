/* SPDX-License-Identifier: MIT */
/* What a doctor writes down: lib/doctor.c about controllers, lib/doctor_gpu.c about GPUs. */
#ifndef GNV_DOCTOR_H
#define GNV_DOCTOR_H

#include <gpunvme/doctor.h>
#include <gpunvme/gpu.h>

struct gnv_report {
	struct gpunvme_check *check;
	unsigned room;
	unsigned count;
	int ret;		     /* of the first predicate that stops an open */
	struct gpunvme_check beyond; /* what finds no room */
};

/* What is known of a predicate. Where it does not hold the text is split where the remedy begins. */
struct gpunvme_check *gnv_report_say(struct gnv_report *report, const char *name, enum gpunvme_verdict verdict, const char *text);

/* A predicate that must hold. `ret` 0, or the sentence of gnv_fail() is what is said. */
struct gpunvme_check *gnv_report_add(struct gnv_report *report, const char *name, int ret, const char *fine);

/* One without which it works, but not for everything. */
void gnv_report_limit(struct gnv_report *report, const char *name, int ret, const char *fine);

/* One that could not be asked. */
void gnv_report_skip(struct gnv_report *report, const char *name, const char *why);

/*
 * gnv_doctor_gpu() - gpunvme_doctor_gpu() with another sysfs
 * @controller: its URI, or NULL
 */
int gnv_doctor_gpu(const char *sys, unsigned n, const char *controller, struct gpunvme_check *checks, unsigned *count);

#endif
