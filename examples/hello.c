/* SPDX-License-Identifier: MIT */
/*
 * hello: the whole way in one place, without options. Four lanes read the first eight blocks of a controller, two each.
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
	uint32_t lane = gpunvme_lane();
	uint64_t len = 2ull << job->dq.lba_shift, pos = lane * len;

	job->status[lane] = gpunvme_read(&job->dq, &job->dbuf, pos, pos, len); /* at the same place in the buffer */
}

static int hello(const char *uri, struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, struct gpunvme_qp *qp, struct gpunvme_mem *mem)
{
	struct job job = { .status = { 0 } };
	int started = 0;
	int ret = gpunvme_dev_open(uri, NULL, &dev);

	ret = ret ? ret : gpunvme_gpu_open("cpu", NULL, &gpu);
	ret = ret ? ret : gpunvme_qp_create(dev, gpu, NULL, &qp);
	ret = ret ? ret : gpunvme_qp_view(qp, NULL, &job.dq);
	ret = ret ? ret : gpunvme_mem_alloc(gpu, 8 << 12, NULL, &mem);
	ret = ret ? ret : gpunvme_mem_map(mem, dev);
	ret = ret ? ret : gpunvme_mem_dbuf(mem, dev, &job.dbuf);
	if (ret)
		fprintf(stderr, "hello: %s\n", gpunvme_errmsg());
	else
		ret = started = gpunvme_cpu_launch(4, 1, read_two_blocks, &job);
	if (started)
		fprintf(stderr, "hello: four lanes cannot start: %s\n", strerror(-started));
	for (int i = 0; i < 4 && !ret; i++)
		printf("lane %d: %s, first byte %02x\n", i, gpunvme_strerror(job.status[i]),
		       *((unsigned char *)gpunvme_mem_ptr(mem) + ((size_t)i * 2 << job.dq.lba_shift)));
	gpunvme_qp_destroy(qp);
	gpunvme_mem_free(mem);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
	return ret;
}

int main(int argc, char **argv)
{
	return hello(argc > 1 ? argv[1] : "soft:disk.img", NULL, NULL, NULL, NULL) != 0;
}
