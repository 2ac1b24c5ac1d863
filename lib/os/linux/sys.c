/* SPDX-License-Identifier: MIT */
/*
 * Memory of this process: mmap and its relatives.
 * Invariant: gnv_sys_map() returns one mapping of exactly `len` bytes, so gnv_sys_unmap() needs no more than that.
 */
#include "os/linux/sys.h"

#include <errno.h>
#include <inttypes.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "util/checked.h"

size_t gnv_sys_page_size(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

/* Map more than needed and give back the parts before and after the aligned part. */
static void *map_aligned(size_t len, size_t align)
{
	char *wide, *ptr;
	size_t before;

	if (len > SIZE_MAX - align)
		return MAP_FAILED;
	wide = mmap(NULL, len + align, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (wide == MAP_FAILED)
		return MAP_FAILED;
	before = (align - ((uintptr_t)wide & (align - 1))) & (align - 1);
	ptr = wide + before;
	if (before)
		munmap(wide, before);
	munmap(ptr + len, align - before);
	madvise(ptr, len, MADV_HUGEPAGE); /* best effort: small pages work as well */
	return ptr;
}

int gnv_sys_map(size_t len, size_t align, bool huge, void **ptr)
{
	int flags = MAP_PRIVATE | MAP_ANONYMOUS | (huge ? MAP_HUGETLB | 21 << MAP_HUGE_SHIFT : 0);
	void *got;

	if (align && !huge)
		got = map_aligned(len, align);
	else
		got = mmap(NULL, len, PROT_READ | PROT_WRITE, flags, -1, 0);
	if (got == MAP_FAILED)
		return -ENOMEM;
	/* A child that writes to a page under DMA would take the page with it and leave the parent a copy. */
	if (madvise(got, len, MADV_DONTFORK)) {
		munmap(got, len);
		return -ENOMEM;
	}
	*ptr = got;
	return 0;
}

/*
 * Reading it as another process would pins the page, as a device's mapping does. A sandbox may forbid the call, which is no
 * result.
 */
static bool can_pin(void *ptr)
{
	char byte;
	const struct iovec to = { &byte, 1 }, from = { ptr, 1 };

	return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1 || errno != EFAULT;
}

int gnv_sys_adopt(void *ptr, size_t len)
{
	if (madvise(ptr, len, MADV_DONTFORK))
		return -ENOMEM;
	return can_pin(ptr) ? 0 : -EOPNOTSUPP;
}

void gnv_sys_unmap(void *ptr, size_t len)
{
	munmap(ptr, len);
}

/* Locked pages cannot be given back. */
void gnv_sys_clear(void *ptr, size_t len)
{
	const uintptr_t page = gnv_sys_page_size() - 1, from = (uintptr_t)ptr, to = from + len;
	const uintptr_t first = (from + page) & ~page, last = to & ~page;

	if (first >= last || madvise((char *)ptr + (first - from), last - first, MADV_DONTNEED)) {
		memset(ptr, 0, len);
		return;
	}
	memset(ptr, 0, first - from);
	memset((char *)ptr + (last - from), 0, to - last);
}

int gnv_sys_process(void)
{
	return (int)getpid();
}

void gnv_sys_wake_within(unsigned long ns)
{
	prctl(PR_SET_TIMERSLACK, ns, 0, 0, 0);
}

void gnv_sys_short_slices(void)
{
	uint32_t attr[12] = { 0 }; /* struct sched_attr of sched_setattr(2): the policy is word 1, the slice words 6 and 7 */
	const uint64_t slice = 100000; /* ns */

	if (!syscall(SYS_sched_getattr, 0, attr, (unsigned)sizeof(attr), 0u) && attr[1] == SCHED_OTHER) {
		memcpy(&attr[6], &slice, sizeof(slice));
		(void)syscall(SYS_sched_setattr, 0, attr, 0u);
	}
}

void gnv_sys_serves_io(void)
{
	prctl(PR_SET_IO_FLUSHER, 1, 0, 0, 0);
}

int gnv_sys_replace_ones(void *ptr, size_t len)
{
	void *made = mmap(NULL, len, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (made == MAP_FAILED)
		return -ENOMEM;
	memset(made, 0xff, len);
	if (mremap(made, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, ptr) != MAP_FAILED)
		return 0;
	munmap(made, len);
	return -ENOMEM;
}

int gnv_sys_may_use(const char *path)
{
	if (!access(path, R_OK | W_OK))
		return 0;
	return errno == ENOENT || errno == ENOTDIR ? -ENOENT : -EACCES;
}

int gnv_sys_lock(void *ptr, size_t len)
{
	return mlock(ptr, len) ? -errno : 0;
}

static bool has_capability(unsigned capability)
{
	struct __user_cap_header_struct head = { .version = _LINUX_CAPABILITY_VERSION_3 };
	struct __user_cap_data_struct caps[2] = { { 0 } };

	return !syscall(SYS_capget, &head, caps) && caps[0].effective & 1u << capability;
}

bool gnv_sys_may_rawio(void)
{
	return has_capability(CAP_SYS_RAWIO);
}

uint64_t gnv_sys_lock_limit(void)
{
	struct rlimit limit;

	if (getrlimit(RLIMIT_MEMLOCK, &limit) || limit.rlim_cur == RLIM_INFINITY || has_capability(CAP_IPC_LOCK))
		return UINT64_MAX;
	return limit.rlim_cur;
}

int gnv_sys_probe(const void *ptr, size_t len)
{
	uintptr_t at = (uintptr_t)ptr, end = at + len, low, high;
	char r, w, line[512];
	bool start = true;
	FILE *maps;

	if (!gnv_within(at, len, UINTPTR_MAX))
		return -EFAULT;
	maps = fopen("/proc/self/maps", "re");
	if (!maps)
		return -EOPNOTSUPP;
	while (at < end && fgets(line, sizeof(line), maps)) {
		bool first = start;

		start = line[0] && line[__builtin_strlen(line) - 1] == '\n'; /* else the rest of a long line follows */
		if (!first || sscanf(line, "%" SCNxPTR "-%" SCNxPTR " %c%c", &low, &high, &r, &w) != 4 || high <= at)
			continue;
		if (low > at || r != 'r' || w != 'w')
			break;
		at = high;
	}
	fclose(maps);
	return at >= end ? 0 : -EFAULT;
}
