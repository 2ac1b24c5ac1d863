/* SPDX-License-Identifier: MIT */
/*
 * bench/file_path: what it costs a thread to read by file instead of by block: 4 KiB at random places of the same bytes, by
 * gpunvme_read(), of a file of one extent, and of a file of 10,000 extents that lie in no order.
 *
 *   file_path --dev soft:PATH      reads per second, the three in turn, and the medians of their ratios
 *   file_path --inline N --way W   N reads by one thread that is its own controller, without I/O, always the same instructions
 *
 * The difference of two of the latter, counted by perf stat or by valgrind and divided by N, is what a read costs more; bench/run
 * does that. The tables are made here: what the device header does is measured, not how a file is found.
 */
#include "bench.h"

#include <sys/syscall.h>

#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

#include "common/rig.h"

#define EXTENTS 10000u
#define BYTES 4096u
#define FILE_BYTES ((uint64_t)EXTENTS * BYTES)
#define LANES 4u
#define ROUNDS 9u
#define SQ_SHIFT 8

enum way { BLOCK, ONE, MANY, WAYS };

static struct gpunvme_dextent one[1], many[EXTENTS];

struct job {
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf;
	struct gpunvme_dfile file[WAYS];
	enum way way;
	uint64_t reads; /* of each thread */
	int status;
};

/* Every second piece of the drive, in the order of a multiplication, so that no two touch. */
static void make_files(struct job *j)
{
	const uint32_t blocks = BYTES >> j->dq.lba_shift;
	const struct gpunvme_dextent *table[WAYS] = { NULL, one, many };

	one[0] = (struct gpunvme_dextent){ 0, 0, (uint64_t)EXTENTS * blocks };
	for (uint64_t i = 0; i < EXTENTS; i++)
		many[i] = (struct gpunvme_dextent){ i * blocks, i * 7919 % EXTENTS * 2 * blocks, blocks };
	for (int way = ONE; way < WAYS; way++)
		j->file[way] = (struct gpunvme_dfile){ .head = GPUNVME_HEAD(GPUNVME_KIND_FILE, j->file[way]),
						       .nsid = j->dq.nsid,
						       .lba_shift = j->dq.lba_shift,
						       .extents = way == ONE ? 1 : EXTENTS,
						       .device = j->dq.device,
						       .table = (uintptr_t)table[way],
						       .bytes = FILE_BYTES };
}

static int read_one(const struct job *j, struct gpunvme_cursor *cur, uint32_t lane, uint64_t piece)
{
	const uint32_t blocks = BYTES >> j->dq.lba_shift;

	if (j->way == BLOCK)
		return gpunvme_read(&j->dq, &j->dbuf, (uint64_t)lane * BYTES, (uint64_t)(piece * blocks) << j->dq.lba_shift,
				    (uint64_t)blocks << j->dq.lba_shift);
	return gpunvme_read(cur, &j->dbuf, (uint64_t)lane * BYTES, piece * BYTES, BYTES);
}

static void lane(void *arg)
{
	struct job *j = arg;
	struct gpunvme_cursor cur = { .dq = &j->dq, .file = &j->file[j->way] };
	uint32_t me = gpunvme_thread_id();
	uint64_t random = me + 1;
	int ret = 0;

	for (uint64_t i = 0; i < j->reads && !ret; i++) {
		random = random * 6364136223846793005u + 1442695040888963407u;
		ret = read_one(j, &cur, me, (random >> 33) % EXTENTS);
	}
	if (ret)
		__atomic_store_n(&j->status, ret, __ATOMIC_RELAXED);
}

/* ---- The thread as controller ---- */

static struct {
	struct mini_queue q;
	uint32_t head, tail, phase;
} controller;

/* A thread that waits gives its core to the controller, which is this thread (gnvd_pause() of cpu.h). */
int sched_yield(void)
{
	uint32_t tail;

	if (!controller.q.sq)
		return (int)syscall(SYS_sched_yield);
	for (tail = *controller.q.sq_db; controller.head != tail;) {
		uint32_t cid = controller.q.sq[16 * controller.head] >> 16, *cqe = controller.q.cq + 4 * controller.tail;

		controller.head = (controller.head + 1) & (controller.q.sq_depth - 1);
		cqe[0] = cqe[1] = 0;
		cqe[2] = (uint32_t)controller.q.qid << 16 | controller.head;
		__atomic_store_n(&cqe[3], controller.phase << 16 | cid, __ATOMIC_RELEASE);
		controller.tail = (controller.tail + 1) & (controller.q.cq_depth - 1);
		controller.phase ^= controller.tail == 0;
	}
	return 0;
}

