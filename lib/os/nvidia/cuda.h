/* SPDX-License-Identifier: MIT */
/*
 * NVIDIA GPUs through the CUDA driver, which is loaded when the first one is opened.
 *
 * Everything happens in the GPU's primary context, which CUDA programs of the same process use too: their kernels can use the
 * addresses. The caller's own current context is left as it was. Copies and kernels go through streams of their own that wait for
 * no other kernels, so a kernel that never ends does not hold up the host. Streams that the program captures stay valid, whichever
 * thread calls. Any thread may call all of it.
 */
#ifndef GNV_OS_NVIDIA_CUDA_H
#define GNV_OS_NVIDIA_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "util/alloc.h"

struct gnv_cuda;

/*
 * gnv_cuda_open() - take a GPU
 * @index: CUDA's number of it
 * Return: 0; -ENODEV no driver, no GPU, or not that many; -EOPNOTSUPP driver or GPU too old; -ENOMEM; -EIO. gnv_fail() has the
 * error message, here and below.
 */
int gnv_cuda_open(unsigned index, struct gnv_cuda **cuda);
/* Return: 0; -EBUSY, with an error message: what is loaded and the context stay until the process ends. The handle is gone. */
int gnv_cuda_close(struct gnv_cuda *cuda);

/*
 * gnv_cuda_set_bounded() - never wait long for kernels of the program
 *
 * Calls of this handle that wait for all kernels return -EBUSY after a second, and so do those of other handles of the GPU until
 * these kernels have ended. The check ends captures of streams of the program that do not wait for the default stream. While a
 * stream is captured that does, and with drivers before CUDA 12.5, the calls wait as those of other handles do.
 */
void gnv_cuda_set_bounded(struct gnv_cuda *cuda);

const char *gnv_cuda_name(const struct gnv_cuda *cuda);

/* Has a copy or the begin of a kernel failed because a kernel has? Then the context has ended: no kernel runs in it any more. */
bool gnv_cuda_is_over(const struct gnv_cuda *cuda);

/* A text and its kernels: @count of @names, from @first on. */
struct gnv_cuda_code {
	const char *ptx; /* ends with NUL */
	const char *const *names;
	unsigned first, count;
};

/*
 * gnv_cuda_load() - make kernels ready to run, once: later calls with this code return 0 at once
 *
 * The driver waits for the kernels that run in the context. Under stream capture it loads code as ever (seen with driver 580).
 * Return: 0; -EOPNOTSUPP this driver or GPU cannot use the code; -ENOMEM; -EIO; -EBUSY. After a failure the next call tries again.
 */
int gnv_cuda_load(struct gnv_cuda *cuda, const struct gnv_cuda_code *code);

/*
 * gnv_cuda_room() - how many groups of a kernel run at the same time on a GPU that does nothing else
 * Return: 0; -EOPNOTSUPP not one; -EIO.
 */
int gnv_cuda_room(struct gnv_cuda *cuda, unsigned kernel, uint32_t group_lanes, uint32_t *groups);

/* One run of a kernel. */
struct gnv_cuda_job {
	unsigned kernel;  /* index in the names of gnv_cuda_load() */
	const void *args; /* its only parameter, which is copied */
	uint32_t groups;
	uint32_t group_lanes;
	uint32_t timeout_ms;
	bool (*gets_on)(void *ctx); /* called after that time: may it run as long again? NULL: no */
	void *ctx;
};

/* gnv_cuda_launch() - run a kernel and wait. Return: 0; -ETIMEDOUT it did not end in time, and goes on; -EIO it faulted. */
int gnv_cuda_launch(struct gnv_cuda *cuda, const struct gnv_cuda_job *job);

/*
 * A stream of the highest priority, and kernels in it, one after the other. gnv_cuda_begin() does not wait for their end, and does
 * not use timeout_ms and gets_on. gnv_cuda_stream_end() waits for their end and gives the stream back, once. Return: false they
 * did not end within @ms.
 */
int gnv_cuda_stream_new(struct gnv_cuda *cuda, void **stream);
int gnv_cuda_begin(struct gnv_cuda *cuda, void *stream, const struct gnv_cuda_job *job);
bool gnv_cuda_stream_end(struct gnv_cuda *cuda, void *stream, uint32_t ms);

/*
 * Such a stream as a service: kernels may wait for its launches. While a call of the driver waits for all kernels of the GPU, it
 * launches nothing. So such calls of the library wait until no kernel of gnv_cuda_launch() runs, and new ones wait for their end.
 * Any thread calls stay() before and after them. With true, the running launch must go on while kernels of the program use it. The
 * structure belongs to the caller, between add and remove.
 */
struct gnv_cuda_resident {
	struct gnv_cuda_resident *next;
	unsigned gpu, calls;
	uint32_t ms; /* that its launches ahead take at most */
	void (*stay)(void *ctx, bool on);
	void *ctx;
};
void gnv_cuda_resident_add(struct gnv_cuda *cuda, struct gnv_cuda_resident *resident);
void gnv_cuda_resident_remove(const struct gnv_cuda_resident *resident);

