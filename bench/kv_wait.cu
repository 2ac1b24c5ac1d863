/* SPDX-License-Identifier: MIT */
/*
 * bench/kv_wait: where a layer's time goes in the kernel of examples/kvcache, without its baseline, for kernels of several sizes.
 * The size of the code follows from GPUNVME_CQ_BATCH, the completions that a thread looks at in one look. kvcache has 1.
 *
 *   nvcc -arch=sm_90 -O3 -std=c++17 [-DGPUNVME_CQ_BATCH=8] -Iinclude -Idevice -Iexamples/cuda -o kv_wait bench/kv_wait.cu \
 *     -Lbuild/release/lib -lgpunvme
 *   kv_wait --make kv.img 268435456
 *   kv_wait 'soft:kv.img?threads=12&fault=delay:100' [RUNS]
 *
 * Prints a line of JSON for each run: microseconds of a layer of the first wave, and milliseconds to the last layer. Writes over
 * the last quarter of the drive. The code's bytes: `cuobjdump -elf kv_wait`, .text of kv_whole_kernel.
 */
#include "../examples/kvcache/places.h"

const char *const program = "kv_wait";

static int make(const char *path, uint64_t bytes)
{
	uint64_t word[KV_SECTOR / 8] = {};
	FILE *out = fopen(path, "wb");

	for (uint64_t sector = 0; out && sector < bytes / KV_SECTOR; sector++) {
		word[0] = KV_MARK(sector, 0);
		if (fwrite(word, sizeof(word), 1, out) != 1)
			die(std::string(path) + ": cannot be written");
	}
	if (!out || fclose(out))
		die(std::string(path) + ": cannot be written");
	return 0;
}

static struct kv_job open_job(const char *uri)
{
	struct kv_job job = {};

	job.requests = 1;
	job.layers = 80;
	job.bytes = 16384;
	job.fragments = 32;
	job.added = 2;
	job.waves = 32;
	front_open(&job.front, uri, GPUNVME_VIEW_WRITE, kv_landing(&job, 1, 0, 0));
	job.landing = (unsigned char *)(uintptr_t)job.front.dbuf.base;
	job.pages = (unsigned char *)front_local((size_t)job.layers * job.fragments * job.bytes);
	job.work = 200 * job.front.ticks / 1000;
	free(place_all(&job, job.front.nblocks * job.front.lba_size));
	job.stamp = (struct kv_stamp *)front_shared(job.layers * sizeof(*job.stamp));
	job.zero = (uint64_t *)front_shared(sizeof(*job.zero));
	job.status = (int *)front_shared(sizeof(*job.status));
	return job;
}

static void report(const struct kv_job &job)
{
	static const char *const name[KV_PARTS] = { "ask", "wait", "keep", "meet", "work", "add", "meet_again" };
	const double per_us = (double)job.front.ticks / 1000;

	if (*job.status)
		die(*job.status == KV_WRONG ? "a fragment is not the one that was wanted" : gpunvme_strerror(*job.status));
	printf("{\"figure\": \"kv_wait\", \"batch\": %u", GNVD_BATCH);
	for (uint32_t i = 0; i < KV_PARTS; i++) {
		double sum = 0;

		for (uint32_t l = 0; l < job.layers; l++)
			sum += (double)job.stamp[l].part[i];
		printf(", \"%s_us\": %.1f", name[i], sum / job.layers / per_us);
	}
	printf(", \"last_ms\": %.2f}\n", (double)(job.stamp[job.layers - 1].end - *job.zero) / per_us / 1000);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	int runs = argc > 2 ? atoi(argv[2]) : 3;

	if (argc == 4 && !strcmp(argv[1], "--make"))
		return make(argv[2], strtoull(argv[3], nullptr, 10));
	if (argc < 2 || runs < 1)
		die("usage: kv_wait --make FILE BYTES, or kv_wait URI [RUNS]");
	struct kv_job job = open_job(argv[1]);
	for (int run = 0; run < runs; run++) {
		job.run = (uint32_t)run + 1;
		job.met = (uint32_t *)front_local(2 * (size_t)job.layers * sizeof(*job.met));
		front_run_kv_clock(1, &job);
		front_run_kv_whole(job.waves, &job);
		report(job);
		check(cudaFree(job.met), "cudaFree");
	}
	front_close(&job.front);
	return 0;
}
