/* SPDX-License-Identifier: MIT */
/* /dev/kfd: what is asked of it, what its refusals say, and that nothing is left whichever call fails. */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#include <gpunvme/gpunvme.h>
#include <linux/kfd_ioctl.h>
#include <sys/ioctl.h>

#include "mocks/kernel/calls.h"
#include "os/amd/kfd.h"
#include "os/amd/uapi/kfd.h"

#define GPU 0x4e21u
#define HANDLE 0x700000001ull
#define DMABUF 1900
#define PAGE 4096u

static const char *const nodes[] = { GNV_KFD_NODE, NULL };

/* Our names for the kernel's interface against the kernel's own header. */
#define SAME(ours, theirs) _Static_assert((ours) == (theirs), "uapi")
SAME(GNV_KFD_GET_VERSION, AMDKFD_IOC_GET_VERSION);
SAME(GNV_KFD_ACQUIRE_VM, AMDKFD_IOC_ACQUIRE_VM);
SAME(GNV_KFD_FREE_MEMORY, AMDKFD_IOC_FREE_MEMORY_OF_GPU);
SAME(GNV_KFD_MAP_MEMORY, AMDKFD_IOC_MAP_MEMORY_TO_GPU);
SAME(GNV_KFD_UNMAP_MEMORY, AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU);
SAME(GNV_KFD_IMPORT_DMABUF, AMDKFD_IOC_IMPORT_DMABUF);
SAME(offsetof(struct gnv_kfd_get_version, minor), offsetof(struct kfd_ioctl_get_version_args, minor_version));
SAME(offsetof(struct gnv_kfd_acquire_vm, gpu_id), offsetof(struct kfd_ioctl_acquire_vm_args, gpu_id));
SAME(offsetof(struct gnv_kfd_map_memory, gpu_ids), offsetof(struct kfd_ioctl_map_memory_to_gpu_args, device_ids_array_ptr));
SAME(offsetof(struct gnv_kfd_map_memory, count), offsetof(struct kfd_ioctl_map_memory_to_gpu_args, n_devices));
SAME(offsetof(struct gnv_kfd_map_memory, done), offsetof(struct kfd_ioctl_map_memory_to_gpu_args, n_success));
SAME(offsetof(struct gnv_kfd_map_memory, done), offsetof(struct kfd_ioctl_unmap_memory_from_gpu_args, n_success));
SAME(offsetof(struct gnv_kfd_import_dmabuf, va), offsetof(struct kfd_ioctl_import_dmabuf_args, va_addr));
SAME(offsetof(struct gnv_kfd_import_dmabuf, handle), offsetof(struct kfd_ioctl_import_dmabuf_args, handle));
SAME(offsetof(struct gnv_kfd_import_dmabuf, gpu_id), offsetof(struct kfd_ioctl_import_dmabuf_args, gpu_id));
SAME(offsetof(struct gnv_kfd_import_dmabuf, dmabuf), offsetof(struct kfd_ioctl_import_dmabuf_args, dmabuf_fd));

/* KFD, as far as it is needed, with its state. */
static struct {
	unsigned major;
	int refuse[0x20];     /* errno for the ioctl of this number */
	unsigned interrupted; /* calls that a signal interrupts first */
	unsigned interrupted_late; /* of mapping and unmapping, when the page tables are done with */
	bool begun;
	bool no_success;
	bool imported, mapped;
	uint64_t va;
	int drm_fd;
} kfd;

