/* SPDX-License-Identifier: MIT */
/*
 * bench/streams: lists of reads that are enqueued on CUDA streams (gpunvme_run_on_stream()), of all pairs of one queue.
 *
 *   nvcc -arch=sm_90 -O3 -std=c++17 -Iinclude -Idevice -Iexamples/cuda -o streams bench/streams.cu -Lbuild/release/lib -lgpunvme
 *   streams 'soft:vram:4G?on=cuda:1' --queues 16 [--gpu-memory | --copy] [--sizes 4K,64K,1M,4M,16M,32M]
 *
 * With --gpu-memory the target is memory of cudaMalloc(): data lands. With --copy it is read into pinned memory, and cudaMemcpyAsync()
 * copies it from there. Reads are split into parts of 256 KiB, as a wave moves one transfer at a time.
 * Prints a line of JSON for an empty kernel, a line for one read of 4 KiB on an idle stream, and a line for each size of reads:
 * their rate, and the time that the thread that enqueues spends in the library for each GiB. Ends with 1 when a read failed.
 */
#include <algorithm>
#include <ctime>

#include <getopt.h>

#include "session.h"

const char *const program = "streams";

#define TURNS 1000u	     /* of what is measured one by one */
#define AHEAD 4u	     /* lists of a stream that are under way */
#define BUFFER (256u << 20)  /* bytes of all streams */
#define MOST 4096u	     /* transfers of a list */
#define LARGEST (32u << 20)
#define SPLIT (256u << 10)

struct lane {
	cudaStream_t stream;
	struct gpunvme_transfer *list; /* AHEAD of them, of MOST each, in the same part of the buffer */
	struct gpunvme_run run;
	uint64_t first, room; /* its part of the buffer */
	char *host, *device;  /* of --copy: its part of the buffer, and where it is copied to */
};

__global__ static void nothing()
{
}

static double now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec + t.tv_nsec * 1e-9;
}

static double median(std::vector<double> &v)
{
	std::sort(v.begin(), v.end());
	return v[v.size() / 2];
}

/* Reads of @len bytes at places that a generator draws, each into its own part of the buffer. */
static void fill(struct lane &l, const session &s, uint32_t count, uint64_t len, uint64_t part)
{
	static uint64_t x = 88172645463325252ull;

	for (uint32_t i = 0; i < AHEAD * count; i++) {
		struct gpunvme_transfer *t = &l.list[i / count * MOST + i % count];
		uint64_t done = i * part % len;

		if (!done)
			x ^= x << 13, x ^= x >> 7, x ^= x << 17;
		*t = {};
		t->pos = x % (s.ns.nblocks * s.ns.lba_size / len) * len + done;
		t->offset = l.first + i % count * part;
		t->len = part;
	}
	l.run.count = count;
}

/* Of the first @lists. They are cleared, so that a list that did not run is seen. */
static void results(const struct lane &l, uint32_t lists)
{
	for (uint32_t i = 0; i < lists * l.run.count; i++) {
		struct gpunvme_transfer *t = &l.list[i / l.run.count * MOST + i % l.run.count];

		if (t->result != (int64_t)t->len)
			die("a read of " + std::to_string(t->len) + " bytes has the result " + std::to_string(t->result));
		t->result = 0;
	}
}

template <typename enqueue> static void one_by_one(const char *what, cudaStream_t stream, enqueue begin)
{
	std::vector<double> us;

	for (uint32_t i = 0; i < TURNS + 10; i++) {
		double begun = now(CLOCK_MONOTONIC);

		begin();
		check(cudaStreamSynchronize(stream), what);
		if (i >= 10)
			us.push_back((now(CLOCK_MONOTONIC) - begun) * 1e6);
	}
	printf("{\"what\": \"%s\", \"median_us\": %.1f}\n", what, median(us));
}

/* All streams have lists under way, for about @seconds. */
static void rate(session &s, std::vector<struct lane> &lanes, uint64_t len, double seconds)
{
	uint64_t part = std::min<uint64_t>(len, SPLIT);
	uint32_t count = (uint32_t)std::min<uint64_t>(MOST, lanes[0].room / part), lists = 0;
	double cpu = 0, begun, spent = 0;
	uint64_t bytes;

	for (auto &l : lanes)
		fill(l, s, count, len, part);
	do {
		begun = now(CLOCK_MONOTONIC);
		for (uint32_t i = 0; i < AHEAD; i++)
			for (auto &l : lanes) {
				double before = now(CLOCK_THREAD_CPUTIME_ID);

				l.run.list = (uint64_t)(uintptr_t)&l.list[i * MOST];
				check(gpunvme_run_on_stream(s.gpu, l.stream, &l.run));
				if (l.device)
					check(cudaMemcpyAsync(l.device, l.host, count * part, cudaMemcpyHostToDevice, l.stream), "a copy");
				cpu += now(CLOCK_THREAD_CPUTIME_ID) - before;
				lists++;
			}
		for (auto &l : lanes)
			check(cudaStreamSynchronize(l.stream), "the streams");
		spent += now(CLOCK_MONOTONIC) - begun;
		for (auto &l : lanes)
			results(l, AHEAD);
	} while (spent < seconds);
	bytes = (uint64_t)lists * count * part;
	printf("{\"bytes\": %llu, \"streams\": %zu, \"reads_of_a_list\": %u, \"lists\": %u, \"seconds\": %.3f, \"gb_s\": %.2f, "
	       "\"reads_s\": %.0f, \"enqueue_us_per_gib\": %.1f}\n", (unsigned long long)len, lanes.size(), count, lists, spent,
	       bytes / spent / 1e9, (double)bytes / len / spent, cpu * 1e6 / (bytes / 1073741824.0));
}

