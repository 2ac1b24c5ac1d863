/* SPDX-License-Identifier: MIT */
/* Host memory, registered memory, the GPU object, and the arena. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>
#include <gpunvme/gpunvme.h>

#include "fake.h"
#include "gpu/kernels/ptx.h"
#include "mem/arena.h"

#define KIB 1024u
#define MIB (1024u * KIB)

static void count_lines(void *ctx, enum gpunvme_log_level level, const char *text)
{
	(void)level;
	assert_true(strlen(text) > 10);
	++*(unsigned *)ctx;
}

static struct gpunvme_gpu *gpu_open(void)
{
	struct gpunvme_gpu *gpu;

	assert_int_equal(gpunvme_gpu_open("cpu", NULL, &gpu), 0);
	return gpu;
}

static void test_gpu(void **state)
{
	static const char *const good[] = { "cpu", "cpu:1", "cpu:4", "cpu:32", "auto" };
	static const char *const bad[] = { "", "cpu:", "cpu:2", "cpu:44", "cpux", "gpu", "hsa" };
	static const uint32_t width[] = { 1, 1, 4, 32, 1 };
	struct gpunvme_gpu_info info = { .size = sizeof(info) };
	struct gpunvme_gpu *gpu;
	size_t i;
	int ret;

	(void)state;
	setenv("GPUNVME_HSA_LIBRARY", "/nonexistent", 1);
	setenv("GPUNVME_CUDA_LIBRARY", "/nonexistent.so", 1);
	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		assert_int_equal(gpunvme_gpu_open(good[i], NULL, &gpu), 0);
		assert_int_equal(gpunvme_gpu_get_info(gpu, &info), 0);
		assert_int_equal(info.kind, GPUNVME_GPU_CPU);
		assert_int_equal(info.width, width[i]);
		assert_int_equal(info.ticks_per_ms, 1000000);
		assert_int_equal(info.size, sizeof(info));
		gpunvme_gpu_close(gpu);
	}
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(gpunvme_gpu_open(bad[i], NULL, &gpu), -EINVAL);
	ret = gpunvme_gpu_open("hsa:0", NULL, &gpu);
	assert_true(ret == -ENODEV || ret == -EOPNOTSUPP); /* the latter where it was built without */
	assert_int_equal(gpunvme_gpu_open("cuda:0", NULL, &gpu), gnv_ptx() ? -ENODEV : -EOPNOTSUPP);
	assert_int_equal(gpunvme_gpu_open(NULL, NULL, &gpu), -EINVAL);
	assert_int_equal(gpunvme_gpu_open("cpu", NULL, NULL), -EINVAL);
	assert_int_equal(gpunvme_gpu_get_info(NULL, &info), -EINVAL);
	assert_int_equal(gpunvme_gpu_close(NULL), 0);
}

static void test_sizes_of_structures(void **state)
{
	struct {
		struct gpunvme_gpu_opts opts;
		uint64_t more;
	} wide = { { sizeof(wide), NULL, NULL }, 0 };
	struct gpunvme_gpu_opts narrow = { sizeof(narrow) - 1, NULL, NULL };
	struct gpunvme_gpu_info info = { .size = 8 };
	struct gpunvme_gpu *gpu;

	(void)state;
	assert_int_equal(gpunvme_gpu_open("cpu", &narrow, &gpu), -EINVAL);
	assert_int_equal(gpunvme_gpu_open("cpu", &wide.opts, &gpu), 0);
	assert_int_equal(gpunvme_gpu_get_info(gpu, &info), -EINVAL);
	assert_int_equal(gpunvme_gpu_get_info(gpu, NULL), -EINVAL);
	gpunvme_gpu_close(gpu);
	wide.more = 1;
	assert_int_equal(gpunvme_gpu_open("cpu", &wide.opts, &gpu), -EINVAL);
}

