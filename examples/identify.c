/* SPDX-License-Identifier: MIT */
/*
 * identify: open a controller, print what it is, close it. The shortest program that uses the library.
 */
#include "common.h"

static void print_json(const struct session *s)
{
	printf("{\"model\": ");
	json_string(s->info.model);
	printf(", \"serial\": ");
	json_string(s->info.serial);
	printf(", \"firmware\": ");
	json_string(s->info.firmware);
	printf(", \"transport\": \"%s\", \"namespace\": %u, \"lba_size\": %u, \"blocks\": %" PRIu64, s->info.transport, s->ns.nsid,
	       s->ns.lba_size, s->ns.nblocks);
	printf(", \"queues\": %u, \"max_depth\": %u, \"max_transfer\": %u, \"read_only\": %s}\n", s->info.queues, s->info.max_depth,
	       s->info.max_transfer, s->ns.read_only ? "true" : "false");
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
		{ "verbose", OPTION_FLAG, &o.verbose, 0, "         show what the library logs" },
		OPTIONS_END,
	};
	struct session s;
	int ret;

	program = "identify";
	ret = parse_options(argc, argv, "usage: identify --dev URI [--json]\nPrints what an NVMe controller is.", defs, NULL, 0);
	if (ret != GO_ON)
		return ret;
	if (!o.dev)
		return misused("--dev is missing, for example --dev soft:disk.img");
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
