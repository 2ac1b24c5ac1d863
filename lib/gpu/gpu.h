/* SPDX-License-Identifier: MIT */
/*
 * The processor that runs threads, as the layers above see it. Counted references: memory and queue pairs hold one each, so
 * gpunvme_gpu_close() may come before theirs.
 *
 * A kind of processor (CPU threads, an AMD GPU, an NVIDIA GPU) is a `static const struct gnv_gpu_ops` in a file gpu_*.c and one
 * line in the table of gpu_open.c. Nothing above asks which kind it is. Addresses for threads are uint64_t and never dereferenced
 * here.
 *
 * Every function of the table may be called by any thread, several at a time. It returns 0, or a negative errno with a message by
 * gnv_fail(). -EOPNOTSUPP means "not possible with these threads", and the caller takes the next best way. A result stays valid
 * until the function that takes it back, at most until the last reference to the GPU is dropped.
 */
#ifndef GNV_GPU_GPU_H
#define GNV_GPU_GPU_H

#include <gpunvme/dq.h>
#include <gpunvme/gpu.h>
#include <gpunvme/unstable.h>
#include <stdbool.h>

#include "gpu/kernels/kernels.h"
#include "util/alloc.h"
#include "util/log.h"

/* Bytes that were made visible to threads. */
struct gnv_gpu_range {
	uint64_t lane; /* address of the first byte for threads */
	void *cookie;  /* the kind's own */
	bool doubtful; /* of mmio_attach: a store may arrive late or never, so the first user tests it */
	bool fenced_off; /* by mmio_fence_off: it leads nowhere, for good */
	unsigned way;  /* of a doubtful one: which of the kind's ways it was made by */
};

/* Memory that is neither the library's nor the GPU's: the doorbell pages of a controller, a DMA-BUF of another driver. */
struct gnv_gpu_foreign {
	void *cpu; /* the CPU's mapping, or NULL */
	size_t len;
	/*
	 * A descriptor of a DMA-BUF of exactly these bytes (from *offset in it). The caller closes it.
	 * Return: 0, or a negative errno with its error message: -EOPNOTSUPP there is none.
	 */
	int (*export_fd)(void *ctx, int *fd, uint64_t *offset);
	void *ctx;
	bool shared; /* it is the same DMA-BUF each time, which others may have imported, too. Otherwise a new one */
};

/* Data memory of a GPU's own. */
struct gnv_gpu_bytes {
	void *cpu; /* NULL where the CPU cannot reach it */
	uint64_t lane;
	size_t len;		/* at least as many as asked for */
	size_t page;		/* bytes of one page of it */
	int dmabuf;		/* a DMA-BUF of it, closed by mem_free, or -1 */
	uint64_t dmabuf_offset; /* of the first byte in it */
	void *cookie;
	uint32_t how; /* as of mem_alloc */
	uint64_t tag; /* of mem_register: as of struct gnv_alloc. 0: it has none, or is not its user's */
	size_t tagged; /* the same */
	bool cached; /* stores of threads may stay in a cache that no kernel writes back, and devices read older data */
};

/* One run of a kernel of the library. */
struct gnv_launch {
	enum gnv_kernel kernel;
	const void *args; /* copied */
	size_t args_len;
	uint32_t threads;    /* of one dimension */
	uint32_t timeout_ms; /* their queue bounds the threads' own waits. This bounds a GPU that never ends */
	/* Asked when that time is over: does the kernel get on, and may run as long again? NULL: no. */
	bool (*gets_on)(void *ctx);
	void *ctx;
};

struct gnv_gpu_ops {
	const char *name; /* before the ':' of a spec */
	/* @rest: the text after the ':', or NULL. Fills gpu->info and gpu->priv. Return: as gpunvme_gpu_open(). */
	int (*open)(struct gpunvme_gpu *gpu, const char *rest);
	void (*close)(struct gpunvme_gpu *gpu);

