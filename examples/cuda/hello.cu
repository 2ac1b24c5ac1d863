// SPDX-License-Identifier: MIT
// cuda_hello [URI]: examples/hello.c on a GPU. Four threads read the first eight blocks of a drive, two each.
#include <cuda_runtime.h>

#include <cstdio>

#include <gpunvme/device.h>
#include <gpunvme/gpunvme.h>

struct job {
	gpunvme_dq dq;
	gpunvme_dbuf dbuf;
	int status[4];
	unsigned char first[4]; // byte of what each thread has read
};

__global__ void read_two_blocks(job *job)
{
	uint32_t thread = gpunvme_thread_id(); // its number, 0 to 3
	uint64_t len = 2ull << job->dq.lba_shift, pos = thread * len;

	job->status[thread] = gpunvme_read(&job->dq, &job->dbuf, pos, pos, len); // at the same place in the buffer
	if (!job->status[thread])
		job->first[thread] = *(const unsigned char *)(job->dbuf.base + pos); // the kernel has the data
}

static int hello(const char *uri, job *job)
{
	gpunvme_dev *dev = nullptr;
	gpunvme_gpu *gpu = nullptr;
	gpunvme_queue *queue = nullptr;
	gpunvme_mem *mem = nullptr;
	cudaError_t err = cudaSuccess;
	int ret = gpunvme_dev_open(uri, nullptr, &dev); // the drive

	ret = ret ? ret : gpunvme_gpu_open("cuda:0", nullptr, &gpu); // the first GPU of CUDA
	ret = ret ? ret : gpunvme_queue_create(dev, gpu, nullptr, &queue); // a queue for its threads
	ret = ret ? ret : gpunvme_queue_view(queue, nullptr, &job->dq); // a copy of the queue's description, for the kernel
	ret = ret ? ret : gpunvme_mem_alloc(gpu, queue, 8 << 12, nullptr, &mem); // a buffer of 32 KiB
	ret = ret ? ret : gpunvme_mem_map(mem, dev); // the drive may write there
	ret = ret ? ret : gpunvme_mem_dbuf(mem, dev, &job->dbuf); // and a copy of the buffer's
	if (ret) {
		fprintf(stderr, "cuda_hello: %s\n", gpunvme_errmsg());
	} else {
		read_two_blocks<<<1, 4>>>(job);
		err = cudaGetLastError(); // of the launch
		err = err != cudaSuccess ? err : cudaDeviceSynchronize();
	}
	if (err != cudaSuccess)
		fprintf(stderr, "cuda_hello: the kernel failed: %s\n", cudaGetErrorString(err));
	for (int i = 0; i < 4 && !ret && err == cudaSuccess; i++)
		printf("thread %d: %s, first byte %02x\n", i, gpunvme_strerror(job->status[i]), job->first[i]);
	for (int i = 0; i < 4 && !ret && err == cudaSuccess; i++)
		ret = job->status[i];
	gpunvme_queue_destroy(queue);
	gpunvme_mem_free(mem);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
	return ret || err != cudaSuccess;
}

int main(int argc, char **argv)
{
	job *job = nullptr;
	cudaError_t err = cudaMallocHost((void **)&job, sizeof(*job)); // for kernel and host
	int failed = 1;

	if (err == cudaSuccess) {
		*job = {};
		failed = hello(argc > 1 ? argv[1] : "soft:disk.img", job);
	} else {
		fprintf(stderr, "cuda_hello: there is no GPU that CUDA can use: %s\n", cudaGetErrorString(err));
	}
	(void)cudaFreeHost(job);
	return failed;
}
