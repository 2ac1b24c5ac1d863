/* SPDX-License-Identifier: MIT */
/* gpunvme_mem_get() of ordinary memory, with CPU threads: what is found again, what goes, and the owner of the bytes meanwhile. */
#include <gpunvme/device.h>
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "common/image.h"
#include "common/quiet.h"
#include "dev/dev.h"
#include "soft/soft.h"

#define PAGE 4096u
#define PAGES 64u
#define BYTES (PAGES * PAGE)
#define THREADS 4u
#define TURNS 3000u
#define PUTS 8u
#define CLOSES 20u

static struct gpunvme_dev *dev;
static struct gpunvme_gpu *gpu;
static struct gpunvme_queue *qp;
static struct gpunvme_dq dq;
static char *memory;

static unsigned char media(unsigned block)
{
	return (unsigned char)(block * 7 + 3);
}

static int make_image(void **state)
{
	unsigned char block[512];
	unsigned i;
	FILE *f;

	if (image_make_dir(state))
		return -1;
	f = fopen(image_path("disk.img"), "wb");
	for (i = 0; f && i < 2048; i++) {
		memset(block, media(i), sizeof(block));
		if (fwrite(block, sizeof(block), 1, f) != 1)
			return -1;
	}
	return !f || fclose(f) ? -1 : 0;
}

static char *map_pages(void *at)
{
	char *got = mmap(at, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0), -1, 0);

	assert_true(got != MAP_FAILED);
	return got;
}

static int begin(void **state)
{
	char uri[300];

	(void)state;
	snprintf(uri, sizeof(uri), "soft:%s", image_path("disk.img"));
	assert_int_equal(gpunvme_dev_open(uri, NULL, &dev), 0);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
	assert_int_equal(gpunvme_queue_create(dev, gpu, NULL, &qp), 0);
	assert_int_equal(gpunvme_queue_view(qp, NULL, &dq), 0);
	memory = map_pages(NULL);
	return 0;
}

static int end(void **state)
{
	(void)state;
	assert_int_equal(gpunvme_dev_close(dev), 0);
	gpunvme_gpu_close(gpu);
	munmap(memory, BYTES);
	return 0;
}

static struct gpunvme_mem_cache_info info(void)
{
	struct gpunvme_mem_cache_info now = { .size = sizeof(now) };

	assert_int_equal(gpunvme_mem_cache_get_info(dev, &now), 0);
	return now;
}

static struct gpunvme_mem_use get(void *ptr, size_t len, uint32_t flags)
{
	struct gpunvme_mem_use use = { 0 };

	assert_int_equal(gpunvme_mem_get(gpu, dev, ptr, len, flags, &use), 0);
	assert_true(use.dbuf.len >= use.offset + len);
	assert_ptr_equal((char *)(uintptr_t)use.dbuf.base + use.offset, ptr);
	return use;
}

static void put(struct gpunvme_mem_use *use)
{
	assert_int_equal(gpunvme_mem_put(use), 0);
	assert_null(use->mem);
}

/* The controller reads a block to where the use says, and it is seen at the pointer. */
static void works(const struct gpunvme_mem_use *use, const char *ptr, unsigned lba)
{
	memset((void *)(uintptr_t)ptr, 0, 512);
	assert_int_equal(gpunvme_read(&dq, &use->dbuf, use->offset, (uint64_t)lba << dq.lba_shift, 1ull << dq.lba_shift), 0);
	assert_int_equal((unsigned char)ptr[0], media(lba));
	assert_int_equal((unsigned char)ptr[511], media(lba));
}

