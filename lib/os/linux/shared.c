/* SPDX-License-Identifier: MIT */
#include "os/linux/shared.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/memfd.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "os/linux/fork.h"
#include "util/bits.h"
#include "util/checked.h"
#include "util/log.h"

/* Of linux/fcntl.h, which conflicts with fcntl.h. That has them with _GNU_SOURCE only. */
#define ADD_SEALS (1024 + 9)
#define GET_SEALS (1024 + 10)
#define SEAL_SEAL 0x1
#define SEAL_SHRINK 0x2
#define SEAL_GROW 0x4

int gnv_shared_create(size_t len, int *out, void **ptr)
{
	void *got = MAP_FAILED;
	int fd, err;

	gnv_fork_begin();
	fd = gnv_fork_keep((int)syscall(SYS_memfd_create, "gpunvme", MFD_CLOEXEC | MFD_ALLOW_SEALING));
	if (fd < 0)
		return -errno;
	if (!ftruncate(fd, (off_t)len) && !fcntl(fd, ADD_SEALS, SEAL_SHRINK | SEAL_GROW | SEAL_SEAL))
		got = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (got == MAP_FAILED || madvise(got, len, MADV_DONTFORK)) {
		err = errno;
		if (got != MAP_FAILED)
			munmap(got, len);
		gnv_fork_close(fd);
		return -err;
	}
	*out = fd;
	*ptr = got;
	return 0;
}

void gnv_shared_destroy(int fd, void *ptr, size_t len)
{
	munmap(ptr, len);
	gnv_fork_close(fd);
}

/* Is the range there, and will it stay? */
static int check_range(int fd, uint64_t offset, uint64_t len, struct stat *st)
{
	struct statfs fs;

	if (fstat(fd, st))
		return gnv_fail(-errno, "memory cannot be looked at: %s", strerror(errno));
	if (st->st_size < 0 || !gnv_within(offset, len, (uint64_t)st->st_size))
		return gnv_fail(-EINVAL, "memory of %lld bytes has no %llu bytes at %llu", (long long)st->st_size,
				(unsigned long long)len, (unsigned long long)offset);
	/* A hole can be punched into them in spite of the seal, and then there may be none left: SIGBUS. */
	if (fstatfs(fd, &fs) || (uint32_t)fs.f_type == HUGETLBFS_MAGIC)
		return gnv_fail(-EPERM, "memory of huge pages could end this process, as a hole can be punched into it. Give the machine "
					"memory of small pages: for QEMU memory-backend-memfd without hugetlb=on, for Cloud Hypervisor "
					"--memory without hugepages=on. Transparent huge pages do no harm");
	return 0;
}

static bool is_sealed(int fd)
{
	int seals = fcntl(fd, GET_SEALS);

	return seals >= 0 && seals & SEAL_SHRINK;
}

int gnv_shared_map(int fd, uint64_t offset, uint64_t len, struct gnv_shared *shared)
{
	uint64_t page, into;
	struct stat st;
	void *got;
	int ret;

	if (!is_sealed(fd))
		return gnv_fail(-EPERM, "memory that is not a memfd sealed against shrinking could end this process. Start QEMU with "
					"-object memory-backend-memfd,id=mem,size=SIZE,share=on -machine memory-backend=mem (in place of "
					"memory-backend-file or -ram), Cloud Hypervisor in a version that seals its memory "
					"(F_SEAL_SHRINK). SPDK's own host has no such memory");
	ret = check_range(fd, offset, len, &st);
	if (ret)
		return ret;
	page = st.st_blksize > 0 && gnv_is_pow2((uint64_t)st.st_blksize) ? (uint64_t)st.st_blksize : 4096;
	into = offset & (page - 1);
	got = mmap(NULL, gnv_align_up(into + len, page), PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)(offset - into));
	if (got == MAP_FAILED)
		return gnv_fail(-errno, "memory cannot be mapped: %s", strerror(errno));
	*shared = (struct gnv_shared){ (char *)got + into, got, gnv_align_up(into + len, page) };
	return 0;
}

void gnv_shared_unmap(const struct gnv_shared *shared)
{
	if (shared->base)
		munmap(shared->base, shared->len);
}

int gnv_shared_overlay(void *at, int fd, uint64_t offset, size_t len, bool unsealed)
{
	struct stat st;
	void *got;
	int ret;

	if (!unsealed && !is_sealed(fd))
		return gnv_fail(-EPERM, "registers that are not in a memfd sealed against shrinking let the server end this process. If you "
					"trust it, allow them by unsealed=1 in the URI");
	ret = check_range(fd, offset, len, &st);
	if (ret)
		return ret;
	got = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)offset);
	if (got == MAP_FAILED)
		return gnv_fail(-errno, "registers cannot be mapped: %s", strerror(errno));
	if (!madvise(got, len, MADV_DONTFORK) && mremap(got, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, at) != MAP_FAILED)
		return 0;
	munmap(got, len);
	return gnv_fail(-ENOMEM, "registers cannot be mapped: no memory for them");
}
