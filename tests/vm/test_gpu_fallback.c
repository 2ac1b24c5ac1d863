/* SPDX-License-Identifier: MIT */
/*
 * The fallback order: what a kernel with a real GPU driver refuses, or does instead, is refused and done here; a queue gets the next placement,
 * says why, and works there.
 */
#include <pthread.h>
#include <unistd.h>

#include "gpu_rig.h"
#include "mocks/drm/fake_drm.h"

#define EVICTED_MS 5000u

static struct fake_drm *drm;

/* Where the mock libdrm gives an import an address, the BAR appears. */
static int drm_place(uint32_t imported, uint64_t va, bool map)
{
	void *at = (void *)(uintptr_t)va;
	size_t len;

	if (!map)
		seam_unmap(at, true);
	return map && !seam_map((int)imported, at, SEAM_WAY_DRM, &len) ? -EINVAL : 0;
}

static void drm_fence_off(uint64_t va, uint64_t size)
{
	seam_fence_off((void *)(uintptr_t)va, size);
}

static void refuse(enum seam_call call, int err, unsigned from, unsigned count)
{
	seam.refuse[call].err = err;
	seam.refuse[call].from = from;
	seam.refuse[call].upto = from + count - 1;
}

static enum seam_call vram_call(void)
{
	return type1 ? SEAM_MAP_VRAM : SEAM_MAP_FILE;
}

/* A queue comes to be on this placement, and works. */
static void lands(const char *placement)
{
	const struct gpunvme_queue_opts opts = { sizeof(opts), 0, 64, 120000, 0, 0, 0 }; /* an emulated processor may be away for long */
	struct gpunvme_queue *qp;

	good(gpunvme_queue_create(dev, gpu, &opts, &qp));
	is_placement(qp, placement);
	use(qp, !strncmp(placement, "vram", 4));
	gpunvme_queue_destroy(qp);
}

static void start(void)
{
	begin(NULL);
	seam.gpu_nodes = false;
}

/* Whose doing it is: this kernel's, or, where contrib/kernel is, the driver's. The library finds that out by asking. */
static const char *why_no_addresses(void)
{
	return access("/sys/bus/pci/drivers/vram-test", F_OK) ? "takes device memory of vfio-pci only"
							      : "the GPU's driver offers none of this";
}

/* Every refusal of memory of a GPU: of the scratch buffer, of the rings, of the data. */
static void test_vram_refused(void **state)
{
	static const struct {
		int err;
		unsigned from;
		const char *why[2]; /* IOMMUFD, type 1 */
	} table[] = {
		{ EOPNOTSUPP, 1, { NULL, "not supported" } },
		{ EINVAL, 1, { "Invalid argument", "Invalid argument" } },
		{ EFAULT, 1, { "cannot be pinned", "cannot be pinned" } },
		{ ENODEV, 1, { "was revoked", "No such device" } },
		{ EPERM, 1, { "not permitted", "not permitted" } },
		{ ENOSPC, 1, { "No space", "dma_entry_limit" } },
		{ ENOMEM, 1, { "Cannot allocate memory", "Cannot allocate memory" } },
		{ EEXIST, 1, { "File exists", "File exists" } },
		{ EBUSY, 1, { "busy", "busy" } },
		{ EIO, 2, { "Input/output", "Input/output" } },
		{ ENODEV, 2, { "was revoked", "No such device" } },
		{ ENOSPC, 2, { "No space", "dma_entry_limit" } },
		{ EINVAL, 3, { "Invalid argument", "Invalid argument" } },
		{ EFAULT, 3, { "cannot be pinned", "cannot be pinned" } },
		{ ENODEV, 3, { "was revoked", "No such device" } },
	};
	bool asked;

	(void)state;
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		start();
		refuse(vram_call(), table[i].err, table[i].from, 1);
		open_quick();
		lands("direct-db");
		said("placement vram does not work, trying direct-db: ");
		asked = !table[i].why[type1]; /* with a page of the drive's */
		said(asked ? why_no_addresses() : table[i].why[type1]);
		if (table[i].from == 1)
			assert_int_equal(seam.seen[vram_call()], 1 + asked); /* only with the scratch buffer was it tried */
		close_both();
	}
}

/* The runtime exports nothing; or, for type 1, the CPU does not reach the memory. Nor may type 1 map it unasked. */
static void test_no_export(void **state)
{
	(void)state;
	if (type1) {
		char *safe = strdup(uri);

		*strchr(safe, '&') = 0;
		uri = safe;
		open_quick();
		lands("direct-db");
		said("placement vram does not work, trying direct-db: ");
		said("unsafe-vram=1 in the URI allows it");
		uri = getenv("GPUNVME_TEST_URI");
		free(safe);
		return;
	}
	seam_reset();
	setenv("MOCK_FAIL", "amd_portable_export_dmabuf:0:1000", 1); /* which the newer function uses */
	open_quick();
	lands("direct-db");
	said("no DMA-BUF of its memory");
	said("cannot be pinned"); /* the scratch buffer by its CPU address */
}

