/* SPDX-License-Identifier: MIT */
/*
 * Invariant: a thread that somebody waits for closes no descriptor that another process chose, unless close() does not wait for one
 * of its kind.
 */
#include "os/linux/passed.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "os/linux/fork.h"
#include "util/thread.h"

#define MOST 64u
#define GET_SEALS (1024 + 10) /* F_GET_SEALS of linux/fcntl.h, which conflicts with fcntl.h */

struct batch {
	struct batch *next;
	unsigned count;
	int fd[];
};

static uint32_t waiting;      /* atomic: descriptors that the threads below have not closed yet */
static struct batch *shelved; /* atomic: a stack of those for which there was no thread */

static void *close_batch(void *arg)
{
	struct batch *batch = arg;

	while (batch->count) {
		close(batch->fd[--batch->count]);
		__atomic_fetch_sub(&waiting, 1, __ATOMIC_RELAXED);
	}
	free(batch);
	return NULL;
}

/* Without a thread they stay open until the next attempt, which is better than to wait. */
static void start(struct batch *batch)
{
	pthread_t thread;

	if (!gnv_thread_start(&thread, close_batch, batch)) {
		pthread_detach(thread);
		return;
	}
	batch->next = __atomic_load_n(&shelved, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&shelved, &batch->next, batch, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
		;
}

static void start_shelved(void)
{
	struct batch *batch = __atomic_exchange_n(&shelved, NULL, __ATOMIC_ACQUIRE), *next;

	for (; batch; batch = next) {
		next = batch->next;
		start(batch);
	}
}

bool gnv_passed_too_many(void)
{
	start_shelved();
	return __atomic_load_n(&waiting, __ATOMIC_RELAXED) > MOST;
}

void gnv_passed_forget(void)
{
	__atomic_store_n(&waiting, 0, __ATOMIC_RELAXED);
	__atomic_store_n(&shelved, NULL, __ATOMIC_RELAXED);
}

/* The name comes from the kernel's table of descriptors: no file system is involved. */
bool gnv_passed_is_event(int fd)
{
	char link[48], name[32];
	ssize_t len;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, name, sizeof(name) - 1);
	if (len < 0)
		return false;
	name[len] = 0;
	return strcmp(name, "anon_inode:[eventfd]") == 0;
}

/* Only files in memory have seals. */
static bool is_harmless(int fd)
{
	return fcntl(fd, GET_SEALS) >= 0 || gnv_passed_is_event(fd);
}

/* Without memory they stay open for good, and are not counted: nothing would count them down. */
static void close_elsewhere(const int *fds, unsigned count)
{
	struct batch *batch = malloc(sizeof(*batch) + count * sizeof(*fds));

	if (!batch)
		return;
	__atomic_fetch_add(&waiting, count, __ATOMIC_RELAXED);
	batch->count = count;
	memcpy(batch->fd, fds, count * sizeof(*fds));
	start(batch);
}

bool gnv_passed_close(const int *fds, unsigned count)
{
	int left[GNV_PASSED_AT_ONCE];
	unsigned i, n = 0;

	for (i = 0; i < count; i++) {
		if (fds[i] < 0)
			continue;
		if (is_harmless(fds[i]))
			close(fds[i]);
		else
			left[n++] = fds[i];
	}
	if (!n)
		return true;
	close_elsewhere(left, n);
	return !gnv_passed_too_many();
}

void gnv_passed_close_socket(int fd)
{
	int bytes = 0;

	if (!ioctl(fd, FIONREAD, &bytes) && !bytes) {
		gnv_fork_close(fd);
		return;
	}
	gnv_fork_forget(fd);
	gnv_fork_keep(-1);
	close_elsewhere(&fd, 1);
}
