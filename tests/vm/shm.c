/* SPDX-License-Identifier: MIT */
/*
 * System V shared memory for a program that is one process, or shares what it had before fork(): fio in a guest whose kernel has none.
 * shmget(2), shmat(2): an identifier is the place in a table here.
 */
#include <errno.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/shm.h>

#define SEGMENTS 64
#define SEEN __attribute__((visibility("default")))

static struct {
	void *at;
	size_t len;
} segment[SEGMENTS];

SEEN int shmget(key_t key, size_t size, int flags)
{
	int i = 0;

	(void)key;
	(void)flags;
	while (i < SEGMENTS && segment[i].at)
		i++;
	if (i == SEGMENTS) {
		errno = ENOSPC;
		return -1;
	}
	segment[i].at = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	segment[i].len = size;
	if (segment[i].at != MAP_FAILED)
		return i;
	segment[i].at = NULL;
	return -1;
}

SEEN void *shmat(int id, const void *at, int flags)
{
	(void)at;
	(void)flags;
	return segment[id].at;
}

/* It goes when the process does. */
SEEN int shmdt(const void *at)
{
	(void)at;
	return 0;
}

SEEN int shmctl(int id, int command, struct shmid_ds *buf)
{
	(void)id;
	(void)command;
	(void)buf;
	return 0;
}