static void test_found_again(void **state)
{
	struct gpunvme_mem_use a = get(memory + 1024, 5000, GPUNVME_GET_KEEP), b;

	(void)state;
	works(&a, memory + 1024, 5);
	b = get(memory + 2048, 512, 0); /* several users */
	assert_ptr_equal(a.mem, b.mem);
	assert_int_equal(b.offset, 2048);
	works(&b, memory + 2048, 6);
	assert_int_equal(info().used, 1);
	put(&a);
	put(&b);
	put(&b); /* zeroes */
	assert_int_equal(gpunvme_mem_put(NULL), 0);
	assert_int_equal(info().entries, 1);
	assert_int_equal(info().used, 0);
	a = get(memory, 8192, 0); /* still there, all of it */
	works(&a, memory, 7);
	put(&a);
	assert_int_equal(info().hits, 2);
	assert_int_equal(info().misses, 1);
	assert_int_equal(info().bytes, 8192);
	assert_int_equal(gpunvme_mem_cache_forget(dev, memory, BYTES), 0);
	assert_int_equal(info().entries, 0);
	assert_int_equal(info().bytes, 0);
}

/* Nobody tells that such memory is freed: with its last user it is forgotten, and other memory at its address is other memory. */
static void test_freed_and_given_out_again(void **state)
{
	struct gpunvme_mem_use a = get(memory, BYTES, 0), b = get(memory, PAGE, 0);

	(void)state;
	put(&a);
	works(&b, memory, 1);
	put(&b);
	assert_int_equal(info().entries, 0);
	munmap(memory, BYTES);
	assert_int_equal(gpunvme_mem_get(gpu, dev, memory, PAGE, 0, &a), -EFAULT);
	memory = map_pages(memory);
	a = get(memory, BYTES, GPUNVME_GET_KEEP);
	works(&a, memory, 9);
	put(&a);
	assert_int_equal(gpunvme_mem_cache_forget(dev, memory + PAGE, 1), 0); /* as guaranteed, of any byte of it */
	munmap(memory, BYTES);
	memory = map_pages(memory);
	a = get(memory, PAGE, 0);
	works(&a, memory, 10);
	put(&a);
	assert_int_equal(info().misses, 3);
}

/* What overlaps becomes one, and what was there serves its users to the end. */
static void test_neighbours(void **state)
{
	struct gpunvme_mem_use a = get(memory + 100, 4000, GPUNVME_GET_KEEP), b = get(memory + 4000, 5000, GPUNVME_GET_KEEP), c;

	(void)state;
	assert_int_equal(info().entries, 1);
	assert_int_equal(info().bytes, 3 * PAGE);
	assert_int_equal(b.offset, 4000);
	works(&a, memory + 100, 3);
	works(&b, memory + 4000, 4);
	assert_int_equal(gpunvme_mem_cache_forget(dev, memory, BYTES), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "gpunvme_mem_put()"));
	assert_int_equal(info().entries, 0);
	works(&a, memory + 100, 5);
	put(&a);
	works(&b, memory + 4000, 6);
	put(&b);
	assert_int_equal(gpunvme_mem_cache_forget(dev, NULL, 0), 0);
	/* Guaranteed and not guaranteed: as the one that is not. */
	a = get(memory, PAGE, GPUNVME_GET_KEEP);
	c = get(memory, 2 * PAGE, 0);
	put(&a);
	put(&c);
	assert_int_equal(info().entries, 0);
	/* Guaranteed by nobody: what the neighbour has may be freed, and be other memory at the same address, while this is in use. */
	a = get(memory + 100, PAGE, 0);
	b = get(memory + PAGE + 200, PAGE, 0);
	assert_int_equal(b.dbuf.base, (uintptr_t)memory + PAGE);
	works(&a, memory + 100, 7);
	put(&a);
	works(&b, memory + PAGE + 200, 8);
	put(&b);
	assert_int_equal(info().entries, 0);
}

