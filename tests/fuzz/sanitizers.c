/* SPDX-License-Identifier: MIT */
/*
 * What the sanitizers do in fuzz targets. An input frees what it allocates, so what is kept of memory that was freed need not be more
 * than one has: with the usual 256 MiB each allocation is in memory that the caches do not have.
 */
const char *__asan_default_options(void);

const char *__asan_default_options(void)
{
	return "quarantine_size_mb=2:malloc_context_size=8";
}
