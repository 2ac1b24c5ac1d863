/* SPDX-License-Identifier: MIT */
/*
 * Invariant: a descriptor is in the list exactly while it is open, as seen by fork(), which takes the lock.
 */
#include "os/linux/fork.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "os/linux/passed.h"
#include "util/log.h"
#include "util/process.h"

#define BY_PID (1ull << 63) /* a mark that is no count */

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* quiet sparse: a 0 of glibc is the pointer of its list */
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int *kept;
static unsigned count, room;
/* In a page that the kernel hands to a child zeroed, unless the child shares the memory. */
static struct {
	uint64_t mark;
	pid_t pid;
} *own;
static uint64_t marks; /* that were given out, by the ancestors, too */

static void before_fork(void)
{
	pthread_mutex_lock(&lock);
}

static void after_fork(void)
{
	pthread_mutex_unlock(&lock);
}

static void in_child(void)
{
	while (count)
		close(kept[--count]);
	gnv_passed_forget();
	pthread_mutex_unlock(&lock);
}

static void start(void)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	void *got = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	pthread_atfork(before_fork, after_fork, in_child);
	if (got == MAP_FAILED)
		return;
	if (madvise(got, page, MADV_WIPEONFORK))
		munmap(got, page);
	else
		own = got;
}

/*
 * A process identifier alone is ambiguous: a child may have the same one, both being the first process of a PID namespace.
 * The page alone is ambiguous, too: a child by vfork(), or by clone() with CLONE_VM, has the same one.
 */
uint64_t gnv_process(void)
{
	const pid_t pid = getpid();
	uint64_t none = 0, next;

	pthread_once(&once, start);
	if (!own)
		return BY_PID | (uint64_t)pid; /* a kernel without MADV_WIPEONFORK */
	if (!__atomic_load_n(&own->mark, __ATOMIC_ACQUIRE)) {
		__atomic_store_n(&own->pid, pid, __ATOMIC_RELAXED);
		next = __atomic_add_fetch(&marks, 1, __ATOMIC_RELAXED);
		__atomic_compare_exchange_n(&own->mark, &none, next, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
	}
	if (__atomic_load_n(&own->pid, __ATOMIC_RELAXED) != pid)
		return BY_PID | (uint64_t)pid; /* a child that shares the memory */
	return __atomic_load_n(&own->mark, __ATOMIC_ACQUIRE);
}

bool gnv_foreign(uint64_t of)
{
	if (of == gnv_process())
		return false;
	gnv_fail(-ECHILD,
		 "the object belongs to the parent process. After fork() open devices and GPUs anew in the child");
	return true;
}

bool gnv_forked(uint64_t of)
{
	const uint64_t mark = own ? __atomic_load_n(&own->mark, __ATOMIC_ACQUIRE) : 0;

	return of != mark && gnv_foreign(of);
}

void gnv_fork_begin(void)
{
	pthread_once(&once, start);
	pthread_mutex_lock(&lock);
}

/* With the lock held. Without memory the descriptor is kept all the same, and a child may have it. */
static void add(int fd)
{
	int *more;

	if (count == room) {
		more = realloc(kept, (room + 32) * sizeof(*kept));
		if (!more)
			return;
		kept = more;
		room += 32;
	}
	kept[count++] = fd;
}

int gnv_fork_keep(int fd)
{
	int saved = errno;

	if (fd >= 0)
		add(fd);
	pthread_mutex_unlock(&lock);
	errno = saved;
	return fd;
}

static void drop(int fd)
{
	unsigned i;

	for (i = 0; i < count && kept[i] != fd; i++)
		;
	if (i < count)
		kept[i] = kept[--count];
}

void gnv_fork_close(int fd)
{
	pthread_mutex_lock(&lock);
	drop(fd);
	close(fd);
	pthread_mutex_unlock(&lock);
}

void gnv_fork_forget(int fd)
{
	pthread_mutex_lock(&lock);
	drop(fd);
}
