/* SPDX-License-Identifier: MIT */
/*
 * gpunvme soak: test that a drive and this library keep written data. Threads write, read, flush and deallocate in rounds. In some
 * rounds a queue is stopped or recovered, or the controller reset, while they run. Ended queues are recovered between rounds. At
 * the end all written blocks are read once more.
 */
#include "soak.h"

#include "common/permission.h"
#include "common/progress.h"

#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define STRUCK 8	/* of so many rounds one */
#define VAIN_ROUNDS 8	/* of them in a row without a command that succeeded */
#define VAIN_READS 10	/* and reading back, without a block that was not read before */
#define LAST_READS 1000 /* rounds, plus one for each block of a thread, within which all must have been read back at the end */

static uint64_t sum(const struct soak *k)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < k->s.threads; i++)
		n += k->thread[i].commands;
	return n;
}

static uint64_t count_failed(const struct soak *k)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < k->s.threads; i++)
		n += k->thread[i].errors;
	return n;
}

/* ---- Disturbances of threads ---- */

struct blow {
	struct soak *k;
	uint64_t at; /* how many commands the queues have had when it comes */
	uint32_t kind, queue;
	int ended; /* atomic: the threads have */
	int ret;
	char why[320];
};

static uint64_t submitted(const struct soak *k)
{
	struct gpunvme_queue_info info = { .size = sizeof(info) };
	uint64_t n = 0;

	for (uint32_t q = 0; q < k->s.queues; q++)
		n += gpunvme_queue_get_info(k->s.queue[q], &info) ? 0 : info.submitted;
	return n;
}

static int strike(struct blow *b)
{
	struct soak *k = b->k;
	int ret;

	switch (b->kind) {
	case 0:
		k->stops++;
		ret = gpunvme_queue_stop(k->s.queue[b->queue], 1);
		if (ret)
			return ret;
		return gpunvme_queue_stop(k->s.queue[b->queue], 0);
	case 1:
		k->recoveries++;
		return gpunvme_queue_recover(k->s.queue[b->queue]);
	default:
		k->resets++;
		return gpunvme_dev_reset(k->s.dev);
	}
}

static void *blow_main(void *arg)
{
	struct blow *b = arg;
	const struct timespec nap = { 0, 200000 };

	while (submitted(b->k) < b->at && !__atomic_load_n(&b->ended, __ATOMIC_ACQUIRE))
		nanosleep(&nap, NULL);
	b->ret = strike(b);
	snprintf(b->why, sizeof(b->why), "%s", b->ret ? why(b->ret) : "");
	return NULL;
}

static int carry_out(struct soak *k)
{
	struct gpunvme_commands list = { sizeof(list), k->s.threads, k->each, k->cmd };
	const int ret = gpunvme_run_commands(k->s.gpu, k->s.dq, k->s.queues, &k->s.dbuf, &list);

	return ret ? failed("after %" PRIu64 " commands: %s", sum(k), why(ret)) : GO_ON;
}

/* Each kind in turn, and each queue. */
static int launch(struct soak *k)
{
	struct blow b = { .k = k,
			  .at = submitted(k) + (uint64_t)k->each * k->s.threads / 2,
			  .kind = k->rounds / STRUCK % 3,
			  .queue = k->rounds / STRUCK / 3 % k->s.queues };
	const bool struck = !k->calm && !k->reads && k->rounds % STRUCK == 1;
	pthread_t thread;
	int ret;

	if (struck && pthread_create(&thread, NULL, blow_main, &b))
		return failed("no thread could be started");
	ret = carry_out(k);
	__atomic_store_n(&b.ended, 1, __ATOMIC_RELEASE);
	if (struck)
		pthread_join(thread, NULL);
	return b.ret ? failed("after %" PRIu64 " commands: %s", sum(k), b.why) : ret;
}

/* ---- Rounds ---- */

/* Buffers belong to the threads again after their queue was recovered. */
static int view(struct soak *k, uint32_t q, bool ended)
{
	struct gpunvme_view view = { sizeof(view), GPUNVME_VIEW_WRITE, 0, 0, 0 };
	int ret = 0;

	gpunvme_queue_retire(k->s.queue[q]); /* of a recovery while threads ran */
	if (ended) {
		k->recoveries++;
		ret = gpunvme_queue_recover(k->s.queue[q]);
	}
	gpunvme_queue_retire(k->s.queue[q]);
	if (ret)
		return ret;
	return gpunvme_queue_view(k->s.queue[q], &view, &k->s.dq[q]);
}

