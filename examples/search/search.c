/* SPDX-License-Identifier: MIT */
/*
 * search IMAGE: nearest neighbours in a graph on a drive (search_data makes one), by waves that read what they need. Then the
 * baseline does the same on the same data: the CPU starts its reads and steps. Both results are compared.
 *
 * --delay US    what the drive takes for a read, beyond what the file takes (0)
 * --slots N     queries at a time
 * --beam N      nodes that a query reads together (4, at most 32)
 * --list N      best nodes that a query remembers (64, 10 to 128)
 * --threads N   of the controller in software, and of the baseline (2)
 */
#include <getopt.h>

#include "../front/image_uri.h"
#include "baseline.h"

#ifdef __cplusplus
const char *const program = FRONT_NAME "_search";
#else
const char *const program = "search";
#endif

struct setting {
	const char *path;
	uint64_t delay; /* of the drive, in microseconds */
	uint32_t slots, beam, length, threads;
};

struct run {
	const char *who;
	double seconds;
	uint64_t launches;
	struct search_job job;
};

static const char usage[] = "usage: search IMAGE [--delay US] [--slots N] [--beam N] [--list N] [--threads N]";

static uint32_t number(const char *text, uint32_t least, uint32_t most)
{
	return (uint32_t)front_number(text, least, most, usage);
}

static struct setting settings(int argc, char **argv)
{
	static const struct option known[] = { { "delay", 1, NULL, 'd' }, { "slots", 1, NULL, 's' }, { "beam", 1, NULL, 'b' },
					       { "list", 1, NULL, 'l' }, { "threads", 1, NULL, 't' }, { NULL, 0, NULL, 0 } };
	struct setting set = { NULL, 0, FRONT_WAVES, 4, 64, 2 };
	int c;

	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1) {
		if (c == 'd')
			set.delay = number(optarg, 0, 10000000);
		else if (c == 's')
			set.slots = number(optarg, 1, 1u << 16);
		else if (c == 'b')
			set.beam = number(optarg, 1, SEARCH_BEAM);
		else if (c == 'l')
			set.length = number(optarg, SEARCH_TOP, SEARCH_LIST);
		else if (c == 't')
			set.threads = number(optarg, 1, 64);
		else
			die(usage);
	}
	if (optind + 1 != argc)
		die(usage);
	set.path = argv[optind];
	return set;
}

/* Head and queries of the image. */
static struct search_query *load(const char *path, struct search_head *head)
{
	struct search_query *query = NULL;
	FILE *in = front_image(path);

	if (fread(head, sizeof(*head), 1, in) != 1 || head->magic != SEARCH_MAGIC || !head->queries || head->start >= head->nodes)
		die("this is no data set of search_data");
	if (head->bytes != SEARCH_NODE)
		die("nodes of 4096 bytes are wanted: make the data set without a size");
	query = (struct search_query *)calloc(head->queries, sizeof(*query));
	if (!query || fseek(in, (long)search_queries_at(head), SEEK_SET) ||
	    fread(query, sizeof(*query), head->queries, in) != head->queries)
		die("the data set ends too early");
	fclose(in);
	return query;
}

static void prepare(struct run *r, const char *who, const struct setting *set, const struct search_head *head,
		    const struct search_query *query)
{
	struct search_query *local = (struct search_query *)front_local(head->queries * sizeof(*local));
	struct search_job *job = &r->job;

	memset(r, 0, sizeof(*r));
	r->who = who;
	front_put(local, query, head->queries * sizeof(*local));
	job->query = local;
	job->count = head->queries;
	job->start = head->start;
	job->beam = set->beam;
	job->length = set->length;
	job->list = (uint64_t *)front_local((uint64_t)set->slots * SEARCH_LIST * sizeof(*job->list));
	job->found = (uint64_t *)front_local((uint64_t)set->slots * SEARCH_BEAM * SEARCH_DEGREE * sizeof(*job->found));
	job->answer = (uint32_t(*)[SEARCH_TOP])front_shared(head->queries * sizeof(*job->answer));
	job->reads = (uint32_t *)front_shared(head->queries * sizeof(*job->reads));
	job->status = (int *)front_shared(sizeof(*job->status));
}

