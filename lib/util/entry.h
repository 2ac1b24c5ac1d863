/* SPDX-License-Identifier: MIT */
/* The first checks of public functions: pointers must not be NULL, and the object was made by this process. */
#ifndef GNV_UTIL_ENTRY_H
#define GNV_UTIL_ENTRY_H

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "util/log.h"
#include "util/process.h"

static inline int gnv_null_in(const char *function, const char *names)
{
	size_t len = strlen(function);

	if (len > 2 && !strcmp(function + len - 2, "_v")) /* which users call by its name without that */
		len -= 2;
	gnv_fail(-EINVAL, "%.*s: %s must not be NULL", (int)len, function, names);
	return -EINVAL;
}

/* A public function got NULL for one of the parameters @names. Return: -EINVAL, with the error message. */
#define gnv_null(names) gnv_null_in(__func__, names)

/*
 * gnv_enter() - begin a public function of an object
 * @object: has the mark of its process, which is read if all is given
 * @given: @object and all other parameters @names are there
 * Return: 0; -EINVAL or -ECHILD, with the error message.
 */
#define gnv_enter(object, given, names) (!(given) ? gnv_null(names) : gnv_foreign((object)->process) ? -ECHILD : 0)

/* Was the caller compiled with the library's version of dq.h, where the structure has @known bytes? Return: 0, -EPROTONOSUPPORT. */
int gnv_view_check(uint32_t version, uint32_t size, size_t known);

#endif