	/*
	 * Data memory that these threads prefer, zeroed, uncached or fine-grained for them: they see the writes of a controller.
	 * -EOPNOTSUPP: they have none of their own, the host's is theirs, or it cannot be made like that.
	 * @how: 0, or GPUNVME_MEM_HIP or _DRM, which may make cached memory: the log says so.
	 */
	int (*mem_alloc)(struct gpunvme_gpu *gpu, uint32_t how, size_t len, struct gnv_gpu_bytes *bytes);
	/* Memory of this GPU that its user got from its runtime. -ENOENT: it is not the runtime's, so it is the host's. */
	int (*mem_register)(struct gpunvme_gpu *gpu, void *ptr, size_t len, struct gnv_gpu_bytes *bytes);
	void (*mem_free)(struct gpunvme_gpu *gpu, struct gnv_gpu_bytes *bytes);
	/*
	 * Is memory that threads would use this GPU's own? Return: 0; -ENOENT its runtime does not know it, so it is the host's or
	 * was freed; -EXDEV another GPU's; -ERANGE it runs over the end of its allocation; another error, with its message: the
	 * runtime could not say.
	 */
	int (*mem_check)(struct gpunvme_gpu *gpu, uint64_t lane, size_t len);
	/*
	 * Can threads access these bytes, of the GPU or of the host? *cached: until the CPU waits for the stream, a kernel may find
	 * old data where a controller has written, and a controller old data where a kernel has stored.
	 * Return: as mem_check, but 0 also for memory of the host that threads access.
	 */
	int (*mem_reach)(struct gpunvme_gpu *gpu, uint64_t lane, size_t len, bool *cached);
	/*
	 * Find the user's allocation that holds an address, and watch it: alloc->freed, which is set, is called when it is freed, and
	 * must call neither of these. Return: 0, watched or tagged; -ENOENT the runtime does not know it.
	 */
	int (*mem_watch)(struct gpunvme_gpu *gpu, const void *ptr, struct gnv_alloc *alloc);
	/* alloc->freed is not running any more, and will not be called. Ignored where it is not watched. */
	void (*mem_unwatch)(struct gpunvme_gpu *gpu, struct gnv_alloc *alloc);
	/* Of one with a tag: is the memory there still this allocation? */
	bool (*mem_same)(struct gpunvme_gpu *gpu, const void *ptr, const struct gnv_alloc *alloc);
	/*
	 * Is such memory, by its DMA-BUF or -1, still in the GPU now that a device has it? A driver may move it out for the device.
	 * Return: 0, also if that is unknown; -EIO it lies in memory of the host.
	 */
	int (*mem_stays)(struct gpunvme_gpu *gpu, int dmabuf);

	/* Host memory, already allocated and mapped to its device, becomes visible to threads, uncached. */
	int (*host_attach)(struct gpunvme_gpu *gpu, void *cpu, size_t len, struct gnv_gpu_range *range);
	/* Return: 0; -EBUSY the GPU kept it until the process ends: the bytes must not be given to anybody else. */
	int (*host_detach)(struct gpunvme_gpu *gpu, struct gnv_gpu_range *range);
	/* The threads' runtime may have made such a range cached since then: make it uncached again. NULL: no runtime does that. */
	int (*host_renew)(struct gpunvme_gpu *gpu, const struct gnv_gpu_range *range);
	/*
	 * Memory of the host that stays uncached, zeroed and fit for devices. `len` is whole pages. NULL: any memory does.
	 * -EOPNOTSUPP: there is none, and it is to be renewed.
	 */
	int (*host_alloc)(struct gpunvme_gpu *gpu, size_t len, void **ptr);
	void (*host_free)(struct gpunvme_gpu *gpu, void *ptr);
	/* As gpunvme_gpu_fence(). */
	int (*fence)(struct gpunvme_gpu *gpu);

	/* The same for foreign memory. */
	int (*mmio_attach)(struct gpunvme_gpu *gpu, const struct gnv_gpu_foreign *foreign, struct gnv_gpu_range *range);
	/* Return: 0; -EBUSY the GPU kept it: the device it belongs to must stay open until the process ends. */
	int (*mmio_detach)(struct gpunvme_gpu *gpu, struct gnv_gpu_range *range);
	/*
	 * The device of a foreign range is given back while threads may use it: their stores have to go nowhere. Called before the
	 * device is reset, and with @reset after it. Return: 0; negative, with a message: the next store of a thread may fault.
	 */
	int (*mmio_fence_off)(struct gpunvme_gpu *gpu, struct gnv_gpu_range *range, bool reset);
	/* A doubtful range has failed its user's test: from the next mmio_attach on it is made in another way, if there is one. */
	void (*mmio_distrust)(struct gpunvme_gpu *gpu, const struct gnv_gpu_range *range);

