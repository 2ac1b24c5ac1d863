/* SPDX-License-Identifier: MIT */
/* Libraries that play others: the one under test is told by a variable to load them, and the test has their state. */
#ifndef TESTS_COMMON_PLAYED_H
#define TESTS_COMMON_PLAYED_H

#include <dlfcn.h>
#include <stdlib.h>

/* @function: returns the state. Return: that, or NULL. */
static inline void *played(const char *variable, const char *library, const char *function)
{
	void *handle = dlopen(library, RTLD_NOW), *(*get)(void) = NULL;

	setenv(variable, library, 1);
	if (handle)
		*(void **)&get = dlsym(handle, function);
	return get ? get() : NULL;
}

#endif
