/* SPDX-License-Identifier: MIT */
/* What the doctor finds at a GPU: the kernel's side is a made-up sysfs, the runtime is the mock. */
#include <errno.h>
#include <gpunvme/gpunvme.h>
#include <sys/mman.h>

#include "common/gpu_tree.h"
#include "hsa/rig.h"
#include "machine/doctor.h"
#include "dev/dev.h"
#include "os/amd/uapi/kfd.h"
#include "mocks/hip/fake_hip.h"
#include "mocks/kernel/calls.h"

static struct gpunvme_check checks[GPUNVME_MAX_CHECKS];
static unsigned count;
static struct fake_hip *hip;

static int answer(int fd, unsigned long request, void *arg)
{
	(void)fd;
	if (request != GNV_KFD_GET_VERSION)
		return ENOTTY;
	((struct gnv_kfd_get_version *)arg)->major = 1;
	return 0;
}

static int begin(void **state)
{
	static const char *const nodes[] = { "/dev/kfd", "/dev/dri/renderD128", NULL };

	calls_reset();
	calls.nodes = nodes;
	calls.ioctl = answer;
	hip = mock_state("GPUNVME_HIP_LIBRARY", FAKE_HIP_LIBRARY, "fake_hip");
	assert_non_null(hip);
	memset(hip, 0, sizeof(*hip));
	hip->version = 60443484;
	return tree_make(state);
}

static int end(void **state)
{
	return tree_remove(state) || clear(state);
}

/* The controller seems to be across PCIe; its doorbells lead nowhere. */
static bool remote;
static int nowhere = -1;

int __real_gpunvme_dev_open(const char *at, const struct gpunvme_dev_opts *opts, struct gpunvme_dev **dev);
int __wrap_gpunvme_dev_open(const char *at, const struct gpunvme_dev_opts *opts, struct gpunvme_dev **dev);
int __wrap_gpunvme_dev_open(const char *at, const struct gpunvme_dev_opts *opts, struct gpunvme_dev **dev)
{
	int ret = __real_gpunvme_dev_open(at, opts, dev);

	if (!ret && remote) {
		(*dev)->nvme.port->remote = true;
		(*dev)->nvme.port->placement = "vfio-host";
		if (nowhere >= 0) {
			static const struct gnv_mem_ops far = { "bar", NULL, gnv_mem_attach_foreign, gnv_mem_detach_foreign };

			(*dev)->nvme.port->bar0->ops = &far;
			(*dev)->nvme.port->bar0->dmabuf = nowhere;
		}
	}
	return ret;
}

static void put_gpu(unsigned gfx, unsigned heap)
{
	put_pci("pci0000:00/0000:00:01.0/0000:40:00.0", 0x030000, 0x1002, 0);
	put("", "devices/pci0000:00/0000:00:01.0/0000:40:00.0/drm/renderD128/dev");
	put_node(1, 77, 0x4000, gfx, heap, 16 * GIB);
}

static int examine(const char *controller)
{
	struct gnv_report report = { .count = 0 };
	int ret = gnv_doctor_gpu(root, 0, controller, &report);

	count = GPUNVME_MAX_CHECKS;
	return report.count ? gnv_report_put(&report, checks, &count, sizeof(*checks)) : ret;
}

static void finds(const char *name, enum gpunvme_check_result result, const char *reason, const char *remedy)
{
	unsigned i;

	for (i = 0; i < count && strcmp(checks[i].name, name); i++)
		;
	if (i == count)
		fail_msg("%s was not asked", name);
	if (checks[i].result != result || !strstr(checks[i].reason, reason) || !strstr(checks[i].remedy, remedy))
		fail_msg("%s: result %u, '%s' -> '%s'", name, checks[i].result, checks[i].reason, checks[i].remedy);
}

/* All is well. */
static void test_fine(void **state)
{
	static const char *const names[] = { "kfd",	"listed", "render-node", "awake", "large-bar", "code-object",
					     "runtime", "kernel", "vram-export", "placement",  "hip",       "libraries" };
	size_t i;

	(void)state;
	put_gpu(110000, 1);
	assert_int_equal(examine(uri), 0);
	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		finds(names[i], GPUNVME_CHECK_OK, "", "");
	assert_int_equal(count, i + 2); /* and, without IOMMU and controller, "iommu-domain" and "path" */
	finds("hip", GPUNVME_CHECK_OK, "HIP 6.4.43484", "");
	finds("libraries", GPUNVME_CHECK_OK, "libhsa_mock.so", "");
	finds("iommu-domain", GPUNVME_CHECK_SKIPPED, "no IOMMU", "");
	finds("listed", GPUNVME_CHECK_OK, "gfx1100, node 1", "");
	finds("path", GPUNVME_CHECK_SKIPPED, "no controller on the PCI bus", "");
	finds("placement", GPUNVME_CHECK_OK, "placement soft", "");
	assert_int_equal(examine(NULL), 0);
	finds("placement", GPUNVME_CHECK_SKIPPED, "no controller", "");
	assert_int_equal(examine("soft:/nonexistent/image"), 0);
	finds("placement", GPUNVME_CHECK_SKIPPED, "cannot be opened", "");
	assert_int_equal(calls.fds, 0);
}

