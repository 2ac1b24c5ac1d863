/* SPDX-License-Identifier: MIT */
/* Memory of a GPU through HIP and through libdrm, with both libraries and the kernel emulated. */
#include <errno.h>
#include <gpunvme/gpunvme.h>
#include <libdrm/amdgpu_drm.h>
#include <stdint.h>

#include "mocks/drm/amdgpu.h"
#include "mocks/hip/fake_hip.h"
#include "gpu/vram.h"

#define UNCACHED (1u << 14) /* AMDGPU_GEM_CREATE_UNCACHED */

static char log_text[512];
static struct fake_hip *hip;
static uint64_t created; /* flags that the kernel knows of the buffer */
static int owner, tells;

static int answer(int fd, unsigned long request, void *arg)
{
	(void)fd;
	if (request == GNV_KFD_GET_VERSION) {
		((struct gnv_kfd_get_version *)arg)->major = 1;
		return 0;
	}
	if (request == DRM_IOCTL_PRIME_FD_TO_HANDLE) {
		((struct drm_prime_handle *)arg)->handle = 5;
		return 0;
	}
	if (request == DRM_IOCTL_AMDGPU_GEM_OP) {
		struct drm_amdgpu_gem_op *op = arg;

		assert_true(op->handle == 5 && op->op == AMDGPU_GEM_OP_GET_GEM_CREATE_INFO);
		((struct drm_amdgpu_gem_create_in *)(uintptr_t)op->value)->domain_flags = created;
		return tells;
	}
	assert_int_equal(request, GNV_KFD_ACQUIRE_VM);
	return owner;
}

static void listen(void *ctx, enum gpunvme_log_level level, const char *line)
{
	(void)ctx;
	(void)level;
	snprintf(log_text, sizeof(log_text), "%s", line);
}

static struct gnv_log the_log = { .fn = listen };

static int begin(void **state)
{
	(void)state;
	begin_world(answer);
	memset(hip, 0, sizeof(*hip));
	hip->version = 70000000;
	hip->devices = 2;
	owner = tells = 0;
	created = UNCACHED;
	log_text[0] = 0;
	return 0;
}

static int make_both(void **state)
{
	hip = mock_state("GPUNVME_HIP_LIBRARY", FAKE_HIP_LIBRARY, "fake_hip");
	return hip ? make_world(state) : -1;
}

static int alloc(uint32_t how, const char *bdf, struct gnv_gpu_bytes *bytes)
{
	return gnv_vram_alloc(how, root, bdf, KFD_ID, 8192, &the_log, bytes);
}

static void test_hip(void **state)
{
	struct gnv_gpu_bytes bytes;

	(void)state;
	assert_int_equal(alloc(GPUNVME_MEM_HIP, BDF, &bytes), 0);
	assert_int_equal(bytes.len, FAKE_HIP_UNIT);
	assert_true(bytes.lane && bytes.dmabuf >= 0 && !bytes.cpu);
	assert_string_equal(log_text, "");
	gnv_vram_free(&bytes);
	assert_int_equal(hip->handles + hip->ranges + hip->maps + calls.fds, 0);
	assert_int_equal(alloc(GPUNVME_MEM_HIP, "0000:09:00.0", &bytes), -ENODEV);
	hip->version = 50000000;
	assert_int_equal(alloc(GPUNVME_MEM_HIP, BDF, &bytes), -EOPNOTSUPP);
	assert_null(hip->broke);
}

static void is_cached(void)
{
	struct gnv_gpu_bytes bytes;

	log_text[0] = 0;
	assert_int_equal(alloc(GPUNVME_MEM_HIP, BDF, &bytes), 0);
	assert_non_null(strstr(log_text, "gpunvme_gpu_fence()"));
	gnv_vram_free(&bytes);
	assert_int_equal(hip->handles + hip->ranges + hip->maps + calls.fds, 0);
}

/* The kernel is believed, not HIP: 7.2 takes the type "uncached" and makes cached memory. */
static void test_hip_cached(void **state)
{
	(void)state;
	created = 0;
	is_cached();
	hip->no_uncached = true;
	is_cached();
	created = UNCACHED;
	tells = EINVAL;
	is_cached();
	tells = 0;
	calls.nodes = nodes + 2; /* none */
	is_cached();
}

static void test_drm(void **state)
{
	struct gnv_gpu_bytes bytes;

	(void)state;
	assert_int_equal(alloc(GPUNVME_MEM_DRM, BDF, &bytes), 0);
	calls.fds++; /* what the library exported */
	assert_int_equal(bytes.len, 8192);
	assert_int_equal(bytes.lane, fake->va);
	gnv_vram_free(&bytes);
	nothing_left();
	assert_int_equal(fake->devices, 0);
	assert_string_equal(log_text, "");
	fake->no_uncached = true;
	assert_int_equal(alloc(GPUNVME_MEM_DRM, BDF, &bytes), 0);
	calls.fds++;
	assert_non_null(strstr(log_text, "CDNA"));
	gnv_vram_free(&bytes);
	owner = EBUSY; /* the threads would not see it */
	assert_int_equal(alloc(GPUNVME_MEM_DRM, BDF, &bytes), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "ROCm 6"));
	owner = 0;
	fake->refuse = "vram";
	fake->fails_with = -ENOMEM;
	assert_int_equal(alloc(GPUNVME_MEM_DRM, BDF, &bytes), -ENOMEM);
	assert_int_equal(alloc(GPUNVME_MEM_DRM, "0000:09:00.0", &bytes), -ENODEV);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_hip, begin, end_world),
		cmocka_unit_test_setup_teardown(test_hip_cached, begin, end_world),
		cmocka_unit_test_setup_teardown(test_drm, begin, end_world),
	};

	return cmocka_run_group_tests(tests, make_both, tree_remove);
}
