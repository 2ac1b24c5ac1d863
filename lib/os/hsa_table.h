/* SPDX-License-Identifier: MIT */
/* Inside of os/hsa*.c: the runtime's functions and a GPU. */
#ifndef GNV_OS_HSA_TABLE_H
#define GNV_OS_HSA_TABLE_H

#include <hsa/hsa.h>
#include <hsa/hsa_ext_amd.h>
#include <pthread.h>

#include "os/hsa.h"

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
	X(amd_register_system_event_handler)

/* Newer than the oldest headers: declared here. */
typedef hsa_status_t gnv_hsa_export_v1(const void *ptr, size_t size, int *fd, uint64_t *offset);
typedef hsa_status_t gnv_hsa_export_v2(const void *ptr, size_t size, int *fd, uint64_t *offset, uint64_t flags);
typedef hsa_status_t gnv_hsa_export_end(int fd);
#define GNV_HSA_EXPORT_PCIE 1u
#define GNV_HSA_POOL_UNCACHED 8u
#define GNV_HSA_EXT_VERSION_MINOR ((hsa_system_info_t)0x208)
#define GNV_HSA_UNCACHED_SINCE 15u /* minor version of AMD's extensions: ROCm 7.2. Version 7 ignores the flag */
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

struct gnv_hsa {
	struct gnv_hsa_api api;
	struct gnv_hsa_info info;
	hsa_agent_t agent;
	hsa_agent_t cpu;
	bool cpu_reaches;	      /* all memory of the GPU is also the CPU's, by a large BAR */
	hsa_amd_memory_pool_t local;  /* of the GPU, cached */
	hsa_amd_memory_pool_t data;   /* of the GPU, fine-grained; or as local */
	hsa_amd_memory_pool_t host;   /* fine-grained memory of the host */
	hsa_amd_memory_pool_t kernarg; /* for arguments of kernels */
	hsa_queue_t *queue;
	hsa_executable_t executable;
	bool loaded;
	pthread_mutex_t lock; /* protects what follows, and the queue: one kernel at a time */
	void *args;
	hsa_signal_t done;
	bool stuck; /* a kernel never ended */
	bool runs;  /* atomic: a kernel that has not ended */
	int broken; /* atomic: status with which the queue ended */
	uint64_t fault_at; /* atomic: of a memory fault, or 0 */
	struct gnv_hsa *next; /* of those that are watched */
};

#define GNV_HSA_ARGS_MAX 1024u

/* The sentence for a status of the runtime. Returns `ret`. */
int gnv_hsa_refused(const struct gnv_hsa *gpu, hsa_status_t status, int ret, const char *what);

bool gnv_hsa_is_cpu(const struct gnv_hsa *gpu, hsa_agent_t agent);

/* hsa_queue.c: the queue of packets, of an agent that is chosen. */
int gnv_hsa_queue_open(struct gnv_hsa *gpu);
void gnv_hsa_queue_close(struct gnv_hsa *gpu);

/* hsa_fault.c: a GPU is watched from the moment when its agent is chosen. */
void gnv_hsa_fault_watch(struct gnv_hsa *gpu);
void gnv_hsa_fault_unwatch(struct gnv_hsa *gpu);

/* Return: 0; -EIO, with its sentence about `kernel`: a memory fault has ended all that this process does with the GPU. */
int gnv_hsa_faulted(const struct gnv_hsa *gpu, const char *kernel);

#endif
