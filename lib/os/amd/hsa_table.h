/* SPDX-License-Identifier: MIT */
/* Inside of os/hsa*.c: the runtime's functions and a GPU. */
#ifndef GNV_OS_AMD_HSA_TABLE_H
#define GNV_OS_AMD_HSA_TABLE_H

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__ && !defined(LITTLEENDIAN_CPU)
#define LITTLEENDIAN_CPU /* hsa.h sees it by itself on x86 only */
#endif
#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>
#include <pthread.h>

#include "os/amd/hsa.h"

/* Functions that every runtime from ROCm 5.2 on has, as X(name without "hsa_"). */
#define GNV_HSA_FUNCTIONS(X)                                                                                                       \
	X(init)                                                                                                                    \
	X(shut_down)                                                                                                               \
	X(status_string)                                                                                                           \
	X(system_get_info)                                                                                                         \
	X(iterate_agents)                                                                                                          \
	X(agent_get_info)                                                                                                          \
	X(agent_iterate_isas)                                                                                                      \
	X(isa_get_info_alt)                                                                                                        \
	X(queue_create)                                                                                                            \
	X(queue_destroy)                                                                                                           \
	X(queue_add_write_index_screlease)                                                                                         \
	X(queue_load_read_index_scacquire)                                                                                         \
	X(signal_create)                                                                                                           \
	X(signal_destroy)                                                                                                          \
	X(signal_store_screlease)                                                                                                  \
	X(signal_wait_scacquire)                                                                                                   \
	X(code_object_reader_create_from_memory)                                                                                   \
	X(code_object_reader_destroy)                                                                                              \
	X(executable_create_alt)                                                                                                   \
	X(executable_load_agent_code_object)                                                                                       \
	X(executable_freeze)                                                                                                       \
	X(executable_destroy)                                                                                                      \
	X(executable_get_symbol_by_name)                                                                                           \
	X(executable_symbol_get_info)                                                                                              \
	X(memory_copy)                                                                                                             \
	X(amd_agent_iterate_memory_pools)                                                                                          \
	X(amd_memory_pool_get_info)                                                                                                \
	X(amd_agent_memory_pool_get_info)                                                                                          \
	X(amd_memory_pool_allocate)                                                                                                \
	X(amd_memory_pool_free)                                                                                                    \
	X(amd_agents_allow_access)                                                                                                 \
	X(amd_memory_fill)                                                                                                         \
	X(amd_memory_lock_to_pool)                                                                                                 \
	X(amd_memory_unlock)                                                                                                       \
	X(amd_interop_map_buffer)                                                                                                  \
	X(amd_interop_unmap_buffer)                                                                                                \
	X(amd_pointer_info)                                                                                                        \
	X(amd_register_deallocation_callback)                                                                                      \
	X(amd_deregister_deallocation_callback)                                                                                    \
	X(amd_register_system_event_handler)

/* Newer than the oldest headers: declared here. */
typedef hsa_status_t gnv_hsa_export_v1(const void *ptr, size_t size, int *fd, uint64_t *offset);
typedef hsa_status_t gnv_hsa_export_v2(const void *ptr, size_t size, int *fd, uint64_t *offset, uint64_t flags);
typedef hsa_status_t gnv_hsa_export_end(int fd);
#define GNV_HSA_EXPORT_PCIE 1u
#define GNV_HSA_POOL_UNCACHED 8u
#define GNV_HSA_EXT_VERSION_MINOR ((hsa_system_info_t)0x208)
#define GNV_HSA_UNCACHED_SINCE 15u /* minor version of AMD's extensions: ROCm 7.2. Version 7 ignores the flag */
#define GNV_HSA_EVENT_RESET ((hsa_amd_event_type_t)1) /* HSA_AMD_GPU_HW_EXCEPTION_EVENT */
#define GNV_HSA_EVENT_NOT_FREED ((hsa_amd_event_type_t)2) /* HSA_AMD_GPU_MEMORY_ERROR_EVENT */
#define GNV_HSA_AGENT_CLOCK ((hsa_agent_info_t)0xa016)
#define GNV_HSA_POOL_EXTENDED_FINE 8u /* global flag: fine-grained, atomics at system scope at the device only */

struct gnv_hsa_api {
#define GNV_HSA_FIELD(name) __typeof__(hsa_##name) *name;
	GNV_HSA_FUNCTIONS(GNV_HSA_FIELD)
#undef GNV_HSA_FIELD
	gnv_hsa_export_v1 *export_v1;
	gnv_hsa_export_v2 *export_v2;
	gnv_hsa_export_end *export_end;
};

/* A call of the runtime that may never return. */
struct gnv_hsa_call {
	enum { GNV_HSA_COPY, GNV_HSA_FILL, GNV_HSA_DESTROY_QUEUE } what;
	void *to;
	const void *from;
	size_t len;
};

/* The driver gives a kernel 9 s to be taken off the GPU (Linux amdgpu, queue_preemption_timeout_ms). */
#define GNV_HSA_BOUND_MS 10000u

