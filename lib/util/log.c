/* SPDX-License-Identifier: MIT */
#include "util/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#define LINE_MAX_BYTES 512

static _Thread_local char last_message[LINE_MAX_BYTES];

int gnv_fail(int ret, const char *fmt, ...)
{
	char line[LINE_MAX_BYTES]; /* an argument may be the previous message */
	int saved = errno;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	snprintf(last_message, sizeof(last_message), "%s", line);
	errno = saved;
	return ret;
}

void gnv_log(const struct gnv_log *log, enum gpunvme_log_level level, const char *fmt, ...)
{
	char line[LINE_MAX_BYTES];
	int saved = errno;
	va_list ap;

	if (!log || !log->fn)
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	log->fn(log->ctx, level, line);
	errno = saved;
}

GPUNVME_API const char *gpunvme_errmsg(void)
{
	return last_message;
}