/* A thread whose queue failed ends that queue. A queue that ended after its threads had finished refuses its view. */
static int repair(struct soak *k)
{
	for (uint32_t q = 0; q < k->s.queues; q++) {
		bool ended = false;
		int ret;

		for (uint32_t i = 0; i < k->s.threads; i++) {
			if (k->thread[i].queue != q)
				continue;
			ended = ended || k->thread[i].status;
			k->thread[i].status = 0;
		}
		ret = view(k, q, ended);
		if (ret && view(k, q, true))
			return failed("after %" PRIu64 " commands: %s", sum(k), why(ret));
	}
	return GO_ON;
}

/* The status of the last command of the first thread that had any. */
static int last_status(const struct soak *k)
{
	for (uint32_t i = 0; i < k->s.threads; i++)
		if (k->thread[i].commands)
			return k->thread[i].past[(k->thread[i].commands - 1) % SOAK_PAST].status;
	return 0;
}

/* A drive that is gone is not one that fails now and then. */
static int check_vain(const struct soak *k)
{
	if (k->vain < VAIN_ROUNDS)
		return GO_ON;
	return failed("after %" PRIu64 " commands: none succeeded in the last %u rounds, and the last one failed: %s", sum(k), VAIN_ROUNDS,
		      gpunvme_strerror(last_status(k)));
}

static int do_round(struct soak *k, uint32_t each, bool reads)
{
	const uint64_t before = sum(k) - count_failed(k);
	int ret;

	k->each = each;
	k->reads = reads;
	ret = soak_prepare(k);
	if (ret == GO_ON)
		ret = launch(k);
	if (ret == GO_ON)
		ret = soak_judge(k);
	k->rounds++;
	k->vain = sum(k) - count_failed(k) > before ? 0 : k->vain + 1;
	return ret == GO_ON ? repair(k) : ret;
}

static bool is_over(const struct soak *k)
{
	return interrupted || soak_wrong_thread(k) || (k->commands ? sum(k) >= k->commands : now_s() - k->start >= k->seconds);
}

static uint64_t count_read(const struct soak *k)
{
	uint64_t n = 0;

	for (uint32_t i = 0; i < k->s.threads; i++)
		n += k->thread[i].read_back;
	return n;
}

static bool has_read_all(const struct soak *k)
{
	for (uint32_t i = 0; i < k->s.threads; i++)
		if (k->thread[i].read_back < k->nblocks)
			return false;
	return true;
}

static int read_back(struct soak *k)
{
	int ret = GO_ON, vain = 0;
	uint64_t before;

	for (uint32_t i = 0; i < LAST_READS + k->nblocks && vain < VAIN_READS && ret == GO_ON; i++) {
		if (soak_wrong_thread(k) || interrupted)
			break;
		if (has_read_all(k))
			return GO_ON;
		before = count_read(k);
		ret = do_round(k, k->deep, true);
		vain = count_read(k) > before ? 0 : vain + 1;
	}
	if (ret != GO_ON || soak_wrong_thread(k) || has_read_all(k) || interrupted)
		return ret;
	return failed("at the end not all blocks could be read back: commands fail too often");
}

static int soak(struct soak *k)
{
	struct progress bar;
	int ret = GO_ON;

	progress_start(&bar, k->commands ? k->commands : k->seconds, k->commands ? "commands" : "");
	k->start = now_s();
	while (ret == GO_ON && !is_over(k)) {
		const uint64_t left = k->commands ? (k->commands - sum(k) + k->s.threads - 1) / k->s.threads : k->deep;

		ret = do_round(k, left < k->deep ? (uint32_t)left : k->deep, false);
		if (ret == GO_ON && !soak_wrong_thread(k) && !interrupted)
			ret = check_vain(k);
		progress_show(&bar, k->commands ? sum(k) : (uint64_t)(now_s() - k->start));
	}
	if (ret == GO_ON && !soak_wrong_thread(k) && !interrupted)
		ret = read_back(k);
	k->took = now_s() - k->start;
	progress_end(&bar);
	return ret;
}

/* ---- The verb ---- */

