// SPDX-License-Identifier: MIT
// hip_hello [URI]: examples/hello.c on a GPU. Four threads read the first eight blocks of a drive, two each.
#include <hip/hip_runtime.h>

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

static int hello(const char *uri, const char *name, job *job)
{
	gpunvme_dev *dev = nullptr;
	gpunvme_gpu *gpu = nullptr;
	gpunvme_queue *queue = nullptr;
	gpunvme_mem *mem = nullptr;
	hipError_t err = hipSuccess;
	int ret = gpunvme_dev_open(uri, nullptr, &dev); // the drive

	ret = ret ? ret : gpunvme_gpu_open(name, nullptr, &gpu); // the GPU, by its address
	ret = ret ? ret : gpunvme_queue_create(dev, gpu, nullptr, &queue); // a queue for its threads
	ret = ret ? ret : gpunvme_queue_view(queue, nullptr, &job->dq); // a copy of the queue's description, for the kernel
	ret = ret ? ret : gpunvme_mem_alloc(gpu, queue, 8 << 12, nullptr, &mem); // a buffer of 32 KiB
	ret = ret ? ret : gpunvme_mem_map(mem, dev); // the drive may write there
	ret = ret ? ret : gpunvme_mem_dbuf(mem, dev, &job->dbuf); // and a copy of the buffer's
	if (ret) {
		fprintf(stderr, "hip_hello: %s\n", gpunvme_errmsg());
	} else {
		read_two_blocks<<<1, 4>>>(job);
		err = hipGetLastError(); // of the launch
		err = err != hipSuccess ? err : hipDeviceSynchronize();
	}
	if (err != hipSuccess)
		fprintf(stderr, "hip_hello: the kernel failed: %s\n", hipGetErrorString(err));
	for (int i = 0; i < 4 && !ret && err == hipSuccess; i++)
		printf("thread %d: %s, first byte %02x\n", i, gpunvme_strerror(job->status[i]), job->first[i]);
	for (int i = 0; i < 4 && !ret && err == hipSuccess; i++)
		ret = job->status[i];
	gpunvme_queue_destroy(queue);
	gpunvme_mem_free(mem);
	gpunvme_dev_close(dev);
	gpunvme_gpu_close(gpu);
	return ret || err != hipSuccess;
}

int main(int argc, char **argv)
{
	job *job = nullptr;
	char name[40] = "hsa:";
	hipError_t err = hipDeviceGetPCIBusId(name + 4, sizeof(name) - 4, 0);
	int failed = 1;

	if (err == hipSuccess)
		err = hipHostMalloc((void **)&job, sizeof(*job), hipHostMallocDefault); // for kernel and host
	if (err == hipSuccess) {
		*job = {};
		failed = hello(argc > 1 ? argv[1] : "soft:disk.img", name, job);
	} else {
		fprintf(stderr, "hip_hello: there is no GPU that HIP can use: %s\n", hipGetErrorString(err));
	}
	(void)hipHostFree(job);
	return failed;
}
