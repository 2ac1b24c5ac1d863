/* SPDX-License-Identifier: MIT */
/*
 * What the HIP examples have in common: a controller, queues and data in the memory of HIP's current GPU. Host code only.
 *
 * Errors end the program with one line, `program: message`. The kernel then closes all that is open.
 */
#ifndef GPUNVME_EXAMPLES_HIP_SESSION_H
#define GPUNVME_EXAMPLES_HIP_SESSION_H

#include <hip/hip_runtime.h>

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include <gpunvme/gpunvme.h>

extern const char *const program;

static const size_t PART = 64 << 20; /* of a file in GPU memory at a time */

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

inline void check(hipError_t err, const char *what)
{
	if (err != hipSuccess)
		die(std::string(what) + ": " + hipGetErrorString(err));
}

inline void warn(void *, gpunvme_log_level level, const char *text)
{
	if (level <= GPUNVME_LOG_WARN)
		fprintf(stderr, "%s: %s\n", program, text);
}

/* The library's name for the GPU on which HIP runs kernels now. */
inline std::string current_gpu()
{
	char address[32];
	int device;

	check(hipGetDevice(&device), "there is no GPU that HIP can use");
	check(hipDeviceGetPCIBusId(address, sizeof(address), device), "hipDeviceGetPCIBusId");
	return std::string("hsa:") + address;
}

#ifndef hipDeviceMallocUncached /* HIP 5 */
#define hipDeviceMallocUncached hipDeviceMallocFinegrained
#endif

/*
 * Memory that the controller reads and writes. Across PCIe queues and data must lie together, and where they lie is the placement
 * of the queue. In the GPU's memory, on placement vram, and with the software controller, it is HIP's. Else it is the library's, in
 * the host's memory.
 *
 * HIP's is asked for uncached. hipMalloc's is cached: a kernel that has read there would see the same again, whatever was read from
 * the drive meanwhile. HIP may give that all the same, with success: the library's warning tells.
 */
struct buffer {
	void *ptr = nullptr; /* for kernels */
	gpunvme_mem *mem = nullptr;
	gpunvme_dbuf dbuf;
	bool hip = false;

	void open(gpunvme_gpu *gpu, gpunvme_dev *dev, gpunvme_queue *queue, const std::string &placement, size_t bytes)
	{
		bytes = (bytes + 0xffff) & ~(size_t)0xffff; /* whole pages of the GPU */
		hip = placement.rfind("vram", 0) == 0 || placement.rfind("soft", 0) == 0;
		if (hip)
			check(hipExtMallocWithFlags(&ptr, bytes, hipDeviceMallocUncached), "no memory on the GPU");
		check(hip ? gpunvme_mem_register(gpu, ptr, bytes, &mem) : gpunvme_mem_alloc(gpu, queue, bytes, nullptr, &mem));
		check(gpunvme_mem_map(mem, dev));
		check(gpunvme_mem_dbuf(mem, dev, &dbuf));
	}

	/* Between kernels. */
	void put(const void *from, size_t bytes)
	{
		if (hip)
			check(hipMemcpy(ptr, from, bytes, hipMemcpyHostToDevice), "hipMemcpy");
		else
			memcpy(gpunvme_mem_ptr(mem), from, bytes);
	}

	void get(void *to, size_t bytes)
	{
		if (hip)
			check(hipMemcpy(to, ptr, bytes, hipMemcpyDeviceToHost), "hipMemcpy");
		else
			memcpy(to, gpunvme_mem_ptr(mem), bytes);
	}

	const char *where() const
	{
		return hip ? "memory of HIP" : "memory of the host";
	}

	void close()
	{
		gpunvme_mem_free(mem);
		if (hip)
			(void)hipFree(ptr);
	}
};

