/* SPDX-License-Identifier: MIT */
/* Libraries that are there on some machines only, loaded when they are needed: those of GPUs. */
#ifndef GNV_OS_LINUX_DL_H
#define GNV_OS_LINUX_DL_H

#include <stdbool.h>
#include <stddef.h>

struct gnv_dl_symbol {
	const char *name;
	size_t at;     /* offset of the function pointer in the caller's table */
	bool optional; /* stays NULL where the library is too old for it */
};

struct gnv_dl {
	const char *what;		     /* for messages: "HIP (libamdhip64)" */
	const char *variable;		     /* environment variable that names another file, unless the program is set-user-ID */
	const char *const *files;	     /* tried in this order. NULL ends the list */
	const struct gnv_dl_symbol *symbols; /* ends with a NULL name */
};

/*
 * gnv_dl_load() - load a library and fill a table of its functions
 * @table: gets the function pointers. Unchanged on failure
 * The library stays loaded: runtimes of GPUs start threads and do not survive to be unloaded.
 * Return: 0; -ENODEV it is not installed; -EOPNOTSUPP it lacks a function that is needed. gnv_fail() has the message.
 */
int gnv_dl_load(const struct gnv_dl *dl, void *table);

/*
 * gnv_dl_loaded() - the files of libraries that are loaded
 * @begins: beginnings of their names. NULL ends the list
 * @text: filled: "libhsa-runtime64.so.1.18.0, libdrm.so.2.124.0", as far as there is room, without folders and with links followed
 */
void gnv_dl_loaded(const char *const *begins, char *text, size_t size);

#endif
