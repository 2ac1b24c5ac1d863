/* SPDX-License-Identifier: MIT */
/* gpunvme_mem_get() of what a GPU's runtime gave: how much is mapped, and that memory which its user frees is noticed in time. */
#include <errno.h>
#include <gpunvme/gpunvme.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/quiet.h"
#include "hsa/rig.h"

#define PART 65536u
#define BYTES (8 * PART)
#define TURNS 300u

static hsa_status_t (*user_alloc)(hsa_amd_memory_pool_t pool, size_t size, uint32_t flags, void **ptr);
static hsa_status_t (*user_free)(void *ptr);
static struct gpunvme_dev *dev[2];
static struct gpunvme_gpu *gpu;
static struct gpunvme_queue *qp;
static struct gpunvme_dq dq;

static int begin(void **state)
{
	int i;

	(void)state;
	*(void **)&user_alloc = mock_symbol("hsa_amd_memory_pool_allocate");
	*(void **)&user_free = mock_symbol("hsa_amd_memory_pool_free");
	for (i = 0; i < 2; i++) {
		char other[sizeof(uri) + 2];

		snprintf(other, sizeof(other), "%s%s", uri, i ? "2" : "");
		assert_int_equal(gpunvme_dev_open(other, NULL, &dev[i]), 0);
	}
	assert_int_equal(gpunvme_gpu_open("hsa:0", NULL, &gpu), 0);
	assert_int_equal(gpunvme_queue_create(dev[0], gpu, NULL, &qp), 0);
	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), 0);
	return 0;
}

static int end(void **state)
{
	int i;

	for (i = 0; i < 2; i++)
		assert_int_equal(gpunvme_dev_close(dev[i]), 0);
	gpunvme_gpu_close(gpu);
	return clear(state);
}

static char *make(uint64_t pool, size_t len)
{
	void *ptr = NULL;

	assert_int_equal(user_alloc((hsa_amd_memory_pool_t){ pool }, len, 0, &ptr), HSA_STATUS_SUCCESS);
	return ptr;
}

static struct gpunvme_mem_cache_info info(int of)
{
	struct gpunvme_mem_cache_info now = { .size = sizeof(now) };

	assert_int_equal(gpunvme_mem_cache_get_info(dev[of], &now), 0);
	return now;
}

static struct gpunvme_mem_use get(int of, char *ptr, size_t len)
{
	struct gpunvme_mem_use use = { 0 };

	assert_int_equal(gpunvme_mem_get(gpu, dev[of], ptr, len, 0, &use), 0);
	assert_true(use.dbuf.base + use.offset == (uintptr_t)ptr && use.dbuf.len >= use.offset + len);
	return use;
}

static void put(struct gpunvme_mem_use *use)
{
	assert_int_equal(gpunvme_mem_put(use), 0);
}

/* The controller writes blocks to the first bytes of what is mapped, and there they are. */
static void works(const struct gpunvme_mem_use *use)
{
	const unsigned char *at = (const unsigned char *)(uintptr_t)use->dbuf.base; /* the mock's addresses are the process's */
	struct gpunvme_copy c = GPUNVME_COPY_INIT;
	unsigned i;

	c.nblocks = 8;
	memset((void *)(uintptr_t)use->dbuf.base, 0xee, 4096);
	assert_int_equal(gpunvme_run_copy(gpu, &dq, 1, &use->dbuf, &c), 0);
	for (i = 0; i < 4096; i++)
		assert_int_equal(at[i], pattern(i / 512));
}

static void test_parts(void **state)
{
	char *whole = make(POOL_FINE, BYTES + PART), *ptr = whole + (-(uintptr_t)whole & (PART - 1));
	struct gpunvme_mem_use a = get(0, ptr + PART + 100, 100), b = get(0, ptr + PART, 4096), c;

	(void)state;
	assert_int_equal(a.dbuf.len, PART);
	assert_int_equal(a.offset, 100);
	works(&a);
	assert_ptr_equal(a.mem, b.mem);
	c = get(0, ptr + 2 * PART - 1, 2); /* takes in the part that is there */
	assert_int_equal(c.dbuf.len, 2 * PART);
	works(&c);
	works(&a); /* holds what it had */
	put(&a);
	put(&b);
	put(&c);
	c = get(0, ptr + PART, 2 * PART);
	put(&c);
	assert_int_equal(info(0).hits, 2);
	assert_int_equal(info(0).misses, 2);
	assert_int_equal(info(0).bytes, 2 * PART);
	assert_int_equal(counts->notifiers, 1);
	assert_int_equal(gpunvme_mem_get(gpu, dev[0], whole + BYTES, 2 * PART, 0, &a), -ERANGE);
	assert_non_null(strstr(gpunvme_errmsg(), "not within its allocation"));
	c = get(0, whole + BYTES + PART - 1, 1); /* no part goes beyond its end */
	assert_int_equal(c.dbuf.base + c.dbuf.len, (uintptr_t)whole + BYTES + PART);
	put(&c);
	assert_int_equal(user_free(whole), HSA_STATUS_SUCCESS);
}

