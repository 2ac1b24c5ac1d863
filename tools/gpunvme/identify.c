/* SPDX-License-Identifier: MIT */
/*
 * gpunvme identify: the controller, its limits, its namespaces and its health (SMART log).
 */
#include "emulated.h"
#include "verbs.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_NS = 64 };

struct report {
	struct session s;
	struct gpunvme_smart_log smart;
	int has_smart;
	struct gpunvme_ns_info ns[MAX_NS];
	char why[MAX_NS][320]; /* it cannot be used, or "" */
	uint32_t count; /* of ns */
	uint32_t total; /* active namespaces */
	struct gpunvme_check check[GPUNVME_MAX_CHECKS];
	unsigned checks;
};

static unsigned kelvin(const struct gpunvme_smart_log *log)
{
	return log->temperature[0] | (unsigned)log->temperature[1] << 8;
}

/* Low 64 bits of a 128-bit counter: enough for every drive. */
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
		ret = gpunvme_ns_get_info(r->s.dev, nsid[i], &r->ns[i]);
		if (ret && ret != -EOPNOTSUPP && ret != -ENOENT)
			return failed("cannot identify namespace %u: %s", nsid[i], why(ret));
		r->ns[i].nsid = nsid[i];
		snprintf(r->why[i], sizeof(r->why[i]), "%s", ret ? gpunvme_errmsg() : "");
	}
	r->checks = GPUNVME_MAX_CHECKS;
	ret = gpunvme_doctor_drive(r->s.dev, r->check, &r->checks);
	if (ret)
		return failed("the controller died: %s", why(ret));
	if (r->checks > GPUNVME_MAX_CHECKS)
		r->checks = GPUNVME_MAX_CHECKS; /* of a newer library */
	/* A controller without this log is no failure of identify. */
	r->has_smart = gpunvme_dev_log_page(r->s.dev, GPUNVME_LID_SMART, GPUNVME_NSID_ALL, &r->smart, sizeof(r->smart)) == 0;
	return GO_ON;
}

/* Memory of the drive's own. */
static void print_inside(const struct gpunvme_dev_info *d)
{
	static const char *const what[] = { "submission queues", "PRP lists", "data" };
	const char *between = "for ";

	if (d->cmb)
		printf("memory inside  %s", human((double)d->cmb));
	for (uint32_t i = 0; i < 3; i++)
		if (d->cmb && d->cmb_holds >> i & 1) {
			printf(", %s%s", between, what[i]);
			between = "";
		}
	if (d->cmb)
		printf(", on request\n");
	if (d->pmr)
		printf("persistent     a region of memory (PMR), left alone\n");
}

static void print_limits(const struct gpunvme_dev_info *d)
{
	printf("controller     %s, serial %s, firmware %s\n", d->model, d->serial, d->firmware);
	printf("reached by     %s (%s)\n", d->transport, d->address);
	if (d->emulated)
		printf("emulated       %s\n", emulated(d));
	printf("vendor         %04x, NVMe %u.%u.%u\n", d->vid, d->vs >> 16, d->vs >> 8 & 0xff, d->vs & 0xff);
	printf("queue pairs    %u of up to %u entries, doorbells %u bytes apart\n", d->queues, d->max_depth, 4u << d->dstrd);
	printf("one command    %s, memory pages of %s\n", d->max_transfer ? human(d->max_transfer) : "no limit",
	       human(d->page_size));
	printf("features      %s%s%s%s%s\n", d->oncs & GPUNVME_ONCS_WRITE_ZEROES ? " write-zeroes" : "",
	       d->oncs & GPUNVME_ONCS_DSM ? " deallocate" : "", d->vwc ? " volatile-cache" : "", d->sgl ? " sgl" : "",
	       d->read_only ? " read-only" : "");
	if (d->hmb_asked)
		printf("host memory    %u MiB of the requested %u MiB\n", (unsigned)(d->hmb >> 20), (unsigned)(d->hmb_asked >> 20));
	print_inside(d);
	printf("reset          %s\n", strcmp(d->reset, "none") ? d->reset : "registers only, and its DMA can be stopped");
	printf("PRP lists      %s%s%s\n", d->lists, *d->quirks ? ", quirk of this model: " : "", d->quirks);
}

