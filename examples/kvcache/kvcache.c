/* SPDX-License-Identifier: MIT */
/*
 * kvcache IMAGE: restores key/value blocks of requests to a language model from a drive and saves what is new, by waves that
 * read and write by themselves. Then the baseline does the same: the CPU starts its reads, writes and layers. Every fragment is
 * compared when it arrives, and what was added is read back.
 *
 * --make BYTES      make the image, a file that is not there yet, instead
 * --requests N      at a time (1)
 * --layers N        of the model (80)
 * --layer BYTES     what a layer of a request has (524288)
 * --fragment BYTES  that lie together: 4096 to 65536 (16384)
 * --added N         fragments that a layer adds (2)
 * --work US         that a layer of a request takes (200)
 * --waves N         for each request
 * --delay US        what the drive takes for a read or write, beyond what the file takes (0)
 * --threads N       of the controller in software, and of the baseline (2)
 */
#include <getopt.h>

#include "../front/image_uri.h"
#include "../front/new_file.h"
#include "baseline.h"
#include "places.h"

#ifdef __cplusplus
const char *const program = FRONT_NAME "_kvcache";
#else
const char *const program = "kvcache";
#endif

struct setting {
	const char *path;
	uint64_t make, delay, work, threads, layer;
	struct kv_job job;
};

static const char usage[] =
	"usage: kvcache IMAGE [--make BYTES] [--requests N] [--layers N]"
	" [--layer BYTES] [--fragment BYTES] [--added N] [--work US] [--waves N] [--delay US] [--threads N]";

static uint64_t number(uint64_t least, uint64_t most)
{
	return front_number(optarg, least, most, usage);
}

static void set_option(struct setting *set, int c)
{
	switch (c) {
	case 'm':
		set->make = number(1 << 16, 1ull << 40);
		break;
	case 'r':
		set->job.requests = (uint32_t)number(1, 1024);
		break;
	case 'l':
		set->job.layers = (uint32_t)number(1, 1024);
		break;
	case 'L':
		set->layer = number(4096, 1 << 24);
		break;
	case 'f':
		set->job.bytes = (uint32_t)number(4096, 65536);
		break;
	case 'a':
		set->job.added = (uint32_t)number(0, 32);
		break;
	case 'w':
		set->work = number(0, 1000000);
		break;
	case 'W':
		set->job.waves = (uint32_t)number(1, 64);
		break;
	case 'd':
		set->delay = number(0, 10000000);
		break;
	case 't':
		set->threads = number(1, 64);
		break;
	default:
		die(usage);
	}
}

static void settings(struct setting *set, int argc, char **argv)
{
	static const struct option known[] = { { "make", 1, NULL, 'm' },     { "requests", 1, NULL, 'r' }, { "layers", 1, NULL, 'l' },
					       { "layer", 1, NULL, 'L' },    { "fragment", 1, NULL, 'f' }, { "added", 1, NULL, 'a' },
					       { "work", 1, NULL, 'w' },     { "waves", 1, NULL, 'W' },	   { "delay", 1, NULL, 'd' },
					       { "threads", 1, NULL, 't' },  { NULL, 0, NULL, 0 } };
	struct kv_job *job = &set->job;
	int c;

	memset(set, 0, sizeof(*set));
	set->layer = 512 << 10;
	set->work = 200;
	set->threads = 2;
	job->requests = 1;
	job->layers = 80;
	job->bytes = 16384;
	job->added = 2;
	job->waves = FRONT_WAVES / 8;
	while ((c = getopt_long(argc, argv, "", known, NULL)) != -1)
		set_option(set, c);
	if (optind + 1 != argc)
		die(usage);
	set->path = argv[optind];
	job->fragments = (uint32_t)(set->layer / job->bytes);
	if (job->bytes % 4096 || set->layer % job->bytes || !job->fragments)
		die("fragments have whole blocks of 4096 bytes, and layers whole fragments");
	if (job->waves > job->fragments)
		job->waves = job->fragments;
	if (job->fragments > job->waves * KV_OWN || job->added > job->waves)
		die("too few waves for so many fragments: more --waves");
}

