/* SPDX-License-Identifier: MIT */
/*
 * What the runtime may do without limit, or not at all: copies in parallel with kernels that fill the GPU, copies of constants,
 * queues that stay.
 */
#include <errno.h>
#include <gpunvme/gpunvme.h>
#include <pthread.h>

#include "gpu/gpu.h"
#include "hsa/rig.h"
#include "os/amd/hsa_table.h"

#define BYTES 4096u
#define QUICK_MS 1000u

/* A GPU whose calls of the runtime are given up early. */
static struct gnv_hsa *open_quick(struct gpunvme_gpu **gpu)
{
	struct gnv_hsa *hsa;

	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, gpu), 0);
	hsa = *(struct gnv_hsa **)(*gpu)->priv; /* its first field */
	assert_string_equal(hsa->info.bdf, "0000:40:00.0");
	hsa->bound.ms = QUICK_MS;
	return hsa;
}

static void says(const char *words)
{
	if (!strstr(gpunvme_errmsg(), words))
		fail_msg("'%s' does not say '%s'", gpunvme_errmsg(), words);
}

/* ---- A kernel that runs on, as a user's may, and has all units ---- */

static struct gpunvme_gpu *user;
static uint32_t *word; /* [0] goes to it, [2] is set at its end */
static uint64_t lane;

static void *persistent_main(void *arg)
{
	const struct gnv_ring_args args = {
		.go = lane, .doorbell = lane + 4, .rung = lane + 8, .timeout = 60000ull * gnv_gpu_ticks_per_ms(user), .rings = 2, .mask = 1
	};
	const struct gnv_launch launch = { GNV_KERNEL_RING, &args, sizeof(args), 1, 600000, NULL, NULL };

	*(int *)arg = user->ops->launch(user, &launch);
	return NULL;
}

static void test_full(void **state)
{
	struct gnv_gpu_range host, range, other;
	struct gpunvme_gpu *gpu;
	uint64_t seen = 1;
	pthread_t thread;
	void *page = NULL;
	int ret = -1, end = 1000;

	(void)state;
	assert_int_equal(posix_memalign(&page, BYTES, BYTES), 0);
	word = memset(page, 0, BYTES);
	open_quick(&user);
	open_quick(&gpu);
	assert_int_equal(gpu->ops->local_alloc(gpu, BYTES, &range), 0);
	assert_int_equal(user->ops->host_attach(user, page, BYTES, &host), 0);
	lane = host.lane;
	assert_int_equal(pthread_create(&thread, NULL, persistent_main, &ret), 0);
	__atomic_store_n(&word[0], 1, __ATOMIC_RELEASE);
	while (!__atomic_load_n(&word[1], __ATOMIC_ACQUIRE)) /* it runs */
		;
	pretend("MOCK_UNITS", "1");
	assert_int_equal(gpu->ops->peek(gpu, &seen, range.lane, 8), -EIO);
	says("did not copy within 1000 ms");
	says("Leave some units free");
	assert_int_equal(gpu->ops->poke(gpu, range.lane, &seen, 8), -EIO);
	assert_int_equal(gpu->ops->local_alloc(gpu, BYTES, &other), -EIO);
	gpu->ops->local_free(gpu, &range, BYTES); /* the copy may come yet, and finds its memory */
	__atomic_store_n(&word[0], ~0u, __ATOMIC_RELEASE); /* and it ends */
	pthread_join(thread, NULL);
	assert_int_equal(ret, 0);
	do /* then the copies come, and all is well again */
		ret = gpu->ops->local_alloc(gpu, BYTES, &other);
	while (ret && end-- && !usleep(10000));
	assert_int_equal(ret, 0);
	assert_int_equal(gpu->ops->peek(gpu, &seen, other.lane, 8), 0);
	assert_int_equal(seen, 0);
	gpu->ops->local_free(gpu, &other, BYTES);
	user->ops->host_detach(user, &host);
	gpunvme_gpu_close(gpu);
	gpunvme_gpu_close(user);
	assert_int_equal(counts->allocations, 1); /* what was freed meanwhile */
	counts->allocations = 0;
	free(page);
}

/* ---- Constants, and words that lie across pieces ---- */

static void test_constant(void **state)
{
	static const uint32_t table[40000] = { 1, [16383] = 2, [39999] = 3 };
	static uint32_t back[40000];
	struct gnv_gpu_range range;
	struct gpunvme_gpu *gpu;

	(void)state;
	open_quick(&gpu);
	assert_int_equal(gpu->ops->local_alloc(gpu, sizeof(table) + BYTES, &range), 0);
	assert_int_equal(gpu->ops->poke(gpu, range.lane + 20, table, sizeof(table)), 0);
	assert_int_equal(gpu->ops->peek(gpu, back, range.lane + 20, sizeof(back)), 0);
	assert_memory_equal(back, table, sizeof(table));
	gpu->ops->local_free(gpu, &range, BYTES);
	gpunvme_gpu_close(gpu);
}

/* ---- A queue that the runtime does not destroy ---- */

static void stays(void *arg)
{
	struct gpunvme_gpu *gpu;

	(void)arg;
	pretend("MOCK_QUEUE_STAYS", "1");
	open_quick(&gpu);
	gpunvme_gpu_close(gpu); /* not after 300 s, which the test may take (TIMEOUT) */
	left_by_faults(1);
}

static void test_stays(void **state)
{
	(void)state;
	apart(stays, NULL);
}

static void caught(int signal)
{
	(void)signal;
	_exit(0);
}

/* What libdrm mapped, as the runtime sees it: a copy is made by the CPU, and that is its end (ROCr 6.4, Runtime::CopyMemory). */
static void copy_unknown(void *arg)
{
	static char bar[4096], here[64];
	bool (*add)(const char *name, const void *ptr, size_t len, unsigned gpus) = NULL;
	hsa_status_t (*copy)(void *to, const void *from, size_t size) = NULL;

	*(void **)&add = mock_symbol("mock_range_add");
	*(void **)&copy = mock_symbol("hsa_memory_copy");
	if (!add || !copy || !add("bar", bar, sizeof(bar), 1))
		_exit(1);
	signal(SIGABRT, caught);
	if (arg)
		copy(here, bar + 64, sizeof(here));
	else
		copy(bar + 64, here, sizeof(here));
	_exit(1);
}

static void test_copy_unknown(void **state)
{
	(void)state;
	apart(copy_unknown, state);
	apart(copy_unknown, NULL);
}

#define TEST(name) cmocka_unit_test_teardown(name, clear)

int main(void)
{
	const struct CMUnitTest tests[] = { TEST(test_copy_unknown), TEST(test_stays), /* first, because they fork */
					    TEST(test_full), TEST(test_constant) };

	return cmocka_run_group_tests(tests, setup, teardown);
}
