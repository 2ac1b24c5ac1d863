/* SPDX-License-Identifier: MIT */
/* libdrm_amdgpu: what is asked of it, what its refusals say, and that nothing is left whichever call fails. */
#include <errno.h>
#include <fcntl.h>
#include <gpunvme/gpunvme.h>
#include <libdrm/amdgpu_drm.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "mocks/drm/amdgpu.h"
#include "common/gpu_tree.h"
#include "os/amd/drm.h"
#include "os/linux/dmabuf.h"

#define DMABUF 1900
#define PAGE 4096u
#define UNCACHED (1u << 14)

static struct gnv_drm *drm;

static int begin(void **state)
{
	(void)state;
	begin_world(NULL);
	fake->import_size = PAGE;
	drm = NULL;
	assert_int_equal(gnv_drm_open(root, BDF, &drm), 0);
	assert_int_equal(calls.fds, 0); /* libdrm has its own */
	fake->count = 0;
	calls.count = 0;
	return 0;
}

static int end(void **state)
{
	nothing_left();
	gnv_drm_close(drm);
	return end_world(state);
}

/* The DMA-BUF counts as a descriptor. */
static int import(struct gnv_drm_bo *bo)
{
	calls.fds++;
	return gnv_drm_import(drm, DMABUF, PAGE, bo);
}

static int alloc(struct gnv_drm_bo *bo)
{
	int ret = gnv_drm_alloc(drm, PAGE, bo);

	if (!ret)
		calls.fds++; /* what the library exported */
	return ret;
}

static void test_alloc(void **state)
{
	struct gnv_drm_bo bo;

	(void)state;
	assert_int_equal(alloc(&bo), 0);
	assert_int_equal(fake->alloc_flags, AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED | AMDGPU_GEM_CREATE_VRAM_CLEARED | UNCACHED);
	assert_int_equal(fake->commands, 1); /* only then the GPU certainly has it */
	assert_int_equal(fake->va_flags, AMDGPU_VM_PAGE_READABLE | AMDGPU_VM_PAGE_WRITEABLE | AMDGPU_VM_MTYPE_UC);
	assert_int_equal(fake->va, (uintptr_t)bo.va);
	assert_int_equal(bo.dmabuf, 1999);
	assert_int_equal(calls.ranges, 1);
	assert_true(bo.uncached);
	assert_int_equal(gnv_drm_free(drm, &bo), 0);
}

/* The kernel gives what it has: less of the flags with a refusal, less of the memory without. */
static void test_less(void **state)
{
	struct gnv_drm_bo bo;

	(void)state;
	fake->no_uncached = true;
	assert_int_equal(alloc(&bo), 0);
	assert_int_equal(fake->alloc_flags, AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED | AMDGPU_GEM_CREATE_VRAM_CLEARED);
	assert_true(fake->va_flags & AMDGPU_VM_MTYPE_UC);
	assert_false(bo.uncached);
	assert_int_equal(gnv_drm_free(drm, &bo), 0);
	for (unsigned turn = 0; turn < 2; turn++) {
		fake->host = !turn;
		fake->unseen = turn;
		assert_int_equal(alloc(&bo), -ENOMEM);
		assert_non_null(strstr(gpunvme_errmsg(), "large BAR"));
		nothing_left();
	}
}

/* An import is nothing to the GPU until a command has named it. */
static void test_import(void **state)
{
	struct gnv_drm_bo bo;

	(void)state;
	assert_int_equal(import(&bo), 0);
	assert_int_equal(fake->imported, DMABUF);
	assert_int_equal(fake->commands, 1);
	assert_int_equal(fake->va_flags, AMDGPU_VM_PAGE_READABLE | AMDGPU_VM_PAGE_WRITEABLE | AMDGPU_VM_MTYPE_UC);
	assert_int_equal(fake->bos, 1); /* the command is gone */
	assert_int_equal(fake->maps, 1);
	assert_int_equal(gnv_drm_free(drm, &bo), 0);
}