/* An image in which each sector says where it lies. */
static int make(const struct setting *set)
{
	uint64_t word[KV_SECTOR / 8], sector;
	struct new_file file;
	int failed = new_file_open(&file, set->path);

	if (failed)
		die(strerror(failed));
	memset(word, 0, sizeof(word));
	for (sector = 0; sector < set->make / KV_SECTOR && !failed; sector++) {
		word[0] = KV_MARK(sector, 0);
		if (fwrite(word, sizeof(word), 1, file.out) != 1)
			failed = errno;
	}
	failed = new_file_close(&file, failed);
	if (failed)
		die(strerror(failed));
	printf("%llu bytes\n", (unsigned long long)(sector * KV_SECTOR));
	return 0;
}

struct run {
	const char *who;
	struct kv_job job;
	uint64_t launches;
	uint64_t bytes;
};

static void prepare(struct run *r, const struct kv_job *job, const char *who, uint32_t number_of_run)
{
	size_t layers = (size_t)job->requests * job->layers;

	r->who = who;
	r->job = *job;
	r->launches = 1;
	r->bytes = (uint64_t)layers * job->fragments * job->bytes;
	r->job.run = number_of_run;
	r->job.met = (uint32_t *)front_local(2 * layers * sizeof(*r->job.met));
	r->job.stamp = (struct kv_stamp *)front_shared(layers * sizeof(*r->job.stamp));
	r->job.zero = (uint64_t *)front_shared(sizeof(*r->job.zero));
	r->job.status = (int *)front_shared(sizeof(*r->job.status));
	front_run_kv_clock(1, &r->job);
}

static void run_baseline(struct run *r, const struct setting *set, const uint32_t *place)
{
	uint32_t threads = set->threads < r->job.requests ? (uint32_t)set->threads : r->job.requests, i, q;
	struct baseline *baseline = (struct baseline *)calloc(threads, sizeof(*baseline));
	struct baseline_request *request = (struct baseline_request *)front_shared(r->job.requests * sizeof(*request));
	pthread_t *thread = (pthread_t *)calloc(threads, sizeof(*thread));

	for (q = 0; q < r->job.requests; q++)
		front_stream_open(&request[q].stream);
	front_run_kv_clock(1, &r->job);
	for (r->launches = i = 0; i < threads; i++) {
		baseline[i].job = &r->job;
		baseline[i].place = place;
		baseline[i].path = set->path;
		baseline[i].delay = set->delay;
		baseline[i].first = r->job.requests * i / threads;
		baseline[i].requests = r->job.requests * (i + 1) / threads - baseline[i].first;
		baseline[i].request = request + baseline[i].first;
		if (pthread_create(&thread[i], NULL, baseline_run, &baseline[i]))
			die("no more threads");
	}
	for (i = 0; i < threads; i++) {
		pthread_join(thread[i], NULL);
		r->launches += baseline[i].launches;
		if (baseline[i].status)
			die(strerror(-baseline[i].status));
	}
	free(baseline);
	free(thread);
}

/* What was added lies on the drive. */
static void check_added(const struct run *r, const char *path, const uint32_t *place)
{
	const struct kv_job *job = &r->job;
	uint32_t each = job->fragments + job->added, l, i;
	unsigned char *bytes = (unsigned char *)malloc(job->bytes);
	FILE *in = front_image(path);
	uint64_t word, sector, s;

	if (!bytes)
		die(strerror(errno));
	for (l = 0; l < job->requests * job->layers; l++)
		for (i = job->fragments; i < each; i++) {
			sector = (uint64_t)place[(size_t)l * each + i] * job->bytes / KV_SECTOR;
			if (fseek(in, (long)(sector * KV_SECTOR), SEEK_SET) || fread(bytes, job->bytes, 1, in) != 1)
				die("the image cannot be read");
			for (s = 0; s < job->bytes / KV_SECTOR; s++) {
				memcpy(&word, bytes + s * KV_SECTOR, sizeof(word));
				if (word != KV_MARK(sector + s, job->run))
					die("what was added is not on the drive");
			}
		}
	fclose(in);
	free(bytes);
}

/* What the first wave has done before the first layer's work begins: that layer's parts, and asking for the second. */
static double parts_before(const struct run *r)
{
	const struct kv_stamp *s = r->job.stamp;
	double sum = r->job.layers > 1 ? (double)s[1].part[KV_ASK] : 0;
	uint32_t i;

	for (i = 0; i < KV_WORK; i++)
		sum += (double)s[0].part[i];
	return sum;
}