/* Controller, threads and queues, and room for the beams of all slots. */
static void open_front(struct front *f, const struct setting *set)
{
	char uri[IMAGE_URI], keys[96];

	snprintf(keys, sizeof(keys), set->delay ? "threads=%u&ro=1&fault=delay:%llu:op=read" : "threads=%u&ro=1", set->threads,
		 (unsigned long long)set->delay);
	if (!image_uri(uri, set->path, keys))
		die("the path is too long");
	front_open(f, uri, 0, (size_t)set->slots * set->beam * SEARCH_NODE);
	if (!front_fits(f, set->slots, set->beam))
		die("the queues are too short: fewer --slots or a smaller --beam");
}

static void run_lanes(struct run *r, const struct setting *set, const struct front *f)
{
	uint64_t start;

	r->job.front = *f;
	r->job.blocks = (unsigned char *)(uintptr_t)f->dbuf.base;
	r->job.slot = (struct search_slot *)front_local(set->slots * sizeof(*r->job.slot));
	start = reader_now();
	front_run_search_whole(set->slots, &r->job);
	r->seconds = (double)(reader_now() - start) * 1e-9;
	r->launches = 1;
	front_close(f);
	if (*r->job.status)
		die(gpunvme_strerror(*r->job.status));
}

static void run_baseline(struct run *r, const struct setting *set)
{
	uint32_t threads = set->threads < set->slots ? set->threads : set->slots, next = 0, i;
	struct baseline *baseline = (struct baseline *)front_shared(threads * sizeof(*baseline));
	pthread_t *thread = (pthread_t *)calloc(threads, sizeof(*thread));
	pthread_barrier_t prepared;
	uint64_t start;

	r->job.blocks = (unsigned char *)front_shared((size_t)set->slots * set->beam * SEARCH_NODE);
	r->job.slot = (struct search_slot *)front_shared(set->slots * sizeof(*r->job.slot));
	pthread_barrier_init(&prepared, NULL, threads + 1);
	for (i = 0; i < threads; i++) {
		baseline[i].prepared = &prepared;
		baseline[i].job = &r->job;
		baseline[i].path = set->path;
		baseline[i].delay = set->delay;
		baseline[i].next = &next;
		baseline[i].first = (uint32_t)((uint64_t)set->slots * i / threads);
		baseline[i].slots = (uint32_t)((uint64_t)set->slots * (i + 1) / threads) - baseline[i].first;
		if (pthread_create(&thread[i], NULL, baseline_run, &baseline[i]))
			die("no more threads");
	}
	pthread_barrier_wait(&prepared);
	start = reader_now();
	for (i = 0; i < threads; i++) {
		pthread_join(thread[i], NULL);
		r->launches += baseline[i].launches;
		if (baseline[i].status)
			die(strerror(-baseline[i].status));
	}
	r->seconds = (double)(reader_now() - start) * 1e-9;
	pthread_barrier_destroy(&prepared);
	free(thread); /* not the baselines: their streams wait for launches until the program ends */
}

/* Which share of the exact results was found. */
static double recall(const struct run *r, const struct search_query *query)
{
	uint64_t found = 0;
	uint32_t q, i, j;

	for (q = 0; q < r->job.count; q++)
		for (i = 0; i < SEARCH_TOP; i++)
			for (j = 0; j < SEARCH_TOP; j++)
				found += r->job.answer[q][i] == query[q].answer[j];
	return (double)found / ((double)r->job.count * SEARCH_TOP);
}

static void report(const struct run *r, const struct search_query *query)
{
	uint64_t reads = 0;
	uint32_t q;

	for (q = 0; q < r->job.count; q++)
		reads += r->job.reads[q];
	printf("%s: %.0f queries a second, %.1f reads a query, recall@10 %.3f, %.1f MB read, %llu launches\n", r->who,
	       r->job.count / r->seconds, (double)reads / r->job.count, recall(r, query), (double)reads * SEARCH_NODE * 1e-6,
	       (unsigned long long)r->launches);
}

int main(int argc, char **argv)
{
	struct setting set = settings(argc, argv);
	struct search_head head;
	struct search_query *query = load(set.path, &head);
	struct run lanes, baseline;
	struct front front;

	open_front(&front, &set);
	prepare(&lanes, "threads", &set, &head, query);
	run_lanes(&lanes, &set, &front);
	report(&lanes, query);
	prepare(&baseline, "baseline", &set, &head, query);
	run_baseline(&baseline, &set);
	report(&baseline, query);
	if (memcmp(lanes.job.answer, baseline.job.answer, head.queries * sizeof(*lanes.job.answer)))
		die("the results differ");
	printf("the same results. The threads have %.2f of the baseline's rate\n", baseline.seconds / lanes.seconds);
	free(query);
	return 0;
}
