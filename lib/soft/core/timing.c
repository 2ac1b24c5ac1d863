/* SPDX-License-Identifier: MIT */
#include "soft/core/timing.h"

#define AWAY_NS 1000000u	    /* so long a thread may have been away without the drive being slower for it */
#define UNITS 256u		    /* of the clocks, in a nanosecond */
#define FAR (1ull << 62)	    /* a clock that is there stays: it cannot wrap */
#define LOG2_50 5.643856	    /* from the median to one in a hundred it is this many halvings */
#define FRACTION 65536u
#define CURVE 22716u /* 0.3466 of FRACTION: log2(1 + x) is about x + 0.3466 x (1 - x), to 0.008 */

static double scale(uint64_t median_ns, uint64_t p99_ns)
{
	return p99_ns > median_ns ? (double)(p99_ns - median_ns) / (LOG2_50 * FRACTION) : 0;
}

static double per(uint64_t rate)
{
	return rate ? 1e9 * UNITS / (double)rate : 0;
}

void gnv_soft_timing_init(struct gnv_soft_timing *timing, const struct gnv_soft_model *model, uint64_t now)
{
	const struct gnv_soft_parts *parts = &model->parts;

	*timing = (struct gnv_soft_timing){
		.on = model->bw || model->iops || model->lat_us || model->link || parts->units,
		.born = now,
		.lat_ns = model->lat_us * 1000ull,
		.tail_scale = scale(model->lat_us * 1000ull, model->p99_us * 1000ull),
		.read_scale = scale(parts->read_ns, parts->read_p99_ns),
		.per_command = model->iops ? per(model->iops) : (double)(parts->fw_ns * UNITS),
		.per_byte = per(model->bw),
		.per_link = per(model->link),
		.per_channel = per(parts->channel_bw),
		.per_drain = per(parts->drain),
		.seed = model->seed,
		.page_shift = parts->page ? gnv_log2(parts->page) : 0,
		.parts = *parts,
	};
}

/* The negative binary logarithm of the bits as a fraction of 1, in units of 1/FRACTION: exponentially distributed. */
static uint64_t halvings(uint64_t bits)
{
	const unsigned lead = (unsigned)__builtin_clzll(bits | 1);
	const uint64_t x = (bits | 1) << lead << 1 >> 48;

	return (lead + 1ull) * FRACTION - x - (x * (FRACTION - x) >> 16) * CURVE / FRACTION;
}

/* Half of the draws take the median, the other half longer. Return: ns. */
static uint64_t spread(uint64_t median_ns, double tail, uint64_t drawn)
{
	if (drawn >> 63 || tail == 0)
		return median_ns;
	return median_ns + (uint64_t)(tail * (double)halvings(drawn << 1));
}

/*
 * A stage takes a command after all that came before. One that had nothing to do does not catch up on that. A stage that is busy,
 * which is where threads meet, costs one addition.
 */