/* BAR0 for the threads: libdrm's import, KFD's, the runtime's, the forwarder. */
static void test_bar_ways(void **state)
{
	(void)state;
	for (unsigned refused = 0; refused < 4; refused++) {
		static const char *const by[] = { "by drm", "by kfd", "by interop", NULL };

		start();
		seam.gpu_nodes = true;
		drm->refuse = refused >= 1 ? "bo_import" : NULL;
		drm->fails_with = -EOPNOTSUPP;
		if (refused >= 2)
			refuse(SEAM_KFD_IMPORT, EOPNOTSUPP, 1, 1000);
		if (refused >= 3)
			refuse(SEAM_INTEROP, EINVAL, 1, 1000);
		open_quick();
		lands(by[refused] ? "vram" : "vram+fwd");
		if (by[refused])
			said(by[refused]);
		else
			said("a CPU thread rings the doorbells");
		if (refused >= 1)
			said("amdgpu cannot import the BAR: a kernel before 7.1");
		if (refused >= 2)
			said("the exporter refuses GPU 0: a kernel before 7.1");
		if (refused >= 3)
			said("it does not take that DMA-BUF");
		assert_int_equal(drm->devices + drm->bos + drm->maps, 0);
		assert_null(drm->broke);
		close_both();
	}
}

static struct {
	uint64_t doorbell;
	unsigned rung; /* atomic */
	bool stop;     /* atomic */
	int ret;
} ringer;

/* Threads that ring and ring, whatever becomes of the device. */
static void *keep_ringing(void *arg)
{
	(void)arg;
	while (!ringer.ret && !__atomic_load_n(&ringer.stop, __ATOMIC_RELAXED)) {
		ringer.ret = gnv_gpu_fill(gpu, ringer.doorbell, 4, 0);
		__atomic_add_fetch(&ringer.rung, 1, __ATOMIC_RELAXED);
	}
	return NULL;
}

static void ring_more(unsigned times)
{
	const unsigned until = __atomic_load_n(&ringer.rung, __ATOMIC_RELAXED) + times;

	while (__atomic_load_n(&ringer.rung, __ATOMIC_RELAXED) < until && !ringer.ret)
		usleep(1000);
}

/* As KFD does with a process whose import is moved: until long after the replacement no thread runs. */
static void evict(void)
{
	unsigned (*evict_all)(unsigned ms) = NULL;

	*(void **)&evict_all = mock_symbol("mock_evict");
	evict_all(EVICTED_MS);
	usleep(100000); /* every store that has begun is done */
}

static void tell_driver(const char *file)
{
	FILE *to = fopen(file, "w");

	assert_non_null(to);
	assert_true(fprintf(to, "%.12s", uri) == 12);
	assert_int_equal(fclose(to), 0);
}

/*
 * An administrator unbinds the controller while threads ring: they ring on, into nothing. By libdrm memory of the host is there
 * before the reset; by KFD after it, and in between the driver has stopped the queues.
 */
static void test_unbound(void **state)
{
	char unbind[100];

	(void)state;
	snprintf(unbind, sizeof(unbind), "/sys/bus/pci/devices/%.12s/driver/unbind", uri);
	for (unsigned by_kfd = 0; by_kfd < 2; by_kfd++) {
		struct gpunvme_queue *qp;
		struct gpunvme_dq dq;
		pthread_t thread;

		start();
		seam.gpu_nodes = true;
		seam.evict = by_kfd ? evict : NULL;
		drm->refuse = by_kfd ? "bo_import" : NULL;
		drm->fails_with = -EOPNOTSUPP;
		open_quick();
		good(gpunvme_queue_create(dev, gpu, NULL, &qp));
		said(by_kfd ? "by kfd" : "by drm");
		good(gpunvme_queue_view(qp, NULL, &dq));
		memset(&ringer, 0, sizeof(ringer));
		ringer.doorbell = dq.cq_db;
		assert_int_equal(pthread_create(&thread, NULL, keep_ringing, NULL), 0);
		ring_more(10);
		tell_driver(unbind);
		ring_more(10);
		__atomic_store_n(&ringer.stop, true, __ATOMIC_RELAXED);
		pthread_join(thread, NULL);
		good(ringer.ret);
		gpunvme_queue_destroy(qp);
		close_both();
		said("it was released");
		seam.evict = NULL;
		assert_null(drm->broke);
		assert_null(seam.broke);
		tell_driver("/sys/bus/pci/drivers_probe");
	}
	drm->refuse = NULL;
}

