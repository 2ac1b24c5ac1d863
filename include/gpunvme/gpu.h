/* SPDX-License-Identifier: MIT */
/*
 * Where the lanes run: the processor whose threads will submit and poll.
 *
 *   cpu[:WIDTH]  threads of this process, WIDTH (1, 4 or 32; default 1) to a wave
 *   hsa:N, hsa:BDF   an AMD GPU through ROCr
 *   cuda:N           an NVIDIA GPU
 *   auto             the first GPU that can be used, those of AMD before others; `cpu` where there is none, and the log says why.
 *                    The one nearest to a controller is found by gpunvme_gpu_list() and gpunvme_pci_get_path().
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
	uint32_t width;        /* lanes of one wave */
	uint32_t ticks_per_ms; /* of the clock that device code reads */
	char name[64];
	uint32_t reserved;
};

/**
 * gpunvme_gpu_open() - take the processor that runs the lanes
 * @spec: see above
 * @opts: NULL for the defaults; not kept
 * @gpu:  set on success; the caller owns it
 *
 * Any thread may call it.
 * Return: 0; -EINVAL bad spec; -ENODEV no such GPU, or no runtime; -EOPNOTSUPP this build or machine cannot use that kind; -EIO its
 * runtime refuses; -ENOMEM.
 */
GPUNVME_API int gpunvme_gpu_open(const char *spec, const struct gpunvme_gpu_opts *opts, struct gpunvme_gpu **gpu);

/**
 * gpunvme_gpu_close() - release it
 * @gpu: or NULL. Memory and queue pairs made for it must be gone; while they exist the object lives on internally.
 * Return: 0; -ECHILD.
 */
GPUNVME_API int gpunvme_gpu_close(struct gpunvme_gpu *gpu);

/**
 * gpunvme_gpu_get_info() - what it is
 * @gpu:  an open GPU
 * @info: filled; info->size must be set
 *
 * Any thread may call it. Return: 0; -EINVAL when info->size is too small.
 */
GPUNVME_API int gpunvme_gpu_get_info(const struct gpunvme_gpu *gpu, struct gpunvme_gpu_info *info);

struct gpunvme_gpu_entry {
	uint32_t kind;              /* enum gpunvme_gpu_kind, not GPUNVME_GPU_CPU */
	uint32_t node;              /* of the kernel's compute driver (KFD); AMD only */
	char spec[24];              /* for gpunvme_gpu_open(); "" where the kernel does not list it, or only its runtime knows how */
	char address[16];           /* on the PCI bus, DDDD:BB:DD.F */
	char gfx[16];               /* "gfx1100"; "" unknown, or not AMD */
	char driver[32];            /* "amdgpu"; "" none */
	uint64_t vram;              /* bytes; 0 unknown */
	uint64_t visible;           /* of them, to other devices and the CPU; less than vram without a large BAR */
	uint32_t xgmi;              /* links to other GPUs in addition to PCIe */
	int32_t numa;               /* -1 unknown */
	uint16_t vendor;
	uint16_t device;
	uint8_t asleep;             /* runtime power management has suspended it; opening it wakes it */
	uint8_t has_code;           /* this build of the library has kernels for it */
	uint16_t reserved;
};

/* As gpunvme_gpu_list(), for a caller whose elements have `stride` bytes each. Use the wrapper below. */
GPUNVME_API int gpunvme_gpu_list_v(struct gpunvme_gpu_entry *list, uint32_t *count, size_t stride);

/**
 * gpunvme_gpu_list() - the GPUs of this machine
 * @list:  room for *count elements
 * @count: in: room; out: how many there are, which may be more than there was room for
 *
 * First those that the kernel's compute driver lists, in its order, which is that of ROCm, then other AMD GPUs, then NVIDIA's. No
 * runtime is loaded and no GPU is opened or woken. gpunvme_pci_get_path() tells how far it is from a controller.
 * Any thread may call it. Return: 0; -EINVAL.
 */
static inline int gpunvme_gpu_list(struct gpunvme_gpu_entry *list, uint32_t *count)
{
	return gpunvme_gpu_list_v(list, count, sizeof(*list));
}

/**
 * gpunvme_gpu_fence() - write back and empty the caches of a GPU
 * @gpu: the lanes
 *
 * For memory that the GPU caches, as that of hipMalloc(), and for memory of the host that HIP has copied. Stores of kernels
 * that ended before the call are in memory after it, where a controller finds them. Kernels that begin after it load from
 * memory. A launch of HIP alone does neither. Call this between a kernel that stores and one that writes, and between a read
 * and a kernel that looks where another one looked before, unless hipStreamSynchronize() comes between. Memory of the host
 * that was registered, or is of GPUNVME_MEM_SHARED or _HUGE, becomes uncached again: a copy of HIP's from or to it may have
 * changed that.
 *
 * It does not wait for kernels of the program. It waits while the library runs a kernel of its own on @gpu. For `cpu` it orders the
 * accesses of this thread. For `cuda:N` there is nothing to do: devices and lanes meet in the GPU's L2. Any thread may call it.
 * Return: 0; -EINVAL; -ETIMEDOUT the GPU did not get to it within 10 s, and everything that needs @gpu fails with -EIO until it is
 * closed and opened again; -EIO it has failed; -ENOMEM.
 */
GPUNVME_API int gpunvme_gpu_fence(struct gpunvme_gpu *gpu);

