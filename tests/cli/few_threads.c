/* SPDX-License-Identifier: MIT */
/*
 * Loaded in front of a program: the library may start threads, the program itself, whose threads are lanes, gets EAGAIN as
 * pthread_create() returns it where a limit is reached (pthread_create(3)). With FEW_THREADS=mixed it gets that only while a
 * thread of another kind runs.
 */
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static void *kind;
static unsigned alive; /* of it; its main thread starts and joins them */

static int of_library(void *address)
{
	Dl_info info;

	return dladdr(address, &info) && strstr(info.dli_fname, "libgpunvme") != NULL;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg)
{
	int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *), ret;
	const int own = !of_library((void *)start);

	if (own && (!getenv("FEW_THREADS") || (alive && kind != (void *)start)))
		return EAGAIN;
	*(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
	ret = real(thread, attr, start, arg);
	if (own && !ret) {
		kind = (void *)start;
		alive++;
	}
	return ret;
}

int pthread_join(pthread_t thread, void **result)
{
	int (*real)(pthread_t, void **);

	alive -= !of_library(__builtin_return_address(0));
	*(void **)&real = dlsym(RTLD_NEXT, "pthread_join");
	return real(thread, result);
}
