/* SPDX-License-Identifier: MIT */
/*
 * Running kernels: one packet at a time, each waited for.
 * Invariant: arguments and signal are not touched while a kernel may use them. After a kernel that never ended they never are.
 */
#include <errno.h>
#include <string.h>

#include "os/amd/hsa_table.h"
#include "util/bits.h"
#include "util/clock.h"
#include "util/log.h"

#define PACKETS 64u
#define WAIT_MS 10u

static void queue_failed(hsa_status_t status, hsa_queue_t *queue, void *ctx)
{
	struct gnv_hsa *gpu = ctx;
	int none = 0; /* an earlier fault is more precise */

	(void)queue;
	__atomic_compare_exchange_n(&gpu->broken, &none, (int)status, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

int gnv_hsa_queue_open(struct gnv_hsa *gpu)
{
	hsa_status_t status;

	status = gpu->api.queue_create(gpu->agent, PACKETS, HSA_QUEUE_TYPE_MULTI, queue_failed, gpu, UINT32_MAX, UINT32_MAX,
				       &gpu->queue);
	if (status != HSA_STATUS_SUCCESS)
		return gnv_hsa_refused(gpu, status, -EIO, "no queue of packets");
	status = gpu->api.amd_memory_pool_allocate(gpu->kernarg, GNV_HSA_ARGS_MAX, 0, &gpu->args);
	if (status != HSA_STATUS_SUCCESS)
		goto destroy_queue;
	status = gpu->api.amd_agents_allow_access(1, &gpu->agent, NULL, gpu->args);
	if (status == HSA_STATUS_SUCCESS)
		status = gpu->api.signal_create(1, 0, NULL, &gpu->done);
	if (status == HSA_STATUS_SUCCESS)
		return 0;
	gnv_hsa_pool_free(gpu, gpu->args);
destroy_queue:
	gpu->api.queue_destroy(gpu->queue);
	return gnv_hsa_refused(gpu, status, -ENOMEM, "no memory for the arguments of kernels");
}

/*
 * End the queue and its running kernels. After a fault ROCr up to 6.4 would never return (AqlQueue::ExceptionHandler leaves its
 * part undone).
 */
int gnv_hsa_queue_close(struct gnv_hsa *gpu)
{
	const struct gnv_hsa_call call = { GNV_HSA_DESTROY_QUEUE, NULL, NULL, 0 };
	hsa_status_t status;

	if (gnv_hsa_faulted(gpu, "") || gnv_hsa_bounded(gpu, &call, 2 * gpu->bound.ms, &status))
		return -EBUSY;
	if (gnv_hsa_faulted(gpu, "")) /* a reset of the GPU ended the queue, and the next open must report that */
		return -EBUSY;
	if (gpu->loaded)
		gpu->api.executable_destroy(gpu->executable);
	gpu->api.signal_destroy(gpu->done);
	gnv_hsa_pool_free(gpu, gpu->args);
	return 0;
}

int gnv_hsa_load(struct gnv_hsa *gpu, const void *elf, size_t len)
{
	hsa_code_object_reader_t reader;
	hsa_status_t status = gpu->api.code_object_reader_create_from_memory(elf, len, &reader);

	if (status != HSA_STATUS_SUCCESS)
		return gnv_hsa_refused(gpu, status, -EOPNOTSUPP, "the library's kernels cannot be read");
	status = gpu->api.executable_create_alt(HSA_PROFILE_FULL, HSA_DEFAULT_FLOAT_ROUNDING_MODE_DEFAULT, NULL, &gpu->executable);
	if (status == HSA_STATUS_SUCCESS) {
		status = gpu->api.executable_load_agent_code_object(gpu->executable, gpu->agent, reader, NULL, NULL);
		if (status == HSA_STATUS_SUCCESS)
			status = gpu->api.executable_freeze(gpu->executable, NULL);
		gpu->loaded = status == HSA_STATUS_SUCCESS;
		if (!gpu->loaded)
			gpu->api.executable_destroy(gpu->executable);
	}
	gpu->api.code_object_reader_destroy(reader);
	return gpu->loaded ? 0 : gnv_hsa_refused(gpu, status, -EOPNOTSUPP, "the library's kernels cannot be loaded");
}

struct kernel {
	uint64_t object;
	uint32_t args, group, private;
};

static int find_kernel(struct gnv_hsa *gpu, const char *name, struct kernel *kernel)
{
	hsa_executable_symbol_t symbol;
	hsa_status_t status = HSA_STATUS_ERROR_INVALID_SYMBOL_NAME;

	if (gpu->loaded)
		status = gpu->api.executable_get_symbol_by_name(gpu->executable, name, &gpu->agent, &symbol);
	if (status != HSA_STATUS_SUCCESS)
		return gnv_fail(-ENOENT, "GPU %s: there is no kernel %s in its code", gpu->info.bdf, name);
	gpu->api.executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_OBJECT, &kernel->object);
	gpu->api.executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_KERNARG_SEGMENT_SIZE, &kernel->args);
	gpu->api.executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_GROUP_SEGMENT_SIZE, &kernel->group);
	gpu->api.executable_symbol_get_info(symbol, HSA_EXECUTABLE_SYMBOL_INFO_KERNEL_PRIVATE_SEGMENT_SIZE, &kernel->private);
	return 0;
}

