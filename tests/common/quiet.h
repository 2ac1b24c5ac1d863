/* SPDX-License-Identifier: MIT */
/* Hits of gpunvme_mem_get() by a thread for which a system call would be the end. */
#ifndef TESTS_COMMON_QUIET_H
#define TESTS_COMMON_QUIET_H

#include <linux/seccomp.h>
#include <pthread.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <gpunvme/gpunvme.h>

#define QUIET_HITS 1000u

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) /* their runtime calls the system when it likes */
#define QUIET_UNKNOWN true
#else
#define QUIET_UNKNOWN false
#endif

struct quiet {
	struct gpunvme_gpu *gpu;
	struct gpunvme_dev *dev;
	char *ptr; /* 100 bytes that are mapped */
	struct gpunvme_mem_use use;
	bool done, no_seccomp; /* done: atomic; no_seccomp: or a sanitizer */
};

static inline void *quiet_thread(void *arg)
{
	struct quiet *q = arg;
	unsigned turns = QUIET_HITS;
	int ret = 0;

	if (QUIET_UNKNOWN || prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT)) {
		q->no_seccomp = true;
		return NULL;
	}
	while (!ret && turns--) {
		ret = gpunvme_mem_get(q->gpu, q->dev, q->ptr, 100, 0, &q->use);
		ret = ret ? ret : gpunvme_mem_put(&q->use);
	}
	__atomic_store_n(&q->done, !ret, __ATOMIC_RELEASE);
	syscall(SYS_exit, 0);
	return NULL;
}

/* Return: whether all of them came; true as well where that is not known, and then q.no_seccomp. */
static inline bool quiet_hits(struct quiet *q)
{
	pthread_t thread;

	if (pthread_create(&thread, NULL, quiet_thread, q))
		return false;
	pthread_join(thread, NULL);
	return q->no_seccomp || __atomic_load_n(&q->done, __ATOMIC_ACQUIRE);
}

#endif