static int answer(int fd, unsigned long request, void *arg)
{
	struct kfd_ioctl_import_dmabuf_args *import = arg;
	struct kfd_ioctl_map_memory_to_gpu_args *map = arg;
	unsigned number = _IOC_NR(request);

	assert_true(fd >= CALLS_FD && fd != DMABUF);
	assert_int_equal(_IOC_TYPE(request), 'K');
	if (kfd.interrupted) {
		kfd.interrupted--;
		return EINTR;
	}
	if (kfd.refuse[number])
		return kfd.refuse[number];
	switch (request) {
	case AMDKFD_IOC_GET_VERSION:
		*(struct kfd_ioctl_get_version_args *)arg = (struct kfd_ioctl_get_version_args){ kfd.major, 14 };
		return 0;
	case AMDKFD_IOC_ACQUIRE_VM:
		assert_int_equal(((struct kfd_ioctl_acquire_vm_args *)arg)->gpu_id, GPU);
		return ((struct kfd_ioctl_acquire_vm_args *)arg)->drm_fd == (uint32_t)kfd.drm_fd ? 0 : EBUSY;
	case AMDKFD_IOC_IMPORT_DMABUF:
		assert_int_equal(import->gpu_id, GPU);
		assert_int_equal(import->dmabuf_fd, DMABUF);
		assert_true(import->va_addr && import->va_addr % PAGE == 0);
		assert_int_equal(calls.ranges, 1); /* the address is ours */
		assert_false(kfd.imported);
		kfd.imported = true;
		kfd.va = import->va_addr;
		import->handle = HANDLE;
		return 0;
	case AMDKFD_IOC_MAP_MEMORY_TO_GPU:
	case AMDKFD_IOC_UNMAP_MEMORY_FROM_GPU:
		assert_int_equal(map->handle, HANDLE);
		assert_int_equal(map->n_devices, 1); /* never a peer */
		assert_int_equal(*(uint32_t *)(uintptr_t)map->device_ids_array_ptr, GPU);
		assert_int_equal(map->n_success, kfd.begun); /* what is done is not asked for again */
		kfd.begun = kfd.interrupted_late;
		map->n_success = !kfd.no_success;
		if (kfd.interrupted_late) {
			kfd.interrupted_late--;
			return EINTR;
		}
		kfd.mapped = request == AMDKFD_IOC_MAP_MEMORY_TO_GPU && !kfd.no_success;
		calls_note(request == AMDKFD_IOC_MAP_MEMORY_TO_GPU ? 'M' : 'U');
		return 0;
	case AMDKFD_IOC_FREE_MEMORY_OF_GPU:
		assert_int_equal(((struct kfd_ioctl_free_memory_of_gpu_args *)arg)->handle, HANDLE);
		if (kfd.mapped)
			return EBUSY;
		kfd.imported = false;
		calls_note('F');
		return 0;
	default:
		fail_msg("ioctl 0x%lx was not expected", request);
		return ENOTTY;
	}
}

static int begin(void **state)
{
	(void)state;
	calls_reset();
	memset(&kfd, 0, sizeof(kfd));
	kfd.major = 1;
	calls.nodes = nodes;
	calls.ioctl = answer;
	return 0;
}

/* The DMA-BUF of an import counts as a descriptor. */
static int import(struct gnv_kfd_map *map)
{
	calls.fds++;
	return gnv_kfd_import(GPU, DMABUF, PAGE, map);
}

static void nothing_left(void)
{
	assert_int_equal(calls.fds, 0);
	assert_int_equal(calls.ranges, 0);
	assert_false(kfd.imported);
	assert_false(kfd.mapped);
}

static void test_import(void **state)
{
	struct gnv_kfd_map map;

	(void)state;
	kfd.interrupted = 3;
	assert_int_equal(import(&map), 0);
	assert_true(kfd.mapped);
	assert_int_equal((uintptr_t)map.va, kfd.va);
	assert_int_equal(calls.fds, 2);
	assert_int_equal(gnv_kfd_release(&map), 0);
	assert_string_equal(calls.order, "MUFcmc"); /* unmap, free, DMA-BUF, addresses, node */
	nothing_left();
}

/* Each call fails once, with each errno that the kernel has for it. */
static void test_refusals(void **state)
{
	static const struct {
		unsigned number; /* of the ioctl, 0: open() */
		int err;
		int ret;
		const char *says;
	} table[] = {
		{ 0, ENOENT, -ENODEV, "Load amdgpu" },
		{ 0, EACCES, -EACCES, "group render" },
		{ 0, EPERM, -EACCES, "group render" },
		{ 0, EMFILE, -EMFILE, "/dev/kfd" },
		{ 0x01, ENOTTY, -ENOTTY, "version" },
		{ 0x1d, ENOTTY, -EOPNOTSUPP, "7.1" },
		{ 0x1d, EOPNOTSUPP, -EOPNOTSUPP, "7.1" },
		{ 0x1d, EINVAL, -EINVAL, "switch or root complex" },
		{ 0x1d, ENODEV, -ENODEV, "Initialise the ROCm runtime" },
		{ 0x1d, EBADF, -EBADF, "after fork()" },
		{ 0x1d, ENOMEM, -ENOMEM, "memory" },
		{ 0x1d, EPERM, -EPERM, "import" },
		{ 0x18, ENODEV, -ENODEV, "revoked" },
		{ 0x18, EINVAL, -EINVAL, "address" },
		{ 0x18, ENOMEM, -ENOMEM, "map" },
	};
	struct gnv_kfd_map map;

	for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		begin(state);
		if (table[i].number)
			kfd.refuse[table[i].number] = table[i].err;
		else
			calls.open_errno = table[i].err;
		assert_int_equal(import(&map), table[i].ret);
		assert_non_null(strstr(gpunvme_errmsg(), table[i].says));
		nothing_left();
	}
}