/*
 * Hidden arguments of code objects from version 5 on, after the explicit ones, by LLVM's AMDGPU usage: the number of groups, their
 * size, and that of the last one.
 */
struct hidden {
	uint32_t groups[3];
	uint16_t group[3];
	uint16_t rest[3];
	uint64_t reserved[2];
	uint64_t offset[3];
	uint16_t dimensions;
	uint8_t none[190]; /* for runtimes of languages only */
};
_Static_assert(sizeof(struct hidden) == 256, "layout of the arguments");

static void put_hidden(void *at, uint32_t threads, uint32_t most)
{
	uint32_t group = gnv_min(threads, most);
	const struct hidden hidden = { .groups = { threads / group, 1, 1 },
				       .group = { (uint16_t)group, 1, 1 },
				       .rest = { (uint16_t)(threads % group) },
				       .dimensions = 1 };

	memcpy(at, &hidden, sizeof(hidden));
}

#define AFTER_ALL (1u << HSA_PACKET_HEADER_BARRIER) /* the packet begins when those before it have ended */

/* @after: 0 or AFTER_ALL. @done: counts down at the end, or is 0 */
static void submit(struct gnv_hsa *gpu, const struct kernel *kernel, const struct gnv_hsa_job *job, uint16_t after,
		   hsa_signal_t done)
{
	const uint16_t header = after | HSA_PACKET_TYPE_KERNEL_DISPATCH << HSA_PACKET_HEADER_TYPE |
				HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE |
				HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE;
	const uint16_t setup = 1 << HSA_KERNEL_DISPATCH_PACKET_SETUP_DIMENSIONS;
	uint64_t at = gpu->api.queue_add_write_index_screlease(gpu->queue, 1);
	hsa_kernel_dispatch_packet_t *packet;

	packet = (hsa_kernel_dispatch_packet_t *)gpu->queue->base_address + (at & (gpu->queue->size - 1));
	packet->workgroup_size_x = (uint16_t)gnv_min(job->threads, job->group);
	packet->workgroup_size_y = packet->workgroup_size_z = 1;
	packet->grid_size_x = job->threads;
	packet->grid_size_y = packet->grid_size_z = 1;
	packet->private_segment_size = kernel->private;
	packet->group_segment_size = kernel->group;
	packet->kernel_object = kernel->object;
	packet->kernarg_address = gpu->args;
	packet->reserved2 = 0;
	packet->completion_signal = done;
	/* Header and set-up at once and last: that makes it a packet. */
	__atomic_store_n((uint32_t *)(void *)packet, header | (uint32_t)setup << 16, __ATOMIC_RELEASE);
	gpu->api.signal_store_screlease(gpu->queue->doorbell_signal, (hsa_signal_value_t)at);
}

