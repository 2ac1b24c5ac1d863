/* SPDX-License-Identifier: MIT */
/* Mock libraries: a variable makes the library under test load them, and the test has their state. */
#ifndef TESTS_COMMON_MOCK_H
#define TESTS_COMMON_MOCK_H

#include <dlfcn.h>
#include <stdlib.h>

/* A function or datum of the mock of ROCm's HSA runtime (tests/mocks/hsa). Return: NULL: it has none of that name. */
static inline void *mock_symbol(const char *name)
{
	void *handle = dlopen(getenv("GPUNVME_HSA_LIBRARY"), RTLD_NOW);

	return handle ? dlsym(handle, name) : NULL;
}

/* @function: returns the state. Return: that, or NULL. */
static inline void *mock_state(const char *variable, const char *library, const char *function)
{
	void *handle = dlopen(library, RTLD_NOW), *(*get)(void) = NULL;

	setenv(variable, library, 1);
	if (handle)
		*(void **)&get = dlsym(handle, function);
	return get ? get() : NULL;
}

#endif
