/* SPDX-License-Identifier: MIT */
/*
 * Drives with published measurements. docs/results/emulated-drives.md names the source of each figure, and compares the
 * models with them, as test_models.c does in each test run. Units, times and channels are fitted: no vendor publishes them.
 */
#include "soft/core/timing.h"

#include <string.h>

static const struct gnv_soft_named named[] = {
	/* The link is fitted to reads of 4 KiB. Writes have no source. */
	{ "P4800X",
	  2547000000,
	  { .units = 6,
	    .page = 4096,
	    .fw_ns = 270,
	    .fixed_ns = 330,
	    .read_ns = 6556,
	    .read_p99_ns = 7825,
	    .write_ns = 10000,
	    .buffer = 64 << 10,
	    .drain = 2200000000 } },
	/* Large reads 2.8 GB/s and writes 1.9 GB/s (tomshardware). */
	{ "P3700",
	  2800000000,
	  { .units = 28,
	    .page = 4096,
	    .fixed_ns = 25800,
	    .read_ns = 42800,
	    .read_p99_ns = 56700,
	    .write_ns = 15000,
	    .channels = 5,
	    .channel_bw = 520000000,
	    .buffer = 16 << 20,
	    .drain = 1900000000 } },
	/* Large reads 3.2 GB/s and writes 2.2 GB/s (tomshardware). */
	{ "9100MAX",
	  3200000000,
	  { .units = 90,
	    .page = 4096,
	    .fw_ns = 600,
	    .fixed_ns = 3600,
	    .read_ns = 95000,
	    .read_p99_ns = 105000,
	    .write_ns = 15000,
	    .channels = 8,
	    .channel_bw = 662000000,
	    .buffer = 16 << 20,
	    .drain = 2200000000 } },
	/* The link is the rate of reads of 1 MiB (rocm-xio). */
	{ "SN850X",
	  7060000000,
	  { .units = 8,
	    .page = 65536,
	    .fixed_ns = 1500,
	    .read_ns = 14500,
	    .read_p99_ns = 73000,
	    .write_ns = 10000,
	    .channels = 8,
	    .channel_bw = 900000000,
	    .buffer = 64 << 20,
	    .drain = 6300000000 } },
};

const struct gnv_soft_named *gnv_soft_named_find(const char *name)
{
	size_t i;

	for (i = 0; i < GNV_ARRAY_LEN(named); i++)
		if (strcmp(named[i].name, name) == 0)
			return &named[i];
	return NULL;
}

const char *gnv_soft_named_nth(unsigned index)
{
	return index < GNV_ARRAY_LEN(named) ? named[index].name : NULL;
}
