/* SPDX-License-Identifier: MIT */
/*
 * What others measured of drives that the emulated drive knows by name. Random reads; 0: not published, or not said at this load.
 *
 *	anandtech	AnandTech, "The Intel Optane SSD DC P4800X (375GB) Review", 2017, page 4
 *			(www.anandtech.com/show/11209)
 *	tomshardware	Tom's Hardware, "Micron 9100 Max NVMe 2.4TB SSD Review", 2016, page 4: ratings of the vendors. Their depth is
 *			that at which Tom's Hardware measured
 *	rocm-xio	ROCm/rocm-xio, docs/reference/performance.rst (commit 2d5db3b5): fio, io_uring at depth 32, sync at depth 1
 */
#ifndef GNV_TEST_PUBLISHED_H
#define GNV_TEST_PUBLISHED_H

#include <stdint.h>

struct published {
	const char *model, *source;
	unsigned depth;
	uint32_t bytes;
	double iops, mean_us, p99_us;
	double off[3]; /* per cent by which the model is off, where that is more than it should be: docs/results/emulated-drives.md */
};

static const struct published published[] = {
	{ "P4800X", "anandtech", 1, 4096, 108300, 8.9, 10, { 0 } },
	{ "P4800X", "anandtech", 16, 4096, 584800, 25.5, 41, { 0 } },
	{ "P3700", "anandtech", 1, 4096, 12800, 77.9, 96, { 0 } },
	{ "P3700", "anandtech", 16, 4096, 167200, 93.9, 163, { 0 } },
	{ "P3700", "tomshardware", 128, 4096, 450000, 0, 0, { 0 } },
	{ "9100MAX", "anandtech", 1, 4096, 9200, 107.7, 117, { 0 } },
	{ "9100MAX", "anandtech", 16, 4096, 135700, 116.2, 205, { 0 } },
	{ "9100MAX", "tomshardware", 256, 4096, 750000, 0, 0, { 0 } },
	{ "SN850X", "rocm-xio", 1, 4096, 33931, 28.9, 74.2, { 0 } },
	{ "SN850X", "rocm-xio", 32, 4096, 264744, 121, 514, { 0, 0, -13.2 } },
	{ "SN850X", "rocm-xio", 1, 65536, 9559, 104, 173, { 0 } },
	{ "SN850X", "rocm-xio", 32, 65536, 74766, 428, 2605, { 0, 0, -43.4 } },
	{ "SN850X", "rocm-xio", 1, 1048576, 2117, 472, 823, { 22.6, -18.4, -38.8 } },
	{ "SN850X", "rocm-xio", 32, 1048576, 6730, 4754, 6849, { -21.8, 27.8, 0 } },
};

/* A model may be off by so many per cent. */
#define PUBLISHED_IOPS 8.0
#define PUBLISHED_MEAN 3.0
#define PUBLISHED_P99 10.0

/* Return: commands of a run, fewer of large ones. */
static inline unsigned published_count(uint32_t bytes)
{
	return bytes > 65536 ? 20000 : 200000;
}

#endif