/* Each errno that KFD may reply, by import and by mapping. */
static void test_kfd_refused(void **state)
{
	static const int errs[] = { ENOTTY, EOPNOTSUPP, EINVAL, ENODEV, EBADF, EACCES };

	(void)state;
	for (unsigned i = 0; i < 2 * sizeof(errs) / sizeof(errs[0]); i++) {
		start();
		seam.gpu_nodes = true;
		drm->refuse = "bo_import";
		drm->fails_with = -EINVAL;
		refuse(SEAM_INTEROP, EINVAL, 1, 1000);
		refuse(i & 1 ? SEAM_KFD_MAP : SEAM_KFD_IMPORT, errs[i / 2], 1, 1000);
		open_quick();
		lands("vram+fwd");
		said("cannot reach the doorbells by kfd");
		close_both();
	}
}

/* The kernel exports no BAR0 at all. */
static void test_no_bar_export(void **state)
{
	static const int errs[] = { ENOTTY, EOPNOTSUPP };

	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		start();
		refuse(SEAM_EXPORT, errs[i], 1, 1000);
		open_quick();
		lands("vram+fwd");
		said(i ? "Bind it to vfio-pci" : "Use Linux 6.19 or newer");
		close_both();
	}
}

/* Mappings that succeed, and whose stores never arrive, as of a GPU that keeps them in its cache: the 1,000 doorbells tell. */
static void test_deaf(void **state)
{
	(void)state;
	seam.gpu_nodes = true;
	drm->refuse = NULL;
	seam.deaf = SEAM_WAY_DRM;
	open_quick();
	lands("vram");
	said("doorbells that the GPU reaches by drm do not arrive in time");
	said("by kfd");
	close_both();
	start();
	seam.deaf = SEAM_WAY_INTEROP;
	open_quick();
	lands("vram+fwd");
	said("doorbells that the GPU reaches by interop do not arrive in time");
}

/* A refused attempt drives memory out of the GPU: only the scratch buffer was put at stake. */
static void test_migrates_refused(void **state)
{
	(void)state;
	*moves = (struct mock_moves){ 0, 0, 0 };
	setenv("MOCK_MIGRATES", "refused:1:1000000000", 1);
	refuse(vram_call(), EOPNOTSUPP, 1, 1000);
	open_quick();
	lands("direct-db");
	if (type1)
		return; /* it attaches to no DMA-BUF */
	assert_int_equal(moves->allocations, 1);
	assert_int_equal(moves->largest, 2 << 20);
	assert_int_equal(moves->neighbours, 0);
}

/*
 * A mapping that succeeds, of memory that then lies elsewhere: the controller goes on writing to where it was. That is caught by
 * what the threads read, for the data as for the rings, and doorbells are not blamed.
 */
static void test_migrates_accepted(void **state)
{
	static const struct {
		const char *plan, *why;
	} table[] = { { "accepted:1:16384", "data does not land where it should" },
		      { "accepted:131072:1000000000", "the controller does not see the commands" } };

	(void)state;
	if (type1)
		return;
	for (unsigned i = 0; i < 2; i++) {
		start();
		*moves = (struct mock_moves){ 0, 0, 0 };
		setenv("MOCK_MIGRATES", table[i].plan, 1);
		open_quick();
		memset((char *)(uintptr_t)seam.vram + (1 << 20), 0, seam.vram_len - (1 << 20)); /* no commands of earlier tests */
		lands("direct-db");
		assert_true(moves->allocations > 0);
		said("placement vram does not work, trying direct-db: ");
		said(table[i].why);
		close_both();
		unsetenv("MOCK_MIGRATES");
	}
}

/* It lies elsewhere for everybody: data is right, and not in the GPU. Only its driver knows. */
static void test_migrates_whole(void **state)
{
	(void)state;
	if (type1)
		return;
	setenv("MOCK_MIGRATES", "whole", 1);
	seam.gpu_nodes = true;
	drm->refuse = NULL;
	open_quick();
	lands("direct-db");
	said("placement vram does not work, trying direct-db: ");
	said("its driver has moved 4096 bytes of its memory to the host's");
	close_both();
	start(); /* without a render node nobody can tell */
	open_quick();
	lands("vram");
}

static int find_drm(void **state)
{
	drm = mock_state("GPUNVME_DRM_LIBRARY", getenv("GPUNVME_DRM_LIBRARY"), "fake_drm");
	assert_non_null(drm);
	drm->place = drm_place;
	drm->fence_off = drm_fence_off;
	return find_mock(state);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		TEST(test_vram_refused), TEST(test_no_export), TEST(test_bar_ways),	    TEST(test_kfd_refused),
		TEST(test_unbound), TEST(test_no_bar_export), TEST(test_deaf),     TEST(test_migrates_refused), TEST(test_migrates_accepted),
		TEST(test_migrates_whole),
	};

	cmocka_set_test_filter(argc > 1 ? argv[1] : NULL);
	return cmocka_run_group_tests(tests, find_drm, NULL);
}
