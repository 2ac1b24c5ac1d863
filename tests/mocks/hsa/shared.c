/* SPDX-License-Identifier: MIT */
/* With MOCK_ALIAS the library's memory is shared, though with nobody, so that it can be in two places (runtime.h). */
#include <stdlib.h>
#include <sys/mman.h>

void *__real_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset);
void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset);

void *__wrap_mmap(void *at, size_t len, int prot, int flags, int fd, off_t offset)
{
	if (getenv("MOCK_ALIAS") && prot == (PROT_READ | PROT_WRITE) && flags == (MAP_PRIVATE | MAP_ANONYMOUS))
		flags = MAP_SHARED | MAP_ANONYMOUS;
	return __real_mmap(at, len, prot, flags, fd, offset);
}