static void test_limit(void **state)
{
	struct gpunvme_mem_use use[8];
	unsigned i;

	(void)state;
	assert_int_equal(gpunvme_mem_cache_set_limit(dev, 4 * PAGE), 0);
	assert_int_equal(info().limit, 4 * PAGE);
	for (i = 0; i < 8; i++)
		use[i] = get(memory + 2 * i * PAGE, PAGE, GPUNVME_GET_KEEP);
	assert_int_equal(info().entries, 8); /* in use: never taken */
	assert_int_equal(info().evictions, 0);
	for (i = 0; i < 8; i++)
		works(&use[i], memory + 2 * i * PAGE, i);
	for (i = 8; i--;)
		put(&use[i]);
	assert_int_equal(info().entries, 4);
	assert_int_equal(info().evictions, 4);
	use[0] = get(memory, PAGE, 0); /* the last four that were put are there: 3 to 0 */
	use[3] = get(memory + 6 * PAGE, PAGE, 0);
	assert_int_equal(info().misses, 8);
	put(&use[0]);
	put(&use[3]);
	use[7] = get(memory + 14 * PAGE, PAGE, GPUNVME_GET_KEEP); /* drives out the oldest, 2 */
	assert_int_equal(info().evictions, 5);
	use[1] = get(memory + 2 * PAGE, PAGE, 0);
	assert_int_equal(info().misses, 9);
	use[2] = get(memory + 4 * PAGE, PAGE, 0);
	assert_int_equal(info().misses, 10);
	put(&use[1]);
	put(&use[2]);
	put(&use[7]);
	assert_int_equal(gpunvme_mem_cache_set_limit(dev, 0), 0);
	assert_int_equal(info().entries, 0);
	use[0] = get(memory, PAGE, GPUNVME_GET_KEEP);
	works(&use[0], memory, 11);
	put(&use[0]);
	assert_int_equal(info().entries, 0);
}

/* A reference outlives the device, and has nothing of it. */
static void test_close(void **state)
{
	struct gpunvme_mem_use a = get(memory, PAGE, GPUNVME_GET_KEEP), b = get(memory + 4 * PAGE, PAGE, 0),
			       c = get(memory + 8 * PAGE, PAGE, GPUNVME_GET_KEEP), a2 = get(memory, PAGE, 0);

	put(&c); /* goes with the device */
	assert_int_equal(gpunvme_mem_free(a.mem), -EINVAL);
	assert_non_null(strstr(gpunvme_errmsg(), "gpunvme_mem_put()"));
	assert_int_equal(gpunvme_dev_close(dev), 0);
	put(&a);
	put(&b);
	assert_int_equal(gpunvme_mem_put(&a2), 0);
	gpunvme_gpu_close(gpu);
	munmap(memory, BYTES);
	begin(state);
}

static enum gnv_soft_action stall(void *ctx, uint16_t sqid, const struct gpunvme_sqe *cmd, uint16_t *status, uint32_t *delay_us)
{
	(void)ctx;
	(void)sqid;
	(void)cmd;
	(void)status;
	*delay_us = 400000;
	return GNV_SOFT_STALL;
}

struct putter {
	struct gpunvme_mem_use use[PUTS];
	unsigned from;
};

static pthread_barrier_t start;
static bool together; /* putters wait for the mappings' end */

/* The linker sends the library's call here (--wrap). */
int __real_gnv_map_drop_all(struct gpunvme_dev *device);
int __wrap_gnv_map_drop_all(struct gpunvme_dev *device);
int __wrap_gnv_map_drop_all(struct gpunvme_dev *device)
{
	if (together)
		pthread_barrier_wait(&start);
	return __real_gnv_map_drop_all(device);
}

static void *put_all(void *arg)
{
	struct putter *p = arg;
	unsigned i;

	pthread_barrier_wait(&start);
	for (i = 0; i < PUTS; i++)
		if (gpunvme_mem_put(&p->use[(p->from + i) % PUTS]))
			return p;
	return NULL;
}

/* What is given back meanwhile finds the device, or the memory without one; what is evicted then, a cache. */
static void close_beside_put(uint64_t limit)
{
	struct putter p[2] = { { .from = 0 }, { .from = PUTS / 2 } };
	pthread_t thread[2];
	unsigned k, i;
	void *failed;

	begin(NULL);
	pthread_barrier_init(&start, NULL, 3);
	for (k = 0; k < 2; k++) {
		for (i = 0; i < PUTS; i++)
			p[k].use[i] = get(memory + i * 8 * PAGE, 4 * PAGE, i % 2 ? GPUNVME_GET_KEEP : 0);
		assert_int_equal(pthread_create(&thread[k], NULL, put_all, &p[k]), 0);
	}
	assert_int_equal(gpunvme_mem_cache_set_limit(dev, limit), 0);
	together = true;
	assert_int_equal(gpunvme_dev_close(dev), 0);
	together = false;
	for (k = 0; k < 2; k++) {
		assert_int_equal(pthread_join(thread[k], &failed), 0);
		assert_null(failed);
	}
	pthread_barrier_destroy(&start);
	gpunvme_gpu_close(gpu);
	munmap(memory, BYTES);
}