/* hipMalloc(5000): its last page belongs to it. */
static void test_odd_size(void **state)
{
	char *ptr = make(POOL_FINE, 5000);
	struct gpunvme_mem_use a = get(0, ptr + 4500, 500);

	(void)state;
	assert_int_equal(a.dbuf.base + a.offset, (uintptr_t)ptr + 4500);
	assert_int_equal(a.dbuf.base + a.dbuf.len, (uintptr_t)ptr + 8192); /* a part may begin at its second page */
	works(&a);
	put(&a);
	assert_int_equal(user_free(ptr), HSA_STATUS_SUCCESS);
	assert_int_equal(info(0).entries, 0);
}

/* The real runtime gives an address out again; the mock keeps what was freed, and the kernel fills other holes first. */
static char *make_at(uint64_t pool, char *at)
{
	char *others[256];
	unsigned i;

	munmap(at, BYTES);
	for (i = 0; i < 256 && (others[i] = make(pool, BYTES)) != at; i++)
		;
	assert_true(i < 256);
	while (i)
		user_free(others[--i]);
	return at;
}

static void given_out_again(uint64_t pool)
{
	char *ptr = make(pool, BYTES);
	struct gpunvme_mem_use a = get(0, ptr, BYTES);
	const struct gpunvme_mem_cache_info before = info(0);

	works(&a);
	put(&a);
	assert_int_equal(counts->notifiers, 1);
	assert_int_equal(user_free(ptr), HSA_STATUS_SUCCESS);
	assert_int_equal(counts->notifiers, 0);
	assert_int_equal(info(0).entries, before.entries - 1); /* nothing of it is mapped when the call returns */
	assert_int_equal(info(0).stale, before.stale + 1);
	assert_int_equal(gpunvme_mem_cache_forget(dev[0], NULL, 0), 0);
	ptr = make_at(pool, ptr);
	a = get(0, ptr, BYTES);
	assert_int_equal(info(0).misses, before.misses + 1);
	works(&a);
	put(&a);
	assert_int_equal(user_free(ptr), HSA_STATUS_SUCCESS);
}

static void test_given_out_again(void **state)
{
	(void)state;
	given_out_again(POOL_FINE);
}

/* hipHostMalloc() */
static void test_host_memory(void **state)
{
	(void)state;
	given_out_again(POOL_HOST);
}

/* Freed although it is in use: not found any more, and unmapped with its last user. Its pages live as long. */
static void test_freed_in_use(void **state)
{
	char *ptr = make(POOL_FINE, BYTES);
	struct gpunvme_mem_use a = get(0, ptr, BYTES), b;

	(void)state;
	assert_int_equal(user_free(ptr), HSA_STATUS_SUCCESS);
	assert_int_equal(info(0).stale, 1);
	assert_int_equal(info(0).entries, 0);
	assert_int_equal(gpunvme_mem_cache_forget(dev[0], ptr, 1), -EBUSY);
	ptr = make_at(POOL_FINE, ptr);
	b = get(0, ptr, BYTES);
	assert_ptr_not_equal(a.mem, b.mem);
	works(&b);
	put(&a);
	works(&b);
	put(&b);
	assert_int_equal(user_free(ptr), HSA_STATUS_SUCCESS);
}

/* Two waits for the end of the same memory are independent: the runtime takes back all that are alike. */
static void test_two_devices(void **state)
{
	char *ptr = make(POOL_FINE, BYTES);
	struct gpunvme_mem_use use;
	int i;

	(void)state;
	for (i = 0; i < 2; i++) {
		use = get(i, ptr, BYTES);
		put(&use);
	}
	assert_int_equal(counts->notifiers, 1);
	assert_int_equal(gpunvme_mem_cache_forget(dev[0], NULL, 0), 0);
	assert_int_equal(counts->notifiers, 1);
	assert_int_equal(info(1).entries, 1);
	assert_int_equal(user_free(ptr), HSA_STATUS_SUCCESS);
	assert_int_equal(info(1).entries, 0);
	assert_int_equal(info(1).stale, 1);
	ptr = make(POOL_FINE, BYTES);
	use = get(0, ptr, BYTES);
	put(&use);
	assert_int_equal(gpunvme_mem_cache_set_limit(dev[0], 0), 0); /* evicted: nobody waits */
	assert_int_equal(info(0).evictions, 1);
	assert_int_equal(counts->notifiers, 0);
	assert_int_equal(user_free(ptr), HSA_STATUS_SUCCESS);
}