struct session {
	gpunvme_dev *dev = nullptr;
	gpunvme_gpu *gpu = nullptr;
	std::vector<gpunvme_queue *> queue;
	std::vector<gpunvme_dq> view; /* one for each queue */
	gpunvme_dq *dq = nullptr;     /* the same in the GPU's memory */
	uint32_t queues = 0;
	std::string placement; /* that the queues are on */
	struct gpunvme_ns_info ns = {};
	struct gpunvme_dev_info info = {};

	void open(const char *uri, uint32_t flags, uint32_t want = 4)
	{
		gpunvme_view window = GPUNVME_VIEW_INIT;
		gpunvme_gpu_opts gpu_opts = GPUNVME_GPU_OPTS_INIT;
		gpunvme_dev_opts dev_opts = GPUNVME_DEV_OPTS_INIT;

		ns.size = sizeof(ns);
		info.size = sizeof(info);
		window.flags = flags;
		gpu_opts.log = dev_opts.log = warn;
		check(gpunvme_gpu_open(current_gpu().c_str(), &gpu_opts, &gpu));
		check(gpunvme_dev_open(uri, &dev_opts, &dev));
		check(gpunvme_dev_get_info(dev, &info));
		check(gpunvme_ns_get_info(dev, 0, &ns));
		queues = info.queues < want ? info.queues : want;
		queue.resize(queues);
		view.resize(queues);
		for (uint32_t i = 0; i < queues; i++) {
			check(gpunvme_queue_create(dev, gpu, nullptr, &queue[i]));
			check(gpunvme_queue_view(queue[i], &window, &view[i]));
		}
		placement = placement_of(queue[0]);
		check(hipMalloc((void **)&dq, queues * sizeof(*dq)), "no memory on the GPU");
		check(hipMemcpy(dq, view.data(), queues * sizeof(*dq), hipMemcpyHostToDevice), "hipMemcpy");
	}

	static std::string placement_of(gpunvme_queue *q)
	{
		struct gpunvme_queue_info about = {};

		about.size = sizeof(about);
		check(gpunvme_queue_get_info(q, &about));
		return about.placement;
	}

	/* One queue less, for others. No kernel runs on it. */
	void release_queue()
	{
		gpunvme_queue_destroy(queue.back());
		queue.pop_back();
		queues--;
	}

	void close()
	{
		for (gpunvme_queue *q : queue)
			gpunvme_queue_destroy(q);
		(void)hipFree(dq);
		gpunvme_dev_close(dev);
		gpunvme_gpu_close(gpu);
	}
};

/* Results of the threads of one launch: 0, or why the thread stopped. */
struct results {
	int *status = nullptr;
	uint32_t count;

	explicit results(uint32_t threads) : count(threads)
	{
		check(hipHostMalloc((void **)&status, threads * sizeof(*status), hipHostMallocDefault), "hipHostMalloc");
		memset(status, 0, threads * sizeof(*status));
	}

	~results()
	{
		(void)hipHostFree(status);
	}

	/* Wait for the kernel. End the program if a thread failed. */
	void wait(const char *what) const
	{
		check(hipGetLastError(), what);
		check(hipDeviceSynchronize(), what);
		for (uint32_t i = 0; i < count; i++)
			if (status[i])
				die(std::string(what) + ", thread " + std::to_string(i) + ": " + gpunvme_strerror(status[i]));
	}
};

/* "64M": digits and K, M, G or T. */
inline uint64_t parse_size(const char *text)
{
	static const char units[] = "KMGT";
	char *end;
	uint64_t n = (errno = 0, strtoull(text, &end, 10));
	const char *unit = *end ? strchr(units, *end) : nullptr;
	int shift = unit ? 10 * (int)(unit - units + 1) : 0;

	if (*text < '0' || *text > '9' || (*end && (!unit || end[1])) || !n || errno || n << shift >> shift != n)
		die(std::string("'") + text + "' is no size such as 4096, 64K or 1G");
	return n << shift;
}

/* How far the work is, on a terminal. */
inline void progress(uint64_t done, uint64_t total)
{
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "\r%3u %%%s", (unsigned)(100.0 * (double)done / (double)total), done < total ? "" : "\r     \r");
}

#endif
