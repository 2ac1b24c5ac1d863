/* SPDX-License-Identifier: MIT */
/*
 * gpunvme identify: the controller, its limits, its namespaces and its health (SMART log).
 */
#include "verbs.h"

enum { MAX_NS = 64 };

struct report {
	struct session s;
	struct gpunvme_smart_log smart;
	int has_smart;
	struct gpunvme_ns_info ns[MAX_NS];
	uint32_t count; /* of ns */
	uint32_t total; /* active namespaces */
};

static unsigned kelvin(const struct gpunvme_smart_log *log)
{
	return log->temperature[0] | (unsigned)log->temperature[1] << 8;
}

/* Low 64 bits of a 128-bit counter: enough for every drive there is. */
static uint64_t counter(const uint64_t *pair)
{
	return pair[1] ? UINT64_MAX : pair[0];
}

static int collect(struct report *r)
{
	uint32_t nsid[MAX_NS];
	int ret;

	r->total = MAX_NS;
	ret = gpunvme_ns_list(r->s.dev, nsid, &r->total);
	if (ret)
		return failed("cannot list the namespaces: %s", why(ret));
	r->count = r->total < MAX_NS ? r->total : MAX_NS;
	for (uint32_t i = 0; i < r->count; i++) {
		r->ns[i].size = sizeof(r->ns[i]);
		ret = gpunvme_ns_info(r->s.dev, nsid[i], &r->ns[i]);
		if (ret && ret != -EOPNOTSUPP)
			return failed("cannot identify namespace %u: %s", nsid[i], why(ret));
		r->ns[i].nsid = nsid[i];
	}
	/* A controller without this log is no failure of identify. */
	r->has_smart = gpunvme_dev_log_page(r->s.dev, GPUNVME_LID_SMART, GPUNVME_NSID_ALL, &r->smart, sizeof(r->smart)) == 0;
	return GO_ON;
}

static void print_limits(const struct gpunvme_dev_info *d)
{
	printf("controller     %s, serial %s, firmware %s\n", d->model, d->serial, d->firmware);
	printf("reached by     %s (%s)\n", d->transport, d->address);
	printf("vendor         %04x, NVMe %u.%u.%u\n", d->vid, d->vs >> 16, d->vs >> 8 & 0xff, d->vs & 0xff);
	printf("queue pairs    %u of up to %u entries, doorbells %u bytes apart\n", d->queues, d->max_depth, 4u << d->dstrd);
	printf("one command    %s, memory pages of %s\n", d->max_transfer ? human(d->max_transfer) : "no limit",
	       human(d->page_size));
	printf("features      %s%s%s%s%s\n", d->oncs & GPUNVME_ONCS_WRITE_ZEROES ? " write-zeroes" : "",
	       d->oncs & GPUNVME_ONCS_DSM ? " deallocate" : "", d->vwc ? " volatile-cache" : "", d->sgl ? " sgl" : "",
	       d->read_only ? " read-only" : "");
}

static void print_health(const struct gpunvme_smart_log *log)
{
	printf("health         %s, %d C, %u %% worn, spare %u %% (limit %u %%)\n", log->critical_warning ? "WARNING" : "good",
	       (int)kelvin(log) - 273, log->percent_used, log->avail_spare, log->spare_thresh);
	printf("               read %s, written %s, %" PRIu64 " media errors\n",
	       human((double)counter(log->data_units_read) * 512000), human((double)counter(log->data_units_written) * 512000),
	       counter(log->media_errors));
	printf("               %" PRIu64 " hours on, %" PRIu64 " power cycles, %" PRIu64 " unsafe shutdowns\n",
	       counter(log->power_on_hours), counter(log->power_cycles), counter(log->unsafe_shutdowns));
}

static void print_text(const struct report *r)
{
	print_limits(&r->s.info);
	for (uint32_t i = 0; i < r->count; i++) {
		const struct gpunvme_ns_info *ns = &r->ns[i];

		if (!ns->lba_size)
			printf("namespace %-4u in a format with metadata, which this library does not use\n", ns->nsid);
		else
			printf("namespace %-4u %" PRIu64 " blocks of %u bytes, %s%s\n", ns->nsid, ns->nblocks, ns->lba_size,
			       human((double)ns->nblocks * ns->lba_size), ns->read_only ? ", read-only" : "");
	}
	if (r->total > r->count)
		printf("               and %u more\n", r->total - r->count);
	if (r->has_smart)
		print_health(&r->smart);
	else
		printf("health         not reported by this controller\n");
}

static void print_json_health(const struct gpunvme_smart_log *log)
{
	printf(", \"health\": {\"critical_warning\": %u, \"temperature_c\": %d, \"percent_used\": %u, \"available_spare\": %u",
	       log->critical_warning, (int)kelvin(log) - 273, log->percent_used, log->avail_spare);
	printf(", \"data_units_read\": %" PRIu64 ", \"data_units_written\": %" PRIu64 ", \"media_errors\": %" PRIu64,
	       counter(log->data_units_read), counter(log->data_units_written), counter(log->media_errors));
	printf(", \"power_on_hours\": %" PRIu64 ", \"power_cycles\": %" PRIu64 ", \"unsafe_shutdowns\": %" PRIu64 "}",
	       counter(log->power_on_hours), counter(log->power_cycles), counter(log->unsafe_shutdowns));
}

static void print_json(const struct report *r)
{
	const struct gpunvme_dev_info *d = &r->s.info;

	printf("{\"model\": ");
	json_string(d->model);
	printf(", \"serial\": ");
	json_string(d->serial);
	printf(", \"firmware\": ");
	json_string(d->firmware);
	printf(", \"transport\": ");
	json_string(d->transport);
	printf(", \"address\": ");
	json_string(d->address);
	printf(", \"vid\": %u, \"version\": \"%u.%u.%u\"", d->vid, d->vs >> 16, d->vs >> 8 & 0xff, d->vs & 0xff);
	printf(", \"queues\": %u, \"max_depth\": %u, \"max_transfer\": %u, \"page_size\": %u, \"oncs\": %u", d->queues,
	       d->max_depth, d->max_transfer, d->page_size, d->oncs);
	printf(", \"volatile_cache\": %s, \"sgl\": %s, \"namespaces\": [", d->vwc ? "true" : "false", d->sgl ? "true" : "false");
	for (uint32_t i = 0; i < r->count; i++)
		printf("%s{\"nsid\": %u, \"lba_size\": %u, \"blocks\": %" PRIu64 ", \"read_only\": %s}", i ? ", " : "",
		       r->ns[i].nsid, r->ns[i].lba_size, r->ns[i].nblocks, r->ns[i].read_only ? "true" : "false");
	printf("]");
	if (r->has_smart)
		print_json_health(&r->smart);
	printf("}\n");
}

int verb_identify(int argc, char **argv)
{
	struct session_opts o = SESSION_OPTS_INIT;
	const struct option_def defs[] = {
		OPTION_JSON(&o),
		{ "verbose", OPTION_FLAG, &o.verbose, 0, "         show what the library logs" },
		OPTIONS_END,
	};
	static struct report r;
	int ret = parse_verb(argc, argv, "usage: gpunvme identify URI [--json]", defs, &o, NULL);

	if (ret == GO_ON)
		ret = session_open(&r.s, &o);
	if (ret != GO_ON)
		return ret;
	ret = collect(&r);
	if (ret == GO_ON) {
		if (o.json)
			print_json(&r);
		else
			print_text(&r);
		ret = EXIT_DONE;
	}
	session_close(&r.s);
	return ret;
}
