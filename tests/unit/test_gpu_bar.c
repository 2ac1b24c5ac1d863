/* SPDX-License-Identifier: MIT */
/* The ways for a GPU to the doorbells: their order, how one gives way to the next, and that nothing is left. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <gpunvme/gpunvme.h>
#include <stdint.h>
#include <sys/mman.h>

#include "mocks/drm/amdgpu.h"
#include "gpu/bar.h"

#define PAGE 4096u

/* What the ways meet. */
static struct {
	int interop, export, owner, import, unmap, alloc; /* errors, 0: it works */
	uint64_t va;
	bool interop_kept;
	uint32_t kfd_id; /* of the GPU in hand */
	unsigned interop_maps;
	unsigned exports;
	char log[2048];
} world;

static int interop_map(void *ctx, int dmabuf, size_t len, void **va)
{
	static char bar[2 * PAGE];

	(void)ctx;
	assert_int_equal(len, sizeof(bar));
	assert_true(fcntl(dmabuf, F_GETFD) >= 0);
	if (world.interop)
		return gnv_fail(world.interop, "the runtime refuses");
	world.interop_maps++;
	*va = bar;
	return 0;
}

static int interop_unmap(void *ctx, void *va)
{
	(void)ctx;
	assert_non_null(va);
	if (world.interop_kept)
		return -EIO;
	world.interop_maps--;
	return 0;
}

static int export_fd(void *ctx, int *fd, uint64_t *offset)
{
	(void)ctx;
	if (world.export)
		return gnv_fail(world.export, "no export");
	*fd = memfd_create("bar", MFD_CLOEXEC);
	assert_int_equal(ftruncate(*fd, 2 * PAGE), 0);
	*offset = PAGE;
	world.exports++;
	return 0;
}

static int answer(int fd, unsigned long request, void *arg)
{
	struct gnv_kfd_map_memory *map = arg;

	(void)fd;
	switch (request) {
	case GNV_KFD_GET_VERSION:
		((struct gnv_kfd_get_version *)arg)->major = 1;
		return 0;
	case GNV_KFD_ACQUIRE_VM:
		assert_int_equal(((struct gnv_kfd_acquire_vm *)arg)->drm_fd, FAKE_DRM_FD);
		return world.owner;
	case GNV_KFD_IMPORT_DMABUF:
		assert_int_equal(((struct gnv_kfd_import_dmabuf *)arg)->gpu_id, world.kfd_id);
		return world.import;
	case GNV_KFD_ALLOC_MEMORY:
		assert_int_equal(((struct gnv_kfd_alloc_memory *)arg)->va, world.va);
		((struct gnv_kfd_alloc_memory *)arg)->handle = 99;
		calls_note('A');
		return world.alloc;
	case GNV_KFD_FREE_MEMORY:
		calls_note('F');
		return 0;
	case GNV_KFD_MAP_MEMORY:
	case GNV_KFD_UNMAP_MEMORY: /* never to a peer of the GPU, nor from it */
		assert_int_equal(map->count, 1);
		assert_int_equal(*(uint32_t *)(uintptr_t)map->gpu_ids, world.kfd_id);
		map->done = 1;
		calls_note(request == GNV_KFD_MAP_MEMORY ? 'M' : 'U');
		return request == GNV_KFD_UNMAP_MEMORY ? world.unmap : 0;
	default:
		return 0;
	}
}

static void listen(void *ctx, enum gpunvme_log_level level, const char *line)
{
	size_t len = strlen(world.log);

	(void)ctx;
	assert_int_equal(level, GPUNVME_LOG_INFO);
	snprintf(world.log + len, sizeof(world.log) - len, "%s\n", line);
}

static unsigned count_fds(void)
{
	DIR *dir = opendir("/proc/self/fd");
	unsigned count = 0;

	while (readdir(dir))
		count++;
	closedir(dir);
	return count;
}

static struct gnv_log the_log = { .fn = listen };
static struct gnv_bar_gpu gpu = { root, BDF, KFD_ID, "gfx1100", 0, &the_log, interop_map, interop_unmap, NULL };
static const struct gnv_gpu_foreign foreign = { NULL, PAGE, export_fd, NULL, false };
static unsigned fds;

static int begin(void **state)
{
	(void)state;
	begin_world(answer);
	memset(&world, 0, sizeof(world));
	fake->import_size = 2 * PAGE;
	world.kfd_id = KFD_ID;
	gpu.distrust = 0;
	gpu.gfx = "gfx1100";
	fds = count_fds();
	return 0;
}

static int end(void **state)
{
	assert_int_equal(count_fds(), fds);
	assert_int_equal(world.interop_maps, 0);
	return end_world(state);
}

static void expect(int way)
{
	struct gnv_bar bar;

	assert_int_equal(gnv_bar_map(&gpu, &foreign, &bar), 0);
	assert_int_equal(bar.way, way);
	if (way == GNV_BAR_DRM)
		assert_int_equal(bar.lane, fake->va + PAGE); /* where the part begins */
	assert_int_equal(gnv_bar_unmap(&gpu, &bar), 0);
}