static void test_alloc(void **state)
{
	struct gpunvme_mem_opts opts = GPUNVME_MEM_OPTS_INIT;
	struct gpunvme_gpu *gpu = gpu_open();
	struct gpunvme_mem *mem;
	unsigned char *p;
	size_t i;

	(void)state;
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 5000, NULL, &mem), 0);
	assert_int_equal(gpunvme_mem_len(mem), 8192);
	p = gpunvme_mem_ptr(mem);
	assert_int_equal((uintptr_t)p % 4096, 0);
	for (i = 0; i < 8192; i++)
		assert_int_equal(p[i], 0);
	memset(p, 1, 8192);
	gpunvme_gpu_close(gpu); /* the memory holds a reference */
	gpunvme_mem_free(mem);
	assert_int_equal(gpunvme_mem_free(NULL), 0);

	gpu = gpu_open();
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 0, NULL, &mem), -EINVAL);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, SIZE_MAX, NULL, &mem), -ENOMEM);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, SIZE_MAX / 4, NULL, &mem), -ENOMEM);
	opts.flags = 0x100;
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 1, &opts, &mem), -EINVAL);
	assert_int_equal(gpunvme_mem_alloc(NULL, NULL, 1, NULL, &mem), -EINVAL);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 1, NULL, NULL), -EINVAL);
	assert_null(gpunvme_mem_ptr(NULL));
	assert_int_equal(gpunvme_mem_len(NULL), 0);
	gpunvme_gpu_close(gpu);
}

static void test_huge(void **state)
{
	struct gpunvme_mem_opts opts = { sizeof(opts), GPUNVME_MEM_HUGE, 0 };
	struct gpunvme_gpu_opts gpu_opts = GPUNVME_GPU_OPTS_INIT;
	unsigned lines = 0;
	struct gpunvme_gpu *gpu;
	struct gpunvme_mem *mem;

	(void)state;
	gpu_opts.log = count_lines;
	gpu_opts.log_ctx = &lines;
	assert_int_equal(gpunvme_gpu_open("cpu", &gpu_opts, &gpu), 0);
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 3 * MIB, &opts, &mem), 0);
	assert_int_equal(gpunvme_mem_len(mem), 4 * MIB);
	assert_int_equal((uintptr_t)gpunvme_mem_ptr(mem) % (2 * MIB), 0);
	memset(gpunvme_mem_ptr(mem), 1, 4 * MIB);
	assert_true(lines <= 2); /* no huge pages; not locked */
	gpunvme_mem_free(mem);
	gpunvme_gpu_close(gpu);
}

static bool is_mapped_in_a_child(void *page)
{
	unsigned char resident;
	int status = -1;
	pid_t child;

	assert_int_equal(mincore(page, 4096, &resident), 0);
	child = fork();
	assert_true(child >= 0);
	if (!child)
		_exit(mincore(page, 4096, &resident) == -1 && errno == ENOMEM ? 0 : 1);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_true(WIFEXITED(status));
	return WEXITSTATUS(status);
}

/* A child must not share pages that are under DMA: they are not even mapped there. */
static void test_fork(void **state)
{
	char *probe = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	struct gpunvme_gpu *gpu = gpu_open();
	struct gpunvme_mem *mem;

	(void)state;
	assert_true(probe != MAP_FAILED);
	if (madvise(probe, 4096, MADV_DONTFORK) || is_mapped_in_a_child(probe)) {
		print_message("fork() ignores MADV_DONTFORK here, as qemu-user does\n");
		skip();
	}
	assert_int_equal(gpunvme_mem_alloc(gpu, NULL, 4096, NULL, &mem), 0);
	assert_false(is_mapped_in_a_child(gpunvme_mem_ptr(mem)));
	munmap(probe, 4096);
	gpunvme_mem_free(mem);
	gpunvme_gpu_close(gpu);
}

