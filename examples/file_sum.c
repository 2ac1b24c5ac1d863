/* SPDX-License-Identifier: MIT */
/*
 * file_sum URI PATH [COPY]: threads read a file by its name, on an ext4 that is not mounted, and sum it up. With COPY, which
 * Linux reads, the CPU does it again and compares. examples/cuda and examples/hip have the same kernel.
 */
#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

#include <stdio.h>
#include <string.h>

#define PIECE 4096u
#define THREADS 8u

/* Each byte counts by its place, so it does not matter which thread adds it. */
GPUNVME_FN uint64_t sum_pieces(const struct gpunvme_dq *dq, const struct gpunvme_dfile *file, const struct gpunvme_dbuf *buf,
			       int *status)
{
	uint64_t own = (uint64_t)gpunvme_thread_id() * 2 * PIECE, sum = 0, pos, i;
	const volatile unsigned char *bytes = (const volatile unsigned char *)(uintptr_t)(buf->base + own);
	struct gpunvme_cursor cur = { dq, file, own + PIECE, 0, 0, 0 }; /* own + PIECE: for the end of the file, which is no whole block */

	*status = 0;
	for (pos = (uint64_t)gpunvme_thread_id() * PIECE; pos < file->bytes && !*status; pos += (uint64_t)gpunvme_thread_count() * PIECE) {
		*status = gpunvme_read(&cur, buf, own, pos, PIECE);
		for (i = 0; i < cur.done; i++)
			sum += (pos + i + 1) * bytes[i];
	}
	return sum;
}

struct job {
	struct gpunvme_dq dq;
	struct gpunvme_dbuf buf;
	struct gpunvme_dfile file;
	uint64_t sum[THREADS];
	int status[THREADS];
};

static GPUNVME_DEVICE void sum_file(void *arg)
{
	struct job *job = (struct job *)arg;
	uint32_t thread = gpunvme_thread_id();

	job->sum[thread] = sum_pieces(&job->dq, &job->file, &job->buf, &job->status[thread]);
}

static int failed(const char *why)
{
	fprintf(stderr, "file_sum: %s\n", why);
	return 1;
}

/* What the threads should have found. */
static int compare(const char *copy, uint64_t sum)
{
	FILE *in = fopen(copy, "r");
	uint64_t again = 0, pos = 0;
	int c, bad;

	if (!in) {
		fprintf(stderr, "file_sum: %s: %s\n", copy, strerror(errno));
		return 1;
	}
	while ((c = getc(in)) != EOF)
		again += ++pos * (unsigned char)c;
	bad = ferror(in);
	fclose(in);
	if (bad)
		return failed("the copy cannot be read");
	return again == sum ? 0 : failed("the copy has another sum");
}

static int sum_up(struct job *job, const char *copy)
{
	uint64_t sum = 0;
	int ret = gpunvme_cpu_launch(THREADS, 1, sum_file, job);

	if (ret)
		return failed(strerror(-ret));
	for (uint32_t i = 0; i < THREADS; i++) {
		if (job->status[i])
			return failed(gpunvme_strerror(job->status[i]));
		sum += job->sum[i];
	}
	ret = copy ? compare(copy, sum) : 0;
	if (!ret)
		printf("%016llx  %llu bytes, %u threads\n", (unsigned long long)sum, (unsigned long long)job->file.bytes, THREADS);
	return ret;
}

static int run(const char *uri, const char *path, const char *copy)
{
	struct gpunvme_file *file = NULL;
	struct gpunvme_dev *dev = NULL;
	struct gpunvme_gpu *gpu = NULL;
	struct gpunvme_mem *mem = NULL;
	struct gpunvme_queue *queue = NULL;
	struct job job = { .status = { 0 } };
	int ret = gpunvme_dev_open(uri, NULL, &dev);

	ret = ret ? ret : gpunvme_gpu_open("cpu", NULL, &gpu);
	ret = ret ? ret : gpunvme_file_open(dev, path, NULL, &file);
	ret = ret ? ret : gpunvme_file_view(file, gpu, &job.file);
	ret = ret ? ret : gpunvme_queue_create(dev, gpu, NULL, &queue);
	ret = ret ? ret : gpunvme_queue_view(queue, NULL, &job.dq);
	ret = ret ? ret : gpunvme_mem_alloc(gpu, queue, (size_t)THREADS * 2 * PIECE, NULL, &mem);
	ret = ret ? ret : gpunvme_mem_map(mem, dev);
	ret = ret ? ret : gpunvme_mem_dbuf(mem, dev, &job.buf);
	ret = ret ? failed(gpunvme_errmsg()) : sum_up(&job, copy);
	gpunvme_file_close(file);
	gpunvme_queue_destroy(queue);
	gpunvme_mem_free(mem);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
	return ret;
}

int main(int argc, char **argv)
{
	if (argc < 3 || argc > 4)
		return failed("usage: file_sum URI PATH [COPY]");
	return run(argv[1], argv[2], argc > 3 ? argv[3] : NULL);
}
