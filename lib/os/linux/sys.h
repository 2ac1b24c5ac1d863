/* SPDX-License-Identifier: MIT */
/* Memory of this process, as the operating system gives it. */
#ifndef GNV_OS_LINUX_SYS_H
#define GNV_OS_LINUX_SYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Bytes of a small page. */
size_t gnv_sys_page_size(void);

/*
 * gnv_sys_map() - map anonymous private memory, zeroed, not inherited over fork()
 * @len:  a multiple of the page size, and of @align
 * @align: 0, or a power of two of at least a page that the address is a multiple of
 * @huge: from the reserved 2 MiB pages (hugetlb). Without it, transparent huge pages are requested if @align is that large
 * Return: 0, -ENOMEM.
 */
int gnv_sys_map(size_t len, size_t align, bool huge, void **ptr);
void gnv_sys_unmap(void *ptr, size_t len);

/*
 * gnv_sys_adopt() - make memory that somebody else mapped fit for devices, as gnv_sys_map() makes its own
 * Return: 0; -EOPNOTSUPP its pages cannot be pinned, as of a driver's that has no pages; -ENOMEM.
 */
int gnv_sys_adopt(void *ptr, size_t len);

/* Zero private anonymous memory. Its whole pages go back to the system until they are used again. */
void gnv_sys_clear(void *ptr, size_t len);

/* The number of this process. */
int gnv_sys_process(void);

/*
 * Mark this thread as one that executes I/O of the kernel. Its allocations must not write to the disk that it serves, because it
 * would wait for itself (prctl(2), PR_SET_IO_FLUSHER). Nothing changes without CAP_SYS_RESOURCE.
 */
void gnv_sys_serves_io(void);

/*
 * Let this thread's sleeps end at most so many nanoseconds late, if a CPU is free. The default is 50,000 (prctl(2),
 * PR_SET_TIMERSLACK).
 */
void gnv_sys_wake_within(unsigned long ns);

/*
 * Give this thread the shortest time slices, 0.1 ms, which Linux 6.12 and newer grant to everybody (sched_setattr(2)). For threads
 * that call sched_yield() often: it gives away the rest of a slice, by default a millisecond or more.
 */
void gnv_sys_short_slices(void);

/*
 * Put private memory full of ones in the place of a mapping, at once: no access in between sees neither. Return: 0, -ENOMEM.
 */
int gnv_sys_replace_ones(void *ptr, size_t len);

/* May this process open the node for reading and writing? Return: 0, -ENOENT, -EACCES. */
int gnv_sys_may_use(const char *path);

/* Keep it in memory. Return: 0 or -errno. */
int gnv_sys_lock(void *ptr, size_t len);

/* May it do raw I/O (CAP_SYS_RAWIO)? */
bool gnv_sys_may_rawio(void);

/* Bytes this process may lock or pin, or UINT64_MAX without a limit (a capability lifts it). */
uint64_t gnv_sys_lock_limit(void);

/*
 * gnv_sys_probe() - test whether all of it is mapped, readable and writable
 * Never touches the bytes. Return: 0; -EFAULT it is not; -EOPNOTSUPP the system does not report it.
 */
int gnv_sys_probe(const void *ptr, size_t len);

#endif