/* Closed with memory of which the end is awaited, in use and not: freeing it later has no effect. */
static void test_close(void **state)
{
	char *ptr = make(POOL_FINE, BYTES);
	struct gpunvme_mem_use a = get(0, ptr, PART), b = get(0, ptr + 2 * PART, PART);

	put(&a);
	assert_int_equal(gpunvme_dev_close(dev[0]), 0);
	assert_int_equal(gpunvme_dev_close(dev[1]), 0);
	assert_int_equal(user_free(ptr), HSA_STATUS_SUCCESS);
	put(&b);
	gpunvme_gpu_close(gpu);
	nothing_left();
	begin(state);
}

/* A runtime that does not tell: nothing is kept. */
static void test_not_told(void **state)
{
	char *ptr = make(POOL_FINE, BYTES);
	struct gpunvme_mem_use use;

	(void)state;
	pretend("MOCK_FAIL", "amd_register_deallocation_callback:0:1000");
	use = get(0, ptr, PART);
	works(&use);
	put(&use);
	unsetenv("MOCK_FAIL");
	assert_int_equal(info(0).entries, 0);
	assert_int_equal(user_free(ptr), HSA_STATUS_SUCCESS);
}

/* ---- Threads: memory comes and goes, is driven out and forgotten, all at once ---- */

static void *come_and_go(void *arg)
{
	unsigned *wrong = arg, i;

	for (i = 0; i < TURNS; i++) {
		char *ptr = make(POOL_FINE, 4 * PART);
		struct gpunvme_mem_use use = { 0 };

		*wrong += gpunvme_mem_get(gpu, dev[i & 1], ptr + i % 3 * PART, PART + 5, 0, &use) != 0;
		*wrong += gpunvme_mem_put(&use) != 0;
		*wrong += user_free(ptr) != HSA_STATUS_SUCCESS;
	}
	return NULL;
}

static void *drive_out(void *arg)
{
	bool *stop = arg;

	while (!__atomic_load_n(stop, __ATOMIC_RELAXED)) {
		gpunvme_mem_cache_set_limit(dev[0], 0);
		gpunvme_mem_cache_set_limit(dev[0], 1 << 20);
		gpunvme_mem_cache_forget(dev[1], NULL, 0);
	}
	return NULL;
}

static void test_threads(void **state)
{
	unsigned wrong[3] = { 0 }, i;
	pthread_t thread[3], other;
	bool stop = false;

	(void)state;
	assert_int_equal(pthread_create(&other, NULL, drive_out, &stop), 0);
	for (i = 0; i < 3; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, come_and_go, &wrong[i]), 0);
	for (i = 0; i < 3; i++) {
		pthread_join(thread[i], NULL);
		assert_int_equal(wrong[i], 0);
	}
	__atomic_store_n(&stop, true, __ATOMIC_RELAXED);
	pthread_join(other, NULL);
	for (i = 0; i < 2; i++)
		assert_int_equal(info((int)i).entries, 0);
	assert_int_equal(counts->notifiers, 0);
}

/* The allocation is known by what the runtime told before, and the runtime is not asked again. */
static void test_a_hit_is_no_system_call(void **state)
{
	char *ptr = make(POOL_FINE, BYTES);
	struct gpunvme_mem_use a = get(0, ptr, 100);
	struct quiet q = { .gpu = gpu, .dev = dev[0], .ptr = ptr };

	(void)state;
	put(&a);
	assert_true(quiet_hits(&q));
	if (!q.no_seccomp)
		assert_int_equal(info(0).hits, QUIET_HITS);
	assert_int_equal(user_free(ptr), HSA_STATUS_SUCCESS);
}

/* A second controller has an image of its own. */
static int make_images(void **state)
{
	int ret = setup(state);

	image_make(image_path("i2"), BLOCKS * 512);
	return ret;
}

static int remove_images(void **state)
{
	remove(image_path("i2"));
	return teardown(state);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_parts, begin, end),
		cmocka_unit_test_setup_teardown(test_odd_size, begin, end),
		cmocka_unit_test_setup_teardown(test_given_out_again, begin, end),
		cmocka_unit_test_setup_teardown(test_host_memory, begin, end),
		cmocka_unit_test_setup_teardown(test_freed_in_use, begin, end),
		cmocka_unit_test_setup_teardown(test_two_devices, begin, end),
		cmocka_unit_test_setup_teardown(test_close, begin, end),
		cmocka_unit_test_setup_teardown(test_not_told, begin, end),
		cmocka_unit_test_setup_teardown(test_threads, begin, end),
		cmocka_unit_test_setup_teardown(test_a_hit_is_no_system_call, begin, end),
	};

	return cmocka_run_group_tests(tests, make_images, remove_images);
}
