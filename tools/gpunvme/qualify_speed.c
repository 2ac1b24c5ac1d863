/* SPDX-License-Identifier: MIT */
/* Rows about speed, and about the health log before and after. */
#include "qualify.h"
#include "lists.h"

#include "common/traffic.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <gpunvme/device.h>

#define MOST_THREADS 4
#define SHARE 24.0 /* of the whole time, for one pattern */
#define MOST_S 25.0
#define LEAST_S 0.1

static const struct pattern {
	const char *name;
	int write, random;
	uint32_t bytes, threads, qd;
} patterns[] = {
	{ "write", 1, 0, 128 * 1024, 2, 8 }, { "write one", 1, 1, 4096, 1, 1 }, { "write many", 1, 1, 4096, MOST_THREADS, 64 },
	{ "read", 0, 0, 128 * 1024, 2, 8 },  { "read one", 0, 1, 4096, 1, 1 },	{ "read many", 0, 1, 4096, MOST_THREADS, 64 },
	{ "write aligned", 1, 1, 0, 2, 8 }, { "write misaligned", 1, 1, 0, 2, 8 }, /* to what the drive prefers */
};
enum { ALIGNED = 6, MISALIGNED };
#define PATTERNS (sizeof(patterns) / sizeof(patterns[0]))

struct measure {
	struct qualify *a;
	struct gpunvme_queue *queue[MOST_THREADS];
	struct gpunvme_dq dq[MOST_THREADS];
	uint32_t queues;
	uint64_t first, blocks; /* the window */
	uint32_t preferred;		/* blocks of a write that the drive prefers, or 0: no preference */
	uint64_t written;	/* of its blocks, in order */
	double per_s[PATTERNS], us[PATTERNS];
};

static int open_queues(struct measure *m, uint32_t threads)
{
	const struct gpunvme_view view = { sizeof(view), m->a->write ? GPUNVME_VIEW_WRITE : 0, 0, m->first, m->blocks };
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	int ret = 0;

	opts.flags = GPUNVME_QUEUE_LATENCY;
	m->queues = threads < m->a->s.info.queues ? threads : m->a->s.info.queues;
	for (uint32_t i = 0; i < m->queues && !ret; i++) {
		ret = gpunvme_queue_create(m->a->s.dev, m->a->s.gpu, &opts, &m->queue[i]);
		if (!ret)
			ret = gpunvme_queue_view(m->queue[i], &view, &m->dq[i]);
	}
	return ret;
}

static void close_queues(struct measure *m)
{
	for (uint32_t i = 0; i < m->queues; i++) {
		gpunvme_queue_destroy(m->queue[i]);
		m->queue[i] = NULL;
	}
}

static void add_latencies(const struct measure *m, struct gpunvme_queue_latency *sum)
{
	struct gpunvme_queue_latency one = { .size = sizeof(one) };

	for (uint32_t i = 0; i < m->queues; i++) {
		if (gpunvme_queue_get_latency(m->queue[i], &one))
			continue;
		sum->ticks_per_ms = one.ticks_per_ms;
		for (unsigned k = 0; k < GPUNVME_LATENCY_BUCKETS; k++)
			sum->bucket[k] += one.bucket[k];
	}
}

static void put_figures(struct measure *m, const struct pattern *p, const struct traffic *t, double took)
{
	struct gpunvme_queue_latency sum = { .size = sizeof(sum) };
	struct json_object *one = put_object(m->a->figures, p->name);
	const uint64_t ios = traffic_ios(t);

	add_latencies(m, &sum);
	m->per_s[p - patterns] = (double)ios / took;
	m->us[p - patterns] = (double)gpunvme_latency_ns(&sum, 500000) / 1e3;
	put_count(one, "bytes", t->bs);
	put_count(one, "in_flight", (uint64_t)t->threads * t->qd);
	put_real(one, "per_second", (double)ios / took, 0);
	put_real(one, "bytes_per_second", (double)(ios * t->bs) / took, 0);
	put_real(one, "us_50", m->us[p - patterns], 1);
	put_real(one, "us_99", (double)gpunvme_latency_ns(&sum, 990000) / 1e3, 1);
	put_real(one, "us_max", (double)gpunvme_latency_ns(&sum, 1000000) / 1e3, 1);
	m->a->moved[p->write] += ios * t->bs;
}

static int status_of(const struct traffic *t)
{
	for (uint32_t i = 0; i < t->threads; i++)
		if (t->thread[i].status)
			return t->thread[i].status;
	return 0;
}

