/* SPDX-License-Identifier: MIT */
/*
 * bench/costs: what an open software controller costs while nothing happens. CPU time from one second after the last command on,
 * and memory of a device with queues, against the size of their rings and tables.
 */
#include "bench.h"

#include "queue/queue.h"
#include "soft/engine/threads.h"

#define SETTLE_MS 1000u
#define COMMAND_TABLE (GNV_SOFT_CMDS * sizeof(struct gnv_soft_slot)) /* of each of its threads */

/* Kilobytes of one line of /proc/self/status. */
static uint64_t status_kib(const char *name)
{
	FILE *file = fopen("/proc/self/status", "r");
	uint64_t kib = 0;
	char line[128];

	while (file && fgets(line, sizeof(line), file))
		if (strncmp(line, name, strlen(name)) == 0)
			kib = strtoull(line + strlen(name), NULL, 10);
	if (file)
		fclose(file);
	return kib;
}

struct memory {
	uint64_t rss, locked; /* bytes */
};

static struct memory memory_now(void)
{
	struct memory m = { status_kib("VmRSS:") * KIB, status_kib("VmLck:") * KIB };

	return m;
}

/* Rings, state and tables of the queues of a session, in pages as the arena gives them. */
static uint64_t size_of_queues(const struct session *s)
{
	uint64_t page = s->info.page_size, sum = 0;

	for (uint32_t i = 0; i < s->queues; i++) {
		const struct gpunvme_queue *queue = s->queue[i];

		sum += (queue->qp[0]->depth * sizeof(struct gpunvme_sqe) + page - 1) / page * page;
		sum += (queue->qp[0]->cq_depth * sizeof(struct gpunvme_cqe) + page - 1) / page * page;
		sum += (queue->qp[0]->layout.size + page - 1) / page * page;
	}
	return sum;
}

static double cpu_share(double seconds)
{
	uint64_t cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	double start = now_s();

	sleep_ms((uint32_t)(seconds * 1000));
	return (double)(clock_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu) / 1e9 / (now_s() - start);
}

static int read_once(struct session *s)
{
	int ret = session_buffer(s, 4096);

	for (uint32_t i = 0; ret == GO_ON && i < s->queues; i++)
		ret = gpunvme_read(&s->dq[i], &s->dbuf, 0, 0, 1ull << s->dq[i].lba_shift) ? failed("a read failed") : GO_ON;
	return ret;
}

static void report(const struct session *s, const struct session_opts *o, double idle, const struct memory *grown,
		   struct json_object *json)
{
	uint64_t size = size_of_queues(s);

	if (json) {
		put_count(json, "queues", s->queues);
		put_count(json, "depth", o->depth);
		put_real(json, "idle_cpus", idle, 5);
		put_count(json, "queue_bytes", size);
		put_count(json, "rss_bytes", grown->rss);
		put_count(json, "locked_bytes", grown->locked);
		put_count(json, "command_table_bytes", COMMAND_TABLE);
		print_object(json);
		return;
	}
	printf("  %u queues of depth %u\n", s->queues, o->depth);
	printf("  idle              %.2f %% of a CPU\n", idle * 100);
	printf("  rings and tables  %s\n", human((double)size));
	printf("  resident memory   grew by %s\n", human((double)grown->rss));
	printf("  locked memory     grew by %s\n", human((double)grown->locked));
	printf("  command table     %s for each thread of the controller\n", human((double)COMMAND_TABLE));
}

static int measure(struct session *s, const struct session_opts *o, double seconds)
{
	struct memory before = memory_now(), after;
	double idle;
	int ret = session_open(s, o);

	if (ret == GO_ON)
		ret = session_open_queues(s, o, 0, 0, s->ns.nblocks);
	after = memory_now();
	if (ret == GO_ON)
		ret = read_once(s);
	if (ret == GO_ON) {
		sleep_ms(SETTLE_MS);
		idle = cpu_share(seconds);
		after.rss -= before.rss;
		after.locked -= before.locked;
		report(s, o, idle, &after, print_setup(o->json, s));
		ret = EXIT_DONE;
	}
	session_close(s);
	return ret;
}

int main(int argc, char **argv)
{
	struct session_opts o = SESSION_OPTS_INIT;
	struct session s;
	uint64_t ms = 5000;
	const struct option_def defs[] = {
		OPTION_DEV(&o),
		{ "queues", OPTION_U32, &o.queues, 1, "N", "queue pairs (default 8)" },
		{ "depth", OPTION_U32, &o.depth, 2, "N", "entries of each (default 1024)" },
		{ "ms", OPTION_U64, &ms, 1, "N", "milliseconds of idleness that are measured (default 5000)" },
		OPTION_JSON(&o),
		OPTIONS_END,
	};
	int ret;

	program = "costs";
	o.queues = 8;
	o.depth = 1024;
	ret = parse_options(argc, argv, "usage: costs --dev soft:PATH [options]", defs, NULL, 0);
	if (ret != GO_ON)
		return ret;
	if (!o.dev)
		return misused("a controller is missing: --dev soft:PATH");
	if (ms > 600000)
		return misused("--ms must be at most 600000");
	return finish(measure(&s, &o, (double)ms / 1000));
}