static void test_every_step(void **state)
{
	static int (*const make[])(struct gnv_drm_bo *) = { alloc, import };
	static const unsigned steps[] = { 10, 9 }, all[] = { 12, 10 };
	struct gnv_drm_bo bo;

	(void)state;
	fake->fails_with = -EIO;
	for (unsigned which = 0; which < 2; which++) {
		for (unsigned n = 1; n <= steps[which]; n++) {
			fake->count = 0;
			fake->fails_at = n;
			assert_true(make[which](&bo) < 0);
			nothing_left();
		}
		fake->fails_at = 0;
		fake->count = 0;
		assert_int_equal(make[which](&bo), 0);
		assert_int_equal(fake->count, all[which]); /* the command is unmapped, and an allocation exported */
		assert_int_equal(gnv_drm_free(drm, &bo), 0);
		nothing_left();
	}
	fake->count = 0;
	fake->fails_at = steps[1] + 1;
	assert_int_equal(import(&bo), -EBUSY);
	assert_int_equal(fake->maps, 1); /* the command's buffer, which the kernel kept */
	assert_int_equal(calls.ranges, 1);
	fake->bos = fake->maps = calls.ranges = 0;
}

static void test_refusals(void **state)
{
	static const struct {
		bool alloc;
		const char *function;
		int err;
		int ret;
		const char *says;
	} table[] = {
		{ true, "vram", -EINVAL, -ENOMEM, "no 4096 bytes" },
		{ true, "vram", -ENOMEM, -ENOMEM, "no 4096 bytes" },
		{ true, "bo_query_info", -EINVAL, -EIO, "the place of memory" },
		{ true, "map", -EINVAL, -EIO, "address" },
		{ true, "map", -ENOMEM, -ENOMEM, "address" },
		{ true, "bo_export", -EPERM, -EIO, "DMA-BUF" },
		{ false, "bo_import", -EOPNOTSUPP, -EOPNOTSUPP, "7.1" },
		{ false, "bo_import", -EINVAL, -EOPNOTSUPP, "7.1" },
		{ false, "bo_import", -ENODEV, -ENODEV, "revoked" },
		{ false, "bo_import", -ENOMEM, -ENOMEM, "import" },
		{ false, "bo_alloc", -ENOMEM, -ENOMEM, "command" },
		{ false, "cs_submit", -ENODEV, -EIO, "command" },
	};
	struct gnv_drm_bo bo;

	(void)state;
	for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		fake->refuse = table[i].function;
		fake->fails_with = table[i].err;
		assert_int_equal(table[i].alloc ? alloc(&bo) : import(&bo), table[i].ret);
		assert_non_null(strstr(gpunvme_errmsg(), table[i].says));
		fake->refuse = NULL;
		nothing_left();
	}
	fake->import_size = 0;
	assert_int_equal(import(&bo), -EIO);
	calls.fails_at = calls.count + 1; /* no addresses */
	calls.fails_with = ENOMEM;
	fake->import_size = PAGE;
	assert_int_equal(import(&bo), -ENOMEM);
}

/* An address that is free in the process need not be so in the GPU, where the runtime has mapped what the CPU has elsewhere. */
static void test_taken(void **state)
{
	struct gnv_drm_bo bo;

	(void)state;
	fake->taken = 2;
	assert_int_equal(import(&bo), 0);
	assert_int_equal(fake->va, (uintptr_t)bo.va);
	assert_int_equal(calls.ranges, 1); /* those in vain are given back */
	assert_int_equal(gnv_drm_free(drm, &bo), 0);
	fake->taken = 100;
	assert_int_equal(alloc(&bo), -EIO);
	assert_non_null(strstr(gpunvme_errmsg(), "no address in the GPU"));
	assert_true(fake->taken > 90);
	fake->taken = 0;
}