static void print_health(const struct gpunvme_smart_log *log)
{
	char temperature[24] = "temperature unknown";

	if (kelvin(log))
		snprintf(temperature, sizeof(temperature), "%d C", (int)kelvin(log) - 273);
	printf("health         %s, %s, %u %% worn, spare %u %% (limit %u %%)\n", log->critical_warning ? "WARNING" : "good", temperature,
	       log->percent_used, log->avail_spare, log->spare_thresh);
	printf("               read %s, written %s, %" PRIu64 " media errors\n",
	       human((double)counter(log->data_units_read) * 512000), human((double)counter(log->data_units_written) * 512000),
	       counter(log->media_errors));
	printf("               %" PRIu64 " hours on, %" PRIu64 " power cycles, %" PRIu64 " unsafe shutdowns\n",
	       counter(log->power_on_hours), counter(log->power_cycles), counter(log->unsafe_shutdowns));
}

static const char *deallocated_name(const struct gpunvme_ns_info *ns)
{
	static const char *const names[] = { "unknown", "zeroes", "ones" };

	return names[ns->deallocated < 3 ? ns->deallocated : GPUNVME_DEALLOCATED_UNKNOWN];
}

static void print_hints(const struct gpunvme_ns_info *ns)
{
	if (ns->deallocated)
		printf("               deallocated blocks read as %s\n", deallocated_name(ns));
	if (ns->write_step)
		printf("               best written in multiples of %u blocks, at multiples of %u, by %u at once\n", ns->write_step,
		       ns->write_align, ns->write_best);
	if (ns->boundary)
		printf("               transfers across a multiple of %u blocks are slower\n", ns->boundary);
	if (ns->atomic <= 1 && ns->atomic_power <= 1)
		return;
	printf("               writes of up to %u blocks are seen whole, of %u are whole after a power failure", ns->atomic,
	       ns->atomic_power);
	if (ns->atomic_border)
		printf(", not across multiples of %u from block %u on", ns->atomic_border, ns->atomic_first);
	printf("\n");
}

static void print_namespace(const struct gpunvme_ns_info *ns, const char *why)
{
	if (*why) {
		printf("namespace %-4u not usable: %s\n", ns->nsid, why);
		return;
	}
	printf("namespace %-4u %" PRIu64 " blocks of %u bytes, %s%s\n", ns->nsid, ns->nblocks, ns->lba_size,
	       human((double)ns->nblocks * ns->lba_size), ns->read_only ? ", read-only" : "");
	print_hints(ns);
}

static void print_text(const struct report *r)
{
	print_limits(&r->s.info);
	for (uint32_t i = 0; i < r->count; i++)
		print_namespace(&r->ns[i], r->why[i]);
	if (r->total > r->count)
		printf("               and %u more\n", r->total - r->count);
	if (r->has_smart)
		print_health(&r->smart);
	else
		printf("health         not reported by this controller\n");
	for (unsigned i = 0; i < r->checks; i++) {
		const struct gpunvme_check *check = &r->check[i];

		if (check->result == GPUNVME_CHECK_OK && strcmp(check->name, "write-cache"))
			continue;
		printf("%-14s %s\n", check->name, check->reason);
		if (*check->remedy)
			printf("               -> %s\n", check->remedy);
	}
}

static void add_health(struct json_object *health, const struct gpunvme_smart_log *log)
{
	put_count(health, "critical_warning", log->critical_warning);
	if (kelvin(log))
		put_number(health, "temperature_c", (int)kelvin(log) - 273);
	put_count(health, "percent_used", log->percent_used);
	put_count(health, "available_spare", log->avail_spare);
	put_count(health, "data_units_read", counter(log->data_units_read));
	put_count(health, "data_units_written", counter(log->data_units_written));
	put_count(health, "media_errors", counter(log->media_errors));
	put_count(health, "power_on_hours", counter(log->power_on_hours));
	put_count(health, "power_cycles", counter(log->power_cycles));
	put_count(health, "unsafe_shutdowns", counter(log->unsafe_shutdowns));
}

