/* SPDX-License-Identifier: MIT */
#include "os/linux/dl.h"

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "util/log.h"

static int open_library(const struct gnv_dl *dl, void **handle)
{
	const char *named = secure_getenv(dl->variable), *const * file;

	if (named && *named) {
		*handle = dlopen(named, RTLD_NOW | RTLD_LOCAL);
		if (!*handle)
			return gnv_fail(-ENODEV, "%s cannot be loaded: %s. %s names it", dl->what, dlerror(), dl->variable);
		return 0;
	}
	for (unsigned load = 0; load < 2; load++) { /* first the one that the program has loaded: two would not know each other */
		for (file = dl->files; *file; file++) {
			*handle = dlopen(*file, RTLD_NOW | RTLD_LOCAL | (load ? 0 : RTLD_NOLOAD));
			if (*handle)
				return 0;
		}
	}
	return gnv_fail(-ENODEV, "%s is not installed here. Install it, or name its file in %s", dl->what, dl->variable);
}

int gnv_dl_load(const struct gnv_dl *dl, void *table)
{
	const struct gnv_dl_symbol *symbol;
	void *handle;
	int ret = open_library(dl, &handle);

	for (symbol = dl->symbols; !ret && symbol->name; symbol++)
		if (!symbol->optional && !dlsym(handle, symbol->name))
			ret = gnv_fail(-EOPNOTSUPP, "%s has no %s(). It is too old or another library: install a newer one", dl->what, symbol->name);
	for (symbol = dl->symbols; !ret && symbol->name; symbol++) {
		void *function = dlsym(handle, symbol->name);

		memcpy((char *)table + symbol->at, &function, sizeof(function));
	}
	return ret; /* on failure too it stays loaded */
}

struct loaded {
	const char *const *begins;
	char *text;
	size_t size, len;
};

static bool is_asked_for(const char *file, const char *const *begins)
{
	for (; *begins; begins++)
		if (!strncmp(file, *begins, strlen(*begins)))
			return true;
	return false;
}

static int note(struct dl_phdr_info *info, size_t size, void *ctx)
{
	struct loaded *loaded = ctx;
	const size_t room = loaded->size - loaded->len;
	char path[PATH_MAX];
	const char *file;
	int n;

	(void)size;
	if (!info->dlpi_name || !realpath(info->dlpi_name, path))
		return 0;
	file = strrchr(path, '/') + 1;
	if (!is_asked_for(file, loaded->begins))
		return 0;
	n = snprintf(loaded->text + loaded->len, room, "%s%s", loaded->len ? ", " : "", file);
	if (n > 0 && (size_t)n < room)
		loaded->len += (size_t)n;
	loaded->text[loaded->len] = '\0'; /* one that finds no room is left out */
	return 0;
}

void gnv_dl_loaded(const char *const *begins, char *text, size_t size)
{
	struct loaded loaded = { begins, text, size, 0 };

	*text = '\0';
	dl_iterate_phdr(note, &loaded);
}
