/* SPDX-License-Identifier: MIT */
/*
 * The speed of an emulated drive: keys of its URI, for every store and every engine.
 *
 * A command ends when all of these are over:
 *
 *	rates		the commands up to it, of which the drive does so many a second, and their data (iops=, bw=)
 *	latency		half of all commands take the requested latency. The others take longer, by an exponential
 *			distribution. One command in a hundred exceeds the requested tail (lat_us=, p99_us=)
 *	link		its data over the link of the drive, which has a rate of its own in each direction (link=)
 *	parts		instead of rates and latency: the firmware, one command after the other. Then units, chosen by the address,
 *			each of which reads a page at a time. Then channels, and a buffer for writes with its drain rate (model=)
 *
 * Each stage takes a command when the firmware has ended, and the last one that ends decides. So no stage waits for another, and
 * each has one word of state: the time at which it is idle. A machine that is slower than the drive logs that once.
 */
#ifndef GNV_SOFT_TIMING_H
#define GNV_SOFT_TIMING_H

#include <stdbool.h>
#include <stdint.h>

#include "soft/core/cmd.h"
#include "util/bits.h"

#define GNV_SOFT_IOPS_MAX 1000000000u
#define GNV_SOFT_LATENCY_MAX_US 10000000u
#define GNV_SOFT_BW_MIN 1000000u /* of a URI: less is most likely a unit that was forgotten */
#define GNV_SOFT_UNITS 4096u
#define GNV_SOFT_CHANNELS 64u

/* The parts of a drive. Sizes in bytes, rates in bytes a second. */
struct gnv_soft_parts {
	uint64_t units;	  /* 0: the drive has rates and a latency instead */
	uint64_t page;	  /* that a unit reads or programs at a time, a power of two */
	uint64_t fw_ns;	  /* of the firmware, for each command */
	uint64_t fixed_ns; /* added to each command */
	uint64_t read_ns; /* median of reading a page, and the shortest */
	uint64_t read_p99_ns; /* that one page in a hundred exceeds, or 0: all take read_ns */
	uint64_t write_ns; /* of a command that finds room in the buffer */
	uint64_t program_ns; /* time a written page keeps its unit busy, or 0: reads never wait for writes */
	uint64_t channels; /* 0: units have no channel in common */
	uint64_t channel_bw;
	uint64_t buffer; /* for writes */
	uint64_t drain; /* rate at which it empties, or 0: it is never full */
};

struct gnv_soft_model {
	uint64_t bw;	 /* bytes a second, or 0: as many as this machine moves */
	uint32_t iops;	 /* commands a second, or 0: as many as this machine can */
	uint32_t lat_us; /* median latency, and the shortest */
	uint32_t p99_us; /* latency that one in a hundred exceeds, or 0: all take lat_us */
	uint32_t seed;	 /* of the draws */
	uint64_t link;	 /* bytes a second in each direction, or 0: as many as this machine moves */
	bool no_link;	 /* configured as 0 */
	struct gnv_soft_parts parts;
};

/* A drive of which a curve is published (docs/results/emulated-drives.md). */
struct gnv_soft_named {
	const char *name;
	uint64_t link;
	struct gnv_soft_parts parts;
};

/* When a stage is through with all it has, in 1/256 ns since born (atomic). Apart from others, as all threads change it. */
struct gnv_soft_clock {
	uint64_t until;
	uint64_t apart[7];
};

/* Of a controller. Its threads share the clocks. */
struct gnv_soft_timing {
	bool on; /* constant, as all before the clocks */
	uint64_t born;
	uint64_t lat_ns;
	double tail_scale; /* ns for each 1/65536 of a binary order of magnitude of the draw, or 0: no tail */
	double read_scale; /* the same, of a page */
	double per_command, per_byte, per_link, per_channel, per_drain; /* 1/256 ns */
	uint64_t seed;
	uint32_t page_shift;
	struct gnv_soft_parts parts;
	struct gnv_soft_clock commands, bytes, link[2], drain;
	uint64_t channel[GNV_SOFT_CHANNELS], unit[GNV_SOFT_UNITS]; /* as struct gnv_soft_clock */
};

/* How well a server thread keeps to it, since the last look. */
struct gnv_soft_pace_kept {
	uint64_t asked, late; /* ns, sums over commands */
	uint64_t since; /* 0: nothing yet */
	uint32_t commands;
	uint32_t looks, starved; /* polls of queues, and how many left commands there that the drive would have begun */
};

/* Do the values make sense together? Return: 0, -EINVAL with an error message. */
int gnv_soft_timing_check(const struct gnv_soft_model *model);
void gnv_soft_timing_init(struct gnv_soft_timing *timing, const struct gnv_soft_model *model, uint64_t now);

/* Find a drive by its name. Return: NULL if there is none. */
const struct gnv_soft_named *gnv_soft_named_find(const char *name);
/* Return: the name of drive @index, or NULL. */
const char *gnv_soft_named_nth(unsigned index);

/* The draw for a command of a queue, by its number there: the same in each run, and for every engine. */
static inline uint64_t gnv_soft_timing_draw(const struct gnv_soft_timing *timing, uint16_t qid, uint64_t number)
{
	return gnv_mix(gnv_mix(timing->seed << 16 | qid) + number * 0x9e3779b97f4a7c15ull);
}

/*
 * gnv_soft_timing_due() - time a command
 * @now:    when it was seen
 * @looked: an earlier time without it. It may have come since. For the rates it did, at most 1 ms before @now
 * @op:	    the operation
 * @drawn:  64 random bits
 * Return: when it ends, not before @now.
 */
uint64_t gnv_soft_timing_due(struct gnv_soft_timing *timing, uint64_t now, uint64_t looked, const struct gnv_soft_op *op,
			     uint64_t drawn);

/* Drop the rest of the drive's work at a reset. */
void gnv_soft_timing_forget(struct gnv_soft_timing *timing);

/* Would the drive begin another command at once? With units: would one of them? */
bool gnv_soft_timing_is_idle(const struct gnv_soft_timing *timing, uint64_t now);

#endif