/* Read written blocks: a drive returns blocks that were never written without reading its media. */
static void set_size(const struct measure *m, const struct pattern *p, struct traffic *t)
{
	uint64_t blocks = m->a->write && (p->random || !p->write) && m->written ? m->written : m->blocks;

	if (blocks > m->blocks) /* the window of reads begins later */
		blocks = m->blocks;
	t->nblocks = !p->bytes ? m->preferred : p->bytes < m->a->lba_size ? 1 : p->bytes / m->a->lba_size;
	if (t->nblocks > m->dq->max_blocks)
		t->nblocks = m->dq->max_blocks;
	if (t->nblocks > blocks)
		t->nblocks = (uint32_t)blocks;
	t->bs = (uint64_t)t->nblocks * m->a->lba_size;
	t->slots = blocks / t->nblocks;
}

/* Return: 0 or an error, with a message. */
static int run_pattern(struct measure *m, const struct pattern *p)
{
	struct traffic t = { .dq = m->dq, .dbuf = &m->a->s.dbuf, .qd = p->qd, .reads = p->write ? 0 : 100, .random = p->random };
	double seconds = m->a->seconds / SHARE, start = now_s();
	int ret;

	seconds = seconds > MOST_S ? MOST_S : seconds < LEAST_S ? LEAST_S : seconds;
	set_size(m, p, &t);
	t.threads = t.queues = m->queues;
	t.end_ns = traffic_ns() + (uint64_t)(seconds * 1e9);
	ret = traffic_init(&t);
	if (!ret)
		ret = gpunvme_cpu_launch(t.threads, 1, traffic_kernel, &t);
	if (!ret)
		ret = status_of(&t);
	if (ret)
		qualify_fail(m->a, "%s: %s", p->name, qualify_why(ret));
	else
		put_figures(m, p, &t, now_s() - start);
	if (!ret && p->write && !p->random) {
		const uint64_t all = traffic_ios(&t) * t.nblocks;

		m->written = all < m->blocks ? all : t.slots * t.nblocks;
	}
	free(t.thread);
	return ret;
}

/* ---- Comparison with reports of the drive ---- */

/* "2.5 GT/s PCIe" as a number. Not by strtod(), for a locale may have a comma. */
static double transfers(const char *speed)
{
	char *end;
	const double whole = (double)strtoul(speed, &end, 10);

	return whole + (*end == '.' && end[1] >= '0' && end[1] <= '9' ? (end[1] - '0') / 10.0 : 0);
}

/* Bytes that the link carries in a second, without packet headers, or 0: not known. */
static double link_bytes(const struct qualify *a)
{
	struct gpunvme_pci_info pci;
	double gt;

	if (strncmp(a->s.info.transport, "vfio", 4) || !find_controller(a->s.info.address, &pci))
		return 0;
	gt = transfers(pci.link_speed);
	return gt * 1e9 / 8 * (gt < 8 ? 0.8 : 128.0 / 130) * pci.link_width;
}

static void tell_rates(const struct measure *m)
{
	struct qualify *a = m->a;
	const double link = link_bytes(a), read = m->per_s[3] * patterns[3].bytes;
	char share[48] = "", writes[128] = "";

	if (link > 0) {
		put_real(a->figures, "link_bytes_per_second", link, 0);
		snprintf(share, sizeof(share), " (%.0f %% of its link)", 100 * read / link);
	}
	if (a->write)
		snprintf(writes, sizeof(writes), ", writes %s/s, %.0f us, %.0f/s", human(m->per_s[0] * patterns[0].bytes), m->us[1],
			 m->per_s[2]);
	qualify_say(a, "reads %s/s%s, of 4 KiB %.0f us one by one, %.0f/s many at once%s", human(read), share, m->us[4], m->per_s[5],
		    writes);
}

/* The preferred write is a hint, so it fails no row. */
static void tell_writes(const struct measure *m)
{
	const double bytes = (double)(m->preferred < m->dq->max_blocks ? m->preferred : m->dq->max_blocks) * m->a->lba_size;
	const size_t at = strlen(m->a->text);
	char preferred[32];

	if (!m->preferred)
		return;
	snprintf(preferred, sizeof(preferred), "%s", human(m->per_s[ALIGNED] * bytes));
	snprintf(m->a->text + at, sizeof(m->a->text) - at, ", preferred writes %s/s, half a step away %s/s", preferred,
		 human(m->per_s[MISALIGNED] * bytes));
}