	/*
	 * Memory for the state of queues: zeroed, local to threads and cached by them. The host reads and writes it only by copies.
	 * Aligned words of 4 and 8 bytes arrive whole. No atomics: the host asks threads through the control word.
	 */
	int (*local_alloc)(struct gpunvme_gpu *gpu, size_t len, struct gnv_gpu_range *range);
	void (*local_free)(struct gpunvme_gpu *gpu, struct gnv_gpu_range *range, size_t len);
	int (*peek)(struct gpunvme_gpu *gpu, void *to, uint64_t lane, size_t len);
	int (*poke)(struct gpunvme_gpu *gpu, uint64_t lane, const void *from, size_t len);

	/* Run a kernel and wait for its end. Return: 0; -ETIMEDOUT; -EIO. */
	int (*launch)(struct gpunvme_gpu *gpu, const struct gnv_launch *launch);
	/*
	 * Enqueue a kernel of whole waves on a stream of the program's, and return. The launch's time-out is not used: the kernel bounds
	 * itself. Return: 0; -EXDEV the stream belongs to another GPU; -ECHILD; -ENOMEM; -EIO.
	 */
	int (*enqueue)(struct gpunvme_gpu *gpu, void *stream, const struct gnv_launch *launch);

	/*
	 * Copy memory out and back by the runtime that programs copy with, on this thread. NULL: there is none but the threads'.
	 * Return: 0; -ENODEV it is not there; -EOPNOTSUPP; -ENOMEM; -EIO.
	 */
	int (*user_copy)(struct gpunvme_gpu *gpu, void *ptr, size_t len);

	/* As gpunvme_gpu_coherence(). */
	int (*coherence)(struct gpunvme_gpu *gpu, enum gpunvme_coherence what);
};

struct gpunvme_gpu {
	uint64_t process; /* that opened it (util/process.h) */
	const struct gnv_gpu_ops *ops;
	unsigned refs;	    /* atomic */
	bool said_unlocked; /* atomic */
	bool own_memory;    /* local_alloc gives memory of the GPU, which its threads reach sooner than the host's */
	bool keeps_stores;  /* stores of its threads to memory that it caches reach devices after gpunvme_gpu_fence() only */
	bool stale_reads;   /* devices may read old lines of its memory: rings lie there only when they are asked for */
	char spec[24];	    /* names it in another process, or is empty: no other process tries out doorbells for it */
	unsigned distrust;  /* atomic. A bit for each way to doorbells that is left out: it failed a test */
	struct gnv_log log;
	struct gpunvme_gpu_info info;
	void *priv; /* the kind's own */
};

extern const struct gnv_gpu_ops gnv_gpu_cpu_ops, gnv_gpu_cuda_ops;
extern const struct gnv_gpu_ops gnv_gpu_hsa_ops; /* where GNV_WITH_HSA */

struct gpunvme_gpu *gnv_gpu_get(struct gpunvme_gpu *gpu);
void gnv_gpu_put(struct gpunvme_gpu *gpu);

const struct gnv_log *gnv_gpu_log(const struct gpunvme_gpu *gpu);
uint32_t gnv_gpu_ticks_per_ms(const struct gpunvme_gpu *gpu);

/* Are both the same processor, opened twice or once? */
bool gnv_gpu_same(const struct gpunvme_gpu *a, const struct gpunvme_gpu *b);

/* True for the first memory that could not be locked, so that it is said once. */
bool gnv_gpu_first_unlocked(struct gpunvme_gpu *gpu);

/*
 * gnv_gpu_read() - one thread reads `nblocks` from `lba` of the view into `dbuf`
 * @result: of gpunvme_read() of the device header
 * Return: 0, or the error if the thread did not run.
 */
int gnv_gpu_read(struct gpunvme_gpu *gpu, const struct gpunvme_dq *dq, const struct gpunvme_dbuf *dbuf, uint64_t lba,
		 uint32_t nblocks, int *result);

/* Fill `len` bytes, a multiple of 4, that threads reach. Return: as launch. */
int gnv_gpu_fill(struct gpunvme_gpu *gpu, uint64_t lane, uint64_t len, uint32_t value);

#endif