static void test_close_beside_put(void **state)
{
	unsigned i;

	(void)state;
	for (i = 0; i < CLOSES; i++)
		close_beside_put(i % 2 ? PAGE : BYTES);
}

/* The controller still has a command for the bytes: they stay its own, whatever releases them in which way. */
static void test_still_writing(void **state)
{
	static const struct gnv_soft_fault fault = { stall, NULL }, none = { NULL, NULL };
	struct gpunvme_queue_opts opts = GPUNVME_QUEUE_OPTS_INIT;
	struct gpunvme_mem_use a = get(memory, PAGE, 0), b = get(memory + 4 * PAGE, PAGE, GPUNVME_GET_KEEP);
	struct gpunvme_queue *slow;
	struct gpunvme_dq view;

	(void)state;
	opts.cmd_timeout_ms = 30;
	opts.flags = GPUNVME_QUEUE_NO_SELFTEST;
	assert_int_equal(gpunvme_queue_create(dev, gpu, &opts, &slow), 0);
	assert_int_equal(gpunvme_queue_view(slow, NULL, &view), 0);
	gnv_soft_set_fault(gnv_dev_soft(dev), &fault);
	assert_int_equal(gpunvme_read(&view, &a.dbuf, a.offset, 3ull << view.lba_shift, 1ull << view.lba_shift),
			 -GPUNVME_ETIMEDOUT);
	gnv_soft_set_fault(gnv_dev_soft(dev), &none);
	assert_int_equal(gpunvme_mem_put(&a), -EBUSY);
	assert_non_null(a.mem);
	assert_int_equal(gpunvme_mem_put(&a), -EBUSY);
	put(&b); /* stays mapped anyway */
	assert_int_equal(gpunvme_mem_cache_forget(dev, NULL, 0), -EBUSY);
	assert_int_equal(info().entries, 0);
	while (gpunvme_queue_destroy(slow) == -EBUSY)
		usleep(10000);
	put(&a);
	assert_int_equal(gpunvme_mem_cache_forget(dev, NULL, 0), 0);
}

static void test_refused(void **state)
{
	struct gpunvme_mem_use use = { 0 };
	struct gpunvme_mem_cache_info small = { .size = 8 };

	(void)state;
	assert_int_equal(gpunvme_mem_get(NULL, dev, memory, 1, 0, &use), -EINVAL);
	assert_int_equal(gpunvme_mem_get(gpu, NULL, memory, 1, 0, &use), -EINVAL);
	assert_int_equal(gpunvme_mem_get(gpu, dev, memory, 1, 0, NULL), -EINVAL);
	assert_int_equal(gpunvme_mem_get(gpu, dev, NULL, 1, 0, &use), -EINVAL);
	assert_int_equal(gpunvme_mem_get(gpu, dev, memory, 0, 0, &use), -EINVAL);
	assert_int_equal(gpunvme_mem_get(gpu, dev, memory, SIZE_MAX, 0, &use), -EINVAL);
	assert_int_equal(gpunvme_mem_get(gpu, dev, (void *)(UINTPTR_MAX - 8), 4, 0, &use), -EINVAL);
	assert_int_equal(gpunvme_mem_get(gpu, dev, memory, 1, 2, &use), -EINVAL);
	assert_non_null(strstr(gpunvme_errmsg(), "GPUNVME_GET_KEEP"));
	assert_null(use.mem);
	assert_int_equal(gpunvme_mem_cache_forget(NULL, NULL, 0), -EINVAL);
	assert_int_equal(gpunvme_mem_cache_forget(dev, memory, SIZE_MAX), -EINVAL);
	assert_int_equal(gpunvme_mem_cache_set_limit(NULL, 0), -EINVAL);
	assert_int_equal(gpunvme_mem_cache_get_info(NULL, &small), -EINVAL);
	assert_int_equal(gpunvme_mem_cache_get_info(dev, NULL), -EINVAL);
	assert_int_equal(gpunvme_mem_cache_get_info(dev, &small), -EINVAL);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, PAGE, NULL, &use.mem), 0);
	assert_int_equal(gpunvme_mem_put(&use), -EINVAL);
	gpunvme_mem_free(use.mem);
}