/*
 * gnv_cuda_enqueue() - begin a kernel in a stream of the program's, as gnv_cuda_begin() does
 * @stream: the driver's, or NULL, CU_STREAM_LEGACY or CU_STREAM_PER_THREAD. While it is captured the kernel becomes a node of the
 *          graph
 * Return: 0; -EXDEV it belongs to another context; -ENOMEM; -EIO.
 */
int gnv_cuda_enqueue(struct gnv_cuda *cuda, void *stream, const struct gnv_cuda_job *job);

/*
 * gnv_cuda_register() - pin host memory and map it to the GPU
 * @io:   the bytes are registers of another device
 * @at:   the GPU's address of the first byte
 * @ours: set if gnv_cuda_unregister() is due. Otherwise the memory was CUDA's before. Memory in a registration of the library is
 * counted: the last gnv_cuda_unregister() ends the registration, by whichever GPU. The registration keeps the context of its GPU.
 * Return: 0; -EOPNOTSUPP the driver does not take such memory; -EINVAL the program has registered a part of it; -EBUSY the library
 * has registered a part of it, or another thread ends the registration; -ENOMEM; -EIO.
 *
 * gnv_cuda_unregister() waits for kernels that run, of the library and of the program, as opening and closing do. It returns -EBUSY
 * after a kernel of the library that did not end, launched by any handle of this GPU or of the one that registered the memory. It
 * also does where the driver refuses, as after a kernel that failed. The pages stay pinned until the process ends, or until a later
 * call returns 0. Where the driver refused, gnv_cuda_register() returns -EBUSY for their addresses. Return: also -EAGAIN, where
 * gnv_cuda_set_bounded() limits the wait: nothing has changed.
 */
int gnv_cuda_register(struct gnv_cuda *cuda, void *ptr, size_t len, bool io, uint64_t *at, bool *ours);
int gnv_cuda_unregister(struct gnv_cuda *cuda, void *ptr);

/* After -EAGAIN, where no later call will come: the pages stay, and gnv_cuda_register() refuses their addresses. */
void gnv_cuda_detach(const void *ptr);

/* Memory of the GPU, zeroed. gnv_cuda_alloc() returns 0, -ENOMEM, -EIO. */
int gnv_cuda_alloc(struct gnv_cuda *cuda, size_t len, uint64_t *at);
void gnv_cuda_free(struct gnv_cuda *cuda, uint64_t at);

/* Copies, complete when they return 0, or else -EIO. */
int gnv_cuda_read(struct gnv_cuda *cuda, void *to, uint64_t at, size_t len);
int gnv_cuda_write(struct gnv_cuda *cuda, uint64_t at, const void *from, size_t len);

/*
 * gnv_cuda_tag() - get the unique number of an address's allocation in this process, or 0: it is none of CUDA's
 * gnv_cuda_tags() - the same of all mappings of cuMemMap() that a range lies in. 0: a part is not mapped
 * gnv_cuda_allocation() - get that number, and the bounds of the allocation or mapping. Return: false: it is none of CUDA's.
 */
uint64_t gnv_cuda_tag(struct gnv_cuda *cuda, const void *ptr);
uint64_t gnv_cuda_tags(struct gnv_cuda *cuda, const void *ptr, size_t len);
bool gnv_cuda_allocation(struct gnv_cuda *cuda, const void *ptr, struct gnv_alloc *alloc);

/*
 * gnv_cuda_check() - may kernels of this GPU access these bytes, as far as the driver knows?
 * Return: 0; -ENOENT the driver does not know the address; -EXDEV memory of another GPU; -ERANGE they end after their allocation;
 * -EIO.
 */
int gnv_cuda_check(struct gnv_cuda *cuda, uint64_t at, size_t len);

/*
 * gnv_cuda_reach() - let kernels of this GPU access memory of any NVIDIA GPU, for as long as the memory exists
 * Memory of another GPU must be of cuMemAlloc(), of a pool (cuMemAllocAsync) or of cuMemMap(), and the two GPUs must have peer
 * access. The library never takes that back.
 * Return: 0; -ENOENT, -ERANGE as gnv_cuda_check(); -EXDEV this GPU has no access to it; -EIO.
 */
int gnv_cuda_reach(struct gnv_cuda *cuda, uint64_t at, size_t len);

/*
 * gnv_cuda_user_memory() - is this memory of the GPU that the program allocated, in the context of the library's kernels?
 * @tag: set to the number of the allocation. Memory of cuMemMap() has one of all mappings that the bytes lie in (gnv_cuda_tags()).
 * @mapped: set if it is such memory
 * Return: 0; -ENOENT it is no memory of a GPU; -EXDEV of another GPU or context; -ERANGE it ends after its allocation; -EOPNOTSUPP
 * managed memory, or of neither cuMemAlloc(), a pool nor cuMemMap(); -EIO.
 */
int gnv_cuda_user_memory(struct gnv_cuda *cuda, const void *ptr, size_t len, uint64_t *tag, bool *mapped);

#endif