static void test_every_step(void **state)
{
	struct gnv_kfd_map map;
	int ret = -1;
	unsigned n;

	for (n = 1; ret; n++) {
		begin(state);
		calls.fails_at = n;
		calls.fails_with = EIO;
		ret = import(&map);
		assert_true(n < 20);
		if (ret)
			nothing_left();
	}
	assert_int_equal(n, 7); /* open, version, addresses, import and map failed, then all went well */
	calls.fails_at = 0;
	assert_int_equal(gnv_kfd_release(&map), 0);
	nothing_left();
}

static void test_odd(void **state)
{
	struct gnv_kfd_map map;

	kfd.major = 2;
	assert_int_equal(import(&map), -EOPNOTSUPP);
	assert_non_null(strstr(gpunvme_errmsg(), "2.14"));
	nothing_left();
	begin(state);
	kfd.no_success = true; /* a success that mapped nothing */
	assert_int_equal(import(&map), -EIO);
	nothing_left();
	begin(state);
	kfd.interrupted = 1000000; /* signals without end */
	assert_int_equal(import(&map), -EINTR);
	nothing_left();
}

/*
 * A signal comes while the kernel waits for the page tables: the call has changed them, says how many GPUs are done, and wants to be made
 * again with that, for what is left is the flush of translations (Linux kfd_chardev.c, kfd_ioctl_unmap_memory_from_gpu).
 */
static void test_interrupted_late(void **state)
{
	struct gnv_kfd_map map;

	(void)state;
	kfd.interrupted_late = 50;
	assert_int_equal(import(&map), 0);
	assert_true(kfd.mapped);
	kfd.interrupted_late = 50;
	assert_int_equal(gnv_kfd_release(&map), 0);
	nothing_left();
}

/* What the kernel keeps stays open here too: closing the BAR's device would end the GPU's queues. */
static void test_kept(void **state)
{
	struct gnv_kfd_map map;

	assert_int_equal(import(&map), 0);
	kfd.refuse[0x19] = ENOMEM;
	assert_int_equal(gnv_kfd_release(&map), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "must stay open"));
	assert_int_equal(calls.fds, 2);
	assert_int_equal(calls.ranges, 1);
	kfd.refuse[0x19] = 0;
	kfd.refuse[0x17] = EBUSY;
	assert_int_equal(gnv_kfd_release(&map), -EBUSY);
	assert_int_equal(calls.fds, 2);
	kfd.refuse[0x17] = 0;
	assert_int_equal(gnv_kfd_release(&map), 0);
	nothing_left();
	begin(state);
	kfd.refuse[0x18] = kfd.refuse[0x17] = EIO; /* half of it, and no way back */
	assert_int_equal(import(&map), -EBUSY);
	assert_int_equal(calls.fds, 2);
	assert_int_equal(calls.ranges, 1);
}

static void test_owner(void **state)
{
	(void)state;
	kfd.drm_fd = 77;
	assert_int_equal(gnv_kfd_owns(GPU, 77), 0);
	assert_int_equal(gnv_kfd_owns(GPU, 78), -EBUSY);
	assert_non_null(strstr(gpunvme_errmsg(), "ROCm 6"));
	kfd.refuse[0x15] = EINVAL;
	assert_int_equal(gnv_kfd_owns(GPU, 77), -EINVAL);
	kfd.refuse[0x15] = EPERM;
	assert_int_equal(gnv_kfd_owns(GPU, 77), -EPERM);
	calls.open_errno = ENOENT;
	assert_int_equal(gnv_kfd_owns(GPU, 77), -ENODEV);
	nothing_left();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_import, begin),	cmocka_unit_test_setup(test_refusals, begin),
		cmocka_unit_test_setup(test_every_step, begin), cmocka_unit_test_setup(test_odd, begin),
		cmocka_unit_test_setup(test_kept, begin),	cmocka_unit_test_setup(test_owner, begin),
		cmocka_unit_test_setup(test_interrupted_late, begin),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