static void test_nodes(void **state)
{
	(void)state;
	put_gpu(110000, 1);
	calls.open_errno = EACCES;
	assert_int_equal(examine(NULL), -EACCES);
	finds("kfd", GPUNVME_CHECK_FAILED, "/dev/kfd: no permission", "group render");
	finds("render-node", GPUNVME_CHECK_LIMIT, "renderD128: no permission", "group render");
	finds("kernel", GPUNVME_CHECK_OK, "", ""); /* the mock needs neither */
	calls.open_errno = ENOENT;
	assert_int_equal(examine(NULL), -ENODEV);
	finds("kfd", GPUNVME_CHECK_FAILED, "does not exist", "Load amdgpu");
}

static void test_limits(void **state)
{
	(void)state;
	put_gpu(110000, 2);
	put("268435456\n", "devices/pci0000:00/0000:00:01.0/0000:40:00.0/mem_info_vis_vram_total");
	put("suspended\n", "devices/pci0000:00/0000:00:01.0/0000:40:00.0/power/runtime_status");
	pretend("MOCK_LACKS", "fine");
	pretend("MOCK_MINOR", "7");
	examine(NULL);
	finds("awake", GPUNVME_CHECK_LIMIT, "asleep", "0000:40:00.0/power/control");
	finds("large-bar", GPUNVME_CHECK_LIMIT, "256 of its 16384 MiB", "resizable BAR");
	finds("vram-export", GPUNVME_CHECK_LIMIT, "no fine-grained memory", "");
	finds("kernel", GPUNVME_CHECK_OK, "", "");
	pretend("MOCK_LACKS", "export");
	unsetenv("MOCK_MINOR");
	examine(NULL);
	finds("vram-export", GPUNVME_CHECK_LIMIT, "no DMA-BUF", "");
}

static void test_failures(void **state)
{
	static const char *const after[] = { "kernel", "vram-export", "placement" };
	char *mock = strdup(getenv("GPUNVME_HSA_LIBRARY"));
	size_t i;

	(void)state;
	put_gpu(80003, 1);
	pretend("MOCK_GPUS", "0");
	assert_true(examine(uri) < 0);
	finds("code-object", GPUNVME_CHECK_FAILED, "no code for gfx803", "");
	finds("runtime", GPUNVME_CHECK_FAILED, "0x1008", "group render");
	for (i = 0; i < 3; i++)
		finds(after[i], GPUNVME_CHECK_SKIPPED, "does not take it", "");
	setenv("GPUNVME_HSA_LIBRARY", "libc.so.6", 1);
	examine(NULL);
	finds("runtime", GPUNVME_CHECK_FAILED, "has no hsa_init()", "too old");
	setenv("GPUNVME_HSA_LIBRARY", "/nonexistent.so", 1);
	examine(NULL);
	finds("runtime", GPUNVME_CHECK_FAILED, "cannot be loaded", "GPUNVME_HSA_LIBRARY");
	setenv("GPUNVME_HSA_LIBRARY", mock, 1);
	free(mock);
	unsetenv("MOCK_GPUS");
	pretend("MOCK_FAIL", "dispatch:1:29");
	assert_true(examine(NULL) < 0);
	finds("kernel", GPUNVME_CHECK_FAILED, "0x29", "");
	finds("vram-export", GPUNVME_CHECK_SKIPPED, "no kernel runs", "");
	finds("placement", GPUNVME_CHECK_SKIPPED, "no kernel runs", "");
}

static void test_unlisted(void **state)
{
	(void)state;
	put_pci("pci0000:00/0000:00:01.0/0000:40:00.0", 0x030000, 0x1002, 0);
	put(">../../../bus/pci/drivers/vfio-pci", "devices/pci0000:00/0000:00:01.0/0000:40:00.0/driver");
	assert_int_equal(examine(NULL), -ENODEV);
	finds("listed", GPUNVME_CHECK_FAILED, "whose driver is vfio-pci", "amdgpu");
	finds("runtime", GPUNVME_CHECK_SKIPPED, "does not list it", "");
	assert_int_equal(gnv_doctor_gpu(root, 1, NULL, &(struct gnv_report){ .count = 0 }), -ENOENT);
}

/* Which placement queues get, and why no better one. */
static void test_placement(void **state)
{
	(void)state;
	put_gpu(110000, 1);
	remote = true;
	assert_int_equal(examine(uri), 0);
	finds("placement", GPUNVME_CHECK_OK, "queues get placement vram", "");
	pretend("MOCK_LACKS", "fine");
	pretend("MOCK_MINOR", "7");
	assert_int_equal(examine(uri), 0);
	finds("placement", GPUNVME_CHECK_LIMIT, "queues get placement direct-db and no better one: ", "");
	finds("placement", GPUNVME_CHECK_LIMIT, "no fine-grained memory", "");
	pretend("MOCK_FAIL", "memory_copy:5:1000"); /* in the self-test of that placement, too */
	assert_int_equal(examine(uri), 0);
	finds("placement", GPUNVME_CHECK_LIMIT, "queues get placement vfio-host+fwd and no better one: ", "");
	finds("placement", GPUNVME_CHECK_LIMIT, "cannot be copied", "");
	remote = false;
}

