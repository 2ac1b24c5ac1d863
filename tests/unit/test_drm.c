/* SPDX-License-Identifier: MIT */
/* libdrm_amdgpu: what is asked of it, what its refusals say, and that nothing is left behind whichever call fails. */
#include <errno.h>
#include <gpunvme/gpunvme.h>
#include <libdrm/amdgpu_drm.h>
#include <stdint.h>

#include "calls.h"
#include "common/played.h"
#include "common/tree.h"
#include "fake_drm.h"
#include "os/drm.h"

#define BDF "0000:03:00.0"
#define DMABUF 1900
#define PAGE 4096u
#define UNCACHED (1u << 14)

static const char *const nodes[] = { "/dev/dri/renderD129", NULL };
static struct fake_drm *fake;
static struct gnv_drm *drm;

static int make_world(void **state)
{
	fake = played("GPUNVME_DRM_LIBRARY", FAKE_DRM_LIBRARY, "fake_drm");
	if (!fake || tree_make(state))
		return -1;
	put("", "bus/pci/devices/%s/drm/card1/dev", BDF);
	put("", "bus/pci/devices/%s/drm/renderD129/dev", BDF);
	return 0;
}

static int begin(void **state)
{
	(void)state;
	calls_reset();
	calls.nodes = nodes;
	memset(fake, 0, sizeof(*fake));
	fake->import_size = PAGE;
	drm = NULL;
	assert_int_equal(gnv_drm_open(root, BDF, &drm), 0);
	assert_int_equal(calls.fds, 0); /* libdrm has its own */
	fake->count = 0;
	calls.count = 0;
	return 0;
}

static void nothing_left(void)
{
	assert_int_equal(fake->bos + fake->maps + fake->lists + fake->contexts, 0);
	assert_int_equal(calls.fds, 0);
	assert_int_equal(calls.ranges, 0);
}

static int end(void **state)
{
	(void)state;
	nothing_left();
	gnv_drm_close(drm);
	assert_int_equal(fake->devices, 0);
	if (fake->broke)
		fail_msg("%s", fake->broke);
	return 0;
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
	static const unsigned steps[] = { 4, 9 };
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
		assert_int_equal(fake->count, steps[which] + which); /* an import also unmaps its command */
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
		{ true, "bo_query_info", -EINVAL, -EIO, "where memory lies" },
		{ true, "map", -EINVAL, -EIO, "address" },
		{ true, "map", -ENOMEM, -ENOMEM, "address" },
		{ true, "bo_export", -EPERM, -EIO, "DMA-BUF" },
		{ false, "bo_import", -EOPNOTSUPP, -EOPNOTSUPP, "7.1" },
		{ false, "bo_import", -EINVAL, -EOPNOTSUPP, "7.1" },
		{ false, "bo_import", -ENODEV, -ENODEV, "revoked" },
		{ false, "bo_import", -ENOMEM, -ENOMEM, "import" },
		{ false, "bo_alloc", -ENOMEM, -ENOMEM, "command" },
		{ false, "cs_submit", -ENODEV, -EIO, "command" },
		{ false, "cs_query_fence_status", -ETIME, -ETIMEDOUT, "second" },
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
	fake->hangs = true;
	assert_int_equal(import(&bo), -ETIMEDOUT);
	fake->hangs = false;
	fake->import_size = 0;
	assert_int_equal(import(&bo), -EIO);
	calls.fails_at = calls.count + 1; /* no addresses */
	calls.fails_with = ENOMEM;
	fake->import_size = PAGE;
	assert_int_equal(import(&bo), -ENOMEM);
}

/* What the kernel keeps stays: a device behind it must not be closed. */
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_alloc, begin, end),
		cmocka_unit_test_setup_teardown(test_less, begin, end),
		cmocka_unit_test_setup_teardown(test_import, begin, end),
		cmocka_unit_test_setup_teardown(test_every_step, begin, end),
		cmocka_unit_test_setup_teardown(test_refusals, begin, end),
		cmocka_unit_test_setup_teardown(test_kept, begin, end),
		cmocka_unit_test_setup_teardown(test_open, begin, end),
	};

	return cmocka_run_group_tests(tests, make_world, tree_remove);
}