static int run_inline(uint64_t reads, enum way way)
{
	struct rig *r = rig_new(SQ_SHIFT, 0);
	struct job j = { .dq = r->dq, .dbuf = r->dbuf, .way = way, .reads = reads };

	controller.q = r->ctrl.q;
	controller.phase = 1;
	j.dq.flags &= ~(uint32_t)GPUNVME_DQ_STATS;
	make_files(&j);
	lane(&j);
	rig_free(r);
	return j.status ? failed("a read failed: %s", gpunvme_strerror(j.status)) : EXIT_DONE;
}

/* ---- Against soft: ---- */

static int by_value(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

static double median(double *values)
{
	qsort(values, ROUNDS, sizeof(*values), by_value);
	return values[ROUNDS / 2];
}

static int measure(struct job *j, uint64_t reads, struct json_object *json)
{
	static const char *const names[WAYS] = { "block", "one_extent", "many_extents" };
	double rate[WAYS][ROUNDS], ratio[WAYS][ROUNDS];

	j->reads = reads;
	for (uint32_t round = 0; round < ROUNDS; round++)
		for (uint32_t way = 0; way < WAYS; way++) {
			uint64_t began = now_ns();
			int ret;

			j->way = (enum way)way;
			ret = gpunvme_cpu_launch(LANES, 1, lane, j);
			if (interrupted)
				return failed("interrupted");
			if (ret || j->status)
				return failed(ret ? "no lanes: %s" : "a read failed: %s", gpunvme_strerror(ret ? ret : j->status));
			rate[way][round] = (double)(LANES * reads) * 1e9 / (double)(now_ns() - began);
			ratio[way][round] = rate[way][round] / rate[BLOCK][round];
		}
	for (uint32_t way = 0; way < WAYS; way++) {
		char name[64];

		if (!json) {
			printf("  %-14s %8.0f reads/s  %5.2f of reads by block\n", names[way], median(rate[way]), median(ratio[way]));
			continue;
		}
		put_real(json, names[way], median(rate[way]), 0);
		snprintf(name, sizeof(name), "%s_ratio", names[way]);
		put_real(json, name, median(ratio[way]), 3);
	}
	if (json)
		print_object(json);
	return EXIT_DONE;
}

static int open_and_measure(const char *uri, uint64_t reads, struct json_object *json)
{
	struct gpunvme_dev *dev = NULL;
	struct gpunvme_gpu *gpu = NULL;
	struct gpunvme_mem *mem = NULL;
	struct gpunvme_queue *queue = NULL;
	struct job j = { 0 };
	int ret = gpunvme_dev_open(uri, NULL, &dev);

	ret = ret ? ret : gpunvme_gpu_open("cpu", NULL, &gpu);
	ret = ret ? ret : gpunvme_queue_create(dev, gpu, NULL, &queue);
	ret = ret ? ret : gpunvme_queue_view(queue, NULL, &j.dq);
	ret = ret ? ret : gpunvme_mem_alloc(gpu, queue, LANES * BYTES, NULL, &mem);
	ret = ret ? ret : gpunvme_mem_map(mem, dev);
	ret = ret ? ret : gpunvme_mem_dbuf(mem, dev, &j.dbuf);
	if (ret)
		ret = failed("%s", gpunvme_errmsg());
	else if (j.dq.lba_count << j.dq.lba_shift < 2 * FILE_BYTES)
		ret = failed("the drive has less than %llu MiB", (unsigned long long)(2 * FILE_BYTES >> 20) + 1);
	if (!ret) {
		make_files(&j);
		ret = measure(&j, reads, json);
	}
	gpunvme_queue_destroy(queue);
	gpunvme_mem_free(mem);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
	return ret;
}

int main(int argc, char **argv)
{
	uint64_t commands = 0, reads = 5000;
	uint32_t way = 0;
	const char *uri = NULL;
	int json = 0, ret;
	const struct option_def defs[] = {
		{ "dev", OPTION_TEXT, &uri, 0, "URI", "the controller" },
		{ "reads", OPTION_U64, &reads, 1, "N", "of each of four lanes, in each of nine rounds (default 5000)" },
		{ "inline", OPTION_U64, &commands, 1, "N", "that many reads without I/O" },
		{ "way", OPTION_U32, &way, 0, "W", "with --inline: 0 by block, 1 of one extent, 2 of 10,000" },
		{ "json", OPTION_FLAG, &json, 0, NULL, "the result as one JSON object" },
		OPTIONS_END,
	};

	program = "file_path";
	catch_signals();
	ret = parse_options(argc, argv, "usage: file_path [options]", defs, NULL, 0);
	if (ret != GO_ON)
		return ret;
	if (way >= WAYS || (!commands && !uri))
		return misused("give --dev soft:PATH, or --inline N with --way 0, 1 or 2");
	if (commands)
		return finish(run_inline(commands, (enum way)way));
	return finish(open_and_measure(uri, reads, print_setup(json, NULL)));
}