/* ---- Threads ---- */

struct worker {
	pthread_t thread;
	unsigned seed, wrong;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	unsigned i;

	for (i = 0; i < TURNS; i++) {
		size_t at = rand_r(&w->seed) % (PAGES - 4) * PAGE, len = 1 + rand_r(&w->seed) % (3 * PAGE);
		struct gpunvme_mem_use use = { 0 };

		if (gpunvme_mem_get(gpu, dev, memory + at, len, GPUNVME_GET_KEEP, &use)) {
			w->wrong++;
			continue;
		}
		w->wrong += use.dbuf.base + use.offset != (uintptr_t)memory + at || use.dbuf.len < use.offset + len || !use.dbuf.iova;
		if (i % 512 == 0)
			gpunvme_mem_cache_forget(dev, memory + at, len); /* somebody uses it */
		w->wrong += gpunvme_mem_put(&use) != 0;
	}
	return NULL;
}

static void test_threads(void **state)
{
	struct worker w[THREADS] = { 0 };
	struct gpunvme_mem_cache_info now;
	unsigned i;

	(void)state;
	assert_int_equal(gpunvme_mem_cache_set_limit(dev, 16 * PAGE), 0);
	for (i = 0; i < THREADS; i++) {
		w[i].seed = i + 1;
		assert_int_equal(pthread_create(&w[i].thread, NULL, work, &w[i]), 0);
	}
	for (i = 0; i < THREADS; i++) {
		pthread_join(w[i].thread, NULL);
		assert_int_equal(w[i].wrong, 0);
	}
	now = info();
	assert_int_equal(now.hits + now.misses, THREADS * TURNS);
	assert_int_equal(now.used, 0);
	assert_true(now.bytes <= now.limit && now.hits && now.evictions);
	assert_int_equal(gpunvme_mem_cache_forget(dev, NULL, 0), 0);
	assert_int_equal(info().bytes, 0);
}

static void test_a_hit_is_no_system_call(void **state)
{
	struct gpunvme_mem_use a = get(memory, BYTES, GPUNVME_GET_KEEP);
	struct quiet q = { .gpu = gpu, .dev = dev, .ptr = memory + PAGE };

	(void)state;
	put(&a);
	assert_true(quiet_hits(&q));
	if (q.no_seccomp)
		SKIP("no seccomp here, or a sanitizer");
	assert_int_equal(info().hits, QUIET_HITS);
	assert_int_equal(gpunvme_mem_cache_forget(dev, NULL, 0), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_found_again, begin, end),
		cmocka_unit_test_setup_teardown(test_freed_and_given_out_again, begin, end),
		cmocka_unit_test_setup_teardown(test_neighbours, begin, end),
		cmocka_unit_test_setup_teardown(test_limit, begin, end),
		cmocka_unit_test_setup_teardown(test_close, begin, end),
		cmocka_unit_test(test_close_beside_put),
		cmocka_unit_test_setup_teardown(test_still_writing, begin, end),
		cmocka_unit_test_setup_teardown(test_refused, begin, end),
		cmocka_unit_test_setup_teardown(test_threads, begin, end),
		cmocka_unit_test_setup_teardown(test_a_hit_is_no_system_call, begin, end),
	};

	return cmocka_run_group_tests(tests, make_image, image_remove_disk);
}