/* A thread that makes such calls. */
struct gnv_hsa_bound {
	pthread_t thread;
	pthread_mutex_t lock; /* protects the next fields */
	pthread_cond_t changed;
	struct gnv_hsa_call call;
	hsa_status_t status;
	bool busy;    /* it is in use. With `begun`, a caller waits for the call */
	bool begun;   /* the thread has a call to make, or makes it */
	bool left;    /* no thread waits for it any more */
	bool quit;
	uint32_t ms;  /* GNV_HSA_BOUND_MS. Tests have less time */
	void *bounce; /* host memory that the runtime knows */
};

/* `broken` where the GPU's driver has reset it. */
#define GNV_HSA_WAS_RESET 0x7fff0001

struct gnv_hsa {
	struct gnv_hsa_api api;
	struct gnv_hsa_info info;
	hsa_agent_t agent;
	hsa_agent_t cpu;
	bool cpu_reaches;	      /* all memory of the GPU is also the CPU's, by a large BAR */
	hsa_amd_memory_pool_t local;  /* of the GPU, cached */
	hsa_amd_memory_pool_t data;   /* of the GPU, fine-grained, or as local */
	hsa_amd_memory_pool_t host;   /* fine-grained memory of the host */
	hsa_amd_memory_pool_t kernarg; /* for arguments of kernels */
	hsa_queue_t *queue;
	hsa_executable_t executable;
	bool loaded;
	pthread_mutex_t lock; /* protects the next fields, and the queue: one kernel at a time */
	void *args;
	hsa_signal_t done;
	bool stuck; /* atomic: a kernel never ended */
	bool runs;  /* atomic: a kernel that has not ended */
	bool drains; /* a barrier of gnv_hsa_drain() is in the queue */
	int broken; /* atomic: status with which the queue ended */
	uint64_t fault_at; /* atomic: of a memory fault, or 0 */
	struct gnv_hsa_bound bound;
	pthread_mutex_t locked_lock; /* protects locked */
	struct gnv_hsa_locked *locked; /* memory of the host that was locked for this GPU */
	struct gnv_hsa *next; /* of those that are watched */
};

struct gnv_hsa_locked {
	struct gnv_hsa_locked *next;
	void *cpu;
	size_t len;
	uint64_t lane;
};

#define GNV_HSA_ARGS_MAX 1024u

/* Granularity of the runtime's allocations (ROCr, MemoryRegion::Allocate). */
#define GNV_HSA_PAGE 4096u

/* The sentence for a status of the runtime. Returns `ret`. */
int gnv_hsa_refused(const struct gnv_hsa *gpu, hsa_status_t status, int ret, const char *what);

/* Is it of that family, "gfx12", or of that kind, "gfx90a"? */
bool gnv_hsa_is(const struct gnv_hsa *gpu, const char *gfx);

bool gnv_hsa_is_cpu(const struct gnv_hsa *gpu, hsa_agent_t agent);

/* hsa_mem.c, of memory of the GPU: may running threads see old lines of it? */
bool gnv_hsa_may_cache(const struct gnv_hsa *gpu, uint32_t flags);

/* hsa_mem.c: does memory of the runtime's that begins at `base` hold all of this? Return: 0; -ERANGE, with its message. */
int gnv_hsa_within(const hsa_amd_pointer_info_t *info, const void *base, const void *ptr, size_t len);

/* hsa_queue.c: the queue of packets, of an agent that is chosen. */
int gnv_hsa_queue_open(struct gnv_hsa *gpu);
/* Return: 0; -EBUSY the runtime does not let go of the queue: everything stays. */
int gnv_hsa_queue_close(struct gnv_hsa *gpu);

/* hsa_bound.c, for a GPU with its pools. */
int gnv_hsa_bound_start(struct gnv_hsa *gpu);
void gnv_hsa_bound_stop(struct gnv_hsa *gpu); /* no call is left */
bool gnv_hsa_bound_left(struct gnv_hsa *gpu); /* a call is under way that no thread waits for. It uses memory of the GPU */

/*
 * Return: 0, with the runtime's result in *status; with its message: -EIO no result within `ms`, and the call may still happen
 * later;
 * -EBUSY the call was not made, because an earlier one is left so.
 */
int gnv_hsa_bounded(struct gnv_hsa *gpu, const struct gnv_hsa_call *call, uint32_t ms, hsa_status_t *status);

/* hsa_fault.c: a GPU is watched from the moment when its agent is chosen. */
void gnv_hsa_fault_watch(struct gnv_hsa *gpu);
void gnv_hsa_fault_unwatch(struct gnv_hsa *gpu);

/* Free memory of a pool, or NULL. If the driver keeps it, it is lost. */
void gnv_hsa_pool_free(struct gnv_hsa *gpu, void *ptr);

/* Return: 0; -EIO, with its message about `kernel`: a memory fault or a reset ended all that this process does with the GPU. */
int gnv_hsa_faulted(const struct gnv_hsa *gpu, const char *kernel);

#endif
