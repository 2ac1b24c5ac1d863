/* SPDX-License-Identifier: MIT */
/*
 * identify: open a controller, print what it is, close it. The shortest program that uses the library.
 */
#include "common/session.h"

#include <inttypes.h>
#include <stdio.h>

static void print_json(const struct session *s)
{
	struct json_object *json = json_object_new_object();

	put_text(json, "model", s->info.model);
	put_text(json, "serial", s->info.serial);
	put_text(json, "firmware", s->info.firmware);
	put_text(json, "transport", s->info.transport);
	put_count(json, "namespace", s->ns.nsid);
	put_count(json, "lba_size", s->ns.lba_size);
	put_count(json, "blocks", s->ns.nblocks);
	put_count(json, "queues", s->info.queues);
	put_count(json, "max_depth", s->info.max_depth);
	put_count(json, "max_transfer", s->info.max_transfer);
	put_bool(json, "read_only", s->ns.read_only);
	print_object(json);
}

static void print_text(const struct session *s)
{
	printf("model          %s\n", s->info.model);
	printf("serial         %s\n", s->info.serial);
	printf("firmware       %s\n", s->info.firmware);
	printf("transport      %s\n", s->info.transport);
	printf("namespace %-4u %" PRIu64 " blocks of %u bytes, %s%s\n", s->ns.nsid, s->ns.nblocks, s->ns.lba_size,
	       human((double)s->ns.nblocks * s->ns.lba_size), s->ns.read_only ? ", read-only" : "");
	printf("queue pairs    %u of up to %u entries\n", s->info.queues, s->info.max_depth);
	printf("one command    %s\n", s->info.max_transfer ? human(s->info.max_transfer) : "no limit");
}

int main(int argc, char **argv)
{
	struct session_opts o = SESSION_OPTS_INIT;
	const struct option_def defs[] = {
		OPTION_DEV(&o),
		OPTION_JSON(&o),
		OPTION_VERBOSE(&o),
		OPTIONS_END,
	};
	struct session s;
	int ret;

	program = "identify";
	ret = session_options(argc, argv, "usage: identify URI [--json]\nShows an NVMe controller.", defs, &o, NULL);
	if (ret != GO_ON)
		return ret;
	ret = session_open(&s, &o);
	if (ret != GO_ON)
		return ret;
	if (o.json)
		print_json(&s);
	else
		print_text(&s);
	session_close(&s);
	return finish(EXIT_DONE);
}