/* Without kernel queues no command says that a mapping is there: nothing is given out that a thread might not find. */
static void test_no_rings(void **state)
{
	struct gnv_drm_bo bo;

	(void)state;
	fake->no_rings = true;
	assert_int_equal(import(&bo), -EIO);
	assert_non_null(strstr(gpunvme_errmsg(), "takes no command"));
	nothing_left();
	assert_int_equal(alloc(&bo), -EIO);
	nothing_left();
}

/* What the kernel keeps stays: a device that it belongs to must not be closed. */
static void test_kept(void **state)
{
	struct gnv_drm_bo bo;

	(void)state;
	assert_int_equal(alloc(&bo), 0);
	fake->refuse = "unmap";
	fake->fails_with = -EBUSY;
	assert_int_equal(gnv_drm_free(drm, &bo), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "must stay open"));
	assert_int_equal(calls.fds, 1);
	assert_int_equal(fake->bos, 1);
	fake->refuse = NULL;
	assert_int_equal(gnv_drm_free(drm, &bo), 0);
}

static void test_open(void **state)
{
	struct gnv_drm *other = NULL;

	(void)state;
	assert_int_equal(gnv_drm_open(root, "0000:04:00.0", &other), -ENODEV);
	assert_non_null(strstr(gpunvme_errmsg(), "render node"));
	calls.open_errno = EACCES;
	assert_int_equal(gnv_drm_open(root, BDF, &other), -EACCES);
	assert_non_null(strstr(gpunvme_errmsg(), "group render"));
	calls.open_errno = 0;
	fake->refuse = "device_initialize";
	fake->fails_with = -EACCES;
	assert_int_equal(gnv_drm_open(root, BDF, &other), -ENODEV);
	fake->refuse = NULL;
	setenv("GPUNVME_DRM_LIBRARY", "/nonexistent.so", 1);
	assert_int_equal(gnv_drm_open(root, BDF, &other), -ENODEV);
	assert_non_null(strstr(gpunvme_errmsg(), "GPUNVME_DRM_LIBRARY"));
	setenv("GPUNVME_DRM_LIBRARY", "libc.so.6", 1); /* a library, but another one */
	assert_int_equal(gnv_drm_open(root, BDF, &other), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "amdgpu_device_initialize"));
	setenv("GPUNVME_DRM_LIBRARY", FAKE_DRM_LIBRARY, 1);
	assert_null(other);
}

/*
 * ROCm as TheRock builds it loads a libdrm of its own, librocm_sysdeps_drm_amdgpu.so.1. Whichever the runtime has loaded is asked:
 * a second one would open a second descriptor, and KFD says -EBUSY to that (Linux kfd_process.c, kfd_process_device_init_vm).
 */
static void test_runtimes_copy(void **state)
{
	struct fake_drm *(*get)(void), *theirs;
	void *handle = dlopen(FAKE_DRM_ROCM_LIBRARY, RTLD_NOW | RTLD_LOCAL);
	struct gnv_drm *other = NULL;

	(void)state;
	assert_non_null(handle);
	*(void **)&get = dlsym(handle, "fake_drm");
	theirs = get();
	assert_ptr_not_equal(theirs, fake);
	unsetenv("GPUNVME_DRM_LIBRARY");
	assert_int_equal(gnv_drm_open(root, BDF, &other), 0);
	assert_int_equal(theirs->devices, 1);
	gnv_drm_close(other);
	assert_int_equal(theirs->devices, 0);
	setenv("GPUNVME_DRM_LIBRARY", FAKE_DRM_LIBRARY, 1);
	dlclose(handle);
}

/* A partition's render node is not among its card's, and KFD names it. */
static void test_partition(void **state)
{
	static const char *const partitions[] = { "/dev/dri/renderD131", NULL };
	struct gnv_drm *other = NULL;

	(void)state;
	put_partition(4, 104, 0x303, 131, GIB);
	calls.nodes = partitions;
	assert_int_equal(gnv_drm_open(root, "0000:03:00.3", &other), 0);
	assert_int_equal(gnv_drm_check(root, "0000:03:00.2"), -ENODEV); /* no such partition: the card's node is not there */
	gnv_drm_close(other);
}

