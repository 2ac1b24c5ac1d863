/* SPDX-License-Identifier: MIT */
#include "soft/core/timing.h"

#include "util/bits.h"

#define AWAY_NS 1000000u	    /* so long a thread may have been away without the drive being slower for it */
#define UNITS 256u		    /* of the clocks, in a nanosecond */
#define LOG2_50 5.643856	    /* from the median to one in a hundred it is this many halvings */
#define FRACTION 65536u
#define CURVE 22716u /* 0.3466 of FRACTION: log2(1 + x) is about x + 0.3466 x (1 - x), to 0.008 */

void gnv_soft_timing_init(struct gnv_soft_timing *timing, const struct gnv_soft_model *model, uint64_t now)
{
	const double second = 1e9 * UNITS;

	*timing = (struct gnv_soft_timing){
		.on = model->bw || model->iops || model->lat_us,
		.born = now,
		.lat_ns = model->lat_us * 1000ull,
		.tail_scale = model->p99_us ? (model->p99_us - model->lat_us) * 1000.0 / (LOG2_50 * FRACTION) : 0,
		.per_command = model->iops ? second / model->iops : 0,
		.per_byte = model->bw ? second / (double)model->bw : 0,
		.seed = model->seed,
	};
}

/* The negative binary logarithm of the bits as a fraction of 1, in units of 1/FRACTION: exponentially distributed. */
static uint64_t halvings(uint64_t bits)
{
	const unsigned lead = (unsigned)__builtin_clzll(bits | 1);
	const uint64_t x = (bits | 1) << lead << 1 >> 48;

	return (lead + 1ull) * FRACTION - x - (x * (FRACTION - x) >> 16) * CURVE / FRACTION;
}

static uint64_t latency(const struct gnv_soft_timing *timing, uint64_t drawn)
{
	if (drawn >> 63 || timing->tail_scale == 0)
		return timing->lat_ns;
	return timing->lat_ns + (uint64_t)(timing->tail_scale * (double)halvings(drawn << 1));
}

/* Whoever comes is served after all that came before. A drive that had nothing to do does not catch up on that. */
static uint64_t serve(uint64_t *until, uint64_t from, uint64_t cost)
{
	uint64_t old = __atomic_load_n(until, __ATOMIC_RELAXED), end;

	do
		end = gnv_max(old, from) + cost;
	while (!__atomic_compare_exchange_n(until, &old, end, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	return end;
}

uint64_t gnv_soft_timing_due(struct gnv_soft_timing *timing, uint64_t now, uint64_t looked, uint64_t bytes, uint64_t drawn)
{
	const uint64_t since = gnv_max(gnv_max(looked, now - AWAY_NS), timing->born);
	const uint64_t from = (since - timing->born) * UNITS;
	uint64_t end = 0;

	if (timing->per_command > 0)
		end = serve(&timing->commands_until, from, (uint64_t)timing->per_command);
	if (timing->per_byte > 0 && bytes)
		end = gnv_max(end, serve(&timing->bytes_until, from, (uint64_t)(timing->per_byte * (double)bytes)));
	return gnv_max(now + latency(timing, drawn), timing->born + end / UNITS);
}

void gnv_soft_timing_forget(struct gnv_soft_timing *timing)
{
	__atomic_store_n(&timing->commands_until, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&timing->bytes_until, 0, __ATOMIC_RELAXED);
}

bool gnv_soft_timing_is_idle(const struct gnv_soft_timing *timing, uint64_t now)
{
	const uint64_t at = (now - timing->born) * UNITS;

	return __atomic_load_n(&timing->commands_until, __ATOMIC_RELAXED) <= at &&
	       __atomic_load_n(&timing->bytes_until, __ATOMIC_RELAXED) <= at;
}
