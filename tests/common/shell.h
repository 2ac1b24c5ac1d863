/* SPDX-License-Identifier: MIT */
/* Commands of the shell. Needs cmocka.h and what that needs. */
#ifndef TESTS_SHELL_H
#define TESTS_SHELL_H

#include <stdio.h>
#include <stdlib.h>

/* It must succeed. */
__attribute__((format(printf, 1, 2))) static inline void run(const char *format, ...)
{
	char command[2048];
	va_list args;
	int status;

	va_start(args, format);
	vsnprintf(command, sizeof(command), format, args);
	va_end(args);
	status = system(command);
	if (status)
		fail_msg("%s: status 0x%x", command, (unsigned)status);
}

#endif