/*
 * A barrier that waits for nothing, with fences of system scope: as the runtimes of languages empty the caches (clr rocvirtual.cpp,
 * dispatchBarrierPacket). Its release writes back, its acquire drops.
 */
static void submit_barrier(struct gnv_hsa *gpu, uint16_t after)
{
	const uint16_t header = after | HSA_PACKET_TYPE_BARRIER_AND << HSA_PACKET_HEADER_TYPE |
				HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCACQUIRE_FENCE_SCOPE |
				HSA_FENCE_SCOPE_SYSTEM << HSA_PACKET_HEADER_SCRELEASE_FENCE_SCOPE;
	uint64_t at = gpu->api.queue_add_write_index_screlease(gpu->queue, 1);
	hsa_barrier_and_packet_t *packet;

	packet = (hsa_barrier_and_packet_t *)gpu->queue->base_address + (at & (gpu->queue->size - 1));
	memset((char *)packet + 4, 0, sizeof(*packet) - 4);
	packet->completion_signal = gpu->done;
	__atomic_store_n((uint32_t *)(void *)packet, header, __ATOMIC_RELEASE);
	gpu->api.signal_store_screlease(gpu->queue->doorbell_signal, (hsa_signal_value_t)at);
}

/* Until the kernel has ended, the queue has failed or the time is over. */
static int wait_for_end(struct gnv_hsa *gpu, const struct gnv_hsa_job *job)
{
	const uint64_t time = job->timeout_ms * GNV_NS_PER_MS;
	uint64_t hz = 0, end = gnv_clock_ns() + time;
	int broken;

	gpu->api.system_get_info(HSA_SYSTEM_INFO_TIMESTAMP_FREQUENCY, &hz);
	for (;;) {
		bool late = gnv_clock_ns() >= end;

		if (!gpu->api.signal_wait_scacquire(gpu->done, HSA_SIGNAL_CONDITION_LT, 1, hz / 1000 * WAIT_MS + 1,
						    HSA_WAIT_STATE_BLOCKED))
			return 0;
		broken = __atomic_load_n(&gpu->broken, __ATOMIC_ACQUIRE);
		if (!broken && late && job->gets_on && job->gets_on(job->ctx)) {
			end += time;
			continue;
		}
		if (!broken && !late)
			continue;
		__atomic_store_n(&gpu->stuck, true, __ATOMIC_RELEASE);
		if (gnv_hsa_faulted(gpu, job->name))
			return -EIO;
		if (broken)
			return gnv_hsa_refused(gpu, (hsa_status_t)broken, -EIO, job->name);
		return gnv_fail(-ETIMEDOUT, "GPU %s: the kernel %s did not end within %u ms", gpu->info.bdf, job->name,
				job->timeout_ms);
	}
}

/* Since the last run HIP may have copied memory that this kernel uses. The packet's acquire drops its lines in L2. */
static int run_locked(struct gnv_hsa *gpu, const struct gnv_hsa_job *job)
{
	struct kernel kernel = { 0, 0, 0, 0 };
	bool hidden;
	int ret;

	ret = gnv_hsa_usable(gpu);
	if (!ret)
		ret = gnv_hsa_renew(gpu, NULL);
	if (!ret)
		ret = find_kernel(gpu, job->name, &kernel);
	if (ret)
		return ret;
	hidden = kernel.args > job->args_len;
	if (job->args_len > kernel.args || kernel.args > GNV_HSA_ARGS_MAX ||
	    (hidden && kernel.args != job->args_len + sizeof(struct hidden)))
		return gnv_fail(-EINVAL, "GPU %s: %zu bytes of arguments for %s, which takes %u", gpu->info.bdf, job->args_len,
				job->name, kernel.args);
	memcpy(gpu->args, job->args, job->args_len);
	if (hidden)
		put_hidden((char *)gpu->args + job->args_len, job->threads, job->group);
	gpu->api.signal_store_screlease(gpu->done, 1);
	__atomic_store_n(&gpu->runs, true, __ATOMIC_RELEASE);
	submit(gpu, &kernel, job, 0, gpu->done);
	ret = wait_for_end(gpu, job);
	if (!ret) /* else it may run on */
		__atomic_store_n(&gpu->runs, false, __ATOMIC_RELEASE);
	return ret;
}

