/* SPDX-License-Identifier: MIT */
/*
 * hello: a complete program without options. Four threads read the first eight blocks of a drive, two each.
 */
#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

#include <stdio.h>
#include <string.h>

struct job {
	struct gpunvme_dq dq;
	struct gpunvme_dbuf dbuf;
	int status[4];
};

static GPUNVME_DEVICE void read_two_blocks(void *arg)
{
	struct job *job = (struct job *)arg;
	uint32_t thread = gpunvme_thread_id(); /* its number, 0 to 3 */
	uint64_t len = 2ull << job->dq.lba_shift, pos = thread * len;

	job->status[thread] = gpunvme_read(&job->dq, &job->dbuf, pos, pos, len); /* at the same place in the buffer */
}

static int hello(const char *uri, struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, struct gpunvme_queue *queue,
		 struct gpunvme_mem *mem)
{
	struct job job = { .status = { 0 } };
	int started = 0;
	int ret = gpunvme_dev_open(uri, NULL, &dev); /* the drive */

	ret = ret ? ret : gpunvme_gpu_open("cpu", NULL, &gpu); /* the threads: CPU threads here */
	ret = ret ? ret : gpunvme_queue_create(dev, gpu, NULL, &queue); /* a queue for them */
	ret = ret ? ret : gpunvme_queue_view(queue, NULL, &job.dq); /* a copy of the queue's description, for the kernel */
	ret = ret ? ret : gpunvme_mem_alloc(gpu, queue, 8 << 12, NULL, &mem); /* a buffer of 32 KiB */
	ret = ret ? ret : gpunvme_mem_map(mem, dev); /* the drive may write there */
	ret = ret ? ret : gpunvme_mem_dbuf(mem, dev, &job.dbuf); /* and a copy of the buffer's */
	if (ret)
		fprintf(stderr, "hello: %s\n", gpunvme_errmsg());
	else
		ret = started = gpunvme_cpu_launch(4, 1, read_two_blocks, &job);
	if (started)
		fprintf(stderr, "hello: four threads cannot start: %s\n", strerror(-started));
	for (int i = 0; i < 4 && !ret; i++)
		printf("thread %d: %s, first byte %02x\n", i, gpunvme_strerror(job.status[i]),
		       *((unsigned char *)gpunvme_mem_ptr(mem) + ((size_t)i * 2 << job.dq.lba_shift)));
	for (int i = 0; i < 4 && !ret; i++)
		ret = job.status[i];
	gpunvme_queue_destroy(queue);
	gpunvme_mem_free(mem);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
	return ret;
}

int main(int argc, char **argv)
{
	return hello(argc > 1 ? argv[1] : "soft:disk.img", NULL, NULL, NULL, NULL) != 0;
}
