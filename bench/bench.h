/* SPDX-License-Identifier: MIT */
/*
 * What the benchmarks share in addition to the options, output and sessions of examples/common: the line that names the machine,
 * clocks, and a histogram of latencies. A benchmark prints a table for people or, with --json, one JSON object.
 */
#ifndef GPUNVME_BENCH_H
#define GPUNVME_BENCH_H

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/sysmacros.h>
#include <sys/utsname.h>
#include <time.h>
#include <unistd.h>

#include "common/permission.h"
#include "common/progress.h"
#include "common/session.h"

#include <gpunvme/device.h>

/* ---- Where it was measured ---- */

static inline const char *cpu_model(void)
{
	static char line[256];
	FILE *file = fopen("/proc/cpuinfo", "r");
	const char *model = "unknown CPU";

	while (file && fgets(line, sizeof(line), file)) {
		char *colon = strchr(line, ':');

		if (strncmp(line, "model name", 10) != 0 || !colon)
			continue;
		line[strcspn(line, "\n")] = '\0';
		model = colon + 2;
		break;
	}
	if (file)
		fclose(file);
	return model;
}

/* The kind of the file system that has this device number (proc_pid_mountinfo(5)). Valid until the next call. */
static inline const char *file_system(uint64_t dev)
{
	static char line[8192], kind[64];
	FILE *file = fopen("/proc/self/mountinfo", "r");
	unsigned upper, lower;

	strcpy(kind, "none");
	while (file && fgets(line, sizeof(line), file)) {
		const char *rest = strstr(line, " - ");

		if (rest && sscanf(line, "%*d %*d %u:%u", &upper, &lower) == 2 && makedev(upper, lower) == dev)
			sscanf(rest, " - %63s", kind);
	}
	if (file)
		fclose(file);
	return kind;
}

/*
 * The first thing a benchmark prints. @s: an open session, or NULL. With @json it is an object that the caller completes and prints.
 */
static inline struct json_object *print_setup(int json, const struct session *s)
{
	const char *kind = s && s->ns.medium == GPUNVME_MEDIUM_FILE ? file_system(s->ns.medium_dev) : "none";
	struct json_object *object;
	struct utsname os;
	long cores = sysconf(_SC_NPROCESSORS_ONLN);

	uname(&os);
	if (!json) {
		printf("%s: %s, %ld CPUs, %s %s", program, cpu_model(), cores, os.sysname, os.release);
		printf(s ? ", %s on %s\n" : "\n", s ? s->uri : "", kind);
		return NULL;
	}
	object = json_object_new_object();
	put_text(object, "program", program);
	put_text(object, "cpu", cpu_model());
	put_number(object, "cpus", cores);
	put_text(object, "kernel", os.release);
	put_text(object, "file_system", kind);
	return object;
}

/* ---- Clocks ---- */

static inline uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static inline void sleep_ms(uint32_t ms)
{
	struct timespec t = { ms / 1000, (long)(ms % 1000) * 1000000 };

	nanosleep(&t, NULL);
}

/* ---- Latencies: steps of a microsecond, the last one open ---- */

#define HIST_STEPS 65536u

struct hist {
	uint32_t step[HIST_STEPS];
	uint64_t count;
};

static inline void hist_add(struct hist *h, uint64_t ns)
{
	uint64_t us = ns / 1000;

	h->step[us < HIST_STEPS ? us : HIST_STEPS - 1]++;
	h->count++;
}

static inline void hist_merge(struct hist *to, const struct hist *from)
{
	for (uint32_t i = 0; i < HIST_STEPS; i++)
		to->step[i] += from->step[i];
	to->count += from->count;
}

/* Microseconds within which @share of the commands ended. */
static inline uint32_t hist_quantile(const struct hist *h, double share)
{
	uint64_t want = (uint64_t)((double)h->count * share), seen = 0;
	uint32_t i;

	for (i = 0; i < HIST_STEPS - 1; i++) {
		seen += h->step[i];
		if (seen > want || (seen == h->count && seen))
			break;
	}
	return i;
}

#endif
