/* SPDX-License-Identifier: MIT */
#include "util/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "util/clock.h"

#define END_MS 1000u

static _Thread_local struct gnv_message last;

int gnv_fail(int ret, const char *fmt, ...)
{
	char line[sizeof(last.text)]; /* an argument may be the previous message */
	int saved = errno;
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	memcpy(last.text, line, sizeof(line));
	errno = saved;
	return ret;
}

struct gnv_message gnv_message(void)
{
	return last;
}

size_t gnv_cause_len(const char *text)
{
	size_t len = 0;

	while (text[len] && !(text[len] == '.' && text[len + 1] == ' '))
		len++;
	return len;
}

const char *gnv_plain(const char *name, char text[256])
{
	size_t i;

	for (i = 0; i < 255 && name[i]; i++)
		text[i] = name[i] >= ' ' && name[i] < 127 ? name[i] : '?';
	text[i] = '\0';
	return text;
}

/* Either this call sees the end, or gnv_log_end() sees this call. */
static void call(struct gnv_log *log, enum gpunvme_log_level level, const char *line)
{
	gpunvme_log_fn *fn;

	__atomic_fetch_add(&log->calls, 1, __ATOMIC_SEQ_CST);
	fn = __atomic_load_n(&log->fn, __ATOMIC_SEQ_CST);
	if (fn)
		fn(log->ctx, level, line);
	__atomic_fetch_sub(&log->calls, 1, __ATOMIC_RELEASE);
}

void gnv_log(const struct gnv_log *log, enum gpunvme_log_level level, const char *fmt, ...)
{
	char line[sizeof(last.text)];
	int saved = errno;
	va_list ap;

	if (!log || !__atomic_load_n(&log->fn, __ATOMIC_RELAXED))
		return;
	va_start(ap, fmt);
	vsnprintf(line, sizeof(line), fmt, ap);
	va_end(ap);
	call((struct gnv_log *)(uintptr_t)log, level, line); /* constant for callers, except for the count of calls */
	errno = saved;
}

void gnv_log_end(struct gnv_log *log)
{
	struct gnv_deadline deadline = gnv_deadline_in(END_MS);

	__atomic_store_n(&log->fn, NULL, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&log->calls, __ATOMIC_SEQ_CST) && gnv_deadline_poll_again(&deadline))
		;
}

GPUNVME_API const char *gpunvme_errmsg(void)
{
	return last.text;
}
