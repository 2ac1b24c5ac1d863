/* SPDX-License-Identifier: MIT */
#include "util/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "util/bits.h"
#include "util/clock.h"

#define END_MS 1000u

static _Thread_local struct gnv_message last;

/* ---- Where the remedy begins ---- */

/* Bytes up to the first ". ". */
static size_t before_remedy(const char *text, size_t len)
{
	size_t i = 0;

	while (i < len && !(text[i] == '.' && text[i + 1] == ' '))
		i++;
	return i;
}

/* How much of @line the first @len bytes of its format have become. */
static size_t printed(const char *line, const char *fmt, size_t len, va_list ap)
{
	char part[sizeof(last.text)];
	va_list again;
	int n;

	snprintf(part, sizeof(part), "%.*s", (int)len, fmt);
	va_copy(again, ap);
	n = vsnprintf(NULL, 0, part, again);
	va_end(again);
	return gnv_min(n < 0 ? 0 : (size_t)n, strlen(line));
}

/* Place in the format of the text that it ends with and passes on: "%s" alone, or after ": ". @len: there is none. */
static size_t passed_on(const char *fmt, size_t len)
{
	size_t at = len;

	if (!at || fmt[--at] != 's')
		return len;
	while (at && strchr(".0123456789", fmt[at - 1]))
		at--;
	if (!at || fmt[--at] != '%')
		return len;
	return !at || (at >= 2 && !memcmp(fmt + at - 2, ": ", 2)) ? at : len;
}

/*
 * The remedy begins in the format, since names in arguments may have ". ", too. Or the format passes a text on that has one. Of the
 * thread's message it is known where.
 */
static size_t find_cause(const char *line, const char *fmt, va_list ap)
{
	const size_t head = before_remedy(fmt, strlen(fmt)), end = printed(line, fmt, head, ap);
	const size_t from = printed(line, fmt, passed_on(fmt, head), ap);

	size_t cause;

	if (end - from == strlen(last.text) && !memcmp(line + from, last.text, end - from))
		cause = from + last.cause;
	else
		cause = from + before_remedy(line + from, end - from);
	return strncmp(line + cause, ". ", 2) ? strlen(line) : cause; /* a long message may end before its remedy */
}

size_t gnv_cause_len(const char *text)
{
	return strcmp(text, last.text) ? before_remedy(text, strlen(text)) : last.cause;
}

/* ---- Messages ---- */

int gnv_vfail(int ret, const char *fmt, va_list ap)
{
	struct gnv_message now; /* an argument may be the previous message */
	int saved = errno;
	va_list again;

	va_copy(again, ap);
	vsnprintf(now.text, sizeof(now.text), fmt, again);
	va_end(again);
	now.cause = find_cause(now.text, fmt, ap);
	last = now;
	errno = saved;
	return ret;
}

int gnv_fail(int ret, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	gnv_vfail(ret, fmt, ap);
	va_end(ap);
	return ret;
}

int gnv_fail_again(int ret, const struct gnv_message *kept)
{
	last = *kept;
	return ret;
}

struct gnv_message gnv_message(void)
{
	return last;
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