static void add_controller(struct json_object *json, const struct gpunvme_dev_info *d)
{
	char version[32];

	snprintf(version, sizeof(version), "%u.%u.%u", d->vs >> 16, d->vs >> 8 & 0xff, d->vs & 0xff);
	put_text(json, "model", d->model);
	put_text(json, "serial", d->serial);
	put_text(json, "firmware", d->firmware);
	put_text(json, "transport", d->transport);
	put_text(json, "address", d->address);
	put_count(json, "vid", d->vid);
	put_text(json, "version", version);
	put_count(json, "queues", d->queues);
	put_count(json, "max_depth", d->max_depth);
	put_count(json, "max_transfer", d->max_transfer);
	put_count(json, "page_size", d->page_size);
	put_count(json, "oncs", d->oncs);
	put_bool(json, "volatile_cache", d->vwc);
	put_bool(json, "sgl", d->sgl);
	put_count(json, "hmb", d->hmb);
	put_count(json, "hmb_asked", d->hmb_asked);
	put_count(json, "cmb", d->cmb);
	put_count(json, "cmb_holds", d->cmb_holds);
	put_bool(json, "pmr", d->pmr);
	put_text(json, "reset", d->reset);
	put_text(json, "lists", d->lists);
	put_emulated(json, d);
	put_text(json, "quirks", d->quirks);
}

static void add_namespace(struct json_object *json, const struct gpunvme_ns_info *ns, const char *why)
{
	put_count(json, "nsid", ns->nsid);
	put_count(json, "lba_size", ns->lba_size);
	put_count(json, "blocks", ns->nblocks);
	put_bool(json, "read_only", ns->read_only);
	put_text(json, "refused", why);
	put_count(json, "boundary", ns->boundary);
	put_count(json, "write_step", ns->write_step);
	put_count(json, "write_align", ns->write_align);
	put_count(json, "write_best", ns->write_best);
	put_count(json, "atomic", ns->atomic);
	put_count(json, "atomic_power", ns->atomic_power);
	put_count(json, "atomic_border", ns->atomic_border);
	put_count(json, "atomic_first", ns->atomic_first);
	put_count(json, "atomic_seen_border", ns->atomic_seen_border);
	put_text(json, "deallocated", deallocated_name(ns));
}

static void print_json(const struct report *r)
{
	struct json_object *json = json_object_new_object(), *list;

	add_controller(json, &r->s.info);
	list = put_list(json, "namespaces");
	for (uint32_t i = 0; i < r->count; i++)
		add_namespace(append_object(list), &r->ns[i], r->why[i]);
	if (r->has_smart)
		add_health(put_object(json, "health"), &r->smart);
	list = put_list(json, "conditions");
	for (unsigned i = 0; i < r->checks; i++) {
		struct json_object *check = append_object(list);

		put_text(check, "name", r->check[i].name);
		put_bool(check, "ok", r->check[i].result == GPUNVME_CHECK_OK);
		put_text(check, "reason", r->check[i].reason);
		put_text(check, "remedy", r->check[i].remedy);
	}
	print_object(json);
}

int verb_identify(int argc, char **argv)
{
	struct session_opts o = SESSION_OPTS_INIT;
	const struct option_def defs[] = {
		OPTION_DEV(&o),
		OPTION_JSON(&o),
		OPTION_VERBOSE(&o),
		OPTIONS_END,
	};
	static struct report r;
	int ret = session_options(argc, argv, "usage: gpunvme identify URI [--json]\n"
					      "Shows a controller: limits, namespaces, health.", defs, &o, NULL);

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
