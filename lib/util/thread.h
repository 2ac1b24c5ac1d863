/* SPDX-License-Identifier: MIT */
/* Threads of the library's own. */
#ifndef GNV_UTIL_THREAD_H
#define GNV_UTIL_THREAD_H

#include <pthread.h>
#include <signal.h>

/* Start one that runs none of the application's signal handlers. Return: 0 or a negative errno. */
static inline int gnv_thread_start(pthread_t *thread, void *(*main)(void *arg), void *arg)
{
	sigset_t all, old;
	int err;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	err = pthread_create(thread, NULL, main, arg);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	return -err;
}

/* Between two polls. */
static inline void gnv_cpu_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
