/* SPDX-License-Identifier: MIT */
/*
 * The processor whose threads submit commands and poll for completions.
 *
 *   cpu[:WIDTH]      threads of this process, WIDTH (1, 4 or 32, default 1) to a wave
 *   hsa:N, hsa:BDF   an AMD GPU through ROCr
 *   cuda:N           an NVIDIA GPU
 *   auto             the first GPU that can be used, those of AMD before others. `cpu` if there is none, and the log says why.
 *                    gpunvme_gpu_list() and gpunvme_pci_get_path() find the GPU nearest to a controller
 */
#ifndef GPUNVME_GPU_H
#define GPUNVME_GPU_H

#include <gpunvme/dev.h>

#ifdef __cplusplus
extern "C" {
#endif

struct gpunvme_gpu;

enum gpunvme_gpu_kind { GPUNVME_GPU_CPU = 1, GPUNVME_GPU_HSA = 2, GPUNVME_GPU_CUDA = 3 };

struct gpunvme_gpu_opts {
	size_t size;         /* sizeof(struct gpunvme_gpu_opts) */
	gpunvme_log_fn *log; /* NULL: silent */
	void *log_ctx;
};
#define GPUNVME_GPU_OPTS_INIT { sizeof(struct gpunvme_gpu_opts), NULL, NULL }

struct gpunvme_gpu_info {
	size_t size; /* set by the caller to sizeof(struct gpunvme_gpu_info) */
	uint32_t kind;         /* enum gpunvme_gpu_kind */
	uint32_t width;        /* threads of one wave */
	uint32_t ticks_per_ms; /* of the clock that device code reads */
	char name[64];
	uint32_t reserved;
};

/**
 * gpunvme_gpu_open() - open the processor that runs the threads
 * @spec: cpu, hsa:N, hsa:BDF, cuda:N or auto, as the head of gpu.h says
 * @opts: NULL for the defaults. Not kept. The log callback must stay valid until gpunvme_gpu_close()
 * @gpu:  set on success. The caller owns it
 *
 * Any thread may call it.
 * Return:
 * - 0: @gpu is open.
 * - -EINVAL: bad spec or option.
 * - -ENODEV: no such GPU, or no runtime.
 * - -EOPNOTSUPP: this build or machine cannot use that kind.
 * - -EIO: its runtime refuses.
 * - -ENOMEM.
 */
GPUNVME_API int gpunvme_gpu_open(const char *spec, const struct gpunvme_gpu_opts *opts, struct gpunvme_gpu **gpu);

/**
 * gpunvme_gpu_close() - close the processor that runs the threads
 * @gpu: NULL does nothing. No other thread may use it any more
 *
 * It stays open internally while memory or queues of it exist. Its log callback is not called any more.
 * Return: 0; -ECHILD.
 */
GPUNVME_API int gpunvme_gpu_close(struct gpunvme_gpu *gpu);

/**
 * gpunvme_gpu_get_info() - get the properties of an open GPU
 * @gpu:  an open GPU
 * @info: filled. Set info->size before
 *
 * Any thread may call it.
 * Return: 0; -EINVAL: info->size is too small.
 */
GPUNVME_API int gpunvme_gpu_get_info(const struct gpunvme_gpu *gpu, struct gpunvme_gpu_info *info);

struct gpunvme_gpu_entry {
	uint32_t kind;              /* enum gpunvme_gpu_kind, not GPUNVME_GPU_CPU */
	uint32_t node;              /* of the kernel's compute driver (KFD). AMD only */
	char spec[24];              /* for gpunvme_gpu_open(). "": the kernel does not list it, or only its runtime has a number */
	char address[16];           /* on the PCI bus, DDDD:BB:DD.F */
	char gfx[16];               /* "gfx1100". "": not known, or not AMD */
	char driver[32];            /* "amdgpu". "": none */
	uint64_t vram;              /* bytes. 0: not known */
	uint64_t visible;           /* bytes that other devices and the CPU can access. Less than vram without a large BAR */
	uint32_t xgmi;              /* links to other GPUs in addition to PCIe */
	int32_t numa;               /* -1: not known */
	uint16_t vendor;
	uint16_t device;
	uint8_t asleep;             /* 1: runtime power management has suspended it. Opening it wakes it */
	uint8_t has_code;           /* 1: this build of the library has kernels for it */
	uint16_t reserved;
};

/* As gpunvme_gpu_list(), for a caller whose elements have `stride` bytes each. Use the wrapper below. */
GPUNVME_API int gpunvme_gpu_list_v(struct gpunvme_gpu_entry *list, uint32_t *count, size_t stride);

/**
 * gpunvme_gpu_list() - list the GPUs of this machine
 * @list:  room for *count elements
 * @count: in: room. Out: number of GPUs, which may exceed the room
 *
 * First those of the kernel's compute driver, in its order, which is that of ROCm, then other AMD GPUs, then NVIDIA's. Loads no
 * runtime, and opens or wakes no GPU. gpunvme_pci_get_path() reports the distance to a controller. Any thread may call it.
 * Return: 0; -EINVAL.
 */
static inline int gpunvme_gpu_list(struct gpunvme_gpu_entry *list, uint32_t *count)
{
	return gpunvme_gpu_list_v(list, count, sizeof(*list));
}

/**
 * gpunvme_gpu_fence() - write back and empty the caches of a GPU
 * @gpu: an open GPU
 *
 * For memory that the GPU caches, as memory of hipMalloc(), and for memory of the host that HIP has copied. Stores of kernels that
 * ended before the call are in memory after it, where a controller finds them. Kernels that begin after it load from memory. A
 * launch of HIP alone does neither. Call it between a kernel that stores data and a kernel that writes it to a drive. Call it
 * between a read and a kernel that loads what another kernel loaded before. hipStreamSynchronize() in between does the same. It
 * makes registered memory of the host, and memory of GPUNVME_MEM_SHARED or _HUGE, uncached again, as a copy of HIP may have
 * changed that.
 *
 * It does not wait for kernels of the program. It waits while the library runs a kernel on @gpu. For `cpu` it orders the accesses
 * of this thread. For `cuda:N` it does nothing, because devices and threads share the GPU's L2. Any thread may call it.
 * Return:
 * - 0: done.
 * - -ETIMEDOUT: the GPU did not process it within 10 s. All that needs @gpu fails with -EIO until it is closed and opened again.
 * - -EIO: the GPU has failed.
 * - -EINVAL; -ECHILD; -ENOMEM.
 */
GPUNVME_API int gpunvme_gpu_fence(struct gpunvme_gpu *gpu);

/*
 * Ordering tests: in which order controller, PCIe and the caches of threads see accesses on this machine. A queue's self-test
 * checks once whether the path works. These tests check thousands of times whether it ever fails. They read and compare, and never
 * write media.
 */
enum gpunvme_ordering_test {
	GPUNVME_ORDERING_ORDER,    /* the controller fetches no SQE that is older than the doorbell */
	GPUNVME_ORDERING_CQE,      /* threads see a completion although caches held the entry before */
	GPUNVME_ORDERING_DATA,     /* threads that see a completion see its data, although caches held the buffer before */
	GPUNVME_ORDERING_DOORBELL, /* of doorbells in close succession the last one counts */
	GPUNVME_ORDERING_CQE16,    /* a completion that is loaded with 16 bytes at once is whole */
	GPUNVME_ORDERING_STORE,    /* the controller reads the last store of a thread: Compare commands, half of which must fail */
	GPUNVME_ORDERING_TESTS
};

enum gpunvme_ordering_test_result {
	GPUNVME_ORDERING_NOT_RUN, /* the controller has no Compare command, or `commands` is too small, as `why` says */
	GPUNVME_ORDERING_PASSED,
	GPUNVME_ORDERING_FAILED
};

enum gpunvme_ordering_flags {
	/*
	 * Before each launch HIP copies the data to the GPU's memory and back, as programs do. That may make memory of the host
	 * cached. The data then has 2 MiB, as HIP treats small copies in another way.
	 */
	GPUNVME_ORDERING_COPIES = 1u << 0,
};

struct gpunvme_ordering_opts {
	size_t size;         /* sizeof(struct gpunvme_ordering_opts) */
	uint32_t commands;   /* commands of each test. 0: 100,000 */
	uint32_t timeout_ms; /* longest time of one completion. 0: 2,000 */
	/* NULL, or called now and then on the caller's thread: commands of all tests so far, and in all. */
	void (*progress)(void *ctx, uint64_t done, uint64_t total);
	void *progress_ctx;
	uint32_t queue_flags; /* GPUNVME_QUEUE_VRAM: rings and data in the GPU's memory. 0: in the host's */
	/*
	 * Memory for the data: GPUNVME_MEM_HOST, _HUGE, _SHARED, _VRAM, _HIP or _DRM. 0: as the rings. Memory that differs from
	 * theirs is for a controller in software. On a drive data and rings lie together (-EXDEV).
	 */
	uint32_t mem_flags;
	uint32_t flags;    /* enum gpunvme_ordering_flags. An unknown bit is an error */
	uint32_t reserved; /* 0 */
};
#define GPUNVME_ORDERING_OPTS_INIT { sizeof(struct gpunvme_ordering_opts), 0, 0, NULL, NULL, 0, 0, 0, 0 }

struct gpunvme_ordering_result {
	const char *name;        /* "order", "cqe", ... A constant */
	uint32_t result;         /* enum gpunvme_ordering_test_result */
	uint32_t faults;         /* number of wrong results */
	uint64_t commands;       /* commands that were sent */
	double mean_us, worst_us; /* from the doorbell to a completion */
	char why[160];           /* of a failed test: the wrong result. Of a test that was not run: the reason. Else empty */
};

struct gpunvme_ordering {
	size_t size;     /* sizeof(struct gpunvme_ordering) */
	uint32_t stride; /* sizeof(struct gpunvme_ordering_result) */
	uint32_t tests;  /* in `test` */
	/*
	 * Flags for gpunvme_queue_create() that are safe on the same controller and GPU: GPUNVME_QUEUE_CQE16,
	 * GPUNVME_QUEUE_NO_READBACK. A failure of CQE16 alone does no harm, as that flag only allows a shortcut. If
	 * GPUNVME_QUEUE_VRAM was requested, the flags include it, or are 0 if a test failed, and say nothing of memory of the
	 * host.
	 */
	uint32_t queue_flags;
	uint32_t failed; /* failed tests, without CQE16: queues of this kind lose data here */
	struct gpunvme_ordering_result test[GPUNVME_ORDERING_TESTS];
};
#define GPUNVME_ORDERING_INIT \
	{ sizeof(struct gpunvme_ordering), (uint32_t)sizeof(struct gpunvme_ordering_result), GPUNVME_ORDERING_TESTS, 0, 0, \
	  { { NULL, 0, 0, 0, 0, 0, "" } } }

/**
 * gpunvme_gpu_ordering_test() - run all ordering tests
 * @dev:    the controller. One queue pair must be free
 * @gpu:    the processor that runs the threads
 * @opts:   NULL for the defaults. Not kept
 * @result: filled. Initialise it with GPUNVME_ORDERING_INIT
 *
 * Takes seconds to minutes. Each test has its own queue pair. Any thread may call it, several at a time.
 * Return:
 * - 0: the tests ran, and @result has what they found.
 * - -EINVAL: a bad option, or @result is not initialised.
 * - -ENOENT: no namespace to read.
 * - -EOPNOTSUPP: the same, or with GPUNVME_ORDERING_COPIES a GPU without HIP, or memory that HIP cannot access.
 * - -ENODEV: no HIP, or it does not see this GPU.
 * - Otherwise as gpunvme_ns_get_info(), gpunvme_queue_create() and gpunvme_mem_alloc().
 * - A positive NVMe status: a block cannot be read at all.
 */
GPUNVME_API int gpunvme_gpu_ordering_test(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu,
					  const struct gpunvme_ordering_opts *opts, struct gpunvme_ordering *result);

#ifdef __cplusplus
}
#endif
#endif