/* The window of a pattern: aligned as the drive prefers, or, for writes that it does not prefer, half of that away. */
static void set_window(struct measure *m, size_t i)
{
	const uint32_t step = m->a->s.ns.write_align > m->a->s.ns.write_step ? m->a->s.ns.write_align : m->a->s.ns.write_step;

	m->first = m->a->write ? m->a->area : 0;
	if (i >= ALIGNED)
		m->first += step - m->first % step + (i == MISALIGNED ? step / 2 : 0);
	m->blocks = m->a->s.ns.nblocks - m->first;
}

/* Blocks of the preferred write, if the drive reports one and a command may have that size. */
static uint32_t preferred_blocks(const struct qualify *a)
{
	const struct gpunvme_ns_info *ns = &a->s.ns;
	const bool best = ns->write_best && ns->write_step && !(ns->write_best % ns->write_step);
	const uint32_t n = best ? ns->write_best : ns->write_step;

	return a->write && ns->write_step > 1 && ns->write_align <= a->area && (uint64_t)n * a->lba_size <= QUALIFY_LARGEST ? n : 0;
}

int row_rates(struct qualify *a)
{
	struct measure m = { .a = a, .preferred = preferred_blocks(a) };
	const struct stamp stamp = qualify_stamp(a, 0);
	int ret = 0;

	qualify_close_queue(a); /* a drive may have no other */
	stamp_fill(a->data, a->lba_size, &stamp, 2 * QUALIFY_PLACE / a->lba_size); /* so later runs recognize these blocks */
	for (size_t i = 0; i < PATTERNS && !ret && !interrupted; i++) {
		if ((patterns[i].write && !a->write) || (i >= ALIGNED && !m.preferred))
			continue;
		set_window(&m, i);
		ret = open_queues(&m, patterns[i].threads);
		if (ret)
			qualify_fail(a, "%s: %s", patterns[i].name, why(ret));
		else
			ret = run_pattern(&m, &patterns[i]);
		close_queues(&m);
	}
	if (ret)
		return QUALIFY_FAILED;
	tell_rates(&m);
	tell_writes(&m);
	return qualify_claim_wake(a);
}

/* ---- Health ---- */

static uint64_t counter(const uint64_t *pair)
{
	return pair[1] ? UINT64_MAX : pair[0];
}

/* Thousands of 512 bytes, as the drive has counted them. */
static double counted(const uint64_t *before, const uint64_t *after)
{
	return (double)(counter(after) - counter(before)) * 512000;
}

static void put_health(struct qualify *a, const struct gpunvme_smart_log *log)
{
	const int kelvin = log->temperature[0] | log->temperature[1] << 8;

	if (kelvin) /* 0: not reported */
		put_number(a->figures, "temperature_c", kelvin - 273);
	put_count(a->figures, "critical_warning", log->critical_warning);
	put_count(a->figures, "percent_used", log->percent_used);
	put_count(a->figures, "media_errors", counter(log->media_errors));
	put_count(a->figures, "unsafe_shutdowns", counter(log->unsafe_shutdowns));
	put_real(a->figures, "counted_read", counted(a->before.data_units_read, log->data_units_read), 0);
	put_real(a->figures, "counted_written", counted(a->before.data_units_written, log->data_units_written), 0);
}

/* A drive counts in thousands of blocks, some with a delay. So it must show half of the bytes that the rates alone moved. */
int row_health(struct qualify *a)
{
	struct gpunvme_smart_log now;
	uint64_t errors;

	if (!a->has_smart || gpunvme_dev_log_page(a->s.dev, GPUNVME_LID_SMART, GPUNVME_NSID_ALL, &now, sizeof(now))) {
		qualify_say(a, "the drive does not report its health");
		return QUALIFY_SKIPPED;
	}
	put_health(a, &now);
	errors = counter(now.media_errors) - counter(a->before.media_errors);
	if (errors)
		return qualify_fail(a, "%" PRIu64 " media errors came meanwhile: replace the drive", errors);
	qualify_say(a, "no media errors came, it counts %s read and %s written",
		    human(counted(a->before.data_units_read, now.data_units_read)),
		    human(counted(a->before.data_units_written, now.data_units_written)));
	if (2 * counted(a->before.data_units_read, now.data_units_read) + 1024000 < (double)a->moved[0] ||
	    2 * counted(a->before.data_units_written, now.data_units_written) + 1024000 < (double)a->moved[1]) {
		qualify_say(a, "its counters do not count: %s were read and %s written for the rates alone",
			    human((double)a->moved[0]), human((double)a->moved[1]));
		return QUALIFY_LIMIT;
	}
	return now.critical_warning ? QUALIFY_LIMIT : QUALIFY_PASSED;
}
