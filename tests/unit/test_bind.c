/* SPDX-License-Identifier: MIT */
/*
 * Giving a controller back to the kernel, over a made-up sysfs and procfs. /dev/zero stands for the node of the device, /dev/null
 * for that of its group.
 */
#include <errno.h>
#include <gpunvme/status.h>

#include "common/tree.h"
#include "machine/bind.h"

#define ONE "0000:01:00.0"
#define DEVICE "bus/pci/devices/" ONE

#define REMEDY "End it, or let it close the file"

static char proc[64];

static void put_device(const char *bdf, const char *driver)
{
	char target[64];

	put("0x010802\n", "bus/pci/devices/%s/class", bdf);
	snprintf(target, sizeof(target), ">../../drivers/%s", driver);
	put(target, "bus/pci/devices/%s/driver", bdf);
	put(">../../../../groups/5", "bus/pci/devices/%s/iommu_group", bdf);
	put("", "groups/5/devices/%s", bdf);
}

static int make(void **state)
{
	assert_int_equal(tree_make(state), 0);
	snprintf(proc, sizeof(proc), "%s/proc", root);
	put_device(ONE, "vfio-pci");
	put("vfio-pci\n", DEVICE "/driver_override");
	put("1:5\n", DEVICE "/vfio-dev/vfio3/dev");
	put("1:3\n", "class/vfio/5/dev");
	put("", "bus/pci/drivers/vfio-pci/unbind");
	put("", "bus/pci/drivers/nvme/unbind");
	put("", "bus/pci/drivers_probe");
	put("", "proc/self/mountinfo"); /* a process finds itself in /proc */
	put("qemu\n", "proc/4711/comm");
	put(">/dev/full", "proc/4711/fd/3");
	return 0;
}

static void has(const char *file, const char *text)
{
	char path[256], found[64];

	snprintf(path, sizeof(path), "%s/%s", root, file);
	assert_int_equal(gnv_sysfs_read(path, found, sizeof(found)), 0);
	assert_string_equal(found, text);
}

static int unbind(void)
{
	struct gnv_pci pci;

	assert_int_equal(gnv_sysfs_pci(root, ONE, &pci), 0);
	return gnv_bind_default(root, proc, &pci);
}

/* The refusal leaves everything as it was. */
static void is_refused(int err, const char *says)
{
	assert_int_equal(unbind(), err);
	assert_string_equal(gpunvme_errmsg(), says);
	has(DEVICE "/driver_override", "vfio-pci");
	has("bus/pci/drivers/vfio-pci/unbind", "");
	has("bus/pci/drivers_probe", "");
}

static void test_unused(void **state)
{
	(void)state;
	assert_int_equal(unbind(), 0);
	has(DEVICE "/driver_override", "\nfio-pci"); /* a file that keeps the rest, as sysfs does not */
	has("bus/pci/drivers/vfio-pci/unbind", ONE);
	has("bus/pci/drivers_probe", ONE);
}

static void test_opened(void **state)
{
	(void)state;
	put(">/dev/zero", "proc/4711/fd/12");
	is_refused(-EBUSY, ONE " is in use: process 4711 (qemu) has /dev/vfio/devices/vfio3 open. " REMEDY);
}

static void test_group_opened(void **state)
{
	(void)state;
	put(">/dev/null", "proc/4711/fd/12");
	is_refused(-EBUSY, ONE " is in use: process 4711 (qemu) has /dev/vfio/5 open. " REMEDY);
	put_device("0000:01:00.1", "nvme");
	is_refused(-EBUSY, ONE " is in use: process 4711 (qemu) has /dev/vfio/5 open. " REMEDY);
	put_device("0000:01:00.2", "vfio-pci");
	is_refused(-EBUSY, ONE " may be in use: process 4711 (qemu) has /dev/vfio/5 open, for it or for 0000:01:00.2. " REMEDY);
}

static void test_group_without_iommu_opened(void **state)
{
	(void)state;
	put("1:3\n", "class/vfio/noiommu-5/dev");
	put("9:9\n", "class/vfio/5/dev");
	put(">/dev/null", "proc/4711/fd/12");
	is_refused(-EBUSY, ONE " is in use: process 4711 (qemu) has /dev/vfio/noiommu-5 open. " REMEDY);
}

static void test_opened_here(void **state)
{
	char says[160];

	(void)state;
	put(">/dev/zero", "proc/%d/fd/12", getpid());
	snprintf(says, sizeof(says), ONE " is in use: process %d (?) has /dev/vfio/devices/vfio3 open. " REMEDY, getpid());
	is_refused(-EBUSY, says);
}

/* A process whose descriptors this user may not list. */
static void test_unseen(void **state)
{
	char command[400];
	struct gnv_pci pci;
	int ret;

	(void)state;
	put("", "proc/4712/fd/0");
	snprintf(command, sizeof(command), "chmod 711 %s; chmod -R a+rX %s/*; chmod 0 %s/4712/fd", root, root, proc);
	assert_int_equal(system(command), 0);
	assert_int_equal(gnv_sysfs_pci(root, ONE, &pci), 0);
	if (!getuid())
		assert_int_equal(seteuid(65534), 0);
	ret = gnv_bind_default(root, proc, &pci);
	if (!getuid())
		assert_int_equal(seteuid(0), 0);
	assert_int_equal(ret, -EACCES);
	assert_string_equal(gpunvme_errmsg(),
			    ONE ": 1 processes could not be checked, and one may have it open. Run as root, with CAP_SYS_PTRACE");
	has("bus/pci/drivers/vfio-pci/unbind", "");
	snprintf(command, sizeof(command), "chmod 755 %s/4712/fd", proc);
	assert_int_equal(system(command), 0);
}

static void test_other_driver(void **state)
{
	char path[160];

	(void)state;
	snprintf(path, sizeof(path), "%s/" DEVICE "/driver", root);
	assert_int_equal(unlink(path), 0);
	put(">../../drivers/nvme", DEVICE "/driver");
	is_refused(-EINVAL, ONE " is not bound to vfio-pci but to nvme. Nothing to undo");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define TEST(f) cmocka_unit_test_setup_teardown(f, make, tree_remove)
		TEST(test_unused),
		TEST(test_opened),
		TEST(test_group_opened),
		TEST(test_group_without_iommu_opened),
		TEST(test_opened_here),
		TEST(test_unseen),
		TEST(test_other_driver),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