static void test_register(void **state)
{
	struct gpunvme_gpu *gpu = gpu_open();
	struct gpunvme_mem *mem;
	char *p;

	(void)state;
	p = mmap(NULL, 4 * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	assert_ptr_not_equal(p, MAP_FAILED);
	assert_int_equal(gpunvme_mem_register(gpu, p, 4 * 4096, &mem), 0);
	assert_ptr_equal(gpunvme_mem_ptr(mem), p);
	gpunvme_mem_free(mem);
	p[0] = 1; /* still the caller's */
	assert_int_equal(gpunvme_mem_register(gpu, p + 1, 4096, &mem), -EINVAL);
	assert_int_equal(gpunvme_mem_register(gpu, p, 100, &mem), -EINVAL);
	assert_int_equal(gpunvme_mem_register(gpu, p, 0, &mem), -EINVAL);
	assert_int_equal(gpunvme_mem_register(gpu, NULL, 4096, &mem), -EINVAL);
	assert_int_equal(gpunvme_mem_register(NULL, p, 4096, &mem), -EINVAL);
	assert_int_equal(gpunvme_mem_register(gpu, p, 4096, NULL), -EINVAL);
	assert_int_equal(gpunvme_mem_register(gpu, p, SIZE_MAX & ~(size_t)4095, &mem), -EFAULT);
	assert_int_equal(mprotect(p + 4096, 4096, PROT_READ), 0);
	assert_int_equal(gpunvme_mem_register(gpu, p, 4 * 4096, &mem), -EFAULT);
	assert_int_equal(gpunvme_mem_register(gpu, p + 2 * 4096, 2 * 4096, &mem), 0);
	gpunvme_mem_free(mem);
	munmap(p + 4096, 4096);
	assert_int_equal(gpunvme_mem_register(gpu, p, 4 * 4096, &mem), -EFAULT);
	assert_int_equal(gpunvme_mem_register(gpu, p + 4096, 4096, &mem), -EFAULT);
	munmap(p, 4 * 4096);
	assert_int_equal(gpunvme_mem_register(gpu, p, 4096, &mem), -EFAULT);
	gpunvme_gpu_close(gpu);
}

static struct gnv_arena *arena_new(struct fake *fake, size_t page)
{
	static const struct gnv_log silent;
	struct gnv_arena *arena;

	assert_int_equal(gnv_arena_create(&fake->space, page, NULL, &silent, &arena), 0);
	return arena;
}

static void test_arena_reuse(void **state)
{
	struct fake *fake = fake_new();
	struct gnv_arena *arena = arena_new(fake, 4096);
	struct gnv_block block[512], whole;
	unsigned i;

	(void)state;
	assert_int_equal(fake->maps, 0);
	for (i = 0; i < 512; i++) {
		assert_int_equal(gnv_arena_alloc(arena, 1, NULL, &block[i]), 0);
		assert_int_equal(block[i].len, 4096);
		assert_int_equal(block[i].iova % 4096, 0);
		memset(block[i].cpu, 0xff, 4096);
	}
	assert_int_equal(fake->mapped, 1); /* 2 MiB hold all of them */
	assert_int_equal(gnv_arena_alloc(arena, 4096, NULL, &whole), 0);
	assert_int_equal(fake->mapped, 2);
	gnv_arena_free(arena, &whole);
	for (i = 0; i < 512; i += 2)
		gnv_arena_free(arena, &block[i]);
	for (i = 1; i < 512; i += 2)
		gnv_arena_free(arena, &block[i]);
	assert_int_equal(fake->maps, 1);			  /* one spare chunk is kept */
	assert_int_equal(gnv_arena_alloc(arena, MIB, NULL, &whole), 0); /* neighbours became one run */
	assert_int_equal(fake->mapped, 2);
	for (i = 0; i < MIB; i++)
		assert_int_equal(((unsigned char *)whole.cpu)[i], 0);
	gnv_arena_free(arena, &whole);
	gnv_arena_free(arena, &whole); /* zeroed by the first: nothing */
	gnv_arena_destroy(arena);
	fake->closed = 1;
	fake_delete(fake, false);
}

static void test_arena_big_and_errors(void **state)
{
	struct fake *fake = fake_new();
	struct gnv_arena *arena = arena_new(fake, 4096);
	struct gnv_block big, small;

	(void)state;
	assert_int_equal(gnv_arena_alloc(arena, 5 * MIB + 1, NULL, &big), 0);
	assert_int_equal(big.len, 5 * MIB + 4096);
	assert_int_equal(fake->maps, 1);
	gnv_arena_free(arena, &big);
	assert_int_equal(fake->maps, 0);
	assert_int_equal(gnv_arena_alloc(arena, 0, NULL, &small), -ENOMEM);
	assert_int_equal(gnv_arena_alloc(arena, SIZE_MAX, NULL, &small), -ENOMEM);
	fake->map_fails_at = fake->mapped + 1;
	assert_int_equal(gnv_arena_alloc(arena, 1, NULL, &small), -ENOSPC);
	assert_int_equal(gnv_arena_alloc(arena, 1, NULL, &small), 0);
	assert_int_equal(gnv_arena_alloc(arena, 2 * MIB, NULL, &big), 0);
	fake->unmap_busy = true;
	gnv_arena_free(arena, &big); /* stays mapped for now */
	assert_int_equal(fake->maps, 2);
	fake->unmap_busy = false;
	gnv_arena_destroy(arena);
	fake->closed = 1;
	fake_delete(fake, false);
}

/* Random sizes: blocks never overlap. */
static void test_arena_random(void **state)
{
	struct fake *fake = fake_new();
	struct gnv_arena *arena = arena_new(fake, 4096);
	struct gnv_block block[64] = { { 0 } };
	uint32_t seed = 1;
	unsigned i;

	(void)state;
	for (i = 0; i < 20000; i++) {
		struct gnv_block *b = &block[(seed = seed * 1664525 + 1013904223) >> 26];

		if (b->cpu) {
			assert_int_equal(*(uint64_t *)b->cpu, b->iova);
			assert_int_equal(*(uint64_t *)((char *)b->cpu + b->len - 8), b->iova);
			gnv_arena_free(arena, b);
			continue;
		}
		assert_int_equal(gnv_arena_alloc(arena, (seed >> 8) % (150 * KIB) + 1, NULL, b), 0);
		*(uint64_t *)b->cpu = b->iova;
		*(uint64_t *)((char *)b->cpu + b->len - 8) = b->iova;
	}
	gnv_arena_destroy(arena);
	fake->closed = 1;
	fake_delete(fake, false);
}

/* ---- Memory of a device that is given back, and comes again ---- */

static unsigned attached, detached[4];

static int mock_attach(struct gpunvme_gpu *gpu, const struct gnv_gpu_foreign *foreign, struct gnv_gpu_range *range)
{
	(void)gpu;
	(void)foreign;
	*range = (struct gnv_gpu_range){ .lane = 0x1000ull * ++attached };
	return 0;
}

static int mock_detach(struct gpunvme_gpu *gpu, struct gnv_gpu_range *range)
{
	(void)gpu;
	detached[range->lane / 0x1000]++;
	return 0;
}

static int mock_fence_off(struct gpunvme_gpu *gpu, struct gnv_gpu_range *range, bool reset)
{
	(void)gpu;
	range->fenced_off |= !reset;
	return 0;
}

/* A holder keeps memory without effect; a request after the reset gets the new mapping; each hides its own. */
static void test_fence_off(void **state)
{
	static const struct gnv_gpu_ops gpu_ops = {
		.name = "mock", .mmio_attach = mock_attach, .mmio_detach = mock_detach, .mmio_fence_off = mock_fence_off
	};
	static const struct gnv_mem_ops mem_ops = { "bar", NULL, gnv_mem_attach_foreign, gnv_mem_detach_foreign };
	struct gpunvme_gpu gpu = { .ops = &gpu_ops, .refs = 1 };
	struct gpunvme_mem mem = { .len = 4096 };
	uint64_t old, same, anew;

	(void)state;
	gnv_mem_init(&mem, &mem_ops);
	assert_int_equal(gnv_mem_show(&mem, &gpu, 0, 4096, &old), 0);
	assert_int_equal(gnv_mem_show(&mem, &gpu, 0, 4096, &same), 0);
	assert_int_equal(same, old);
	assert_int_equal(gnv_mem_fence_off(&mem, false), 0);
	assert_int_equal(gnv_mem_fence_off(&mem, true), 0);
	assert_null(gnv_mem_visibility(&mem, &gpu));
	assert_int_equal(gnv_mem_show(&mem, &gpu, 0, 4096, &anew), 0);
	assert_int_not_equal(anew, old);
	assert_int_equal(gnv_mem_visibility(&mem, &gpu)->range.lane, anew);
	assert_int_equal(gnv_mem_hide_at(&mem, &gpu, anew), 0);
	assert_int_equal(detached[2], 1);
	assert_int_equal(gnv_mem_hide_at(&mem, &gpu, old), 0);
	assert_int_equal(detached[1], 0); /* one of two */
	assert_int_equal(gnv_mem_hide_at(&mem, &gpu, old), 0);
	assert_int_equal(detached[1], 1);
	assert_null(mem.visible_to);
	assert_int_equal(gpu.refs, 1);
	gnv_mem_fini(&mem);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gpu),
		cmocka_unit_test(test_sizes_of_structures),
		cmocka_unit_test(test_alloc),
		cmocka_unit_test(test_huge),
		cmocka_unit_test(test_fork),
		cmocka_unit_test(test_register),
		cmocka_unit_test(test_arena_reuse),
		cmocka_unit_test(test_arena_random),
		cmocka_unit_test(test_arena_big_and_errors),
		cmocka_unit_test(test_fence_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