/* Queues that are recovered while a kernel of a GPU runs need new identifiers. After a reset all queues do. */
static int open_drive(struct soak *k)
{
	struct session_opts o = k->o;

	o.queues *= 2;
	return session_open(&k->s, &o);
}

/*
 * The CPU verifies the data. If it cannot access GPU memory, which an emulated drive uses for its queues, the data is in host
 * memory.
 */
static int open_buffer(struct soak *k)
{
	const uint64_t bytes = (uint64_t)k->s.threads * k->deep * SOAK_CHUNK;
	int ret = session_buffer(&k->s, bytes);

	if (ret != GO_ON || gpunvme_mem_ptr(k->s.mem))
		return ret;
	if (!k->s.info.emulated)
		return failed("the buffer is GPU memory that the CPU cannot access to verify it: give the GPU a large BAR, or use CPU "
			      "threads");
	if (gpunvme_mem_free(k->s.mem))
		return failed("the buffer could not be freed: %s", gpunvme_errmsg());
	k->s.mem = NULL;
	k->s.host_data = 1;
	return session_buffer(&k->s, bytes);
}

static int prepare(struct soak *k)
{
	uint64_t most = SOAK_CHUNK / k->s.ns.lba_size;
	int ret = session_open_queues(&k->s, &k->o, GPUNVME_VIEW_WRITE, 0, 0);

	if (ret != GO_ON)
		return ret;
	if (k->s.info.max_transfer && most > k->s.info.max_transfer / k->s.ns.lba_size)
		most = k->s.info.max_transfer / k->s.ns.lba_size;
	k->nblocks = k->s.ns.nblocks / k->s.threads < SOAK_BLOCKS ? (uint32_t)(k->s.ns.nblocks / k->s.threads) : SOAK_BLOCKS;
	k->most = k->nblocks < most ? k->nblocks : (uint32_t)most;
	if (!k->most)
		return failed("%u threads are too many for %" PRIu64 " blocks: use fewer (--threads)", k->s.threads, k->s.ns.nblocks);
	k->run = (uint64_t)time(NULL) << 20 ^ (uint64_t)clock();
	k->deep = SOAK_BUFFER / SOAK_CHUNK / k->s.threads < SOAK_EACH ? (uint32_t)(SOAK_BUFFER / SOAK_CHUNK / k->s.threads) : SOAK_EACH;
	if (!k->deep)
		return failed("%u threads are too many for a buffer of %s: use fewer (--threads)", k->s.threads, human(SOAK_BUFFER));
	ret = open_buffer(k);
	return ret == GO_ON && soak_threads_open(k) ? failed("no memory for %u threads", k->s.threads) : ret;
}

int verb_soak(int argc, char **argv)
{
	static struct soak k = { .o = SESSION_OPTS_INIT, .seconds = 10 };
	int vram = 0;
	const struct option_def defs[] = {
		OPTION_DEV(&k.o),
		{ "seconds", OPTION_U32, &k.seconds, 1, "N", "length of the run (default 10)" },
		{ "commands", OPTION_U64, &k.commands, 1, "N", "number of commands, instead of a time" },
		{ "timeout", OPTION_U32, &k.o.timeout_ms, 1, "MS", "time after which a command counts as lost (default 30000)" },
		{ "calm", OPTION_FLAG, &k.calm, 0, NULL, "no stops, recoveries and resets during I/O" },
		OPTIONS_THREADS(&k.o),
		OPTION_VRAM(&vram),
		OPTION_YES(&k.o),
		OPTION_JSON(&k.o),
		OPTIONS_END,
	};
	int ret = session_options(
		argc, argv,
		"usage: gpunvme soak URI [options]\nWrites blocks, reads them back and reports which are wrong. "
		"Destroys data.",
		defs, &k.o, NULL);

	if (ret != GO_ON)
		return ret;
	catch_signals();
	k.o.copies = 1;
	k.o.queue_flags = vram ? GPUNVME_QUEUE_VRAM : 0;
	ret = open_drive(&k);
	if (ret != GO_ON)
		return ret;
	ret = session_may_destroy(&k.s, &k.o, "");
	if (ret == GO_ON)
		ret = prepare(&k);
	if (ret == GO_ON)
		ret = soak(&k);
	if (ret == GO_ON)
		ret = soak_report(&k);
	soak_threads_close(&k);
	session_close(&k.s); /* and sets the number of threads to 0 */
	return ret;
}