/* The ways to the doorbells, each with its reason: the first one maps something, and rings do not arrive. */
static void test_doorbells(void **state)
{
	(void)state;
	put_gpu(110000, 1);
	pretend("MOCK_INTEROP", "1");
	remote = true;
	nowhere = memfd_create("bar0", MFD_CLOEXEC);
	assert_int_equal(ftruncate(nowhere, 1 << 20), 0);
	assert_int_equal(examine(uri), 0);
	finds("db-interop", GPUNVME_CHECK_LIMIT, "do not arrive in time", "Another way");
	finds("db-drm", GPUNVME_CHECK_LIMIT, "0000:40:00.0", "");
	finds("db-kfd", GPUNVME_CHECK_LIMIT, "others may have imported that DMA-BUF", "");
	finds("placement", GPUNVME_CHECK_LIMIT, "queues get placement vram+fwd and no better one: a CPU thread rings", "");
	pretend("MOCK_FAIL", "amd_interop_map_buffer:1:1000");
	assert_int_equal(examine(uri), 0);
	finds("db-interop", GPUNVME_CHECK_LIMIT, "does not take that DMA-BUF", "");
	assert_int_equal(calls.fds, 0);
	close(nowhere);
	nowhere = -1;
	remote = false;
}

/* With a controller on the bus: near and far, and bridges of which only root may know. */
static void test_path(void **state)
{
	(void)state;
	put_gpu(110000, 1);
	put_pci("pci0000:00/0000:00:02.0/0000:05:00.0", 0x010802, 0x144d, 0);
	put_pci("pci0000:80/0000:80:02.0/0000:85:00.0", 0x010802, 0x144d, 1);
	examine("0000:05:00.0");
	finds("path", GPUNVME_CHECK_OK, "one root complex", "");
	finds("acs", GPUNVME_CHECK_SKIPPED, "only root", "");
	finds("p2pdma", GPUNVME_CHECK_SKIPPED, "which processor", "");
	put("cpu:type:x86,ven0002fam001Amod0070:feature:,0000\n", "devices/system/cpu/modalias");
	examine("0000:05:00.0");
	finds("p2pdma", GPUNVME_CHECK_OK, "through the host bridge, derived from AMD's processor family 1ah", "");
	put("cpu:type:x86,ven0000fam0006mod008F:feature:,0000\n", "devices/system/cpu/modalias");
	put_pci("pci0000:00/0000:00:00.0", 0x060000, 0x8086, 0);
	examine("0000:05:00.0");
	finds("p2pdma", GPUNVME_CHECK_LIMIT, "refuses, as derived", "slots below one switch");
	examine("pci:0000:85:00.0");
	finds("path", GPUNVME_CHECK_LIMIT, "different sockets", "slots of one");
	examine("0000:99:00.0");
	finds("path", GPUNVME_CHECK_SKIPPED, "0000:99:00.0", "");
}

/* What the kernel's IOMMU does to addresses of the GPU. */
static void test_domain(void **state)
{
	(void)state;
	put_gpu(110000, 1);
	put(">../../../../kernel/iommu_groups/14", "devices/pci0000:00/0000:00:01.0/0000:40:00.0/iommu_group");
	put("DMA-FQ\n", "kernel/iommu_groups/14/type");
	examine(NULL);
	finds("iommu-domain", GPUNVME_CHECK_OK, "group 14 has a domain of type DMA-FQ", "");
	put("identity\n", "kernel/iommu_groups/14/type");
	examine(NULL);
	finds("iommu-domain", GPUNVME_CHECK_OK, "type identity: its addresses are those of memory", "");
	put("", "kernel/iommu_groups/14/type");
	examine(NULL);
	finds("iommu-domain", GPUNVME_CHECK_SKIPPED, "does not show", "");
}

/* HIP may be missing or silent; what is loaded is named all the same. */
static void test_versions(void **state)
{
	(void)state;
	put_gpu(110000, 1);
	hip->version = 70251831;
	examine(NULL);
	finds("hip", GPUNVME_CHECK_OK, "HIP 7.2.51831", "");
	setenv("GPUNVME_HIP_LIBRARY", "/nonexistent.so", 1);
	examine(NULL);
	finds("hip", GPUNVME_CHECK_SKIPPED, "HIP (libamdhip64) cannot be loaded", "");
	finds("libraries", GPUNVME_CHECK_OK, "libhsa_mock.so", "");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
	const struct CMUnitTest tests[] = { TEST(test_fine),   TEST(test_nodes),    TEST(test_placement),	 TEST(test_doorbells),
					    TEST(test_limits), TEST(test_failures), TEST(test_unlisted), TEST(test_path),
					    TEST(test_domain), TEST(test_versions) };

	return cmocka_run_group_tests(tests, setup, teardown);
}