/*
 * The device of an import is going: its address leads to memory of the host, since the kernel drops the entries of an import whose
 * exporter moves it (Linux amdgpu_dma_buf.c, amdgpu_dma_buf_move_notify).
 */
static void test_fence_off(void **state)
{
	struct gnv_drm_bo bo;
	unsigned commands;
	void *va;

	(void)state;
	assert_int_equal(import(&bo), 0);
	va = bo.va;
	fake->refuse = "replace";
	fake->fails_with = -ENOMEM;
	assert_int_equal(gnv_drm_fence_off(drm, &bo), -EIO);
	assert_null(bo.instead);
	fake->refuse = NULL;
	commands = fake->commands;
	assert_int_equal(gnv_drm_fence_off(drm, &bo), 0);
	assert_int_equal(gnv_drm_fence_off(drm, &bo), 0); /* once */
	assert_int_equal(fake->replaced, 1);
	assert_int_equal(fake->commands, commands + 1); /* else nothing may lie there yet */
	assert_ptr_equal(bo.va, va);
	assert_int_equal(fake->maps, 1);
	assert_int_equal(gnv_drm_free(drm, &bo), 0);
}

/* What the kernel keeps is no loss of the library's. */
static void keep(void)
{
	const uint64_t size = fake->import_size;

	memset(fake, 0, sizeof(*fake));
	fake->devices = 1;
	fake->import_size = size;
	calls.ranges = calls.fds = 0;
}

/* Unmapping has succeeded, and nothing says that the GPU has let go: the device must stay. */
static void test_not_let_go(void **state)
{
	struct gnv_drm_bo bo;

	(void)state;
	assert_int_equal(import(&bo), 0);
	fake->refuse = "cs_submit";
	fake->fails_with = -ENODEV;
	assert_int_equal(gnv_drm_free(drm, &bo), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "must stay open"));
	keep();
	fake->hangs = true; /* the command was taken, and its end is not seen: maybe the GPU has the import */
	assert_int_equal(import(&bo), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "within a second"));
	keep();
}

/* The DMA-BUF of an import may be one that no child has. When it is given back its number may be anybody's, and a child keeps that. */
static void test_number_given_back(void **state)
{
	int source = open("/dev/null", O_RDWR | O_CLOEXEC), own, other, status;
	struct gnv_drm_bo bo;
	pid_t pid;

	(void)state;
	assert_int_equal(gnv_dmabuf_dup(source, &own), 0);
	assert_int_equal(gnv_drm_import(drm, own, PAGE, &bo), 0);
	assert_int_equal(gnv_drm_free(drm, &bo), 0);
	other = dup2(source, own);
	assert_int_equal(other, own);
	pid = fork();
	if (!pid)
		_exit(fcntl(other, F_GETFD) < 0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	close(other);
	close(source);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_alloc, begin, end),
		cmocka_unit_test_setup_teardown(test_less, begin, end),
		cmocka_unit_test_setup_teardown(test_import, begin, end),
		cmocka_unit_test_setup_teardown(test_every_step, begin, end),
		cmocka_unit_test_setup_teardown(test_refusals, begin, end),
		cmocka_unit_test_setup_teardown(test_taken, begin, end),
		cmocka_unit_test_setup_teardown(test_no_rings, begin, end),
		cmocka_unit_test_setup_teardown(test_kept, begin, end),
		cmocka_unit_test_setup_teardown(test_open, begin, end),
		cmocka_unit_test_setup_teardown(test_fence_off, begin, end),
		cmocka_unit_test_setup_teardown(test_runtimes_copy, begin, end),
		cmocka_unit_test_setup_teardown(test_partition, begin, end),
		cmocka_unit_test_setup_teardown(test_number_given_back, begin, end),
		cmocka_unit_test_setup_teardown(test_not_let_go, begin, end), /* last: something is kept */
	};

	return cmocka_run_group_tests(tests, make_world, tree_remove);
}
