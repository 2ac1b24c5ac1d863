/* SPDX-License-Identifier: MIT */
/*
 * How fast the drive is that a software controller plays: keys of its URI, for every store.
 *
 * A command ends when three things are over: its latency; the commands up to it, of which the drive does so many a second; their
 * data, of which it moves so many bytes a second. So with few commands in flight the latency decides, and with many the rates.
 * Half of all commands take the latency that was asked for; the other half take longer, by an exponential distribution, of which
 * one command in a hundred exceeds the tail that was asked for. A machine that is slower than the drive says so in the log, once.
 */
#ifndef GNV_SOFT_TIMING_H
#define GNV_SOFT_TIMING_H

#include <stdbool.h>
#include <stdint.h>

#define GNV_SOFT_IOPS_MAX 1000000000u
#define GNV_SOFT_LATENCY_MAX_US 10000000u
#define GNV_SOFT_BW_MIN 1000000u /* of a URI: less is most likely a unit that was forgotten */

struct gnv_soft_model {
	uint64_t bw;	 /* bytes a second; 0: as many as this machine moves */
	uint32_t iops;	 /* commands a second; 0: as many as it does */
	uint32_t lat_us; /* median latency, and the shortest */
	uint32_t p99_us; /* latency that one in a hundred exceeds; 0: all take lat_us */
	uint32_t seed;	 /* of what is drawn */
};

/* Of a controller; its threads share the two clocks. */
struct gnv_soft_timing {
	bool on; /* constant, as all but the last three */
	uint64_t born;
	uint64_t lat_ns;
	double tail_scale; /* ns for each 1/65536 of a binary order of magnitude of what is drawn; 0: no tail */
	double per_command, per_byte; /* 1/256 ns */
	uint64_t seed;
	uint64_t commands_until, bytes_until; /* when the drive is through with all it has, 1/256 ns since born (atomic) */
	uint32_t said;			      /* that the machine is too slow (atomic) */
};

/* How well a server thread keeps to it, since the last look. */
struct gnv_soft_pace_kept {
	uint64_t asked, late; /* ns, sums over commands */
	uint64_t since; /* 0: nothing yet */
	uint32_t commands;
	uint32_t looks, starved; /* at queues; and how often commands were left there that the drive would have begun */
};

/* Do the values make sense together? Return: 0, -EINVAL with the sentence. */
int gnv_soft_timing_check(const struct gnv_soft_model *model);
void gnv_soft_timing_init(struct gnv_soft_timing *timing, const struct gnv_soft_model *model, uint64_t now);

/*
 * gnv_soft_timing_due() - the drive takes a command
 * @now:    when it was seen
 * @looked: when it was not there yet: it may have come any time since, and for the rates it did, but no more than 1 ms before
 * @bytes:  of its data
 * @drawn:  64 random bits
 * Return: when it ends, not before @now.
 */
uint64_t gnv_soft_timing_due(struct gnv_soft_timing *timing, uint64_t now, uint64_t looked, uint64_t bytes, uint64_t drawn);

/* A reset: what the drive still had to do it does not do any more. */
void gnv_soft_timing_forget(struct gnv_soft_timing *timing);

/* Would the drive begin another command at once? */
bool gnv_soft_timing_is_idle(const struct gnv_soft_timing *timing, uint64_t now);

#endif