/* One way after another is refused, with another reason, and the next one is taken. */
static void test_fallback(void **state)
{
	struct gnv_bar bar;

	(void)state;
	expect(GNV_BAR_DRM);
	assert_int_equal(world.exports, 1);
	assert_int_equal(fake->commands, 2); /* after mapping and after unmapping */
	world.owner = EBUSY;
	expect(GNV_BAR_KFD);
	assert_int_equal(world.exports, 3); /* each try has one of its own */
	world.owner = 0;
	fake->no_rings = true; /* libdrm's mapping cannot be confirmed */
	expect(GNV_BAR_KFD);
	fake->no_rings = false;
	world.owner = EBUSY;
	world.exports = 3;
	world.import = EOPNOTSUPP;
	expect(GNV_BAR_INTEROP); /* last: where it goes wrong nothing comes after it */
	world.interop = -EINVAL;
	world.log[0] = 0;
	assert_int_equal(gnv_bar_map(&gpu, &foreign, &bar), -EOPNOTSUPP);
	assert_non_null(strstr(world.log, "by interop: the runtime refuses"));
	assert_non_null(strstr(world.log, "by drm: the ROCm runtime does not use libdrm"));
	assert_non_null(strstr(world.log, "by kfd: the exporter refuses GPU 77"));
	assert_null(strstr(world.log, "reaches"));
}

/* Where KFD maps uncached it comes before libdrm, whose mapping the kernel may move. */
static void test_order(void **state)
{
	static const struct {
		const char *gfx;
		int way;
	} table[] = { { "gfx942", GNV_BAR_KFD },  { "gfx90a", GNV_BAR_DRM },  { "gfx950", GNV_BAR_DRM },
		      { "gfx1030", GNV_BAR_DRM }, { "gfx1201", GNV_BAR_DRM }, { "gfx906", GNV_BAR_DRM } };

	(void)state;
	world.interop = -EINVAL;
	for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		gpu.gfx = table[i].gfx;
		expect(table[i].way);
	}
}

/* What has failed a test is left out. */
static void test_distrust(void **state)
{
	struct gnv_bar bar;

	(void)state;
	gpu.distrust = 1u << GNV_BAR_DRM;
	expect(GNV_BAR_KFD);
	gpu.distrust |= 1u << GNV_BAR_KFD;
	expect(GNV_BAR_INTEROP);
	gpu.distrust |= 1u << GNV_BAR_INTEROP;
	assert_int_equal(gnv_bar_map(&gpu, &foreign, &bar), -EOPNOTSUPP);
}

/* A DMA-BUF of which KFD may have one import already: it would count the two as one, and free it twice. */
static void test_shared(void **state)
{
	static const struct gnv_gpu_foreign shared = { NULL, PAGE, export_fd, NULL, true };
	struct gnv_bar bar;

	(void)state;
	world.interop = -EINVAL;
	gpu.gfx = "gfx942"; /* where KFD comes first */
	assert_int_equal(gnv_bar_map(&gpu, &shared, &bar), 0);
	assert_int_equal(bar.way, GNV_BAR_DRM);
	assert_int_equal(gnv_bar_unmap(&gpu, &bar), 0);
	world.owner = EBUSY;
	assert_int_equal(gnv_bar_map(&gpu, &shared, &bar), -EOPNOTSUPP);
}

static void test_refusals(void **state)
{
	static const struct gnv_gpu_foreign large = { NULL, 2 * PAGE, export_fd, NULL, false };
	struct gnv_bar bar;

	(void)state;
	world.export = -EOPNOTSUPP;
	assert_int_equal(gnv_bar_map(&gpu, &foreign, &bar), -EOPNOTSUPP);
	assert_string_equal(world.log, "");
	world.export = 0;
	assert_int_equal(gnv_bar_map(&gpu, &large, &bar), -EINVAL); /* it begins on its second page */
	world.interop = -EINVAL;
	setenv("GPUNVME_DRM_LIBRARY", "/nonexistent.so", 1);
	expect(GNV_BAR_KFD);
	setenv("GPUNVME_DRM_LIBRARY", FAKE_DRM_LIBRARY, 1);
}

/* A GPU that does not let go: its controller must not be closed. */
static void test_kept(void **state)
{
	struct gnv_bar bar;

	(void)state;
	gpu.distrust = 1u << GNV_BAR_DRM | 1u << GNV_BAR_KFD;
	assert_int_equal(gnv_bar_map(&gpu, &foreign, &bar), 0);
	gpu.distrust = 0;
	world.interop_kept = true;
	assert_int_equal(gnv_bar_unmap(&gpu, &bar), -EBUSY);
	world.interop_kept = false;
	assert_int_equal(gnv_bar_unmap(&gpu, &bar), 0);
	world.interop = -EINVAL;
	world.owner = EBUSY;
	assert_int_equal(gnv_bar_map(&gpu, &foreign, &bar), 0);
	assert_int_equal(bar.way, GNV_BAR_KFD);
	world.unmap = ENOMEM;
	assert_int_equal(gnv_bar_unmap(&gpu, &bar), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "must stay open"));
	world.unmap = 0;
	assert_int_equal(gnv_bar_unmap(&gpu, &bar), 0);
}