/* Where a layer's time goes, of the first wave of the first request. The rest is between layers. */
static void report_parts(const struct run *r)
{
	static const char *const name[KV_PARTS] = { "ask", "wait", "keep", "meet", "work", "add", "meet again" };
	const struct kv_stamp *s = r->job.stamp;
	double per_us = (double)r->job.front.ticks / 1000, rest, sum;
	uint32_t layers = r->job.layers, l, i;

	rest = (double)(s[layers - 1].end - s[0].begin) + parts_before(r);
	printf("%s: us of a layer:", r->who);
	for (i = 0; i < KV_PARTS; i++) {
		for (sum = 0, l = 0; l < layers; l++)
			sum += (double)s[l].part[i];
		rest -= sum;
		printf(" %s %.1f,", name[i], sum / layers / per_us);
	}
	printf(" else %.1f\n", rest / layers / per_us);
}

/* Return: milliseconds to the last layer, the mean of all requests. */
static double report(const struct run *r)
{
	double first = 0, last = 0, between = 0, most = 0, stalled, per_ms = (double)r->job.front.ticks;
	uint32_t q;

	if (*r->job.status)
		die(*r->job.status == KV_WRONG ? "a fragment is not the one that was wanted" : gpunvme_strerror(*r->job.status));
	for (q = 0; q < r->job.requests; q++) {
		const struct kv_stamp *s = r->job.stamp + (size_t)q * r->job.layers;
		double end = (double)(s[r->job.layers - 1].end - *r->job.zero) / per_ms;

		first += (double)(s[0].begin - *r->job.zero) / per_ms;
		last += end;
		most = end > most ? end : most;
		between += (double)(s[r->job.layers - 1].end - s[0].begin) / per_ms;
	}
	last /= r->job.requests;
	stalled = 1 - (double)r->job.work / per_ms * r->job.layers * r->job.requests / between;
	printf("%s: first layer after %.2f ms, last %.2f ms, %.0f %% stalled, %.2f GB/s, %llu launches\n", r->who,
	       first / r->job.requests, last, 100 * stalled, (double)r->bytes / most * 1e-6,
	       (unsigned long long)r->launches);
	report_parts(r);
	return last;
}

/* Controller, threads and queues, and room for what every request has under way. */
static void open_front(struct setting *set)
{
	struct kv_job *job = &set->job;
	char uri[IMAGE_URI], keys[96];

	snprintf(keys, sizeof(keys), set->delay ? "threads=%u&fault=delay:%llu" : "threads=%u", (unsigned)set->threads,
		 (unsigned long long)set->delay);
	if (!image_uri(uri, set->path, keys))
		die("the path is too long");
	front_open(&job->front, uri, GPUNVME_VIEW_WRITE, kv_landing(job, job->requests, 0, 0));
	job->landing = (unsigned char *)(uintptr_t)job->front.dbuf.base;
	job->pages = (unsigned char *)front_local((size_t)job->requests * job->layers * job->fragments * job->bytes);
	job->work = set->work * job->front.ticks / 1000;
	if (!front_fits(&job->front, job->requests * job->waves, 2ull * ((job->fragments + job->waves - 1) / job->waves) + 2))
		die("the queues are too short for so many fragments at a time");
}

static int is_image(const char *path)
{
	uint64_t word = 0;
	FILE *in = front_image(path);
	int is;

	is = fread(&word, sizeof(word), 1, in) == 1 && word == KV_MARK(0, 0);
	fclose(in);
	return is;
}

int main(int argc, char **argv)
{
	struct setting set;
	struct run lanes, baseline;
	uint32_t *place;
	double ratio;

	settings(&set, argc, argv);
	if (set.make)
		return make(&set);
	if (!is_image(set.path))
		die("this is no image that --make has made");
	open_front(&set);
	place = place_all(&set.job, set.job.front.nblocks * set.job.front.lba_size);
	prepare(&lanes, &set.job, "threads", 1);
	front_run_kv_whole(set.job.requests * set.job.waves, &lanes.job);
	front_close(&set.job.front);
	ratio = report(&lanes);
	check_added(&lanes, set.path, place);
	prepare(&baseline, &set.job, "baseline", 2);
	baseline.job.landing = (unsigned char *)front_shared(kv_landing(&set.job, set.job.requests, 0, 0));
	run_baseline(&baseline, &set, place);
	ratio /= report(&baseline);
	check_added(&baseline, set.path, place);
	printf("every fragment is the right one. The last layer of the threads comes after %.2f of the baseline's time\n", ratio);
	free(place);
	return 0;
}