/*
 * Ordering tests: what a machine keeps of the order in which controller, PCIe and the caches of threads ought to see things. A
 * queue's self-test asks whether the path works. These ask thousands of times whether it ever does not. They read and compare, and
 * never write media.
 */
enum gpunvme_litmus_test {
	GPUNVME_LITMUS_ORDER,    /* the controller fetches no SQE that is older than the doorbell */
	GPUNVME_LITMUS_CQE,      /* a completion is seen without help, although caches held the entry before */
	GPUNVME_LITMUS_DATA,     /* data is seen when its completion is, although caches held the buffer before */
	GPUNVME_LITMUS_DOORBELL, /* of doorbells in close succession the last one counts */
	GPUNVME_LITMUS_CQE16,    /* a completion that is loaded with 16 bytes at once is whole */
	GPUNVME_LITMUS_STORE,    /* the controller reads what a thread stored last: Compare commands, half of which must fail */
	GPUNVME_LITMUS_TESTS
};

enum gpunvme_litmus_verdict {
	GPUNVME_LITMUS_NOT_RUN, /* the controller has no Compare command, or too few commands were asked for; `why` says which */
	GPUNVME_LITMUS_PASSED,
	GPUNVME_LITMUS_FAILED
};

enum gpunvme_litmus_flags {
	/*
	 * Before each launch the GPU's runtime copies the data to its memory and back, as programs do: HIP, which may make memory of the
	 * host cached that way. The data lies in 2 MiB then, as HIP treats small copies otherwise.
	 */
	GPUNVME_LITMUS_COPIES = 1u << 0,
};

struct gpunvme_litmus_opts {
	size_t size;         /* sizeof(struct gpunvme_litmus_opts) */
	uint32_t commands;   /* of each test; 0: 100,000 */
	uint32_t timeout_ms; /* that one completion may take; 0: 2,000 */
	/* NULL, or called on the caller's thread now and then: commands of all tests so far, of as many as there will be. */
	void (*progress)(void *ctx, uint64_t done, uint64_t total);
	void *progress_ctx;
	uint32_t queue_flags; /* GPUNVME_QUEUE_VRAM: rings and data in the GPU's memory; or 0: in the host's */
	/*
	 * Where the data lies: GPUNVME_MEM_HOST, _HUGE, _SHARED, _VRAM, _HIP or _DRM. 0: with the rings. Other memory than theirs
	 * is for a controller in software: on a drive data and rings lie together (-EXDEV).
	 */
	uint32_t mem_flags;
	uint32_t flags;    /* enum gpunvme_litmus_flags; an unknown bit is an error */
	uint32_t reserved; /* 0 */
};
#define GPUNVME_LITMUS_OPTS_INIT { sizeof(struct gpunvme_litmus_opts), 0, 0, NULL, NULL, 0, 0, 0, 0 }

struct gpunvme_litmus_result {
	const char *name;        /* "order", "cqe", ...; a constant */
	uint32_t verdict;        /* enum gpunvme_litmus_verdict */
	uint32_t faults;         /* how often the forbidden was seen */
	uint64_t commands;       /* that were made */
	double mean_us, worst_us; /* from the doorbell to a completion */
	char why[160];           /* of a failure what was seen, of a test that was not run the reason; else empty */
};

struct gpunvme_litmus {
	size_t size;     /* sizeof(struct gpunvme_litmus) */
	uint32_t stride; /* sizeof(struct gpunvme_litmus_result) */
	uint32_t tests;  /* in `test` */
	/*
	 * What was proven, as flags for gpunvme_queue_create() on the same controller and GPU: GPUNVME_QUEUE_CQE16,
	 * GPUNVME_QUEUE_NO_READBACK. CQE16 alone may fail without harm: it allows a shortcut. Where GPUNVME_QUEUE_VRAM was asked for,
	 * with that flag, or 0 when something failed: nothing was proven of memory of the host.
	 */
	uint32_t queue_flags;
	uint32_t failed; /* tests but CQE16 that failed: queues of this kind lose data here */
	struct gpunvme_litmus_result test[GPUNVME_LITMUS_TESTS];
};
#define GPUNVME_LITMUS_INIT \
	{ sizeof(struct gpunvme_litmus), (uint32_t)sizeof(struct gpunvme_litmus_result), GPUNVME_LITMUS_TESTS, 0, 0, \
	  { { NULL, 0, 0, 0, 0, 0, "" } } }

/**
 * gpunvme_gpu_litmus() - run all ordering tests
 * @dev:    the controller; one queue pair must be free
 * @gpu:    whose lanes
 * @opts:   NULL for the defaults
 * @result: filled; initialise it with GPUNVME_LITMUS_INIT
 *
 * Takes seconds to minutes. Each test has a queue pair of its own. Any thread may call it, several at a time.
 * Return: 0 the tests ran, and @result says what they found; -EINVAL bad arguments, other flags; -ENOENT, -EOPNOTSUPP no namespace
 * to read, or with GPUNVME_LITMUS_COPIES a GPU without HIP or memory that HIP does not reach; -ENODEV no HIP, or it does not see
 * this GPU; what gpunvme_queue_create() and gpunvme_mem_alloc() return; a positive NVMe status when a block cannot be read at all.
 */
GPUNVME_API int gpunvme_gpu_litmus(struct gpunvme_dev *dev, struct gpunvme_gpu *gpu, const struct gpunvme_litmus_opts *opts,
				   struct gpunvme_litmus *result);

#ifdef __cplusplus
}
#endif
#endif