int gnv_hsa_run(struct gnv_hsa *gpu, const struct gnv_hsa_job *job)
{
	int ret;

	pthread_mutex_lock(&gpu->lock);
	ret = run_locked(gpu, job);
	pthread_mutex_unlock(&gpu->lock);
	return ret;
}

int gnv_hsa_fence(struct gnv_hsa *gpu)
{
	const struct gnv_hsa_job job = { .name = "fence", .timeout_ms = gpu->bound.ms };
	int ret;

	pthread_mutex_lock(&gpu->lock);
	ret = gnv_hsa_usable(gpu);
	if (!ret) {
		gpu->api.signal_store_screlease(gpu->done, 1);
		submit_barrier(gpu, 0);
		ret = wait_for_end(gpu, &job);
	}
	pthread_mutex_unlock(&gpu->lock);
	return ret;
}

/* With the lock. A barrier that is late stays in the queue, with its signal, and the next call waits for it. */
static int drain_locked(struct gnv_hsa *gpu, const struct gnv_hsa_job *job)
{
	int ret = gnv_hsa_usable(gpu);

	if (ret)
		return ret;
	if (!gpu->drains) {
		gpu->api.signal_store_screlease(gpu->done, 1);
		submit_barrier(gpu, AFTER_ALL);
	}
	ret = wait_for_end(gpu, job);
	gpu->drains = ret;
	if (ret == -ETIMEDOUT) /* kernels of the program may fill the GPU */
		__atomic_store_n(&gpu->stuck, false, __ATOMIC_RELEASE);
	if (!ret)
		__atomic_store_n(&gpu->runs, false, __ATOMIC_RELEASE);
	return ret;
}

int gnv_hsa_drain(struct gnv_hsa *gpu, uint32_t ms)
{
	const struct gnv_hsa_job job = { .name = "kernel of a drive", .timeout_ms = ms };
	int ret;

	pthread_mutex_lock(&gpu->lock);
	ret = drain_locked(gpu, &job);
	pthread_mutex_unlock(&gpu->lock);
	return ret;
}

/* With the lock. The arguments stay as they are, because a kernel that has not ended uses them. */
static int begin_locked(struct gnv_hsa *gpu, const struct gnv_hsa_job *job)
{
	struct kernel kernel = { 0, 0, 0, 0 };
	int ret = gnv_hsa_usable(gpu);

	if (!ret)
		ret = find_kernel(gpu, job->name, &kernel);
	if (ret)
		return ret;
	if (kernel.args != job->args_len || kernel.args > GNV_HSA_ARGS_MAX)
		return gnv_fail(-EINVAL, "GPU %s: %zu bytes of arguments for %s, which takes %u", gpu->info.bdf, job->args_len, job->name,
				kernel.args);
	if (!__atomic_load_n(&gpu->runs, __ATOMIC_ACQUIRE))
		memcpy(gpu->args, job->args, job->args_len);
	__atomic_store_n(&gpu->runs, true, __ATOMIC_RELEASE);
	submit(gpu, &kernel, job, AFTER_ALL, (hsa_signal_t){ 0 });
	return 0;
}

int gnv_hsa_begin(struct gnv_hsa *gpu, const struct gnv_hsa_job *job)
{
	int ret;

	pthread_mutex_lock(&gpu->lock);
	ret = begin_locked(gpu, job);
	pthread_mutex_unlock(&gpu->lock);
	return ret;
}