int main(int argc, char **argv)
{
	static const struct option names[] = { { "queues", 1, 0, 'q' }, { "seconds", 1, 0, 's' }, { "gpu-memory", 0, 0, 'g' },
					       { "copy", 0, 0, 'c' }, { "streams", 1, 0, 'n' }, { "waves", 1, 0, 'w' },
					       { "sizes", 1, 0, 'z' }, {} };
	gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	gpunvme_landing_opts slots = GPUNVME_LANDING_OPTS_INIT;
	gpunvme_queue *queue;
	gpunvme_dvol vol;
	gpunvme_dvbuf vbuf;
	uint32_t streams = 4, waves = 0, i;
	std::string sizes = "4K,64K,1M,16M";
	char *host;
	struct gpunvme_landing *landing = nullptr;
	struct gpunvme_target target = {};
	void *memory = nullptr;
	bool own = false, copy = false;
	double seconds = 0.5;
	struct session s;
	int c;

	while ((c = getopt_long(argc, argv, "", names, NULL)) != -1) {
		if (c == 'q')
			opts.queues = (uint32_t)atoi(optarg);
		else if (c == 'n')
			streams = (uint32_t)atoi(optarg);
		else if (c == 'w')
			waves = (uint32_t)atoi(optarg);
		else if (c == 'z')
			sizes = optarg;
		else if (c == 'c')
			copy = true;
		else if (c == 's')
			seconds = atof(optarg);
		else if (c == 'g')
			own = true;
		else
			die("usage: streams URI [--queues N] [--streams N] [--waves N] [--seconds S] [--sizes N,...] [--gpu-memory | --copy]");
	}
	if (argc != optind + 1 || !streams || streams > BUFFER / LARGEST || seconds <= 0 || (own && copy))
		die("one URI is wanted, 1 to 8 streams, and a positive time");
	check(cudaSetDeviceFlags(cudaDeviceScheduleBlockingSync), "there is no GPU that CUDA can use");
	s.open(argv[optind], 0, 1);
	if (s.ns.nblocks * s.ns.lba_size < LARGEST)
		die("a drive of 32 MiB or more is wanted");
	std::vector<struct lane> lanes(streams);
	check(gpunvme_queue_create_striped(&s.dev, 1, s.gpu, &opts, &queue));
	check(gpunvme_queue_view(queue, nullptr, &vol));
	host = (char *)s.buffer(BUFFER);
	check(gpunvme_mem_map_queue(s.mem, queue, &vbuf));
	slots.slots = 256;
	if (own || copy)
		check(cudaMalloc(&memory, BUFFER), "cudaMalloc");
	if (own) {
		check(gpunvme_landing_create(queue, &slots, &landing));
		check(gpunvme_landing_get(landing, memory, BUFFER, 0, &target));
	}
	for (i = 0; i < lanes.size(); i++) {
		struct lane &l = lanes[i];

		check(cudaStreamCreateWithFlags(&l.stream, cudaStreamNonBlocking), "a stream");
		check(cudaHostAlloc(&l.list, AHEAD * MOST * sizeof(*l.list), cudaHostAllocMapped), "cudaHostAlloc");
		l.room = BUFFER / lanes.size() / LARGEST * LARGEST;
		l.first = i * l.room;
		l.run = GPUNVME_RUN_INIT;
		l.run.waves = waves;
		l.run.vol = &vol;
		l.run.vbuf = own ? nullptr : &vbuf;
		l.run.target = own ? &target : nullptr;
		l.host = host + l.first;
		l.device = copy ? (char *)memory + l.first : nullptr;
		l.run.list = (uint64_t)(uintptr_t)l.list;
	}
	one_by_one("empty kernel", lanes[0].stream, [&] { nothing<<<1, 32, 0, lanes[0].stream>>>(); });
	fill(lanes[0], s, 1, 4096, 4096);
	one_by_one("one read of 4 KiB", lanes[0].stream, [&] { check(gpunvme_run_on_stream(s.gpu, lanes[0].stream, &lanes[0].run)); });
	results(lanes[0], 1);
	for (char *at = &sizes[0]; *at; at += *at == ',') {
		uint64_t len = strtoull(at, &at, 10);

		for (len <<= *at == 'K' ? 10 : *at == 'M' ? 20 : 0; *at && *at != ','; at++)
			;
		if (!len || len > LARGEST || len % 4096)
			die("a size is a multiple of 4 KiB, and at most 32M");
		rate(s, lanes, len, seconds);
	}
	for (auto &l : lanes)
		check(cudaStreamDestroy(l.stream), "a stream");
	check(gpunvme_landing_put(&target));
	check(gpunvme_landing_destroy(landing));
	check(cudaFree(memory), "cudaFree");
	check(gpunvme_queue_destroy(queue));
	s.close();
	return 0;
}