static uint64_t serve(uint64_t *until, uint64_t from, uint64_t cost)
{
	uint64_t old = __atomic_load_n(until, __ATOMIC_RELAXED);

	while (old < from && !__atomic_compare_exchange_n(until, &old, from, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	if (old >= FAR)
		return old;
	return __atomic_fetch_add(until, cost, __ATOMIC_RELAXED) + cost;
}

/* ---- Parts ---- */

/* A command on its way: clocks in 1/256 ns since the drive was born. */
struct course {
	struct gnv_soft_timing *timing;
	const struct gnv_soft_op *op;
	uint64_t drawn;
	uint64_t start; /* when the firmware has ended */
	uint64_t end;
	uint64_t own; /* so long it takes when nothing else is there */
};

/* Neighbours are in different units, and the units of an address far from it look like drawn. */
static uint32_t unit_of(const struct gnv_soft_timing *timing, uint64_t page)
{
	const uint64_t units = timing->parts.units;

	return (uint32_t)((page + gnv_mix(page / units)) % units);
}

static void occupy(struct course *c, uint64_t cost, uint64_t end)
{
	c->own = gnv_max(c->own, cost);
	c->end = gnv_max(c->end, end);
}

/* A page from its unit, which is busy until the page has gone over the channel. @times: pages of the command in that unit. */
static void read_page(struct course *c, uint64_t page, uint64_t bytes, uint64_t times)
{
	struct gnv_soft_timing *timing = c->timing;
	const uint32_t unit = unit_of(timing, page);
	const uint64_t moves = (uint64_t)(timing->per_channel * (double)(bytes * times));
	const uint64_t cost = spread(timing->parts.read_ns, timing->read_scale, c->drawn) * UNITS * times + moves;

	occupy(c, cost, serve(&timing->unit[unit], c->start, cost));
	if (timing->parts.channels)
		occupy(c, moves, serve(&timing->channel[unit % timing->parts.channels], c->start, moves));
	c->drawn = gnv_mix(c->drawn + page);
}

static void program_page(struct course *c, uint64_t page, uint64_t times)
{
	struct gnv_soft_timing *timing = c->timing;

	if (timing->parts.program_ns)
		serve(&timing->unit[unit_of(timing, page)], c->start, timing->parts.program_ns * UNITS * times);
}

/* All its pages. A command that has more than there are units has several in each. */
static void go_through(struct course *c, bool reads)
{
	const uint32_t shift = c->timing->page_shift;
	const uint64_t first = c->op->offset >> shift, count = ((c->op->offset + c->op->len - 1) >> shift) - first + 1;
	const uint64_t units = c->timing->parts.units, bytes = gnv_min(c->op->len, 1ull << shift);
	uint64_t i, times;

	for (i = 0; i < gnv_min(count, units); i++) {
		times = (count - i + units - 1) / units;
		if (reads)
			read_page(c, first + i, bytes, times);
		else
			program_page(c, first + i, times);
	}
}

/* A write ends in the buffer. One that finds it full waits until as much has drained. */
static void write_data(struct course *c)
{
	struct gnv_soft_timing *timing = c->timing;
	const uint64_t room = (uint64_t)(timing->per_drain * (double)timing->parts.buffer);
	uint64_t drained;

	occupy(c, timing->parts.write_ns * UNITS, c->start + timing->parts.write_ns * UNITS);
	go_through(c, false);
	if (timing->per_drain == 0)
		return;
	drained = serve(&timing->drain.until, c->start, (uint64_t)(timing->per_drain * (double)c->op->len));
	if (drained > room)
		c->end = gnv_max(c->end, drained - room);
}

static void go_to_parts(struct course *c)
{
	const uint64_t fixed = c->timing->parts.fixed_ns * UNITS;

	if (c->op->len && (c->op->opc == GPUNVME_IO_READ || c->op->opc == GPUNVME_IO_COMPARE))
		go_through(c, true);
	else if (c->op->len && c->op->opc == GPUNVME_IO_WRITE)
		write_data(c);
	c->end += fixed;
	c->own += fixed + (uint64_t)c->timing->per_command;
}

/* ---- All of a drive ---- */

/* Data of a command, from the host or to it. */
static void go_over_link(struct course *c, uint64_t from, uint64_t bytes)
{
	struct gnv_soft_timing *timing = c->timing;
	const uint64_t moves = (uint64_t)(timing->per_link * (double)bytes);

	if (!moves)
		return;
	c->own += moves;
	c->end = gnv_max(c->end + moves, serve(&timing->link[c->op->opc == GPUNVME_IO_READ].until, from, moves));
}

uint64_t gnv_soft_timing_due(struct gnv_soft_timing *timing, uint64_t now, uint64_t looked, const struct gnv_soft_op *op,
			     uint64_t drawn)
{
	const uint64_t since = gnv_max(gnv_max(looked, now - AWAY_NS), timing->born);
	const uint64_t from = (since - timing->born) * UNITS, bytes = op->opc == GPUNVME_IO_DSM ? 0 : op->data_len;
	struct course c = { timing, op, drawn, from, 0, 0 };

	if (timing->per_command > 0)
		c.start = c.end = serve(&timing->commands.until, from, (uint64_t)timing->per_command);
	if (timing->per_byte > 0 && bytes)
		c.end = gnv_max(c.end, serve(&timing->bytes.until, from, (uint64_t)(timing->per_byte * (double)bytes)));
	if (timing->parts.units)
		go_to_parts(&c);
	else
		c.own = spread(timing->lat_ns, timing->tail_scale, drawn) * UNITS;
	go_over_link(&c, from, bytes);
	return gnv_max(now + c.own / UNITS, timing->born + c.end / UNITS);
}

void gnv_soft_timing_forget(struct gnv_soft_timing *timing)
{
	uint64_t *const clock[] = { &timing->commands.until, &timing->bytes.until, &timing->link[0].until, &timing->link[1].until,
				    &timing->drain.until };
	unsigned i;

	for (i = 0; i < GNV_ARRAY_LEN(clock); i++)
		__atomic_store_n(clock[i], 0, __ATOMIC_RELAXED);
	for (i = 0; i < GNV_SOFT_CHANNELS; i++)
		__atomic_store_n(&timing->channel[i], 0, __ATOMIC_RELAXED);
	for (i = 0; i < timing->parts.units; i++)
		__atomic_store_n(&timing->unit[i], 0, __ATOMIC_RELAXED);
}

bool gnv_soft_timing_is_idle(const struct gnv_soft_timing *timing, uint64_t now)
{
	const uint64_t at = (now - timing->born) * UNITS;

	if (timing->parts.units && __atomic_load_n(&timing->unit[now % timing->parts.units], __ATOMIC_RELAXED) > at)
		return false;
	return __atomic_load_n(&timing->commands.until, __ATOMIC_RELAXED) <= at &&
	       __atomic_load_n(&timing->bytes.until, __ATOMIC_RELAXED) <= at &&
	       __atomic_load_n(&timing->link[0].until, __ATOMIC_RELAXED) <= at &&
	       __atomic_load_n(&timing->link[1].until, __ATOMIC_RELAXED) <= at;
}