/*
 * The controller is given back while threads may ring. libdrm's mapping is replaced before the reset, at which the kernel would
 * drop its entries (Linux amdgpu_dma_buf.c, amdgpu_dma_buf_move_notify); KFD's after it, while the queues of the process stand
 * still, as they would without limit (amdgpu_amdkfd_gpuvm.c, amdgpu_amdkfd_gpuvm_restore_process_bos).
 */
static void test_fence_off(void **state)
{
	struct gnv_bar bar;

	(void)state;
	gpu.distrust = 1u << GNV_BAR_DRM | 1u << GNV_BAR_KFD;
	assert_int_equal(gnv_bar_map(&gpu, &foreign, &bar), 0);
	assert_int_equal(bar.way, GNV_BAR_INTEROP);
	gpu.distrust = 0;
	assert_int_equal(gnv_bar_fence_off(&gpu, &bar, false), 0);
	assert_int_equal(gnv_bar_fence_off(&gpu, &bar, true), -EOPNOTSUPP);
	assert_false(bar.fenced_off);
	assert_int_equal(gnv_bar_unmap(&gpu, &bar), 0);

	world.interop = -EINVAL;
	assert_int_equal(gnv_bar_map(&gpu, &foreign, &bar), 0);
	assert_int_equal(bar.way, GNV_BAR_DRM);
	assert_false(bar.fenced_off);
	assert_int_equal(gnv_bar_fence_off(&gpu, &bar, false), 0);
	assert_true(bar.fenced_off);
	assert_int_equal(fake->replaced, 1);
	assert_int_equal(gnv_bar_fence_off(&gpu, &bar, true), 0);
	assert_int_equal(fake->replaced, 1);
	assert_int_equal(gnv_bar_unmap(&gpu, &bar), 0);

	world.owner = EBUSY;
	for (unsigned turn = 0; turn < 2; turn++) {
		assert_int_equal(gnv_bar_map(&gpu, &foreign, &bar), 0);
		assert_int_equal(bar.way, GNV_BAR_KFD);
		world.va = bar.lane - PAGE;
		world.alloc = turn ? ENOMEM : 0;
		memset(calls.order, 0, sizeof(calls.order));
		assert_int_equal(gnv_bar_fence_off(&gpu, &bar, false), 0);
		assert_string_equal(calls.order, "");
		assert_false(bar.fenced_off);
		assert_int_equal(gnv_bar_fence_off(&gpu, &bar, true), turn ? -ENOMEM : 0);
		assert_true(bar.fenced_off);
		assert_string_equal(calls.order, turn ? "UFA" : "UFAM");
		assert_int_equal(gnv_bar_unmap(&gpu, &bar), 0); /* nothing twice */
		assert_memory_equal(calls.order, turn ? "UFAmc" : "UFAMUF", 5);
	}
}

/* Each GPU has an import, a DMA-BUF and a mapping of its own. */
static void test_two_gpus(void **state)
{
	struct gnv_bar_gpu peer = gpu;
	struct gnv_bar bar, other;

	(void)state;
	world.interop = -EINVAL;
	gpu.gfx = peer.gfx = "gfx942";
	peer.kfd_id = 78;
	assert_int_equal(gnv_bar_map(&gpu, &foreign, &bar), 0);
	world.kfd_id = 78;
	assert_int_equal(gnv_bar_map(&peer, &foreign, &other), 0);
	assert_int_equal(bar.way, GNV_BAR_KFD);
	assert_int_equal(other.way, GNV_BAR_KFD);
	assert_int_equal(world.exports, 2);
	assert_int_not_equal(bar.lane, other.lane);
	world.kfd_id = KFD_ID;
	assert_int_equal(gnv_bar_unmap(&gpu, &bar), 0);
	world.kfd_id = 78;
	assert_int_equal(gnv_bar_unmap(&peer, &other), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_fallback, begin, end),
		cmocka_unit_test_setup_teardown(test_order, begin, end),
		cmocka_unit_test_setup_teardown(test_distrust, begin, end),
		cmocka_unit_test_setup_teardown(test_shared, begin, end),
		cmocka_unit_test_setup_teardown(test_refusals, begin, end),
		cmocka_unit_test_setup_teardown(test_kept, begin, end),
		cmocka_unit_test_setup_teardown(test_fence_off, begin, end),
		cmocka_unit_test_setup_teardown(test_two_gpus, begin, end),
	};

	return cmocka_run_group_tests(tests, make_world, tree_remove);
}
