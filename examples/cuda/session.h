/* SPDX-License-Identifier: MIT */
/*
 * What the CUDA examples have in common: a controller, queues of CUDA's current GPU, and a buffer in memory of the host that both
 * the controller and the GPU reach. Errors end the program with one line, `program: message`. The kernel
 * then closes all that is open.
 */
#ifndef GPUNVME_EXAMPLES_CUDA_SESSION_H
#define GPUNVME_EXAMPLES_CUDA_SESSION_H

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <cuda_runtime.h>
#include <gpunvme/gpunvme.h>

extern const char *const program;

static const uint32_t GROUPS = 16, THREADS = 64, LANES = GROUPS * THREADS;
static const size_t PART = 64 << 20; /* of a file in memory at a time */

[[noreturn]] inline void die(const std::string &why)
{
	fprintf(stderr, "%s: %s\n", program, why.c_str());
	exit(1);
}

/* For every call of this library: 0, or the end with the library's own sentence. */
inline void check(int ret)
{
	if (ret)
		die(*gpunvme_errmsg() ? gpunvme_errmsg() : gpunvme_strerror(ret));
}

inline void check(cudaError_t err, const char *what)
{
	if (err != cudaSuccess)
		die(std::string(what) + ": " + cudaGetErrorString(err));
}

struct session {
	gpunvme_dev *dev = nullptr;
	gpunvme_gpu *gpu = nullptr;
	gpunvme_mem *mem = nullptr;
	std::vector<gpunvme_queue *> queue;
	gpunvme_dq *dq = nullptr; /* a view of each queue, for kernels */
	int *status = nullptr;	  /* of each thread: 0, or why it stopped */
	gpunvme_dbuf dbuf;
	struct gpunvme_ns_info ns = {};

	void open(const char *uri, uint32_t flags, size_t want = 4)
	{
		struct gpunvme_dev_info info = {};
		gpunvme_view window = GPUNVME_VIEW_INIT;
		int device;

		ns.size = sizeof(ns);
		info.size = sizeof(info);
		window.flags = flags;
		check(cudaGetDevice(&device), "there is no GPU that CUDA can use");
		check(gpunvme_gpu_open(("cuda:" + std::to_string(device)).c_str(), nullptr, &gpu));
		check(gpunvme_dev_open(uri, nullptr, &dev));
		check(gpunvme_dev_get_info(dev, &info));
		check(gpunvme_ns_get_info(dev, 0, &ns));
		queue.resize(info.queues < want ? info.queues : want);
		check(cudaMallocManaged(&dq, queue.size() * sizeof(*dq)), "cudaMallocManaged");
		check(cudaMallocManaged(&status, LANES * sizeof(*status)), "cudaMallocManaged");
		memset(status, 0, LANES * sizeof(*status));
		for (size_t i = 0; i < queue.size(); i++) {
			check(gpunvme_queue_create(dev, gpu, nullptr, &queue[i]));
			check(gpunvme_queue_view(queue[i], &window, &dq[i]));
		}
	}

	uint32_t queues() const
	{
		return (uint32_t)queue.size();
	}

	/* The buffer. @return the CPU's address of it. */
	unsigned char *buffer(size_t bytes)
	{
		gpunvme_mem_opts opts = GPUNVME_MEM_OPTS_INIT;

		opts.flags = GPUNVME_MEM_HOST; /* the CPU's hands are on it, too */
		check(gpunvme_mem_alloc(gpu, queue.empty() ? nullptr : queue[0], bytes, &opts, &mem));
		check(gpunvme_mem_map(mem, dev));
		check(gpunvme_mem_dbuf(mem, dev, &dbuf));
		return (unsigned char *)gpunvme_mem_ptr(mem);
	}

	/* Waits for the kernel, and ends the program if a thread failed. */
	void wait(const char *what) const
	{
		check(cudaGetLastError(), what);
		check(cudaDeviceSynchronize(), what);
		for (uint32_t i = 0; i < LANES; i++)
			if (status[i])
				die(std::string(what) + ", thread " + std::to_string(i) + ": " + gpunvme_strerror(status[i]));
	}

	void close()
	{
		for (gpunvme_queue *q : queue)
			gpunvme_queue_destroy(q);
		gpunvme_mem_free(mem);
		gpunvme_dev_close(dev);
		gpunvme_gpu_close(gpu);
		(void)cudaFree(dq);
		(void)cudaFree(status);
	}
};

/* Blocks of @bytes, all of which the namespace has. */
inline uint64_t blocks_of(const session &s, uint64_t bytes)
{
	uint64_t blocks = bytes / s.ns.lba_size + (bytes % s.ns.lba_size != 0);

	if (!bytes || blocks > s.ns.nblocks)
		die("give 1 to " + std::to_string(s.ns.nblocks * s.ns.lba_size) + " bytes, which is what the namespace has");
	return blocks;
}

#endif
